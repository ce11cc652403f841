import EventLoop
import Glibc
import JSON
import Sandbox
import TestKit

extension PrivateBroker.Options {
    /// A broker that spends nothing on its log, and drops nothing for a slow reader.
    static let quiet: PrivateBroker.Options = {
        var options = PrivateBroker.Options()
        options.lines = [
            "log_type none", "log_type information", "connection_messages false", "set_tcp_nodelay true",
            "max_queued_messages 0", "max_queued_bytes 0",
        ]
        return options
    }()
}

/// A bus with the load on it, a broker with the probe on it, and a contender between them.
@EventLoopActor
final class Rig {
    let load: Tool
    private(set) var contender: ChildProcess?
    private let scenario: Scenario
    private let options: Options
    private let bus: PrivateBus
    private let broker: PrivateBroker
    private let probe: Tool
    private let directory: TemporaryDirectory
    private let environment: [String: String]
    private var phase = 0
    private var started = MonotonicTime.now

    /// Starts everything but the contender.
    init(_ scenario: Scenario, _ who: Contender, _ options: Options) async throws {
        self.scenario = scenario
        self.options = options
        directory = try TemporaryDirectory(prefix: "blueferry-bench")
        bus = try await PrivateBus.start()
        broker = try await PrivateBroker.start(.quiet)
        var environment = ChildProcess.ownEnvironment()
        environment["DBUS_SYSTEM_BUS_ADDRESS"] = bus.address
        self.environment = environment
        load = try Tool(options.programs + "/bluez", [String(scenario.devices)], environment: environment)
        try await load.event("ready")
        probe = try Tool(
            options.programs + "/probe", Self.probeArguments(scenario, who, port: broker.port),
            environment: environment)
        try await probe.event("ready")
        if scenario.isScan { load.order("hum 200") }
    }

    private static func probeArguments(_ scenario: Scenario, _ who: Contender, port: UInt16) -> [String] {
        let kind =
            switch scenario {
            case .advertisements: (floor: "advertisement/+", ours: "devices/+/advertisement")
            case .sockets, .signals: (floor: "value/+", ours: "devices/+/characteristics/#")
            case .reads: (floor: "response/+", ours: "response/read")
            }
        var arguments = [String(port), who == .floor ? "floor/\(kind.floor)" : "blueferry/bench/\(kind.ours)"]
        guard scenario == .reads else { return arguments }
        arguments +=
            who == .floor
            ? ["floor/read/%d", #"{"id":"%i"}"#]
            : [
                "blueferry/bench/request/read",
                #"{"id":"%i","device":"%d","service":"fff0","characteristic":"fff1"}"#,
            ]
        return arguments + Scenario.addresses.map { $0.split(separator: ":").joined() }
    }

    /// Starts the contender, and waits until its messages come.
    func start(_ who: Contender) async throws -> Outcome {
        var outcome = Outcome()
        let (program, arguments) = try who == .floor ? floor() : bridge()
        started = .now
        let log = ChildProcess.Output.file(directory.file("contender.log"))
        contender = try ChildProcess(program, arguments, environment: environment, output: log, errors: log)
        do {
            if scenario.isScan {
                let first = try await probe.event("first", within: .seconds(60))
                outcome.start = (first.number("time") - Double(started.nanoseconds)) / 1e6
            } else {
                outcome.subscribing = try await waitForLinks()
            }
        } catch {
            let said = ProcessFigures.text(directory.file("contender.log")).suffix(2000)
            throw Expired(message: "\(who.rawValue), \(scenario.name): \(error); it said: \(said)")
        }
        load.order("hum 0")
        try await pause(.milliseconds(700))
        return outcome
    }

    private func waitForLinks() async throws -> Double? {
        let count = Scenario.connectable
        // Subscriptions begin while later links come up, so both are looked at as they arrive.
        var linked = 0.0
        let last = try await load.event(scenario.notifies ? "notifying" : "connected", within: .seconds(60)) { event in
            Int(event.number("count")) == count
        } whenOther: { event in
            if event["event"]?.stringValue == "connected", Int(event.number("count")) == count {
                linked = event.number("time")
            }
        }
        if scenario.notifies { return (last.number("time") - linked) / 1e6 }
        // Links are up; a first answer shows that commands are served.
        for _ in 0..<100 {
            probe.order("ask \(count) 1")
            if (try? await probe.event("answered", within: .milliseconds(500))) == nil { continue }
            probe.order("statistics")
            if try await probe.event("statistics").number("failures") == 0 { return nil }
            try await pause(.milliseconds(50))
        }
        throw Expired(message: "no command was answered")
    }

    private func floor() -> (String, [String]) {
        let addresses = scenario.isScan ? [] : Scenario.addresses
        let qos = scenario.notifies ? "1" : "0"
        return (options.programs + "/floor", [String(broker.port), scenario.kind, qos] + addresses)
    }

    private func bridge() throws -> (String, [String]) {
        var lines = [
            "gateway: { id: bench }", "mqtt: { url: \"\(broker.url)\" }",
            "outbox: { path: \"\(directory.file("outbox.db"))\" }",
            "bluetooth: { scan: { enabled: \(scenario.isScan) }, notify_sockets: \(scenario == .sockets) }",
        ]
        if !scenario.isScan {
            let subscribe = scenario.notifies ? ", subscribe: [fff0/fff1]" : ""
            lines.append("devices:")
            lines += Scenario.addresses.map { "  - { address: \"\($0)\", connect: always\(subscribe) }" }
        }
        let file = try directory.write(lines.joined(separator: "\n") + "\n", to: "blueferry.yaml")
        return (options.binary, ["run", "--config", file])
    }

    // MARK: Measuring

    /// Runs a phase, after a short one that warms up.
    func measure(_ wanted: Scenario.Phase) async throws -> Measurement {
        var warmUp = wanted
        warmUp.count = min(wanted.count, wanted.rate > 0 ? wanted.rate : 2000)
        _ = try await run(warmUp)
        return try await run(wanted)
    }

    private func run(_ wanted: Scenario.Phase) async throws -> Measurement {
        guard let contender else { return Measurement() }
        phase += 1
        probe.order("phase \(phase)")
        let before = ProcessFigures.processorTime(contender.pid)
        var measurement = Measurement()
        if wanted.window > 0 {
            probe.order("ask \(wanted.count) \(wanted.window)")
            try await probe.event("answered", within: .seconds(120))
        } else {
            load.order("\(scenario.isScan ? "advertise" : "notify") \(wanted.rate) \(wanted.count) \(phase)")
            let done = try await load.event("done", within: .seconds(120))
            measurement.lateness = done.number("late_us")
            try await drain(wanted.count)
        }
        let after = ProcessFigures.processorTime(contender.pid)
        probe.order("statistics")
        let statistics = try await probe.event("statistics")
        let unique = statistics.number("unique")
        measurement.processor = Double(after - before) / 1000 / max(1, unique)
        measurement.rate = statistics.number("rate")
        measurement.median = statistics.number("p50_us")
        measurement.percentile99 = statistics.number("p99_us")
        measurement.lost = wanted.count - Int(unique)
        measurement.doubles = Int(statistics.number("doubles"))
        measurement.failures = Int(statistics.number("failures"))
        return measurement
    }

    /// Waits until everything has arrived, or nothing has for 3 s.
    private func drain(_ count: Int) async throws {
        var last = -1
        var changed = MonotonicTime.now
        while true {
            probe.order("count")
            let unique = Int(try await probe.event("count").number("unique"))
            if unique >= count { return }
            if unique != last { changed = .now }
            last = unique
            if .now - changed > .seconds(3) { return }
            try await pause(.milliseconds(50))
        }
    }

    /// Wake-ups of the contender per second while nothing comes.
    func idle(for seconds: Int) async throws -> Double {
        guard let contender else { return 0 }
        try await pause(.seconds(2))
        let before = ProcessFigures.wakeUps(contender.pid)
        try await pause(.seconds(seconds))
        return Double(ProcessFigures.wakeUps(contender.pid) - before) / Double(seconds)
    }

    func pause(_ time: Duration) async throws { try await SystemClock.shared.sleep(for: time) }

    func stop() async {
        await contender?.stop(grace: .seconds(6))
        await probe.stop()
        await load.stop()
        await broker.stop()
        await bus.stop()
        directory.remove()
    }
}
