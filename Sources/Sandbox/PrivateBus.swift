public import EventLoop
internal import Glibc

/// A dbus-daemon of our own on a unix socket that only we can reach: where anyone on it may own and send anything, and
/// the limits are those of the system bus.
@EventLoopActor
public final class PrivateBus {
    /// The address that clients connect to; it stays the same when the daemon is stopped and started again.
    public nonisolated let address: String
    /// The daemon, while it runs.
    public private(set) var daemon: ChildProcess?

    private let directory: TemporaryDirectory
    private let configuration: String

    /// Starts a daemon and waits until it listens.
    /// - Throws: ``SandboxError`` where dbus-daemon is not installed, or does not start within 10 s.
    public static func start() async throws(SandboxError) -> PrivateBus {
        let bus = try PrivateBus()
        try await bus.startDaemon()
        return bus
    }

    private init() throws(SandboxError) {
        directory = try TemporaryDirectory(prefix: "blueferry-bus")
        let socket = directory.file("bus")
        // sun_path of unix(7)
        guard socket.utf8.count < 108 else {
            throw SandboxError(.system, "\(directory.path) is too long for a socket; set TMPDIR to a shorter path")
        }
        address = "unix:path=" + Self.escape(socket)
        configuration = try directory.write(Self.configuration(address), to: "bus.conf")
    }

    /// Starts the daemon where it does not run, and waits until it listens.
    public func startDaemon() async throws(SandboxError) {
        if let daemon, daemon.isRunning { return }
        unlink(directory.file("bus"))
        let readiness = Readiness("dbus-daemon")
        let process = try ChildProcess(
            "dbus-daemon", ["--config-file=\(configuration)", "--nofork", "--nopidfile", "--print-address=1"],
            output: .lines { line in if line.hasPrefix("unix:") { readiness.isReady() } },
            errors: .lines { readiness.note($0) })
        try await readiness.wait(for: process, within: .seconds(10))
        daemon = process
    }

    /// Ends the daemon, as a service manager does.
    public func stopDaemon() async {
        await daemon?.stop()
        daemon = nil
    }

    /// Ends the daemon without warning.
    public func killDaemon() async {
        daemon?.kill()
        _ = try? await daemon?.waitForExit(within: .seconds(5))
        daemon = nil
    }

    /// Ends the daemon and removes its files.
    public func stop() async {
        await stopDaemon()
        directory.remove()
    }

    /// Escapes a value of a server address. Source: D-Bus specification, Server Addresses.
    private nonisolated static func escape(_ text: String) -> String {
        text.utf8.map { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "/"),
                UInt8(ascii: "."):
                String(UnicodeScalar(byte))
            default: "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16)
            }
        }.joined()
    }

    private nonisolated static func configuration(_ address: String) -> String {
        """
        <!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
          "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
        <busconfig>
          <listen>\(address)</listen>
          <auth>EXTERNAL</auth>
          <policy context="default">
            <allow user="*"/>
            <allow own="*"/>
            <allow send_destination="*" eavesdrop="true"/>
            <allow receive_sender="*" eavesdrop="true"/>
          </policy>
          <limit name="max_replies_per_connection">128</limit>
        </busconfig>
        """
    }
}

/// Whether a program that was started is ready, and what it said before.
@EventLoopActor
final class Readiness {
    private let name: String
    private let pending = Pending<Void>()
    private var notes: [String] = []

    init(_ name: String) { self.name = name }

    func isReady() { pending.succeed(()) }

    /// Keeps the last lines, for the error message.
    func note(_ line: String) {
        notes.append(line)
        if notes.count > 5 { notes.removeFirst() }
    }

    /// Waits for readiness; where it does not come, the program is ended and what it said is told.
    func wait(for process: ChildProcess, within timeout: Duration) async throws(SandboxError) {
        process.onExit = { [pending, name] exit in
            pending.fail(SandboxError(.notReady, "\(name) ended at its start with \(exit)"))
        }
        do {
            try await pending.value(timeout: timeout)
            process.onExit = nil
        } catch {
            process.kill()
            _ = try? await process.waitForExit(within: .seconds(5))
            let said = notes.isEmpty ? "" : "; it said: " + notes.joined(separator: " / ")
            throw SandboxError(.notReady, "\(name) is not ready: \(error)\(said)")
        }
    }
}
