internal import EventLoop

/// Everything that leaves for the broker: advertisements at once or not at all, states of which the newest counts, and
/// messages that must arrive. At most so many are unacknowledged; what a lost connection took is sent again.
@EventLoopActor
final class Publisher {
    /// What was published and dropped since the start.
    struct Counts: Equatable {
        var advertisements: UInt64 = 0
        /// Advertisements without a connection to the broker.
        var droppedOffline: UInt64 = 0
        /// Advertisements that the broker read too slowly for.
        var droppedSlow: UInt64 = 0
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

    private static let messageWindow = 20
    private static let stateWindow = 50

    let outbox: any Outbox
    private let broker: any BrokerPort
    private let clock: any LoopClock
    private(set) var counts = Counts()
    private var states: [String: State] = [:]
    private var dirty: [State] = []
    private var inFlight: [UInt64: InFlight] = [:]
    private var messagesInFlight = 0
    private var statesInFlight = 0
    private var lastSent: UInt64?
    private var isPumping = false
    /// Calls back when nothing is left to send.
    private var idleWaiters: [Pending<Void>] = []

    init(broker: any BrokerPort, outbox: any Outbox, clock: any LoopClock) {
        self.broker = broker
        self.outbox = outbox
        self.clock = clock
    }

    var isConnected: Bool { broker.isConnected }
    var pendingStates: Int { dirty.count }
    var unacknowledged: Int { inFlight.count }
    var retainedTopics: [String] { Array(states.keys) }

    // MARK: Advertisements

    /// Publishes at QoS 0. False where it was dropped.
    func advertisement(topic: UnsafeBufferPointer<UInt8>, payload: UnsafeRawBufferPointer) -> Bool {
        switch broker.publish(topic: topic, payload: payload, qos: 0, retain: false, properties: nil) {
        case .sent:
            counts.advertisements += 1
            return true
        case .refused:
            counts.droppedSlow += 1
        case .impossible:
            counts.impossible += 1
        }
        return false
    }

    /// Publishes at QoS 0 that a scan found a device.
    func found(topic: UnsafeBufferPointer<UInt8>, payload: UnsafeRawBufferPointer) {
        if broker.publish(topic: topic, payload: payload, qos: 0, retain: false, properties: nil) == .refused {
            counts.droppedSlow += 1
        }
    }

    func noteDroppedOffline() { counts.droppedOffline += 1 }

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
        outbox.enqueue(message)
        pump()
    }

    // MARK: The connection

    /// - Parameter first: topics that go before all others, such as the birth.
    func connected(first: [String]) {
        resetInFlight()
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
        pump()
    }

    private func resetInFlight() {
        inFlight = [:]
        messagesInFlight = 0
        statesInFlight = 0
        lastSent = nil
    }

    /// Sends what may be sent now. Called on each change, and now and then for what the broker refused before.
    func pump() {
        guard !isPumping, broker.isConnected else { return }
        isPumping = true
        defer { isPumping = false }
        pumpStates()
        pumpMessages()
        if isIdle {
            for waiter in idleWaiters { waiter.succeed(()) }
            idleWaiters = []
        }
    }

    private func pumpStates() {
        var sent = 0
        defer { dirty.removeFirst(sent) }
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

    private func pumpMessages() {
        while messagesInFlight < Self.messageWindow, let (id, message) = outbox.next(after: lastSent) {
            var properties: MessageProperties?
            if broker.hasProperties {
                var expiry: UInt32?
                if let expires = message.expires {
                    let left = expires.milliseconds - clock.wallNow.milliseconds
                    guard left > 0 else {
                        counts.expired += 1
                        outbox.remove(id)
                        lastSent = id
                        continue
                    }
                    expiry = UInt32(clamping: (left + 999) / 1000)
                }
                if expiry != nil || message.responseCorrelation != nil {
                    properties = MessageProperties(correlationData: message.responseCorrelation, expiry: expiry)
                }
            }
            switch publish(message.topic, message.payload, retain: false, properties: properties) {
            case .sent(let token):
                inFlight[token] = .message(id)
                messagesInFlight += 1
                counts.messages += 1
            case .refused: return
            case .impossible:
                counts.impossible += 1
                outbox.remove(id)
            }
            lastSent = id
        }
    }

    private func publish(
        _ topic: [UInt8], _ payload: [UInt8], retain: Bool, properties: MessageProperties?
    ) -> PublishResult {
        topic.withUnsafeBufferPointer { topic in
            payload.withUnsafeBytes { payload in
                broker.publish(topic: topic, payload: payload, qos: 1, retain: retain, properties: properties)
            }
        }
    }

    // MARK: The end

    private var isIdle: Bool { inFlight.isEmpty && dirty.isEmpty && outbox.count == 0 }

    /// Waits until everything was acknowledged, at most `limit`. False where something is left.
    func drain(within limit: Duration) async -> Bool {
        guard !isIdle else { return true }
        guard broker.isConnected else { return false }
        let waiter = Pending<Void>()
        idleWaiters.append(waiter)
        return (try? await waiter.value(timeout: limit, clock: clock)) != nil
    }
}
