public import Bluetooth
public import EventLoop
internal import JSON

/// The bridge: what the radio hears goes to the broker, what the broker asks goes to the radio.
///
/// Everything here is a consequence of an event and runs at once on the loop; the radio, the broker, the outbox and the
/// clock are ports.
@EventLoopActor
public final class Bridge {
    /// The schema of topics and payloads: raised by a removal or a change of meaning, never by an addition.
    public static let schema = 1
    private static let sweepInterval: Duration = .seconds(5)
    private static let healthInterval: Duration = .seconds(60)
    private static let adapterPatience: Duration = .seconds(2)
    private static let adapterDeadline: Duration = .seconds(30)

    public let settings: BridgeSettings
    public let space: TopicSpace
    private let radio: any RadioPort
    private let broker: any BrokerPort
    private let clock: any LoopClock
    private let publisher: Publisher
    private let directory: DeviceDirectory
    private let values: ValuePublisher
    private let events: EventLog
    private let commands: CommandService
    private let health: HealthReport
    private var timers: [LoopTimer] = []
    private var isStopping = false
    private var lastBrokerFault = ""
    private var didConnectBefore = false
    private var hadProblem = false
    private var adapters = AdapterHistory()

    /// No configured adapter within 30 s of the start: one sentence for a person. The program ends with it.
    public var onMissingAdapter: (@EventLoopActor (String) -> Void)?

    public init(
        settings: BridgeSettings, radio: any RadioPort, broker: any BrokerPort, outbox: any Outbox,
        journal: (any RequestJournal)? = nil, clock: any LoopClock = SystemClock.shared,
        log: @escaping LogSink = { _, _, _, _ in }
    ) {
        self.settings = settings
        self.radio = radio
        self.broker = broker
        self.clock = clock
        space = TopicSpace(base: settings.base, gateway: settings.gateway)
        publisher = Publisher(broker: broker, outbox: outbox, clock: clock)
        events = EventLog(space: space, publisher: publisher, clock: clock, log: log)
        directory = DeviceDirectory(
            settings: settings, space: space, radio: radio, publisher: publisher, clock: clock)
        values = ValuePublisher(space: space, publisher: publisher, clock: clock)
        let runner = CommandRunner(settings: settings, radio: radio, directory: directory, clock: clock)
        commands = CommandService(
            settings: settings, space: space, publisher: publisher, events: events, runner: runner,
            journal: journal, clock: clock)
        health = HealthReport(clock: clock)
        outbox.onWarning = { [events] code, message in events.report(.warning, code, message) }
        radio.delegate = self
        broker.delegate = self
    }

    /// The will of the broker's connection.
    public nonisolated static func will(_ space: TopicSpace) -> (topic: String, payload: [UInt8]) {
        (space.status, Array("offline".utf8))
    }

    // MARK: Life

    public func start() {
        publisher.set(space.status, Array("online".utf8))
        publishInfo()
        publishDiscovery()
        directory.publishAll()
        for filter in space.commandFilters { broker.subscribe(filter) }
        broker.start()
        radio.start()
        if let scan = settings.scan {
            do {
                _ = try radio.startScan(scan)
            } catch {
                events.report(.error, error.code.rawValue, "the configured scan does not run: \(error.message)")
            }
        }
        for device in settings.devices {
            if !device.subscriptions.isEmpty { radio.wantSubscriptions(device.address, device.subscriptions) }
            if device.connectsAlways { radio.keepConnected(device.address, adapter: device.adapter) }
        }
        every(Self.sweepInterval) { bridge in
            bridge.directory.sweep()
            bridge.publisher.pump()
        }
        every(Self.healthInterval) { bridge in
            bridge.directory.forgetSilent()
            bridge.publishHealth()
        }
        publishHealth()
        timers.append(clock.schedule(after: Self.adapterDeadline) { [weak self] in self?.checkAdapters() })
    }

    /// Stops the scan, flushes what it can, publishes `offline` retained and disconnects: within 5 s, whatever is there.
    public func stop() async {
        guard !isStopping else { return }
        isStopping = true
        for timer in timers { timer.cancel() }
        timers = []
        commands.stop()
        await stopRadio(within: .seconds(2))
        _ = await publisher.drain(within: .seconds(1))
        publisher.set(space.status, Array("offline".utf8))
        _ = await publisher.drain(within: .milliseconds(500))
        await broker.stop(flushWithin: .milliseconds(500))
        // What the broker did not take is on the disk when the program ends.
        await publisher.outbox.close(within: .milliseconds(500))
    }

    private func stopRadio(within limit: Duration) async {
        let done = Pending<Void>()
        let radio = radio
        Task { @EventLoopActor in
            await radio.stop()
            done.succeed(())
        }
        _ = try? await done.value(timeout: limit, clock: clock)
    }

    private func every(_ interval: Duration, _ body: @escaping @EventLoopActor (Bridge) -> Void) {
        let timer = clock.scheduleUpkeep(after: interval) { [weak self] in
            guard let self, !self.isStopping else { return }
            body(self)
            self.timers.removeAll { !$0.isPending }
            self.every(interval, body)
        }
        timers.append(timer)
    }

    // MARK: Adapters

    private func checkAdapters() {
        if let problem = radio.problem {
            // Without the bus or BlueZ the adapters cannot be known: that is waited for.
            events.report(.warning, "no_bluetooth", problem)
            timers.append(clock.schedule(after: Self.adapterDeadline) { [weak self] in self?.checkAdapters() })
            return
        }
        guard let sentence = Self.missingAdapter(settings.adapters, radio.adapters) else { return }
        onMissingAdapter?(sentence)
    }

    /// Nil while at least one adapter that may be used is there, else the sentence that says what is missing. Pure.
    public nonisolated static func missingAdapter(_ configured: [String], _ adapters: [AdapterReport]) -> String? {
        let present = adapters.filter(\.isPresent)
        guard !present.contains(where: \.isSelected) else { return nil }
        let list = present.map { "\($0.systemName) (\($0.address))" }.joined(separator: ", ")
        guard !configured.isEmpty else {
            return "no Bluetooth adapter was found; plug one in, or load its driver"
        }
        let names = configured.map { "'\($0)'" }.joined(separator: ", ")
        return "the configured adapter \(names) is not there; "
            + (list.isEmpty ? "no adapter is" : "there is \(list)") + "; change bluetooth.adapters or plug it in"
    }

    // MARK: The gateway's own topics

    private func publishInfo() {
        let adapters = radio.adapters.filter(\.isPresent).map { adapter in
            JSONValue.object([
                ("address", .string(adapter.address.description)), ("name", .string(adapter.name)),
                ("system_name", .string(adapter.systemName)),
            ])
        }
        let info = JSONValue.object([
            ("schema", .int(Int64(Self.schema))),
            ("version", .string(settings.version)),
            ("gateway", .string(settings.gateway)),
            ("host", .string(settings.host)),
            ("adapters", .array(adapters)),
            ("settings", settings.dump),
        ])
        publisher.set(space.info, info.serialised())
    }

    private func publishDiscovery() {
        publisher.set(space.discovery, Payloads.discovery(radio.scans, at: clock.wallNow).serialised())
    }

    private func publishHealth() {
        let counts = HealthReport.Sources(
            radio: radio.counts, publisher: publisher.counts, outboxCount: publisher.outbox.count,
            outboxDropped: publisher.outbox.dropped, outboxProblem: publisher.outbox.problem,
            unacknowledged: publisher.unacknowledged, pendingStates: publisher.pendingStates,
            pendingAdvertisements: publisher.pendingAdvertisements,
            brokerReconnects: broker.reconnects,
            brokerQueuedBytes: broker.queuedBytes, commandsReceived: commands.received,
            commandsFailed: commands.failed, commandsRunning: commands.runningCount,
            eventsSuppressed: events.suppressed, knownDevices: directory.knownCount,
            connections: radio.adapters.reduce(0) { $0 + $1.connections }, problem: radio.problem)
        publisher.set(space.health, health.payload(counts).serialised())
    }

    // MARK: The hot path

    /// An advertisement that one of the bridge's scans gets: from here to the broker's socket in one call chain.
    /// - Parameters:
    ///   - first: the scans that hear this device for the first time.
    ///   - time: when it was heard; nil: now.
    public func heard(_ source: some AdvertisementSource, hits: ScanHits, first: ScanHits, at time: HeardTime? = nil) {
        guard !isStopping else { return }
        directory.heard(source, hits: hits, first: first, at: time ?? HeardTime(clock.now, clock.wallNow))
    }
}

extension Bridge: RadioDelegate {
    public func radioDidChange() {
        guard !isStopping else { return }
        if let problem = radio.problem {
            events.report(.warning, "no_bluetooth", problem)
        } else {
            events.report(.info, "bluetooth", "BlueZ is there", isEnd: hadProblem)
        }
        hadProblem = radio.problem != nil
        directory.radioDidChange()
        publishInfo()
    }

    public func adapterDidChange(_ adapter: AdapterReport) {
        if let change = adapters.note(adapter) {
            tell(change, of: adapter)
            directory.radioDidChange()
        }
        publisher.set(space.adapter(adapter.address), Payloads.adapter(adapter, at: clock.wallNow).serialised())
        publishInfo()
    }

    /// What may be over in a moment is told only if it is not: bluetoothd shows adapters off before it switches them on,
    /// and takes them away before it ends.
    private func tell(_ change: AdapterHistory.Change, of adapter: AdapterReport) {
        guard change.level >= .warning else {
            return events.report(change.level, change.code, change.message, isEnd: change.isEnd)
        }
        let timer = clock.schedule(after: Self.adapterPatience) { [weak self] in
            guard let self, !isStopping, radio.problem == nil,
                radio.adapters.first(where: { $0.address == adapter.address })?.state == adapter.state
            else { return }
            adapters.didTell(of: adapter.address)
            events.report(change.level, change.code, change.message)
        }
        timers.append(timer)
    }

    public func deviceDidChange(_ address: BluetoothAddress) { directory.deviceDidChange(address) }
    public func deviceDidDisappear(_ address: BluetoothAddress) { directory.deviceDidDisappear(address) }
    public func linkDidChange(_ address: BluetoothAddress) { directory.linkDidChange(address) }
    public func servicesDidChange(_ address: BluetoothAddress) { directory.servicesDidChange(address) }
    public func didReceive(_ value: HeardValue) { values.publish(value) }

    public func scanDidStart(_ scan: ScanReport) {
        directory.scanDidStart(scan)
        scanEvent("started", scan, reason: nil)
    }

    public func scanDidEnd(_ scan: ScanReport, reason: String) { scanEvent("stopped", scan, reason: reason) }

    private func scanEvent(_ event: String, _ scan: ScanReport, reason: String?) {
        let payload = Payloads.discoveryEvent(
            event, session: scan.id, isConfigured: scan.command.isConfigured, at: clock.wallNow, reason: reason)
        publisher.send(OutboxMessage(topic: space.discoveryEvent, payload: payload.serialised()))
        publishDiscovery()
    }

    public func radioDidWarn(level: LogLevel, code: String, message: String, device: BluetoothAddress?) {
        let isEnd = code == "scan_resumed" || code == "scan_heard"
        events.report(level, code, message, device: device, isEnd: isEnd)
    }
}

extension Bridge: BrokerDelegate {
    public func brokerDidConnect() {
        lastBrokerFault = ""
        events.note(.info, "broker", didConnectBefore ? "connected to the broker again" : "connected to the broker")
        didConnectBefore = true
        publisher.connected(first: [space.status])
    }

    public func brokerDidDisconnect(reason: String, isSerious: Bool) {
        publisher.disconnected()
        // The same fault again and again is one line, not thousands.
        guard reason != lastBrokerFault, !isStopping else { return }
        lastBrokerFault = reason
        if isSerious {
            events.report(.error, "broker", reason)
        } else {
            events.note(.warning, "broker", reason)
        }
    }

    public func brokerDidReceive(_ message: InboundMessage) { commands.handle(message) }
    public func brokerDidAcknowledge(token: UInt64) { publisher.acknowledged(token) }
}
