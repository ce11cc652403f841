internal import Bridge
internal import EventLoop
internal import Glibc
internal import Sandbox

/// `blueferry check`.
enum CheckCommand {
    static func start(_ arguments: Arguments) throws -> Int32 {
        let settings = try RunCommand.load(arguments)
        print("ok       the settings are valid")
        for warning in RunCommand.variableWarnings(ChildProcess.ownEnvironment()) { print("hint     \(warning)") }
        let bus = arguments.value("--bus")
        return runLoop {
            let isFine = await Checkup(settings, busAddress: bus).run { finding in
                let word = finding.verdict.rawValue
                print("\(word)\(String(repeating: " ", count: max(1, 9 - word.count)))\(finding.text)")
                fflush(nil)
            }
            return isFine ? ExitCode.fine : ExitCode.unavailable
        }
    }
}
