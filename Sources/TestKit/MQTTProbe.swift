public import EventLoop
public import MQTT

/// A client that listens to a broker for a test. What it receives waits until a test takes it.
@EventLoopActor
public final class MQTTProbe {
    public let client: MQTTClient
    /// All messages, in the order they came.
    public private(set) var messages: [MQTTReceived] = []
    /// Those that no wait has taken yet.
    public private(set) var unread: [MQTTReceived] = []

    private let monitor = Monitor()
    private var subscribed: Set<String> = []
    private var refused: [String: String] = [:]
    private var acknowledged: Set<PublishToken> = []
    private var roundTrips = 0
    private static var probes = 0

    /// Connects to a broker on this machine and subscribes.
    /// - Throws: ``Expired`` where the broker does not answer in time.
    public static func connect(
        port: UInt16, subscribing filters: [String] = ["#"], version: MQTTVersion = .v5,
        configure: (inout MQTTSettings) -> Void = { _ in }
    ) async throws -> MQTTProbe {
        probes += 1
        var settings = MQTTSettings(host: "127.0.0.1", port: port, clientID: "probe-\(probes)")
        settings.version = version
        settings.receivedPayloadLimit = 16 << 20
        configure(&settings)
        let probe = MQTTProbe(settings)
        probe.client.start()
        try await probe.monitor.wait("a connection to port \(port)") { probe.client.state == .connected }
        for filter in filters { try await probe.subscribe(filter) }
        return probe
    }

    private init(_ settings: MQTTSettings) {
        client = MQTTClient(settings)
        client.onConnect = { [weak self] _ in self?.monitor.changed() }
        client.onDisconnect = { [weak self] _ in self?.monitor.changed() }
        client.onMessage = { [weak self] message in
            self?.messages.append(message)
            self?.unread.append(message)
            self?.monitor.changed()
        }
        client.onSubscribed = { [weak self] filter, refused in
            self?.subscribed.insert(filter)
            self?.refused[filter] = refused
            self?.monitor.changed()
        }
        client.onPublished = { [weak self] token, _ in
            self?.acknowledged.insert(token)
            self?.monitor.changed()
        }
    }

    /// Subscribes and waits for the broker's answer.
    public func subscribe(_ filter: String, qos: QoS = .atLeastOnce) async throws {
        client.subscribe(filter, SubscribeOptions(qos: qos))
        try await monitor.wait("the subscription of \(filter)") { self.subscribed.contains(filter) }
        if let why = refused[filter] { throw Expired(message: "\(filter) was refused: \(why)") }
    }

    /// Publishes at QoS 1 and waits for the acknowledgement.
    public func publish(
        _ topic: String, _ payload: [UInt8], retain: Bool = false, properties: PublishProperties? = nil
    ) async throws {
        let outcome = client.publish(topic, payload, qos: .atLeastOnce, retain: retain, properties: properties)
        guard case .sent(let token) = outcome else { throw Expired(message: "\(topic) was not sent: \(outcome)") }
        try await monitor.wait("the acknowledgement of \(topic)") { self.acknowledged.contains(token) }
    }

    public func publish(
        _ topic: String, _ payload: String, retain: Bool = false, properties: PublishProperties? = nil
    ) async throws {
        try await publish(topic, Array(payload.utf8), retain: retain, properties: properties)
    }

    /// Takes the first unread message under a filter that satisfies the condition; waits for it where it is not there.
    /// - Throws: ``Expired``, which tells what came instead.
    @discardableResult
    public func wait(
        for filter: String, within timeout: Duration = .seconds(10),
        where condition: @escaping @EventLoopActor (MQTTReceived) -> Bool = { _ in true }
    ) async throws -> MQTTReceived {
        guard let topics = TopicFilter(filter) else { throw Expired(message: "'\(filter)' is not a topic filter") }
        let isWanted = { (message: MQTTReceived) in topics.matches(message.topic) && condition(message) }
        // What was looked at once is not looked at again, or a flood would cost its square.
        var seen = 0
        var found: MQTTReceived?
        do {
            try await monitor.wait("a message under \(filter)", within: timeout) {
                seen = min(seen, self.unread.count)
                guard let index = self.unread[seen...].firstIndex(where: isWanted) else {
                    seen = self.unread.count
                    return false
                }
                found = self.unread.remove(at: index)
                return true
            }
        } catch {
            let came = unread.suffix(10).map { "\($0.topic) \($0.text.prefix(120))" }
            throw Expired(message: "\(error); unread: \(came.isEmpty ? "nothing" : came.joined(separator: " | "))")
        }
        guard let found else { throw Expired(message: "no message under \(filter)") }
        return found
    }

    /// Returns once everything that the broker sent to this probe before now has arrived, so that a test can say what
    /// did not come.
    public func settle(within timeout: Duration = .seconds(10)) async throws {
        roundTrips += 1
        let topic = "probe/\(client.settings.clientID)/\(roundTrips)"
        try await subscribe(topic)
        try await publish(topic, [])
        try await wait(for: topic, within: timeout)
        client.unsubscribe(topic)
    }

    /// The newest message under a topic, read or not.
    public func newest(_ topic: String) -> MQTTReceived? {
        messages.last { $0.topic == topic }
    }

    /// Forgets what has come so far.
    public func discard() {
        messages = []
        unread = []
    }

    public func stop() async {
        await client.stop(flushWithin: .seconds(2))
    }
}

extension MQTTReceived {
    /// The payload as text, with bytes that are not UTF-8 replaced.
    public var text: String { String(decoding: payload, as: UTF8.self) }
}
