internal import EnduranceKit
internal import EventLoop
internal import Glibc

signal(SIGPIPE, SIG_IGN)

let usage = """
    usage: endurance faults [--smoke | --long] [--peers 1...20] [ROW...]   the fault matrix, or some of its rows
           endurance soak [MINUTES] [--seed NUMBER]       a long run, 10 minutes unless said
    Run them by scripts/faults and scripts/soak, which build what they need; docs/reliability.md explains the tables.

    """

func misuse() -> Int32 {
    print(usage, terminator: "")
    return 64
}

/// From the words of the command line to the exit code.
@EventLoopActor
func start(_ words: [String]) async -> Int32 {
    let rest = Array(words.dropFirst())
    switch words.first {
    case "faults":
        var names = rest.filter { !$0.hasPrefix("-") }
        let switches = rest.filter { $0.hasPrefix("-") }
        var peers: Int?
        if let index = rest.firstIndex(of: "--peers") {
            guard index + 1 < rest.count, let number = Int(rest[index + 1]), (1...20).contains(number) else {
                return misuse()
            }
            peers = number
            names.removeAll { $0 == rest[index + 1] }
        }
        guard switches.allSatisfy({ ["--smoke", "--long", "--peers"].contains($0) }) else { return misuse() }
        return await Endurance.faults(
            names, smoke: switches.contains("--smoke"), long: switches.contains("--long"), peers: peers)
    case "soak":
        var minutes = 10.0
        var seed = UInt64.random(in: 0..<1_000_000)
        var index = 0
        while index < rest.count {
            if rest[index] == "--seed", index + 1 < rest.count, let given = UInt64(rest[index + 1]) {
                seed = given
                index += 1
            } else if let given = Double(rest[index]), given > 0, given <= 100_000 {
                minutes = given
            } else {
                return misuse()
            }
            index += 1
        }
        return await Endurance.soak(minutes: minutes, seed: seed)
    default:
        return misuse()
    }
}

Task { @EventLoopActor in
    EventLoop.shared.stop(exitCode: await start(Array(CommandLine.arguments.dropFirst())))
}
exit(EventLoop.shared.run())
