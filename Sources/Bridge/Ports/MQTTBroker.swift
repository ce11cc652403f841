public import EventLoop
public import MQTT

/// The broker's port over the MQTT client.
@EventLoopActor
public final class MQTTBroker: BrokerPort {
    public weak var delegate: (any BrokerDelegate)?
    public let client: MQTTClient

    public init(_ client: MQTTClient) {
        self.client = client
        client.onConnect = { [weak self] _ in self?.delegate?.brokerDidConnect() }
        client.onDisconnect = { [weak self] fault in self?.disconnected(fault) }
        client.onPublished = { [weak self] token, _ in self?.delegate?.brokerDidAcknowledge(token: token.number) }
        client.onInbound = { [weak self] message in self?.received(message) }
    }

    public var isConnected: Bool { client.state == .connected }
    public var hasProperties: Bool { client.settings.version == .v5 }
    public var reconnects: UInt64 { client.statistics.connects > 0 ? client.statistics.connects - 1 : 0 }
    public var queuedBytes: Int { client.statistics.pendingBytes }

    public func start() { client.start() }
    public func stop(flushWithin limit: Duration) async { await client.stop(flushWithin: limit) }

    public func subscribe(_ filter: String) {
        // As published: a retained command is known as one also when it arrives at once.
        client.subscribe(filter, SubscribeOptions(qos: .atLeastOnce, noLocal: true, retainAsPublished: true))
    }

    public func publish(
        topic: UnsafeBufferPointer<UInt8>, payload: UnsafeRawBufferPointer, qos: UInt8, retain: Bool,
        properties: MessageProperties?
    ) -> PublishResult {
        guard let base = topic.baseAddress else { return .impossible }
        var list: PublishProperties?
        if let properties {
            list = PublishProperties()
            list?.responseTopic = properties.responseTopic
            list?.correlationData = properties.correlationData
            list?.messageExpiry = properties.expiry
        }
        // Bytes and characters of C have one layout.
        let outcome = client.publish(
            topic: UnsafeRawPointer(base).assumingMemoryBound(to: CChar.self), payload: payload,
            qos: qos == 0 ? .atMostOnce : .atLeastOnce, retain: retain, properties: list)
        return Self.result(outcome)
    }

    public func publishPlain(topic: UnsafeBufferPointer<UInt8>, payload: UnsafeRawBufferPointer) -> PublishResult {
        guard let base = topic.baseAddress else { return .impossible }
        let outcome = client.publishPlain(
            topic: UnsafeRawPointer(base).assumingMemoryBound(to: CChar.self), payload: payload)
        return Self.result(outcome)
    }

    private static func result(_ outcome: PublishOutcome) -> PublishResult {
        switch outcome {
        case .sent(let token): return .sent(token: token.number)
        case .dropped(.notConnected), .dropped(.slow), .dropped(.full): return .refused
        case .dropped(.tooLarge), .dropped(.invalidTopic), .dropped(.failed): return .impossible
        }
    }

    private func disconnected(_ fault: MQTTFault) {
        delegate?.brokerDidDisconnect(reason: fault.message, isSerious: fault.code != .unreachable)
    }

    private func received(_ message: MQTTInbound) {
        let properties = MessageProperties(
            responseTopic: message.properties.responseTopic, correlationData: message.properties.correlationData)
        delegate?.brokerDidReceive(
            InboundMessage(
                topic: message.topic, payload: message.payload, isTooLarge: message.isTooLarge,
                isRetained: message.retain, properties: properties))
    }
}
