import EventLoop
import Glibc
import JSON
import Sandbox
import TestKit

/// A gateway when the air is full: many devices, of which most change their addresses, for minutes. Memory has to stay
/// where it is, commands have to be answered, and what is not published has to be counted.
@EventLoopActor
final class Scale {
    private struct Sample {
        var time: Double
        var memory: Int
    }

    private let options: Options
    private let directory: TemporaryDirectory
    private var latencies: [Double] = []
    private var failures = 0
    private var samples: [Sample] = []
    private let topic = "blueferry/scale"

    init(_ options: Options) throws {
        self.options = options
        directory = try TemporaryDirectory(prefix: "blueferry-scale")
    }

    func run() async throws -> Int32 {
        let bus = try await PrivateBus.start()
        let broker = try await PrivateBroker.start(.quiet)
        var environment = ChildProcess.ownEnvironment()
        environment["DBUS_SYSTEM_BUS_ADDRESS"] = bus.address
        let control = directory.file("radio")
        let simulator = try ChildProcess(
            options.binary, ["simulate", "--fleet", try fleet(), "--control", control], environment: environment)
        let radio = RadioControl(path: control)
        try await radio.waitUntilReady(within: .seconds(30))
        let counter = try Tool(
            options.programs + "/probe", [String(broker.port), "\(topic)/devices/+/advertisement"],
            environment: environment)
        try await counter.event("ready")
        let probe = try await MQTTProbe.connect(
            port: broker.port, subscribing: ["\(topic)/response/#", "\(topic)/health", "\(topic)/status"])
        let bridge = try ChildProcess(
            options.binary, ["run", "--config", try configuration(broker)], environment: environment,
            output: .file(directory.file("bridge.log")), errors: .file(directory.file("bridge.log")))
        defer { directory.remove() }
        var code: Int32 = 1
        do {
            try await probe.wait(for: "\(topic)/status", within: .seconds(20)) { $0.text == "online" }
            try await watch(bridge, probe, radio, simulator)
            code = try await verdict(bridge, probe, radio, counter) ? 0 : 1
        } catch {
            tell("failed: \(error)\n\(ProcessFigures.text(directory.file("bridge.log")).suffix(2000))")
        }
        await bridge.stop(grace: .seconds(6))
        await probe.stop()
        await counter.stop()
        await simulator.stop()
        await broker.stop()
        await bus.stop()
        return code
    }

    // MARK: What is around

    /// Four of five devices rotate, one of them in half a minute, as if a crowd walked by.
    private func fleet() throws -> String {
        let interval = max(5, options.devices * 1000 / options.rate)
        let count = (options.devices - 1).clamped(to: 5...100_000)
        let rotating = count * 4 / 5
        func group(_ id: String, _ count: Int, _ more: String) -> String {
            var rest = count
            var lines: [String] = []
            while rest > 0 {
                let part = min(rest, 10_000)
                lines.append(
                    "  - { id: \(id)\(lines.count), count: \(part), interval: \(interval), connectable: false,"
                        + " manufacturer_data: { ffff: \"000102030405060708090a0b0c0d\" },"
                        + " sequence: manufacturer_data/ffff/0, rssi_jitter: 6, \(more) }")
                rest -= part
            }
            return lines.joined(separator: "\n")
        }
        let text = """
            devices:
              - id: strap
                address: "C0:FF:EE:00:00:01"
                interval: 100
                gatt:
                  - { uuid: 180f, characteristics: [{ uuid: 2a19, properties: [read], value: "64" }] }
            \(group("phone", rotating, "rotate: 30000"))
            \(group("tag", count - rotating, "address: \"C1:00:00:00:00:00\""))

            """
        return try directory.write(text, to: "fleet.yaml")
    }

    private func configuration(_ broker: PrivateBroker) throws -> String {
        let text = """
            gateway: { id: scale }
            mqtt: { url: "\(broker.url)" }
            outbox: { path: "\(directory.file("outbox.db"))" }
            devices:
              - { address: "C0:FF:EE:00:00:01", name: strap, connect: always }

            """
        return try directory.write(text, to: "blueferry.yaml")
    }

    // MARK: Watching

    private func watch(
        _ bridge: ChildProcess, _ probe: MQTTProbe, _ radio: RadioControl, _ simulator: ChildProcess
    ) async throws {
        tell("   s   memory MB   bridge %   simulator %   emitted/s   commands p99 ms")
        let start = MonotonicTime.now
        let step = max(1, options.seconds / 30)
        var emitted = 0.0
        var sampled = start
        var busy = (ProcessFigures.processorTime(bridge.pid), ProcessFigures.processorTime(simulator.pid))
        for number in 1...max(1, options.seconds / step) {
            let from = latencies.count
            while .now - start < .seconds(number * step) { try await command(probe) }
            let sent = try await radio.send("sent").number("advertisements")
            let elapsed = Double((MonotonicTime.now - sampled).clampedNanoseconds) / 1e9
            sampled = .now
            let now = (ProcessFigures.processorTime(bridge.pid), ProcessFigures.processorTime(simulator.pid))
            let memory = ProcessFigures.memory(bridge.pid)
            samples.append(Sample(time: Double(number * step), memory: memory))
            tell(
                [
                    column(Double(number * step), 4, 0), column(ProcessFigures.megabytes(memory), 12, 2),
                    column(Double(now.0 - busy.0) / elapsed / 1e7, 11, 1),
                    column(Double(now.1 - busy.1) / elapsed / 1e7, 14, 1),
                    column((sent - emitted) / elapsed, 12, 0),
                    column(percentile(latencies[from...].sorted(), 0.99), 18, 2),
                ].joined())
            (emitted, busy) = (sent, now)
            guard bridge.isRunning else { throw Expired(message: "the bridge ended") }
        }
    }

    /// A command that the bridge answers by itself, and after it a pause. What the radio would take is not the bridge's.
    private func command(_ probe: MQTTProbe) async throws {
        let id = "c\(latencies.count + failures)"
        let sent = MonotonicTime.now
        try await probe.publish(
            "\(topic)/request/devices", #"{"id":"\#(id)","addresses":["C0:FF:EE:00:00:01"]}"#)
        let answer = try await probe.wait(for: "\(topic)/response/devices", within: .seconds(10)) {
            $0.json["id"]?.stringValue == id
        }
        if answer.json["status"]?.stringValue == "ok" {
            latencies.append(Double((MonotonicTime.now - sent).clampedNanoseconds) / 1e6)
        } else {
            failures += 1
        }
        // Answers that were looked at are of no use any more.
        if latencies.count % 1000 == 0 { probe.discard() }
        try await SystemClock.shared.sleep(for: .milliseconds(20))
    }

    // MARK: The verdict

    private func verdict(
        _ bridge: ChildProcess, _ probe: MQTTProbe, _ radio: RadioControl, _ counter: Tool
    ) async throws -> Bool {
        // The air falls silent, so that the counters can be compared.
        try await radio.send("power", ["adapter": .string("hci0"), "on": .bool(false)])
        try await SystemClock.shared.sleep(for: .seconds(2))
        let sent = try await radio.send("sent")
        probe.discard()
        let health = try await probe.wait(for: "\(topic)/health", within: .seconds(70)).json
        counter.order("statistics")
        let came = try await counter.event("statistics").number("strange")
        let counts = health["counts"] ?? .null
        let times = latencies.sorted()
        let fifth = max(1, samples.count / 5)
        let early = samples.prefix(2 * fifth).suffix(fifth).map(\.memory).max() ?? 0
        let late = samples.suffix(fifth).map(\.memory).max() ?? 0
        let growth = ProcessFigures.megabytes(late - early)
        let rate = sent.number("advertisements") / Double(options.seconds)
        let slowest = percentile(times, 0.99)
        tell(
            """

            emitted \(Int(sent.number("advertisements"))) (\(rounded(rate, 0))/s), signals \(Int(sent.number("signals")))
            received \(Int(counts.number("advertisements_received"))), published \
            \(Int(counts.number("advertisements_published"))), arrived at a subscriber \(Int(came))
            drops \(text(health["drops"])), queues \(text(health["queues"]))
            devices \(text(health["devices"]))
            memory: peak \(rounded(ProcessFigures.megabytes(ProcessFigures.peakMemory(bridge.pid)), 1)) MB, \
            from the second fifth to the last \(rounded(growth, 2)) MB
            commands: \(times.count), p50 \(rounded(percentile(times, 0.5), 2)) ms, p99 \(rounded(slowest, 2)) ms, \
            max \(rounded(times.last ?? 0, 2)) ms, failed \(failures)
            """)
        let checks: [(String, Bool)] = [
            ("at least 95 % of the rate was emitted", rate >= 0.95 * Double(options.rate)),
            // Addresses come and go for half a minute each, so that a short run only shows the beginning.
            ("no growth after the first fifth (0.5 MB; told from 200 s on)", growth <= 0.5 || options.seconds < 200),
            ("commands within 10 ms (p99)", slowest <= 10 && failures == 0),
            ("every publish arrived", came == counts.number("advertisements_published")),
        ]
        for (name, isMet) in checks { tell("\(isMet ? "met" : "NOT MET"): \(name)") }
        return checks.allSatisfy(\.1)
    }

    private func percentile(_ sorted: [Double], _ part: Double) -> Double {
        sorted.isEmpty ? 0 : sorted[Int(part * Double(sorted.count - 1))]
    }

    private func column(_ number: Double, _ width: Int, _ places: Int) -> String {
        let text = rounded(number, places)
        return String(repeating: " ", count: max(0, width - text.count)) + text
    }

    private func text(_ value: JSONValue?) -> String { String(decoding: (value ?? .null).serialised(), as: UTF8.self) }
}

extension Int {
    fileprivate func clamped(to range: ClosedRange<Int>) -> Int {
        Swift.min(Swift.max(self, range.lowerBound), range.upperBound)
    }
}
