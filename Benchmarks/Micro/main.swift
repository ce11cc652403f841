import EventLoop
import Glibc

// The hot paths one by one, without bus, broker and radio.
//
//     MicroBenchmarks              a table: time, allocations and instructions of one operation
//     MicroBenchmarks --count      for callgrind: fewer rounds, and a line of name, rounds and allocations for each
//
// scripts/bench --gate runs the latter and compares it with Benchmarks/thresholds.txt.

let isCounting = CommandLine.arguments.dropFirst().first == "--count"
// As the program does.
EventLoop.takeGlobalJobs()
Task { @EventLoopActor in
    var code: Int32 = 0
    do {
        let runner = Runner(isCounting: isCounting)
        try AdvertisementCases.run(runner)
        try MessageCases.run(runner)
        try ValueCases.run(runner)
    } catch {
        complain("MicroBenchmarks: \(error)")
        code = 1
    }
    EventLoop.shared.stop(exitCode: code)
}
exit(EventLoop.shared.run())
