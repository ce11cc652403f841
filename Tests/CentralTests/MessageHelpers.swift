import DBus
import EventLoop
import Glibc

extension DBusMessage {
    func reply(bytes: [UInt8]) -> DBusMessage {
        let reply = reply()
        var writer = reply.writer()
        writer.append(bytes: bytes)
        return reply
    }

    /// The reply of AcquireNotify: a socket and the MTU.
    func reply(descriptor: Int32) -> DBusMessage {
        let reply = reply()
        var writer = reply.writer()
        writer.append(descriptor: descriptor)
        writer.append(uint16: 247)
        return reply
    }
}

/// The two ends of a notification socket: ours, and the one to give away.
@EventLoopActor
final class SocketPair {
    private(set) var ours: Int32 = -1
    private(set) var theirs: Int32 = -1

    init() {
        var ends: [Int32] = [-1, -1]
        _ = socketpair(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue) | Int32(SOCK_NONBLOCK.rawValue), 0, &ends)
        ours = ends[0]
        theirs = ends[1]
        // A message holds a copy of the descriptor; ours of it has to go for the end to be seen.
        let given = theirs
        _ = EventLoop.shared.schedule(at: .now) { Glibc.close(given) }
    }

    func send(_ bytes: [UInt8]) { _ = Glibc.send(ours, bytes, bytes.count, Int32(MSG_NOSIGNAL)) }
    func close() { Glibc.close(ours) }

    var isHungUp: Bool {
        var request = pollfd(fd: ours, events: 0, revents: 0)
        return poll(&request, 1, 0) > 0
    }
}
