internal import Bridge
internal import EventLoop
internal import Glibc

// What a peer closes is an error of a write, not the end of the process.
signal(SIGPIPE, SIG_IGN)
ProcessMemory.configure()
// What the dynamic linker read is not read again.
ProcessMemory.releaseCode()
EventLoop.takeGlobalJobs()
let code = Main.run(Array(CommandLine.arguments.dropFirst()))
// exit(3) would take OpenSSL's locks apart under a worker that is just reaching the broker.
fflush(nil)
_exit(code)

/// From the command line to the exit code.
enum Main {
    static func run(_ words: [String]) -> Int32 {
        guard let name = words.first else {
            writeToStandardError(Command.usage)
            return ExitCode.usage
        }
        if ["help", "--help", "-h"].contains(name) {
            print(Command.usage, terminator: "")
            return ExitCode.fine
        }
        guard let command = Command(rawValue: name == "--version" ? "version" : name) else {
            writeToStandardError("blueferry: there is no command '\(name)'\n\(Command.usage)")
            return ExitCode.usage
        }
        // Whatever else stands there: who asks for help gets it.
        if words.dropFirst().contains(where: { $0 == "--help" || $0 == "-h" }) {
            print(command.usage, terminator: "")
            return ExitCode.fine
        }
        do {
            let arguments = try Arguments(Array(words.dropFirst()), options: command.options)
            return try start(command, arguments)
        } catch let error as Arguments.UsageError {
            writeToStandardError("blueferry \(command.rawValue): \(error.message)\n\(command.usage)")
            return ExitCode.usage
        } catch let ending as Ending {
            writeToStandardError("blueferry: \(ending.message)\n")
            return ending.code
        } catch {
            writeToStandardError("blueferry: \(error)\n")
            return ExitCode.fault
        }
    }

    private static func start(_ command: Command, _ arguments: Arguments) throws -> Int32 {
        // Before any thread starts, so that all of them leave the signals to the loop.
        if command.endsBySignal { SignalSource.block([SIGTERM, SIGINT]) }
        switch command {
        case .version:
            print("blueferry \(version)")
            return ExitCode.fine
        case .run: return try RunCommand.start(arguments)
        case .demo: return try DemoCommand.start(arguments)
        case .scan: return try ScanCommandLine.start(arguments)
        case .simulate: return try SimulateCommand.start(arguments)
        case .check: return try CheckCommand.start(arguments)
        }
    }
}

/// Runs `body` on the loop, on this thread, until it gives an exit code.
func runLoop(_ body: @escaping @EventLoopActor () async throws -> Int32) -> Int32 {
    Task { @EventLoopActor in
        var code = ExitCode.fault
        do {
            code = try await body()
        } catch let ending as Ending {
            writeToStandardError("blueferry: \(ending.message)\n")
            code = ending.code
        } catch {
            writeToStandardError("blueferry: \(error)\n")
        }
        EventLoop.shared.stop(exitCode: code)
    }
    return EventLoop.shared.run()
}

/// Ends the wait of a command: a signal, a time that is over, or something that is missing.
@EventLoopActor
final class Finish {
    private let pending = Pending<Int32>()
    private var signals: SignalSource?
    private var message: String?

    /// Also ends by SIGTERM and SIGINT; a second one ends the process at once.
    init() throws {
        signals = try SignalSource([SIGTERM, SIGINT]) { [pending] _ in
            if pending.isFinished { _exit(ExitCode.fine) }
            pending.succeed(ExitCode.fine)
        }
    }

    func end(_ code: Int32, _ message: String? = nil) {
        if let message { writeToStandardError("blueferry: \(message)\n") }
        pending.succeed(code)
    }

    func end(after seconds: Int) {
        SystemClock.shared.schedule(after: .seconds(seconds)) { [pending] in pending.succeed(ExitCode.fine) }
    }

    func wait() async -> Int32 {
        (try? await pending.value()) ?? ExitCode.fault
    }

    /// Whatever hangs, the process ends: 5 s after a signal at the latest.
    func endAnyway(_ code: Int32) {
        SystemClock.shared.schedule(after: .milliseconds(4700)) { _exit(code) }
    }
}
