public import EventLoop
internal import Glibc

/// A program that runs beside us and ends with us: where this process dies, the kernel ends the child.
@EventLoopActor
public final class ChildProcess {
    /// Where an output of the child goes.
    public enum Output {
        /// To ours.
        case inherit
        case discard
        /// Appended to a file.
        case file(String)
        /// To a handler, line by line, without the line feed; bytes that are not UTF-8 are replaced.
        case lines(@EventLoopActor (String) -> Void)
    }

    /// How a process ended.
    public enum Exit: Hashable, Sendable, CustomStringConvertible {
        case code(Int32)
        case signal(Int32)

        /// From the status of `waitpid(2)`.
        init(status: Int32) {
            let signal = status & 0x7f
            self = signal == 0 ? .code((status >> 8) & 0xff) : .signal(signal)
        }

        public var description: String {
            switch self {
            case .code(let code): "exit code \(code)"
            case .signal(let signal): "signal \(signal)"
            }
        }
    }

    public nonisolated let name: String
    public nonisolated let pid: Int32
    /// Nil while the process runs.
    public private(set) var exit: Exit?
    public var isRunning: Bool { exit == nil }
    /// Called once, when the process has ended and its outputs were read to their ends.
    public var onExit: (@EventLoopActor (Exit) -> Void)?

    private var watch: ProcessWatch?
    private var readers: [LineReader] = []
    private var waiters: [UInt64: Pending<Exit>] = [:]
    private var waiterCount: UInt64 = 0
    private var input: Int32

    /// Starts a program. Source: `posix_spawn(3)`, and `PR_SET_PDEATHSIG` by way of `setpriv(1)` where that is there.
    /// - Parameters:
    ///   - program: a path, or a name that is looked for in `PATH` and the system directories.
    ///   - environment: the whole environment of the child; ours where nil.
    ///   - hasInput: true for a standard input that ``write(_:)`` writes to; otherwise it is empty.
    /// - Throws: ``SandboxError`` where the program is not installed or the system refuses.
    public init(
        _ program: String, _ arguments: [String] = [], environment: [String: String]? = nil, hasInput: Bool = false,
        output: Output = .discard, errors: Output = .inherit
    ) throws(SandboxError) {
        guard let path = Self.find(program) else {
            throw SandboxError(.notInstalled, "\(program) is not installed, or not in PATH")
        }
        // Who starts the child is this thread, and it lives as long as the process does.
        var command = [path] + arguments
        if let setpriv = Self.find("setpriv") { command = [setpriv, "--pdeathsig", "TERM", "--"] + command }
        var plan = try SpawnPlan(hasInput: hasInput, output: output, errors: errors)
        defer { plan.closeChildSide() }
        do throws(SandboxError) {
            pid = try plan.spawn(command, environment: environment ?? Self.ownEnvironment())
        } catch {
            plan.closeOurSide()
            throw error
        }
        name = program
        input = plan.input
        for (descriptor, handler) in plan.lines {
            readers.append(LineReader(descriptor, handler) { [weak self] in self?.finishIfDone() })
        }
        do throws(LoopError) {
            watch = try ProcessWatch(pid) { self.reap() }
        } catch {
            Glibc.kill(pid, SIGKILL)
            reap()
            throw SandboxError(.system, "\(program) cannot be watched: \(error)")
        }
    }

    /// Looks for a program in `PATH` and then where system programs live, which an ordinary user's `PATH` may lack.
    public nonisolated static func find(_ program: String) -> String? {
        if program.contains("/") { return access(program, X_OK) == 0 ? program : nil }
        let path = getenv("PATH").map { String(cString: $0) } ?? ""
        for directory in path.split(separator: ":") + ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"] {
            let candidate = "\(directory)/\(program)"
            if access(candidate, X_OK) == 0 { return candidate }
        }
        return nil
    }

    /// The environment of this process, to be added to for a child.
    public nonisolated static func ownEnvironment() -> [String: String] {
        var result: [String: String] = [:]
        var entry = environ
        while let text = entry.pointee {
            let parts = String(cString: text).split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            if parts.count == 2 { result[String(parts[0])] = String(parts[1]) }
            entry += 1
        }
        return result
    }

    // MARK: Input

    /// Writes to the standard input. False where the child has closed it, or does not take it all.
    @discardableResult
    public func write(_ text: String) -> Bool {
        guard input >= 0 else { return false }
        var text = text
        let flags = Int32(MSG_NOSIGNAL | MSG_DONTWAIT)
        return text.withUTF8 { Glibc.send(input, $0.baseAddress, $0.count, flags) == $0.count }
    }

    /// Ends the standard input.
    public func closeInput() {
        if input >= 0 { close(input) }
        input = -1
    }

    // MARK: Ending

    /// Sends a signal, while the process runs. Source: `kill(2)`.
    public func send(signal: Int32) {
        if exit == nil { Glibc.kill(pid, signal) }
    }

    public func terminate() { send(signal: SIGTERM) }
    public func kill() { send(signal: SIGKILL) }

    /// Waits until the process has ended and its outputs were read.
    /// - Throws: ``SandboxError`` with `stillRuns` after `timeout`; the process then runs on.
    @discardableResult
    public func waitForExit(within timeout: Duration) async throws(SandboxError) -> Exit {
        if let exit, readers.allSatisfy(\.isDone) { return exit }
        let pending = Pending<Exit>()
        waiterCount &+= 1
        let key = waiterCount
        waiters[key] = pending
        do {
            return try await pending.value(timeout: timeout)
        } catch {
            waiters[key] = nil
            throw SandboxError(.stillRuns, "\(name) (process \(pid)) still runs after \(timeout)")
        }
    }

    /// Ends the process: SIGTERM, and SIGKILL where it is still there after `grace`. Gives back how it ended.
    @discardableResult
    public func stop(grace: Duration = .seconds(5)) async -> Exit {
        send(signal: SIGCONT)  // a stopped process hears no SIGTERM
        terminate()
        if let exit = try? await waitForExit(within: grace) { return exit }
        kill()
        // A killed process ends; only its outputs may be held open by others.
        return (try? await waitForExit(within: .seconds(5))) ?? exit ?? .signal(SIGKILL)
    }

    private func reap() {
        guard exit == nil else { return }
        var status: Int32 = 0
        while waitpid(pid, &status, 0) < 0, errno == EINTR {}
        exit = Exit(status: status)
        watch?.cancel()
        watch = nil
        closeInput()
        finishIfDone()
    }

    private func finishIfDone() {
        guard let exit, readers.allSatisfy(\.isDone) else { return }
        let waiting = waiters.sorted { $0.key < $1.key }
        waiters = [:]
        for (_, waiter) in waiting { waiter.succeed(exit) }
        let handler = onExit
        onExit = nil
        handler?(exit)
    }
}
