public import EventLoop
internal import Glibc

/// A mosquitto of our own on a free port of 127.0.0.1.
@EventLoopActor
public final class PrivateBroker {
    /// The port; it stays the same when the broker is stopped and started again.
    public private(set) var port: UInt16 = 0
    public var url: String { "mqtt://127.0.0.1:\(port)" }
    /// The program, while it runs.
    public private(set) var process: ChildProcess?
    /// Each line that the broker logs.
    public var onLog: (@EventLoopActor (String) -> Void)?
    /// Where files that the configuration names can be put.
    public let directory: TemporaryDirectory

    /// Changes hold from the next start of the broker on.
    public var options: Options

    /// What differs from a broker that lets everyone in and keeps nothing.
    public struct Options: Sendable {
        /// Whether what was retained and what waits outlives a stop; after a kill it is what it was at the start.
        public var isPersistent = false
        /// What is logged, by mosquitto's `log_type`.
        public var logs = ["all"]
        /// Lines that replace the plain listener and `allow_anonymous true`; `{port}` and `{directory}` are filled in.
        public var listener = ["listener {port} 127.0.0.1", "allow_anonymous true"]
        /// More lines, after the listener's.
        public var lines: [String] = []
        /// Files to put in the directory, by name.
        public var files: [String: String] = [:]

        public nonisolated init() {}
    }

    /// Starts a broker and waits until it listens.
    /// - Throws: ``SandboxError`` where mosquitto is not installed, or does not start within 10 s.
    public static func start(_ options: Options = Options()) async throws(SandboxError) -> PrivateBroker {
        let broker = try PrivateBroker(options)
        // A port that was free when asked for may be taken when mosquitto binds it.
        for attempt in 1... {
            broker.port = try Self.freePort()
            do throws(SandboxError) {
                try await broker.startBroker()
                break
            } catch {
                if attempt == 5 || strstr(error.message, "in use") == nil { throw error }
            }
        }
        return broker
    }

    private init(_ options: Options) throws(SandboxError) {
        directory = try TemporaryDirectory(prefix: "blueferry-broker")
        self.options = options
        for (name, text) in options.files { try directory.write(text, to: name) }
    }

    /// Starts the broker where it does not run, and waits until it listens.
    public func startBroker() async throws(SandboxError) {
        if let process, process.isRunning { return }
        // Under root mosquitto would become another user, who cannot read the directory.
        let user = getuid() == 0 ? ["user root"] : []
        let storage =
            options.isPersistent
            ? ["persistence true", "persistence_location {directory}/", "autosave_interval 0"] : ["persistence false"]
        let fixed =
            storage + ["log_dest stderr", "connection_messages true"] + options.logs.map { "log_type \($0)" }
        let text = (user + fixed + options.listener + options.lines)
            .map { Self.fill(Self.fill($0, "{port}", String(port)), "{directory}", directory.path) }
            .joined(separator: "\n")
        let file = try directory.write(text + "\n", to: "mosquitto.conf")
        let readiness = Readiness("mosquitto")
        let started = try ChildProcess(
            "mosquitto", ["-c", file],
            errors: .lines { [weak self] line in
                readiness.note(line)
                if line.hasSuffix(" running") { readiness.isReady() }
                self?.onLog?(line)
            })
        try await readiness.wait(for: started, within: .seconds(10))
        process = started
    }

    /// Ends the broker, as a service manager does.
    public func stopBroker() async {
        // mosquitto forgets a SIGTERM that comes between its log line "running" and its first turn: it is sent again.
        for _ in 0..<10 {
            process?.terminate()
            if (try? await process?.waitForExit(within: .milliseconds(200))) != nil { break }
        }
        await process?.stop()
        process = nil
    }

    /// Ends the broker without warning.
    public func killBroker() async {
        process?.kill()
        _ = try? await process?.waitForExit(within: .seconds(5))
        process = nil
    }

    /// Stops the broker's time: it keeps its connections and answers nothing.
    public func freeze() { process?.send(signal: SIGSTOP) }
    public func thaw() { process?.send(signal: SIGCONT) }

    /// Ends the broker and removes its files.
    public func stop() async {
        await stopBroker()
        directory.remove()
    }

    /// A TCP port of 127.0.0.1 that is free now.
    /// - Throws: ``SandboxError`` where the system refuses.
    public nonisolated static func freePort() throws(SandboxError) -> UInt16 {
        let descriptor = socket(AF_INET, Int32(bitPattern: SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw SandboxError(.system, "socket: \(String(cString: strerror(errno)))") }
        defer { close(descriptor) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let status = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { generic in
                bind(descriptor, generic, length) == 0 && getsockname(descriptor, generic, &length) == 0
            }
        }
        guard status else { throw SandboxError(.system, "bind: \(String(cString: strerror(errno)))") }
        return UInt16(bigEndian: address.sin_port)
    }

    private nonisolated static func fill(_ text: String, _ mark: String, _ value: String) -> String {
        var result = ""
        var rest = Substring(text)
        while !rest.isEmpty {
            if rest.hasPrefix(mark) {
                result += value
                rest = rest.dropFirst(mark.count)
            } else {
                result.append(rest.removeFirst())
            }
        }
        return result
    }
}
