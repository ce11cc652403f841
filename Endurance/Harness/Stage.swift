internal import EventLoop
internal import Glibc
internal import JSON
internal import Sandbox
internal import TestKit

/// What differs from one row to another in what stands around the bridge.
@EventLoopActor
struct StageOptions {
    var isBrokerPersistent = false
    var outboxLimit = 100_000
    /// Words in front of the bridge's own command line, such as a shell that mounts a small disk.
    var wrapper: [String] = []
    var environment: [String: String] = [:]
    /// Where the outbox is; nil: in the stage's directory.
    var outboxDirectory: String?
    var commandsPerSecond = Double(Stage.peers) / (World.isLab ? 5 : 2)
    var advertisementsPerSecond = Double(10 * Stage.peers)
    var floodAddresses = 40
    var fleet = World.root + "/Endurance/fleet.yaml"
    /// Programs are given so much longer where one processor does everything.
    var patience: Duration = World.isLab ? .seconds(120) : .seconds(60)
}

/// The real program between a radio, simulated or the lab's, and a real broker, with what listens and what asks.
@EventLoopActor
final class Stage {
    /// How many of the fleet's peers take part, each with 25 values a second.
    static var peers = 20
    static let mostPeers = 20
    static let prefix = "blueferry/gw"
    static var isLab: Bool { World.isLab }

    let options: StageOptions
    let directory: TemporaryDirectory
    let radio: RadioControl
    let broker: PrivateBroker
    let relay: Relay
    let recorder: Recorder
    let commander: Commander
    private(set) var bridge: ChildProcess?
    private let bus: PrivateBus?
    private let simulator: ChildProcess?
    private var probe: ChildProcess?
    private var markers = 0
    /// Of the newest start: when it was asked for, and the first message after it.
    private(set) var bridgeStartedAt = 0.0
    private(set) var firstPublishAt: Double?
    var onFirstPublish: (@EventLoopActor (Double) -> Void)?

    static var addresses: [String] {
        (0..<peers).map { number in
            "C0:00:00:00:02:" + (number < 16 ? "0" : "") + String(number, radix: 16, uppercase: true)
        }
    }

    /// Starts everything but the bridge.
    static func start(_ options: StageOptions) async throws -> Stage {
        let directory = try TemporaryDirectory(prefix: "blueferry-endurance")
        var brokerOptions = PrivateBroker.Options()
        brokerOptions.lines = ["max_queued_messages 0", "max_inflight_messages 100"]
        brokerOptions.logs = ["error", "warning", "notice", "information"]
        brokerOptions.isPersistent = options.isBrokerPersistent
        let broker = try await PrivateBroker.start(brokerOptions)
        var bus: PrivateBus?
        var simulator: ChildProcess?
        var control = Machine.environment("BLUEFERRY_CONTROL") ?? ""
        if !isLab {
            let made = try await PrivateBus.start()
            control = directory.file("control.sock")
            var environment = ChildProcess.ownEnvironment()
            environment["DBUS_SYSTEM_BUS_ADDRESS"] = made.address
            simulator = try ChildProcess(
                World.program, ["simulate", "--fleet", options.fleet, "--control", control], environment: environment,
                output: .file(directory.file("simulator.log")), errors: .file(directory.file("simulator.log")))
            bus = made
        }
        let stage = try Stage(
            options, directory, RadioControl(path: control), broker, bus: bus, simulator: simulator)
        try await stage.radio.waitUntilReady()
        try await stage.startProbe()
        try await stage.flood(on: true)
        return stage
    }

    private init(
        _ options: StageOptions, _ directory: TemporaryDirectory, _ radio: RadioControl, _ broker: PrivateBroker,
        bus: PrivateBus?, simulator: ChildProcess?
    ) throws {
        (self.options, self.directory, self.radio, self.broker) = (options, directory, radio, broker)
        (self.bus, self.simulator) = (bus, simulator)
        relay = try Relay(port: PrivateBroker.freePort(), brokerPort: broker.port)
        let devices = Self.addresses.map { $0.lowercased().split(separator: ":").joined() }
        recorder = Recorder(prefix: Self.prefix, devices: devices)
        commander = Commander(port: broker.port, prefix: Self.prefix, devices: Self.addresses)
        recorder.onAnswer = { [commander] answer in commander.take(answer) }
        relay.onAcknowledged = { [recorder] message in recorder.noteAcknowledged(message) }
        relay.onPublish = { [weak self] _ in
            guard let self, firstPublishAt == nil else { return }
            let now = milliseconds()
            firstPublishAt = now
            onFirstPublish?(now)
            recorder.monitor.changed()
        }
    }

    // MARK: The bridge

    func startBridge() throws {
        let file = directory.file("blueferry.yaml")
        let devices = Self.addresses.map { "  - { address: \"\($0)\", connect: always, subscribe: [fff0/fff1] }" }
        try directory.write(
            """
            gateway: { id: gw }
            mqtt: { url: "mqtt://127.0.0.1:\(relay.port)" }
            outbox: { path: "\(options.outboxDirectory ?? directory.path)/outbox.db", limit: \(options.outboxLimit) }
            devices:
            \(devices.joined(separator: "\n"))

            """, to: "blueferry.yaml")
        // Ours are not its settings.
        var environment = ChildProcess.ownEnvironment().filter { !$0.key.hasPrefix("BLUEFERRY_") }
        if let bus { environment["DBUS_SYSTEM_BUS_ADDRESS"] = bus.address }
        environment.merge(options.environment) { $1 }
        let command = options.wrapper + [World.program, "run", "--config", file]
        bridgeStartedAt = milliseconds()
        firstPublishAt = nil
        let log = directory.file("bridge.log")
        bridge = try ChildProcess(
            command[0], Array(command.dropFirst()), environment: environment, output: .file(log), errors: .file(log))
    }

    func killBridge() async throws {
        bridge?.kill()
        _ = try await bridge?.waitForExit(within: .seconds(5))
        bridge = nil
    }

    /// As a service manager does. Gives how it ended.
    func stopBridge(within limit: Duration = .seconds(6)) async throws -> ChildProcess.Exit? {
        guard let bridge else { return nil }
        bridge.terminate()
        let exit = try await bridge.waitForExit(within: limit)
        self.bridge = nil
        return exit
    }

    var bridgeMemory: Int { bridge.map { Machine.residentBytes($0.pid) } ?? 0 }
    var bridgeFiles: Int { bridge.map { Machine.openFiles($0.pid) } ?? 0 }

    // MARK: The probe

    /// The tool of the broker's own project: it shares no code with the bridge. Its session outlives its connections.
    private func startProbe() async throws {
        let recorder = recorder
        probe = try ChildProcess(
            "mosquitto_sub",
            [
                "-h", "127.0.0.1", "-p", String(broker.port), "-V", "311", "-i", "endurance-probe", "-c", "-q", "1",
                "-t", "\(Self.prefix)/#", "-t", "endurance/#", "-F", "%t %p",
            ],
            output: .lines { line in
                guard let space = line.firstIndex(of: " ") else { return }
                recorder.take(topic: line[..<space], payload: line[line.index(after: space)...])
            },
            errors: .file(directory.file("probe.log")))
        try await waitForProbe()
    }

    /// Returns once what is published reaches the probe, and all that was published before has.
    func waitForProbe(within limit: Duration = .seconds(20)) async throws {
        markers += 1
        let marker = "marker-\(markers)"
        let deadline = MonotonicTime.now + limit
        while true {
            commander.mark(marker)
            do {
                try await recorder.monitor.wait("a marker", within: .milliseconds(400)) {
                    self.recorder.markers.contains(marker)
                }
                return
            } catch {
                guard MonotonicTime.now < deadline else {
                    throw Expired(message: "the probe does not see what is published")
                }
            }
        }
    }

    /// The topics that the broker retains.
    func retainedTopics() async throws -> Int {
        var count = 0
        let reader = try ChildProcess(
            "mosquitto_sub",
            [
                "-h", "127.0.0.1", "-p", String(broker.port), "-t", "\(Self.prefix)/#", "--retained-only", "-W", "2",
                "-F", "%t",
            ],
            output: .lines { _ in count += 1 }, errors: .discard)
        _ = try await reader.waitForExit(within: .seconds(10))
        return count
    }

    // MARK: The load

    /// Advertisements beside those of the peers.
    func flood(on: Bool) async throws {
        let rate = on ? options.advertisementsPerSecond : 0.01
        guard options.advertisementsPerSecond > 0 else { return }
        try await radio.send(
            "flood",
            [
                "rate": .double(rate), "seconds": .double(on ? 86_400 : 0.01),
                "addresses": .int(Int64(options.floodAddresses)),
            ])
    }

    /// Waits until each peer's values arrive.
    func waitForFullLoad() async throws {
        try await recorder.monitor.wait("values of all \(Self.peers) peers", within: options.patience) {
            self.recorder.highest.allSatisfy { $0 != nil }
        }
    }

    func order(_ operation: String, _ parameters: [String: JSONValue] = [:]) async throws {
        try await radio.send(operation, parameters, timeout: .seconds(30))
    }

    /// The number that each peer sends next, at least.
    func cursor() async throws -> [UInt32] {
        var numbers: [UInt32] = []
        for channel in 0..<Self.peers {
            let known = recorder.highest[channel] ?? 0
            numbers.append((try await sent(channel, since: known).last?.number ?? known) &+ 1)
        }
        return numbers
    }

    func sent(_ channel: Int, since: UInt32) async throws -> [SentValue] {
        let answer = try await radio.send(
            "values",
            [
                "device": .string("peer-\(channel)"), "characteristic": .string("fff0/fff1"),
                "since": .int(Int64(since)),
            ])
        return (answer.arrayValue ?? []).compactMap { pair in
            guard let pair = pair.arrayValue, pair.count == 2, let number = pair[0].intValue,
                let at = pair[1].milliseconds
            else { return nil }
            return SentValue(number: UInt32(truncatingIfNeeded: number), at: at)
        }
    }

    /// What a peer saw since a time: its link's events, and the values written to it.
    func log(_ channel: Int, since: Double) async throws -> (events: [PeerEvent], written: [String]) {
        let answer = try await radio.send("log", ["device": .string("peer-\(channel)")])
        var events: [PeerEvent] = []
        var written: [String] = []
        for entry in answer.arrayValue ?? [] {
            guard let at = entry["at"]?.milliseconds, at >= since, let name = entry["event"]?.stringValue else {
                continue
            }
            let characteristic = entry["characteristic"]?.stringValue
            if name == "write", characteristic == "fff0/fff2" {
                written.append(entry["value"]?.stringValue ?? "")
            } else if let kind = PeerEvent.Kind(rawValue: name), characteristic ?? "fff0/fff1" == "fff0/fff1" {
                events.append(PeerEvent(kind, at: at))
            }
        }
        return (events, written)
    }

    // MARK: Servers

    /// The broker is away: nobody listens on the bridge's port.
    func withoutBroker(_ body: () async throws -> Void) async throws {
        relay.refuse()
        try await body()
        try await broker.startBroker()
        // The broker must have someone to give messages to before the bridge brings them.
        try await waitForProbe()
        try relay.open()
    }

    /// Ends the bus without warning and starts it again, and then bluetoothd, which does not live without it.
    func restartBus(pause: Duration) async throws {
        if let bus {
            await bus.killDaemon()
            try await SystemClock.shared.sleep(for: pause)
            try await bus.startDaemon()
        } else {
            for process in Machine.processes(["dbus-daemon", "--system"]) { kill(process, SIGKILL) }
            try await SystemClock.shared.sleep(for: pause)
            let daemon = try ChildProcess("dbus-daemon", ["--system", "--fork", "--nopidfile"])
            _ = try await daemon.waitForExit(within: .seconds(10))
        }
    }

    /// Waits until bluetoothd has its name again.
    func startBluetoothd() async throws {
        let deadline = MonotonicTime.now + .seconds(15)
        while true {
            do {
                return try await order("daemon_start")
            } catch {
                // One that lost its bus takes a moment to end.
                guard MonotonicTime.now < deadline else { throw error }
                try await SystemClock.shared.sleep(for: .milliseconds(200))
            }
        }
    }

    /// Ends everything; the peers drop their links, so that the next stage starts afresh.
    func stop() async {
        if let bridge { _ = await bridge.stop() }
        if Self.isLab { await mend() }
        try? await flood(on: false)
        if let ids = try? await radio.send("connected", timeout: .seconds(5)).arrayValue {
            for id in ids { _ = try? await radio.send("disconnect", ["device": id], timeout: .seconds(5)) }
        }
        if let simulator { _ = await simulator.stop() }
        await commander.stop()
        relay.refuse()
        _ = await probe?.stop()
        await broker.stop()
        if let bus { await bus.stop() }
        directory.remove()
    }

    /// What a row that failed midway may have left to the next: the lab's radio outlives the stage.
    private func mend() async {
        try? await order("daemon_thaw")
        try? await order("daemon_start")
        try? await order("adapter_add", ["adapter": "hci0"].json)
    }

    /// The end of what a program printed.
    func tail(_ name: String, _ count: Int = 2500) -> String {
        String(decoding: Array(Machine.text(directory.file(name)).utf8).suffix(count), as: UTF8.self)
    }
}

extension JSONValue {
    /// A number, whole or not.
    var milliseconds: Double? {
        switch self {
        case .int(let value): Double(value)
        case .double(let value): value
        default: nil
        }
    }
}

extension Machine {
    static func environment(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }
}
