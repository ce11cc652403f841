internal import Bluetooth
internal import Dispatch
internal import EventLoop
internal import Foundation
internal import Glibc

/// A socket of an L2CAP channel, shared by the two streams of it; closed with the last of them.
///
/// `@unchecked Sendable`: the descriptor never changes, and read(2), write(2) and shutdown(2) may be called from any
/// thread; the flag is behind a lock.
final class ChannelSocket: @unchecked Sendable {
    let descriptor: Int32
    private let halvesOpen = Locked((input: true, output: true))

    init(_ descriptor: Int32) {
        self.descriptor = descriptor
        let flags = fcntl(descriptor, F_GETFL)
        _ = fcntl(descriptor, F_SETFL, flags | O_NONBLOCK)
    }

    deinit { Glibc.close(descriptor) }

    /// One of the streams has closed: with both, the peer is told.
    func close(input: Bool) {
        let isLast = halvesOpen.withLock { halves in
            if input { halves.input = false } else { halves.output = false }
            return !halves.input && !halves.output
        }
        if isLast { shutdown(descriptor, Int32(SHUT_RDWR)) }
    }

    /// Waits until the socket has bytes or room; false where it cannot wait.
    func wait(for events: Int32) -> Bool {
        var entry = pollfd(fd: descriptor, events: Int16(truncatingIfNeeded: events), revents: 0)
        while true {
            let count = poll(&entry, 1, -1)
            if count >= 0 { return true }
            if errno != EINTR { return false }
        }
    }

    func isReady(for events: Int32) -> Bool {
        var entry = pollfd(fd: descriptor, events: Int16(truncatingIfNeeded: events), revents: 0)
        return poll(&entry, 1, 0) > 0
    }

    /// Opens a connection-oriented channel over LE. Source: `l2cap(7)` of BlueZ, `struct sockaddr_l2`.
    @EventLoopActor
    static func connect(to key: DeviceKey, psm: UInt16, timeout: Duration = .seconds(30)) async throws -> Int32 {
        let bluetooth: Int32 = 31  // AF_BLUETOOTH
        let type = Int32(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue)
        let descriptor = socket(bluetooth, type, 0)  // BTPROTO_L2CAP
        guard descriptor >= 0 else { throw failure("socket") }
        do {
            // An LE address on this side says that the channel is one of LE.
            try call("bind", descriptor, address(psm: 0, bytes: [UInt8](repeating: 0, count: 6), type: 1)) {
                Glibc.bind($0, $1, $2)
            }
            let peer = address(
                psm: psm, bytes: key.address.bytes.reversed(), type: key.type == .random ? 2 : 1)
            let isPending = try call("connect", descriptor, peer) { Glibc.connect($0, $1, $2) }
            if isPending { try await finishConnect(descriptor, timeout) }
            return descriptor
        } catch {
            Glibc.close(descriptor)
            throw error
        }
    }

    @EventLoopActor
    private static func finishConnect(_ descriptor: Int32, _ timeout: Duration) async throws {
        let writable = Pending<Void>()
        let registration = try EventLoop.shared.register(descriptor, .write) { _ in writable.succeed(()) }
        defer { registration.cancel() }
        do {
            try await writable.value(timeout: timeout)
        } catch {
            throw RadioFailure(kind: .timeout, message: "The peripheral did not open the channel in time.")
        }
        var error: Int32 = 0
        var length = socklen_t(MemoryLayout<Int32>.size)
        getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &length)
        if error != 0 { throw failure("connect", error) }
    }

    /// The bytes of `struct sockaddr_l2`: family, PSM, address (least significant first), channel, address type.
    static func address(psm: UInt16, bytes: [UInt8], type: UInt8) -> [UInt8] {
        let little = [UInt8(truncatingIfNeeded: psm), UInt8(truncatingIfNeeded: psm >> 8)]
        return [31, 0] + little + bytes + [0, 0, type, 0]
    }

    /// True where the call goes on in the background.
    @discardableResult
    private static func call(
        _ name: String, _ descriptor: Int32, _ address: [UInt8],
        _ body: (Int32, UnsafePointer<sockaddr>, socklen_t) -> Int32
    ) throws -> Bool {
        // sockaddr has room for 16 bytes, and sockaddr_l2 takes 14.
        var storage = sockaddr()
        withUnsafeMutableBytes(of: &storage) { $0.copyBytes(from: address.prefix($0.count)) }
        let result = body(descriptor, &storage, socklen_t(address.count))
        if result == 0 { return false }
        if errno == EINPROGRESS { return true }
        throw failure(name)
    }

    private static func failure(_ call: String, _ number: Int32 = errno) -> RadioFailure {
        let text = "L2CAP \(call): \(String(cString: strerror(number)))"
        switch number {
        case EAFNOSUPPORT, EPROTONOSUPPORT, EOPNOTSUPP: return RadioFailure(kind: .notSupported, message: text)
        default: return RadioFailure(kind: .connectionFailed, message: text)
        }
    }
}
