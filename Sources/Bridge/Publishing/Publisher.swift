internal import Bluetooth
internal import EventLoop

/// Everything that leaves for the broker: advertisements at once or not at all, states of which the newest counts, and
/// messages that must arrive. At most so many are unacknowledged; what a lost connection took is sent again. What was
/// kept while the broker was away goes at a bounded rate, and answers pass it.
@EventLoopActor
final class Publisher {
    /// What was published and dropped since the start.
    struct Counts: Equatable {
        var advertisements: UInt64 = 0
        /// Advertisements without a connection to the broker.
        var droppedOffline: UInt64 = 0
        /// Advertisements that the broker read too slowly for.
        var droppedSlow: UInt64 = 0
        /// Events of strangers that were found without a connection to the broker.
        var droppedDiscoveries: UInt64 = 0
        /// Messages that no broker connection takes, for their size.
        var impossible: UInt64 = 0
        /// Answers whose time had passed before the broker was back.
        var expired: UInt64 = 0
        var messages: UInt64 = 0
        var states: UInt64 = 0
    }

    /// A retained topic: only its newest payload counts.
    private final class State {
        let topic: String
        let topicBytes: [UInt8]
        var payload: [UInt8]
        var isDirty = false

        init(topic: String, payload: [UInt8]) {
            self.topic = topic
            topicBytes = Array(topic.utf8) + [0]
            self.payload = payload
        }
    }

    private enum InFlight {
        case message(UInt64)
        /// With the version of the payload that was sent: true where it is a removal.
        case state(State, isRemoval: Bool)
    }

    /// Unacknowledged messages; with a broker 50 ms away, 2,000 a second.
    private static let messageWindow = 100
    /// Answers among them may be so many more.
    private static let promptReserve = 20
    /// Messages a second of what was kept.
    static let backlogRate: Int64 = 5_000
    private static let backlogPause: Duration = .milliseconds(10)
    /// Messages that wait for company leave together after this time or a little later: some at a time cost less, and many
    /// would keep the broker from the next advertisement.
    private static let groupPause: Duration = .milliseconds(2)
    /// A broker that reads too slowly is tried again so often.
    private static let newestPause: Duration = .milliseconds(100)
    private static let stateWindow = 50

    let outbox: any Outbox
    private let broker: any BrokerPort
    private let clock: any LoopClock
    @exclusivity(unchecked) private(set) var counts = Counts()
    private var states: [String: State] = [:]
    @exclusivity(unchecked) private var dirty: [State] = []
    @exclusivity(unchecked) private var inFlight: [UInt64: InFlight] = [:]
    @exclusivity(unchecked) private var messagesInFlight = 0
    private var statesInFlight = 0
    @exclusivity(unchecked) private var lastSent: UInt64?
    private var lastPrompt: UInt64?
    @exclusivity(unchecked) private var isPumping = false
    /// What waited when the connection was made ends here.
    private var backlogEnd: UInt64 = 0
    private var pace = Pace(perSecond: Publisher.backlogRate, burst: 200)
    private var paceTimer: LoopTimer?
    /// Something that is to be sent had to stay: for want of room in a window, or since the broker refused it.
    @exclusivity(unchecked) private var isHeldBack = false
    private var groupTimer: LoopTimer?
    private var group: [OutboxMessage] = []
    @exclusivity(unchecked) private var newest = NewestAdvertisements()
    private var newestTimer: LoopTimer?
    /// Calls back when nothing is left to send.
    private var idleWaiters: [Pending<Void>] = []

    init(broker: any BrokerPort, outbox: any Outbox, clock: any LoopClock) {
        self.broker = broker
        self.outbox = outbox
        self.clock = clock
        outbox.onReady = { [weak self] in self?.pump() }
    }

    var isConnected: Bool { broker.isConnected }
    var pendingStates: Int { dirty.count }
    var unacknowledged: Int { inFlight.count }
    var pendingAdvertisements: Int { newest.count }
    var retainedTopics: [String] { Array(states.keys) }

    // MARK: Advertisements

    /// Whether an advertisement is worth writing. Those of strangers are not while the broker is away, or behind with known
    /// devices: they are dropped, and counted.
    func takesAdvertisement(ofKnown isKnown: Bool) -> Bool {
        if isKnown || (newest.isEmpty && broker.isConnected) { return true }
        if broker.isConnected {
            sendNewest()
            if newest.isEmpty { return true }
        }
        noteDropped()
        return false
    }

    /// Publishes at QoS 0. What the broker does not take now is kept for a known device until the next one, or until the
    /// broker takes it.
    func advertisement(
        topic: UnsafeBufferPointer<UInt8>, payload: UnsafeRawBufferPointer, of address: BluetoothAddress, isKnown: Bool
    ) {
        if !newest.isEmpty, broker.isConnected { sendNewest() }
        if newest.isEmpty, broker.isConnected {
            switch broker.publishPlain(topic: topic, payload: payload) {
            case .sent:
                counts.advertisements += 1
                return
            case .refused: break
            case .impossible:
                counts.impossible += 1
                return
            }
        }
        guard isKnown, newest.keep(address, topic: topic, payload: payload) else { return noteDropped() }
        if broker.isConnected { retryNewest() }
    }

    /// Nothing of the device is sent any more.
    func forgetAdvertisement(of address: BluetoothAddress) { newest.remove(address) }

    func noteDroppedDiscovery() { counts.droppedDiscoveries += 1 }

    private func noteDropped() {
        if broker.isConnected { counts.droppedSlow += 1 } else { counts.droppedOffline += 1 }
    }

    private func sendNewest() {
        while let kept = newest.first {
            let result = kept.topic.withUnsafeBufferPointer { topic in
                kept.payload.withUnsafeBytes { payload in
                    broker.publish(topic: topic, payload: payload, qos: 0, retain: false, properties: nil)
                }
            }
            switch result {
            case .sent: counts.advertisements += 1
            case .refused: return retryNewest()
            case .impossible: counts.impossible += 1
            }
            newest.removeFirst()
        }
    }

    private func retryNewest() {
        guard newestTimer == nil else { return }
        newestTimer = clock.schedule(after: Self.newestPause) { [weak self] in
            guard let self else { return }
            self.newestTimer = nil
            if self.broker.isConnected, !self.newest.isEmpty { self.sendNewest() }
        }
    }

    // MARK: States

    /// Sets a retained topic. An equal payload costs nothing.
    func set(_ topic: String, _ payload: [UInt8]) {
        if let state = states[topic] {
            guard state.payload != payload else { return }
            state.payload = payload
            mark(state)
        } else {
            guard !payload.isEmpty else { return }
            let state = State(topic: topic, payload: payload)
            states[topic] = state
            mark(state)
        }
        pump()
    }

    /// Removes a retained topic from the broker, also one of an earlier run that is not known here.
    func clear(_ topic: String) {
        let state = states[topic] ?? State(topic: topic, payload: [])
        states[topic] = state
        state.payload = []
        mark(state)
        pump()
    }

    private func mark(_ state: State) {
        guard !state.isDirty else { return }
        state.isDirty = true
        dirty.append(state)
    }

    // MARK: Messages

    /// Sends a message that must arrive, as soon as there is a connection.
    func send(_ message: OutboxMessage) {
        if !group.isEmpty { endGroup() }
        outbox.enqueue(message)
        pump()
    }

    /// The same for one of many that nobody waits for: it leaves before the next message, or in a moment with those that
    /// have come by then, which costs each of them less.
    func sendInGroup(_ message: OutboxMessage) {
        group.append(message)
        guard groupTimer == nil else { return }
        groupTimer = clock.scheduleLoosely(after: Self.groupPause) { [weak self] in
            guard let self else { return }
            self.groupTimer = nil
            self.sendGroup()
        }
    }

    /// What waits for company leaves now.
    func sendGroup() {
        endGroup()
        pump()
    }

    private func endGroup() {
        for message in group { outbox.enqueue(message) }
        group.removeAll(keepingCapacity: group.capacity <= 256)
    }

    // MARK: The connection

    /// - Parameter first: topics that go before all others, such as the birth.
    func connected(first: [String]) {
        resetInFlight()
        backlogEnd = outbox.newestID
        dirty = []
        for topic in first + states.keys.sorted() {
            guard let state = states[topic] else { continue }
            state.isDirty = false
        }
        for topic in first + states.keys.sorted() {
            guard let state = states[topic] else { continue }
            mark(state)
        }
        pump()
    }

    func disconnected() { resetInFlight() }

    func acknowledged(_ token: UInt64) {
        guard let acknowledged = inFlight.removeValue(forKey: token) else { return }
        switch acknowledged {
        case .message(let id):
            messagesInFlight -= 1
            outbox.remove(id)
        case .state(let state, let isRemoval):
            statesInFlight -= 1
            if isRemoval, !state.isDirty, state.payload.isEmpty, states[state.topic] === state {
                states[state.topic] = nil
            }
        }
        if isHeldBack || !idleWaiters.isEmpty { pump() }
    }

    private func resetInFlight() {
        inFlight = [:]
        messagesInFlight = 0
        statesInFlight = 0
        lastSent = nil
        lastPrompt = nil
        paceTimer?.cancel()
        paceTimer = nil
    }

    /// Sends what may be sent now. Called on each change, and now and then for what the broker refused before.
    func pump() {
        guard !isPumping, broker.isConnected else { return }
        isPumping = true
        defer { isPumping = false }
        isHeldBack = false
        pumpStates()
        if !newest.isEmpty { sendNewest() }
        pumpMessages(.prompt, upTo: Self.messageWindow + Self.promptReserve)
        pumpMessages(.ordered, upTo: Self.messageWindow)
        if isIdle {
            for waiter in idleWaiters { waiter.succeed(()) }
            idleWaiters = []
        }
    }

    private func pumpStates() {
        guard !dirty.isEmpty else { return }
        var sent = 0
        defer {
            dirty.removeFirst(sent)
            if !dirty.isEmpty { isHeldBack = true }
        }
        while sent < dirty.count, statesInFlight < Self.stateWindow {
            let state = dirty[sent]
            switch publish(state.topicBytes, state.payload, retain: true, properties: nil) {
            case .sent(let token):
                inFlight[token] = .state(state, isRemoval: state.payload.isEmpty)
                statesInFlight += 1
                counts.states += 1
            case .refused: return
            case .impossible: counts.impossible += 1
            }
            state.isDirty = false
            sent += 1
        }
    }

    private func pumpMessages(_ lane: OutboxMessage.Lane, upTo window: Int) {
        while paceTimer == nil || lane == .prompt,
            let (id, message) = outbox.next(after: lane == .prompt ? lastPrompt : lastSent, in: lane)
        {
            guard messagesInFlight < window else {
                isHeldBack = true
                return
            }
            if lane == .ordered, id <= backlogEnd, !pace.take(at: clock.now) {
                paceTimer = clock.schedule(after: Self.backlogPause) { [weak self] in
                    self?.paceTimer = nil
                    self?.pump()
                }
                return
            }
            guard send(id, message) else {
                isHeldBack = true
                return
            }
            if lane == .prompt { lastPrompt = id } else { lastSent = id }
        }
    }

    /// False where the broker refuses: later.
    private func send(_ id: UInt64, _ message: OutboxMessage) -> Bool {
        var properties: MessageProperties?
        if broker.hasProperties, message.expires != nil || message.responseCorrelation != nil {
            var expiry: UInt32?
            if let expires = message.expires {
                let left = expires.milliseconds - clock.wallNow.milliseconds
                guard left > 0 else {
                    counts.expired += 1
                    outbox.remove(id)
                    return true
                }
                expiry = UInt32(clamping: (left + 999) / 1000)
            }
            properties = MessageProperties(correlationData: message.responseCorrelation, expiry: expiry)
        }
        switch publish(message.topic, message.payload, retain: false, properties: properties) {
        case .sent(let token):
            inFlight[token] = .message(id)
            messagesInFlight += 1
            counts.messages += 1
        case .refused: return false
        case .impossible:
            counts.impossible += 1
            outbox.remove(id)
        }
        return true
    }

    private func publish(
        _ topic: [UInt8], _ payload: [UInt8], retain: Bool, properties: MessageProperties?
    ) -> PublishResult {
        publish(topic, topic.count, payload, payload.count, retain, properties)
    }

    /// Arrays go where pointers stand, without closures: in isolated code each call of one is checked.
    private func publish(
        _ topic: UnsafePointer<UInt8>, _ topicCount: Int, _ payload: UnsafeRawPointer, _ payloadCount: Int,
        _ retain: Bool, _ properties: MessageProperties?
    ) -> PublishResult {
        broker.publish(
            topic: UnsafeBufferPointer(start: topic, count: topicCount),
            payload: UnsafeRawBufferPointer(start: payload, count: payloadCount), qos: 1, retain: retain,
            properties: properties)
    }

    // MARK: The end

    private var isIdle: Bool { inFlight.isEmpty && dirty.isEmpty && outbox.count == 0 }

    /// Waits until everything was acknowledged, at most `limit`. False where something is left.
    func drain(within limit: Duration) async -> Bool {
        endGroup()
        guard !isIdle else { return true }
        guard broker.isConnected else { return false }
        let waiter = Pending<Void>()
        idleWaiters.append(waiter)
        pump()
        return (try? await waiter.value(timeout: limit, clock: clock)) != nil
    }
}
