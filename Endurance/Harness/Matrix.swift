public import EventLoop
internal import Glibc
internal import TestKit

/// The program's commands. Each gives an exit code: 0 where everything held, 1 where not.
@EventLoopActor
public enum Endurance {
    /// The fault matrix.
    /// - Parameters:
    ///   - names: the rows; none: all that are not long.
    ///   - smoke: only those that show most for their time.
    ///   - long: the long ones too.
    ///   - peers: how many of the twenty take part; nil: all.
    public static func faults(_ names: [String], smoke: Bool, long: Bool, peers: Int? = nil) async -> Int32 {
        Stage.peers = min(max(1, peers ?? Stage.mostPeers), Stage.mostPeers)
        let unknown = names.filter { name in !FaultCase.all.contains { $0.name == name } }
        guard unknown.isEmpty else {
            say("there is no row \(unknown.joined(separator: ", ")); there is:")
            for row in FaultCase.all { say("  \(row.name)  \(row.title)") }
            return 64
        }
        let cases = FaultCase.all.filter { row in
            if !names.isEmpty { return names.contains(row.name) }
            return smoke ? row.isSmoke : long || !row.isLong
        }
        var rows: [RowResult] = []
        for (index, faultCase) in cases.enumerated() {
            say("\(index + 1)/\(cases.count) \(faultCase.name): \(faultCase.title)")
            let row = await RowRunner.run(faultCase) { say($0) }
            rows.append(row)
            for line in Table.lines([row]) { say("    \(line)") }
            for note in Table.notes([row]) { say("    \(note)") }
        }
        let place = Stage.isLab ? "the lab, with real BlueZ" : "the simulator"
        print("\nFaults on \(place): \(Stage.peers) peers, \(Stage.peers * 25) values/s\n")
        for line in Table.lines(rows) { print(line) }
        print("")
        for note in Table.notes(rows) { print(note) }
        let failed = rows.filter { !$0.isGreen && $0.skipped == nil }
        print("\(rows.count { $0.isGreen }) of \(rows.count) rows ok")
        return failed.isEmpty && rows.contains { $0.isGreen } ? 0 : 1
    }

    /// Progress, which is no part of the result.
    nonisolated static func say(_ text: String) {
        let bytes = Array((text + "\n").utf8)
        _ = write(STDERR_FILENO, bytes, bytes.count)
    }
}
