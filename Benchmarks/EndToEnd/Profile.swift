import EventLoop
import Sandbox
import TestKit

/// Records the bridge with perf while it takes advertisements at a rate; scripts/bench reads the record.
@EventLoopActor
struct Profile {
    private let options: Options

    init(_ options: Options) {
        self.options = options
    }

    func run() async throws -> Int32 {
        let rig = try await Rig(.advertisements(devices: 200), .blueferry, options)
        do {
            _ = try await rig.start(.blueferry)
            guard let pid = rig.contender?.pid else { return 1 }
            let seconds = options.isQuick ? 5 : 15
            rig.load.order("advertise \(options.rate) \(options.rate * (seconds + 4)) 1")
            try await rig.pause(.seconds(2))
            let before = ProcessFigures.processorTime(pid)
            let perf = try ChildProcess(
                "perf",
                ["record", "-q", "-e", "cpu-clock", "-F", "1999", "-p", String(pid), "-o", options.output]
                    + ["--", "sleep", String(seconds)])
            let exit = try await perf.waitForExit(within: .seconds(seconds + 30))
            let time = Double(ProcessFigures.processorTime(pid) - before) / 1000
            tell("\(options.rate)/s for \(seconds) s: \(rounded(time / Double(options.rate * seconds), 1)) µs each")
            await rig.stop()
            return exit == .code(0) ? 0 : 1
        } catch {
            await rig.stop()
            throw error
        }
    }
}
