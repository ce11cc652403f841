public import EventLoop

/// A client of one broker, which comes back by itself.
///
/// Each attempt has a connection of its own; nothing is carried over but the subscriptions, which are made again.
/// Messages of QoS 1 without an acknowledgement are given back to the owner, who repeats them: only one side may.
/// Handlers are called on the loop, synchronously; in them everything may be called but ``stop(flushWithin:)``, which
/// is `async` and so runs later. A client that is let go without it drops its connection, and the broker publishes the
/// will.
@EventLoopActor
public final class MQTTClient {
    public let settings: MQTTSettings
    private let clock: any LoopClock

    /// The broker has taken us, and the subscriptions are on their way.
    public var onConnect: (@EventLoopActor (ConnectInfo) -> Void)?
    /// A connection has ended or an attempt has failed; see ``MQTTFault/wasConnected``.
    public var onDisconnect: (@EventLoopActor (MQTTFault) -> Void)?
    public var onMessage: (@EventLoopActor (MQTTReceived) -> Void)?
    /// The same without a copy, before ``onMessage``.
    public var onInbound: (@EventLoopActor (MQTTInbound) -> Void)?
    /// A message of QoS 1 was acknowledged; the words say why the broker refused it, if it did (MQTT 5).
    public var onPublished: (@EventLoopActor (PublishToken, _ refused: String?) -> Void)?
    /// Messages of QoS 1 whose connection ended before their acknowledgement, just before ``onDisconnect``. The broker
    /// may have them nevertheless.
    public var onLost: (@EventLoopActor ([PublishToken]) -> Void)?
    /// The broker has answered a subscription; the words say why it refused, if it did.
    public var onSubscribed: (@EventLoopActor (_ filter: String, _ refused: String?) -> Void)?

    @exclusivity(unchecked) public private(set) var state = MQTTState.stopped
    /// What the broker allows, while connected.
    public var connectInfo: ConnectInfo? { state == .connected ? connection?.info : nil }
    /// The last fault; nil while connected.
    public private(set) var lastFault: MQTTFault?

    @exclusivity(unchecked) private var counts = MQTTStatistics()
    @exclusivity(unchecked) private(set) var connection: Connection?
    private var attempt: UInt64 = 0
    private var deadline: LoopTimer?
    private var ticker: LoopTimer?
    private var retry: LoopTimer?
    private var backoff = Backoff()
    private var connectedAt: MonotonicTime?
    @exclusivity(unchecked) private var lastToken: UInt64 = 0
    private var subscriptions: [(filter: String, options: SubscribeOptions)] = []
    private var subscribing: [Int32: String] = [:]
    private var isStopping = false
    private var stopWaiters: [Pending<Void>] = []

    public init(_ settings: MQTTSettings, clock: any LoopClock = SystemClock.shared) {
        self.settings = settings
        self.clock = clock
    }

    deinit {
        guard let connection else { return }
        Task { @EventLoopActor in connection.close() }
    }

    public var statistics: MQTTStatistics {
        var result = counts
        result.pendingBytes = connection?.pendingBytes ?? 0
        result.unacknowledged = connection?.tokens.count ?? 0
        return result
    }

    // MARK: Life

    /// Connects, and goes on until ``stop(flushWithin:)``. Later calls do nothing.
    public func start() {
        guard state == .stopped else { return }
        connect()
    }

    /// Sends what is queued, waits for acknowledgements, and takes leave so that the broker drops the will; closes
    /// after `limit` in any case. An attempt that still hangs is abandoned.
    public func stop(flushWithin limit: Duration) async {
        retry?.cancel()
        guard state != .stopped else { return }
        guard let connection, state == .connected else { return finishStop() }
        let pending = Pending<Void>()
        stopWaiters.append(pending)
        isStopping = true
        let timer = clock.schedule(after: limit) { [weak self] in self?.finishStop() }
        connection.flush()
        leaveWhenIdle()
        _ = try? await pending.value()
        timer.cancel()
    }

    private func finishStop() {
        guard state != .stopped else { return }
        attempt &+= 1
        state = .stopped
        isStopping = false
        let lost = connection?.takeLostTokens() ?? []
        abandonConnection()
        report(lost)
        let waiters = stopWaiters
        stopWaiters = []
        for waiter in waiters { waiter.succeed(()) }
    }

    /// Once nothing is under way, says good-bye.
    private func leaveWhenIdle() {
        guard isStopping, let connection, connection.tokens.count == 0 else { return }
        connection.disconnect()
    }

    private func abandonConnection() {
        deadline?.cancel()
        ticker?.cancel()
        retry?.cancel()
        connection?.close()
        connection = nil
        connectedAt = nil
        subscribing = [:]
    }

    private func connect() {
        state = .connecting
        attempt &+= 1
        let attempt = attempt
        let instance: Instance
        do {
            instance = try Instance(settings)
        } catch {
            return failed(error)
        }
        let timeout = settings.connectTimeout
        deadline = clock.schedule(after: timeout) { [weak self] in
            guard let self, self.attempt == attempt else { return }
            self.failed(
                MQTTFault(
                    .unreachable,
                    "no answer from \(self.settings.endpoint) within \(timeout.clampedMilliseconds) ms"))
        }
        // One task for each attempt; it ends with the blocking call, whoever still waits for it.
        Task { [weak self] in
            let result: MQTTFault?? = await ConnectWorkers.shared.run { instance.connect() }
            guard let self, self.attempt == attempt, self.state == .connecting else { return }
            switch result {
            case .none:
                self.failed(MQTTFault(.unreachable, "earlier connects to \(self.settings.endpoint) still hang"))
            case .some(.some(let fault)):
                self.failed(fault)
            case .some(.none):
                let connection = Connection(instance, delegate: self)
                self.connection = connection
                connection.attach()
            }
        }
    }

    private func failed(_ fault: MQTTFault) {
        attempt &+= 1  // what is still under way comes too late
        abandonConnection()
        backoff.attemptFailed(fault.code)
        wait(after: fault, wasConnected: false)
    }

    private func wait(after fault: MQTTFault, wasConnected: Bool) {
        counts.faults &+= 1
        state = .waiting
        let delay = backoff.delay(after: fault.code)
        retry = clock.schedule(after: delay) { [weak self] in
            guard let self, self.state == .waiting else { return }
            self.connect()
        }
        var fault = fault
        fault.wasConnected = wasConnected
        fault.retryDelay = delay
        lastFault = fault
        onDisconnect?(fault)
    }

    private func report(_ lost: [PublishToken]) {
        guard !lost.isEmpty else { return }
        counts.lost &+= UInt64(lost.count)
        onLost?(lost)
    }

    private func scheduleTick(_ connection: Connection) {
        let keepAlive = connection.info?.serverKeepAlive ?? settings.keepAlive
        guard keepAlive > 0 else { return }
        let pause = Duration.seconds(max(1, min(Int(keepAlive) / 6, 10)))
        ticker = clock.scheduleUpkeep(after: pause) { [weak self, weak connection] in
            guard let self, let connection, self.connection === connection else { return }
            connection.tick(pause)
            if self.connection === connection { self.scheduleTick(connection) }
        }
    }

    // MARK: Publishing

    /// Publishes; the hot path. At QoS 0 one call into libmosquitto and no allocation of ours. The message leaves at the
    /// end of this batch of events.
    /// - Parameter topic: a C string of UTF-8. Source: `mosquitto_publish_v5`.
    public func publish(
        topic: UnsafePointer<CChar>, payload: UnsafeRawBufferPointer, qos: QoS = .atMostOnce, retain: Bool = false,
        properties: PublishProperties? = nil
    ) -> PublishOutcome {
        let outcome = take(topic: topic, payload: payload, qos: qos, retain: retain, properties: properties)
        switch outcome {
        case .sent:
            counts.published &+= 1
            counts.publishedBytes &+= UInt64(payload.count)
        case .dropped(let reason): counts.count(reason)
        }
        return outcome
    }

    /// Publishes a text topic and bytes, for where an allocation does not matter.
    @discardableResult
    public func publish(
        _ topic: String, _ payload: [UInt8], qos: QoS = .atMostOnce, retain: Bool = false,
        properties: PublishProperties? = nil
    ) -> PublishOutcome {
        // A C string would end at the NUL, and the message would go elsewhere.
        guard !topic.utf8.contains(0) else {
            counts.count(.invalidTopic)
            return .dropped(.invalidTopic)
        }
        return payload.withUnsafeBytes { bytes in
            publish(topic: topic, payload: bytes, qos: qos, retain: retain, properties: properties)
        }
    }

    /// The same at QoS 0, not retained and without properties, for what comes thousands of times a second.
    public func publishPlain(topic: UnsafePointer<CChar>, payload: UnsafeRawBufferPointer) -> PublishOutcome {
        guard let connection, connection.isOpen else {
            counts.count(.notConnected)
            return .dropped(.notConnected)
        }
        let size = Connection.packetSize(topic, payload.count, nil)
        guard size <= connection.maximumPacketSize, connection.hasRoom(for: size),
            connection.publishPlain(topic: topic, payload: payload)
        else { return publish(topic: topic, payload: payload) }
        counts.published &+= 1
        counts.publishedBytes &+= UInt64(payload.count)
        return .sent(.none)
    }

    private func take(
        topic: UnsafePointer<CChar>, payload: UnsafeRawBufferPointer, qos: QoS, retain: Bool,
        properties: PublishProperties?
    ) -> PublishOutcome {
        guard let connection, connection.isOpen else { return .dropped(.notConnected) }
        let size = Connection.packetSize(topic, payload.count, properties)
        guard size <= connection.maximumPacketSize else { return .dropped(.tooLarge) }
        switch qos {
        case .atMostOnce:
            guard connection.hasRoom(for: size) else { return .dropped(.slow) }
            if !retain, properties == nil, connection.publishPlain(topic: topic, payload: payload) {
                return .sent(.none)
            }
        case .atLeastOnce:
            // The queue itself is not held here: a second reference would make each append copy it.
            let count = connection.tokens.count
            let bytes = connection.tokens.bytes
            guard count < settings.unacknowledgedLimit,
                count == 0 || bytes + size <= settings.unacknowledgedBytesLimit
            else { return .dropped(.full) }
        }
        var token = PublishToken.none
        if qos == .atLeastOnce {
            lastToken &+= 1
            token = PublishToken(number: lastToken)
        }
        let status = connection.publish(
            topic: topic, payload: payload, qos: qos, retain: retain, properties: properties, size: size, token: token)
        return status == 0 ? .sent(token) : .dropped(Connection.reason(status))
    }

    // MARK: Subscribing

    /// Asks for messages, now and after each reconnect. The same filter again replaces its options.
    public func subscribe(_ filter: String, _ options: SubscribeOptions = SubscribeOptions()) {
        if let index = subscriptions.firstIndex(where: { $0.filter == filter }) {
            subscriptions[index].options = options
        } else {
            subscriptions.append((filter, options))
        }
        if state == .connected { send(filter, options) }
    }

    public func unsubscribe(_ filter: String) {
        subscriptions.removeAll { $0.filter == filter }
        if state == .connected { connection?.unsubscribe(filter) }
    }

    private func send(_ filter: String, _ options: SubscribeOptions) {
        guard let connection else { return }
        guard TopicFilter(filter) != nil, let packet = connection.subscribe(filter, options) else {
            onSubscribed?(filter, "'\(filter)' is not a topic filter")
            return
        }
        subscribing[packet] = filter
    }
}

extension MQTTClient: ConnectionDelegate {
    func connectionOpened(_ connection: Connection, _ info: ConnectInfo) {
        guard connection === self.connection else { return }
        deadline?.cancel()
        state = .connected
        lastFault = nil
        connectedAt = clock.now
        counts.connects &+= 1
        scheduleTick(connection)
        for (filter, options) in subscriptions { send(filter, options) }
        onConnect?(info)
    }

    func connectionEnded(_ connection: Connection, _ fault: MQTTFault?) {
        guard connection === self.connection else { return }
        if isStopping { return finishStop() }
        let lost = connection.takeLostTokens()
        let since = connectedAt
        abandonConnection()
        attempt &+= 1
        guard let since else {
            return failed(fault ?? MQTTFault(.unreachable, "\(settings.endpoint) closed the connection"))
        }
        var fault = fault ?? MQTTFault(.unreachable, "\(settings.endpoint) closed the connection")
        if backoff.connectionEnded(fault.code, lasted: clock.now - since) {
            fault = MQTTFault(
                .takenOver,
                "\(fault.message), as often soon after it had accepted us: another client seems to use the client id "
                    + "'\(settings.clientID)'; give each its own")
        }
        report(lost)
        wait(after: fault, wasConnected: true)
    }

    func connection(_ connection: Connection, received message: MQTTInbound) {
        counts.received &+= 1
        counts.receivedBytes &+= UInt64(message.payloadLength)
        if message.isTooLarge { counts.receivedTooLarge &+= 1 }
        onInbound?(message)
        if let onMessage { onMessage(message.copy) }
    }

    func connection(_ connection: Connection, acknowledged token: PublishToken, reason: UInt8) {
        counts.acknowledged &+= 1
        onPublished?(token, reason < 0x80 ? nil : Answer.words(reason))
        leaveWhenIdle()
    }

    func connection(_ connection: Connection, answeredSubscription packet: Int32, granted: [UInt8]) {
        guard let filter = subscribing.removeValue(forKey: packet) else { return }
        let refused = granted.first { $0 >= 0x80 }
        onSubscribed?(filter, refused.map { Answer.words($0) })
    }
}
