internal import Bridge
internal import Configuration
internal import EventLoop
internal import Sandbox

let version = "0.1.0"

/// `blueferry run`.
enum RunCommand {
    static func start(_ arguments: Arguments) throws -> Int32 {
        let settings = try load(arguments)
        ProcessMemory.releaseCode()
        let bus = arguments.value("--bus")
        return runLoop {
            let finish = try Finish()
            return await run(settings, bus: bus, finish: finish) { program in
                ServiceManager.notify("READY=1")
                _ = program
            }
        }
    }

    /// The settings of the file, the environment and the arguments.
    static func load(_ arguments: Arguments) throws -> Settings {
        let overrides = try arguments.overrides()
        do {
            return try Settings.load(
                path: arguments.value("--config"), environment: ChildProcess.ownEnvironment(), overrides: overrides)
        } catch {
            throw Ending(code: ExitCode.configuration, message: "\(error)")
        }
    }

    /// A sentence for each variable that looks like a setting and is none: most likely it is misspelt. Pure.
    static func variableWarnings(_ environment: [String: String]) -> [String] {
        Settings.unknownVariables(in: environment).map { name, nearest in
            "the environment variable \(name) is no setting and is ignored"
                + (nearest.map { "; did you mean \($0)?" } ?? "")
        }
    }

    @EventLoopActor
    static func logger(_ settings: Settings) -> LineLogger {
        let level: LogLevel =
            switch settings.logging.level {
            case .debug: .debug
            case .info: .info
            case .warning: .warning
            case .error: .error
            }
        return LineLogger(level: level, isJSON: settings.logging.format == .json)
    }

    /// Runs the bridge until `finish` ends it.
    @EventLoopActor
    static func run(
        _ settings: Settings, bus: String?, finish: Finish, started: @EventLoopActor (BridgeProgram) -> Void
    ) async -> Int32 {
        let logger = logger(settings)
        for warning in variableWarnings(ChildProcess.ownEnvironment()) { logger.write(.warning, "settings", warning) }
        let program = await BridgeProgram.open(settings, version: version, busAddress: bus, log: logger.sink)
        ProcessMemory.releaseCode()
        program.bridge.onMissingAdapter = { finish.end(ExitCode.unavailable, $0) }
        logger.write(.info, "start", "blueferry \(version), broker \(program.endpoint), client id \(program.clientID)")
        program.bridge.start()
        ProcessMemory.releaseCode()
        started(program)
        // The start needs much that is not needed later, and the list of the devices is a large message: before it comes,
        // and after it.
        for pause in [30, 100, 300, 1_000, 10_000] {
            SystemClock.shared.schedule(after: .milliseconds(pause)) {
                ProcessMemory.returnFreed()
                ProcessMemory.releaseCode()
            }
        }
        let code = await finish.wait()
        ServiceManager.notify("STOPPING=1")
        finish.endAnyway(code)
        await program.bridge.stop()
        logger.write(.info, "stop", "stopped")
        return code
    }
}
