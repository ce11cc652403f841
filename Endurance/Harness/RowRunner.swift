internal import EventLoop
internal import Sandbox
internal import TestKit

/// What a row of the table shows.
public struct RowResult: Sendable {
    public var name: String
    public var title: String
    public var values = Reckoning()
    public var commands = CommandCount()
    public var advertisements = 0
    /// Seconds from the end of the fault.
    public var first: Double?
    public var all: Double?
    public var scan: Double?
    public var memoryBefore = 0
    public var memoryAfter = 0
    public var events: [String: Int] = [:]
    public var remarks: [String] = []
    /// Why the row fails; empty: it does not.
    public var failures: [String] = []
    /// Why it was not run.
    public var skipped: String?

    public init(name: String, title: String) {
        (self.name, self.title) = (name, title)
    }

    public var isGreen: Bool { failures.isEmpty && skipped == nil }
}

/// Runs rows, each on a stage of its own.
@EventLoopActor
enum RowRunner {
    static func run(_ faultCase: FaultCase, log: (String) -> Void) async -> RowResult {
        var result = RowResult(name: faultCase.name, title: faultCase.title)
        if let obstacle = faultCase.obstacle() {
            result.skipped = obstacle
            return result
        }
        var stage: Stage?
        do {
            var options = StageOptions()
            try faultCase.options(&options)
            let made = try await Stage.start(options)
            stage = made
            try made.startBridge()
            try await made.waitForFullLoad()
            made.commander.start(rate: options.commandsPerSecond)
            try await SystemClock.shared.sleep(for: .seconds(3))
            let run = FaultRun(made, faultCase)
            result = await Episode(run).play(result)
        } catch {
            result.failures.append("\(error)")
        }
        if let stage {
            if !result.isGreen {
                log("--- bridge.log\n\(stage.tail("bridge.log"))")
                if !Stage.isLab { log("--- simulator.log\n\(stage.tail("simulator.log", 500))") }
            }
            await stage.stop()
        }
        WallClock.cleanUp()
        return result
    }
}

/// From a moment of full load, through a fault, to the count of everything that was sent in between.
@EventLoopActor
struct Episode {
    let run: FaultRun
    /// Peers drop their links all the time.
    let isCycling: Bool
    private var stage: Stage { run.stage }
    private var recorder: Recorder { run.stage.recorder }
    private var faultCase: FaultCase { run.faultCase }

    init(_ run: FaultRun, isCycling: Bool = false) {
        self.run = run
        self.isCycling = isCycling
    }

    func play(_ begun: RowResult) async -> RowResult {
        var result = begun
        do {
            recorder.begin()
            let base = try await stage.cursor()
            result.memoryBefore = stage.bridgeMemory
            let keeper = keepBluetoothd()
            defer { keeper?.cancel() }
            try await faultCase.body(run)
            try await recover(&result)
            // Some more of the usual load, over the place where the fault was.
            try await run.sleep(2)
            try await settle(base, &result)
        } catch {
            result.failures.append("\(error)")
        }
        result.failures += run.failures
        result.remarks += run.remarks
        judge(&result)
        return result
    }

    /// Starts the lab's bluetoothd again where it dies by itself: bluetoothd 5.66 does so now and then when a client
    /// vanishes in the middle of a subscription.
    private func keepBluetoothd() -> Task<Void, any Error>? {
        guard Stage.isLab, FaultCase.bridgeCases.contains(where: { $0.name == faultCase.name }) else { return nil }
        return Task { @EventLoopActor [run] in
            var alive = milliseconds()
            while true {
                try await SystemClock.shared.sleep(for: .milliseconds(500))
                do {
                    try await run.stage.order("daemon_start")
                    run.noteCrash(from: alive)
                } catch is CancellationError {
                    return
                } catch {
                    alive = milliseconds()  // it refuses: bluetoothd runs
                }
            }
        }
    }

    // MARK: Recovery

    private func recover(_ result: inout RowResult) async throws {
        let ended = milliseconds()
        recorder.watch(from: try await stage.cursor())
        let patience = Duration.seconds(max(Stage.isLab ? 90 : 60, faultCase.limits.all + 10))
        do {
            try await recorder.monitor.wait("a fresh value of each peer, and an advertisement", within: patience) {
                recorder.isAllFresh && recorder.firstAdvertisementAt != nil && recorder.firstValueAt != nil
            }
        } catch {
            let silent = recorder.freshAt.enumerated().filter { $0.element == nil }.map(\.offset)
            result.failures.append("\(error); silent: \(silent)")
        }
        func seconds(_ at: Double?) -> Double? { at.map { max(0, $0 - ended) / 1000 } }
        result.first = seconds(recorder.firstValueAt)
        result.all = recorder.isAllFresh ? seconds(recorder.freshAt.compactMap { $0 }.max()) : nil
        result.scan = seconds(recorder.firstAdvertisementAt)
    }

    private func judgeRecovery(_ result: inout RowResult) {
        let limits = faultCase.limits
        let scan = limits.scan ?? limits.first + 3
        for (what, taken, limit) in [
            ("the first value", result.first, limits.first), ("a value of each peer", result.all, limits.all),
            ("an advertisement", result.scan, scan),
        ] {
            if let taken, taken <= limit { continue }
            result.failures.append(
                "\(what) came after \(taken.map { Table.seconds($0) } ?? "–") s; the limit is \(limit)")
        }
    }

    // MARK: The count

    /// Waits until what was sent until now has arrived, or nothing comes any more, and counts.
    private func settle(_ base: [UInt32], _ result: inout RowResult) async throws {
        stage.commander.pause()
        let end = try await stage.cursor()
        var last = recorder.received.count
        for _ in 0..<40 {
            try? await recorder.monitor.wait("the last values", within: .seconds(3)) {
                zip(recorder.highest, end).allSatisfy { ($0 ?? 0) &+ 1 >= $1 }
            }
            let isDone = zip(recorder.highest, end).allSatisfy { ($0 ?? 0) &+ 1 >= $1 }
            if isDone || recorder.received.count == last { break }
            last = recorder.received.count
        }
        try? await recorder.monitor.wait("the last answers", within: .seconds(12)) { stage.commander.unanswered == 0 }
        try await stage.waitForProbe()
        result.memoryAfter = stage.bridgeMemory
        result.advertisements = recorder.advertisements
        result.events = recorder.events

        var notes = Notes()
        notes.transit = run.transit
        notes.deserted = run.deserted
        notes.faults = run.windows
        notes.brokerForgets = faultCase.brokerForgets
        notes.acknowledged = recorder.acknowledged
        var written: [[String]] = []
        for channel in 0..<Stage.peers {
            let sent = try await stage.sent(channel, since: base[channel]).filter { $0.number < end[channel] }
            let log = try await stage.log(channel, since: stage.commander.since)
            notes.peers.append(log.events.filter { $0.at >= sent.first?.at ?? 0 })
            notes.sent.append(sent)
            written.append(log.written)
        }
        notes.received = recorder.received.filter { base[$0.channel] <= $0.number && $0.number < end[$0.channel] }
        result.values = Reckoning(notes)
        result.commands = stage.commander.settle(written)
        stage.commander.start(rate: stage.options.commandsPerSecond)
    }

    // MARK: The verdict

    private func judge(_ result: inout RowResult) {
        judgeRecovery(&result)
        let values = result.values
        func fail(_ isWrong: Bool, _ sentence: String) {
            if isWrong { result.failures.append(sentence) }
        }
        fail(values.sent == 0, "nothing was sent")
        fail(values.received == 0, "nothing was received")
        fail(values.lost > 0, "\(values.lost) values lost")
        fail(values.doubled > 0, "\(values.doubled) values doubled")
        fail(values.disordered > 0, "\(values.disordered) values out of order")
        fail(values.unknown > 0, "\(values.unknown) values that no peer sent")
        fail(
            faultCase.keepsLinks && !isCycling && values.endedLinks > 0,
            "\(values.endedLinks) links or subscriptions ended")
        let commands = result.commands
        fail(commands.asked == 0 || commands.once == 0, "no command was acted on")
        fail(commands.twice > 0, "\(commands.twice) commands acted on twice")
        fail(commands.unanswered > 0, "\(commands.unanswered) commands never answered")
        fail(commands.pretended > 0, "\(commands.pretended) commands answered ok and not acted on")
        fail(commands.contradicted > 0, "\(commands.contradicted) commands answered in two ways")
        fail(result.advertisements == 0, "no advertisement arrived")
        fail(stage.bridge?.isRunning != true, "the bridge does not run")
        if !result.failures.isEmpty { result.failures += values.examples }
    }
}
