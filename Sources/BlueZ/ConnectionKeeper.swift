internal import EventLoop
internal import Glibc

/// A process that holds the bus connection open for a moment after ours has died, so that bluetoothd learns of its end in
/// the order that it can bear.
///
/// bluetoothd takes the end of a client's bus connection badly in two cases. Where the client has asked for a notify socket
/// and the peer has not answered yet, it forgets the client and not the socket: the characteristic is then acquired by
/// nobody, over all later links, and whatever would free it (StopNotify, the removal of the device) makes bluetoothd use
/// freed memory. The same happens where it learns of the client's end before it learns that a socket was closed. So the
/// keeper lets the sockets go first: it holds the bus alone, takes off it what comes for the dead process, with the
/// descriptors in it, and leaves when bluetoothd has had the time to answer.
///
/// It is a shell, which is there wherever bluetoothd is, and needs less memory than a second program of ours would.
/// Source: BlueZ up to 5.85, `src/gatt-client.c`, notify_client_disconnect and notify_io_destroy.
@EventLoopActor
final class ConnectionKeeper {
    /// It reads how long to stay, in tenths of a second, whenever that changes, and ends so long after its input did.
    /// Descriptor 3 is the bus; reading it as bytes closes the descriptors that come with them. It never blocks there, as
    /// the socket is libdbus's, which made it so.
    private static let script = """
        trap '' TERM INT HUP
        stay=\(idleStay)
        while read -r line; do stay=$line; done
        while [ "$stay" -gt 0 ]; do cat <&3; sleep 0.1; stay=$((stay - 1)); done >/dev/null 2>&1
        """
    /// Enough for bluetoothd to see sockets close.
    static let idleStay = 3
    /// Enough for a peer to answer, while a call is under way.
    static let busyStay = 30

    /// Those that run and are to be reaped.
    private static var watches: [Int32: ProcessWatch] = [:]

    let process: Int32
    private var input: Int32
    private var calls = 0

    /// Nil where the system starts no shell: then there is no keeper.
    /// - Parameter bus: the socket of the bus.
    init?(bus: Int32) {
        var ends: [Int32] = [-1, -1]
        let kind = Int32(bitPattern: SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, kind, 0, &ends) == 0 else { return nil }
        defer { Glibc.close(ends[1]) }
        input = ends[0]
        // The last word is what the list of processes shows.
        let words = ["sh", "-c", Self.script, "blueferry-keeper"]
        guard bus >= 3,
            let process = try? spawnProcess(
                "/bin/sh", words, environment: ["PATH=/usr/bin:/bin"], descriptors: [ends[1], nil, nil, bus],
                isDetached: true)
        else {
            Glibc.close(input)
            return nil
        }
        self.process = process
        let watch = try? ProcessWatch(process) {
            Self.watches[process] = nil
            waitpid(process, nil, 0)
        }
        guard let watch else {
            kill(process, SIGKILL)
            waitpid(process, nil, 0)
            close()
            return nil
        }
        Self.watches[process] = watch
    }

    deinit {
        if input >= 0 { Glibc.close(input) }
    }

    var isRunning: Bool { Self.watches[process] != nil }

    /// A call has begun that must not lose its caller.
    func begin() {
        calls += 1
        if calls == 1 { tell(Self.busyStay) }
    }

    func end() {
        calls -= 1
        if calls == 0 { tell(Self.idleStay) }
    }

    /// The connection is closed, or lost: the keeper stays as long as after a death, and goes.
    func close() {
        if input >= 0 { Glibc.close(input) }
        input = -1
    }

    private func tell(_ stay: Int) {
        guard input >= 0 else { return }
        var line = "\(stay)\n"
        line.withUTF8 { _ = send(input, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT)) }
    }
}
