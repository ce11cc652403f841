internal import EventLoop
internal import Sandbox
internal import TestKit

/// What the bridge used at one moment of a soak.
public struct SoakSample: Sendable {
    /// Seconds since the start.
    public var at: Double
    public var memory: Int
    public var files: Int

    public init(at: Double, memory: Int, files: Int) {
        (self.at, self.memory, self.files) = (at, memory, files)
    }
}

/// Whether memory and descriptors stayed level after the first fifth. Pure.
public struct Levelness: Equatable, Sendable {
    /// Medians: of the second fifth of the time, and of the last.
    public var memoryEarly = 0
    public var memoryLate = 0
    public var filesEarly = 0
    public var filesLate = 0
    public var isLevel = false

    /// What the allocator may keep of a busy moment.
    static let memoryTolerance = 3 << 20
    static let filesTolerance = 3

    public init(_ samples: [SoakSample]) {
        guard let end = samples.last?.at else { return }
        let early = samples.filter { $0.at >= end / 5 && $0.at < end * 2 / 5 }
        let late = samples.filter { $0.at >= end * 4 / 5 }
        guard !early.isEmpty, !late.isEmpty else { return }
        memoryEarly = Self.median(early.map(\.memory))
        memoryLate = Self.median(late.map(\.memory))
        filesEarly = Self.median(early.map(\.files))
        filesLate = Self.median(late.map(\.files))
        isLevel =
            memoryLate <= memoryEarly + Self.memoryTolerance && filesLate <= filesEarly + Self.filesTolerance
    }

    private static func median(_ values: [Int]) -> Int { values.sorted()[values.count / 2] }
}

/// A generator whose course the seed fixes, so that a soak can be had again. Source: SplitMix64.
struct SeededRandom: RandomNumberGenerator {
    private var state: UInt64

    init(seed: UInt64) { state = seed }

    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xbf58_476d_1ce4_e5b9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94d0_49bb_1331_11eb
        return mixed ^ (mixed >> 31)
    }
}

/// A long run under load: chapters of one random fault each, in one life of the bridge.
@EventLoopActor
final class Soak {
    /// Faults that the bridge outlives, and that need no other surroundings.
    private static let faults = [
        "none", "broker-kill", "broker-freeze", "broker-empty", "broker-refuses", "tcp-cut", "bluetoothd-kill",
        "bluetoothd-term", "bluetoothd-freeze", "bus-restart", "adapter-replug", "adapter-renamed", "power",
        "link-loss",
    ]
    private static let fillers = ["broker-kill", "broker-freeze", "bluetoothd-kill"]
    /// Between two ends of a link; each of the peers has its turn.
    private static let cycle = Duration.seconds(2)
    private static let sampling = Duration.seconds(5)

    private let stage: Stage
    private let minutes: Double
    private var random: SeededRandom
    private let started = milliseconds()
    private var samples: [SoakSample] = []
    private var retained: [Int] = []
    private var rows: [RowResult] = []
    private var isOver = false
    private var turn = 0

    init(_ stage: Stage, minutes: Double, seed: UInt64) {
        (self.stage, self.minutes, random) = (stage, minutes, SeededRandom(seed: seed))
    }

    private var elapsed: Double { (milliseconds() - started) / 1000 }

    func run() async throws -> Int32 {
        try stage.startBridge()
        try await stage.waitForFullLoad()
        stage.commander.start(rate: stage.options.commandsPerSecond)
        sample()
        cycleLinks()
        // First those that fill every buffer, so that what is level afterwards is level under all of them.
        var left = FaultCase.all.filter { Self.fillers.contains($0.name) }
        while elapsed < minutes * 60 {
            if left.isEmpty {
                left = FaultCase.all.filter { Self.faults.contains($0.name) }.shuffled(using: &random)
            }
            await chapter(left.removeFirst())
            if stage.bridge?.isRunning != true { break }
        }
        isOver = true
        return verdict()
    }

    private func chapter(_ faultCase: FaultCase) async {
        let run = FaultRun(stage, faultCase)
        let begun = RowResult(name: faultCase.name, title: faultCase.title)
        var row = await Episode(run, isCycling: true).play(begun)
        // The renamed adapter gets its number back, or the next order to it finds nothing.
        if faultCase.name == "adapter-renamed" { await renameBack(&row) }
        do { retained.append(try await stage.retainedTopics()) } catch { row.failures.append("\(error)") }
        rows.append(row)
        Endurance.say("\(Int(elapsed)) s, \(retained.last ?? 0) retained topics")
        for line in Table.lines([row]).dropFirst(rows.count == 1 ? 0 : 1) { Endurance.say("    \(line)") }
        for failure in row.failures { Endurance.say("    FAILED: \(failure)") }
    }

    private func renameBack(_ row: inout RowResult) async {
        do {
            try await stage.order("adapter_remove", ["adapter": "hci0"].json)
            try await SystemClock.shared.sleep(for: .seconds(1))
            try await stage.order("adapter_add", ["adapter": "hci0", "name": "hci0"].json)
            try await SystemClock.shared.sleep(for: .seconds(10))
            stage.commander.forget()
        } catch {
            row.failures.append("the adapter does not come back: \(error)")
        }
    }

    private func sample() {
        guard !isOver else { return }
        samples.append(SoakSample(at: elapsed, memory: stage.bridgeMemory, files: stage.bridgeFiles))
        SystemClock.shared.schedule(after: Self.sampling) { [weak self] in self?.sample() }
    }

    private func cycleLinks() {
        guard !isOver else { return }
        turn += 1
        let peer = "peer-\(turn % Stage.peers)"
        // One that has no link just now is left out.
        Task { [stage] in try? await stage.order("disconnect", ["device": peer].json) }
        SystemClock.shared.schedule(after: Self.cycle) { [weak self] in self?.cycleLinks() }
    }

    // MARK: The verdict

    private func verdict() -> Int32 {
        print("\nSoak of \(Int(elapsed)) s: \(rows.count) faults\n")
        for line in Table.lines(rows) { print(line) }
        print("")
        for note in Table.notes(rows) { print(note) }
        print("\nseconds   MiB  descriptors")
        let step = max(1, samples.count / 20)
        for index in stride(from: 0, to: samples.count, by: step) {
            let sample = samples[index]
            print("\(Int(sample.at))\t\(Table.mebibytes(sample.memory))\t\(sample.files)")
        }
        let level = Levelness(samples)
        let topics = retained.dropFirst(retained.count / 5)
        let grows = (topics.last ?? 0) > (topics.first ?? 0)
        print(
            """

            memory: \(Table.mebibytes(level.memoryEarly)) MiB in the second fifth, \
            \(Table.mebibytes(level.memoryLate)) MiB in the last
            descriptors: \(level.filesEarly), \(level.filesLate)
            retained topics: \(topics.first ?? 0), \(topics.last ?? 0)
            """)
        let failed = rows.filter { !$0.isGreen }
        let isFine = level.isLevel && !grows && failed.isEmpty && stage.bridge?.isRunning == true
        print(
            isFine ? "level, and nothing lost" : "FAILED: \(failed.count) chapters\(level.isLevel ? "" : ", not level")"
        )
        return isFine ? 0 : 1
    }
}

extension Endurance {
    /// The soak.
    public static func soak(minutes: Double, seed: UInt64) async -> Int32 {
        say("soak of \(minutes) minutes, --seed \(seed)")
        var options = StageOptions()
        options.fleet = World.root + "/Endurance/soak.yaml"
        options.advertisementsPerSecond = 0  // the fleet itself advertises
        options.commandsPerSecond = 5
        do {
            let stage = try await Stage.start(options)
            var code: Int32 = 1
            do {
                code = try await Soak(stage, minutes: minutes, seed: seed).run()
            } catch {
                say("\(error)")
            }
            if code != 0 { say("--- bridge.log\n\(stage.tail("bridge.log"))") }
            await stage.stop()
            return code
        } catch {
            say("\(error)")
            return 1
        }
    }
}
