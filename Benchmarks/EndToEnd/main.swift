import EventLoop
import Glibc

// The bench from end to end: a load, a bus, a broker and a probe around the bridge and around the floor. scripts/bench
// builds everything and runs it.

signal(SIGPIPE, SIG_IGN)
let options: Options
do {
    options = try Options(Array(CommandLine.arguments.dropFirst()))
} catch {
    complain("bench: \(error)")
    exit(64)
}

Task { @EventLoopActor in
    var code: Int32 = 1
    do {
        switch options.mode {
        case .compare: code = try await Comparison(options).run()
        case .scale: code = try await Scale(options).run()
        case .profile: code = try await Profile(options).run()
        }
    } catch {
        complain("bench: \(error)")
    }
    EventLoop.shared.stop(exitCode: code)
}
exit(EventLoop.shared.run())
