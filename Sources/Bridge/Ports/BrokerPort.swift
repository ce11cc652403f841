public import EventLoop

/// MQTT 5 properties of a message; a 3.1.1 connection leaves them out.
public struct MessageProperties: Equatable, Sendable {
    public var responseTopic: String?
    public var correlationData: [UInt8]?
    /// Seconds until the broker drops the message.
    public var expiry: UInt32?

    public init(responseTopic: String? = nil, correlationData: [UInt8]? = nil, expiry: UInt32? = nil) {
        self.responseTopic = responseTopic
        self.correlationData = correlationData
        self.expiry = expiry
    }
}

/// A message from the broker, valid during the call.
public struct InboundMessage {
    public var topic: UnsafeRawBufferPointer
    public var payload: UnsafeRawBufferPointer
    /// The payload was longer than the client takes; it is not in `payload`.
    public var isTooLarge: Bool
    public var isRetained: Bool
    public var properties: MessageProperties

    public init(
        topic: UnsafeRawBufferPointer, payload: UnsafeRawBufferPointer, isTooLarge: Bool = false,
        isRetained: Bool = false, properties: MessageProperties = MessageProperties()
    ) {
        self.topic = topic
        self.payload = payload
        self.isTooLarge = isTooLarge
        self.isRetained = isRetained
        self.properties = properties
    }
}

/// What became of a message that was given to the broker's connection.
public enum PublishResult: Equatable, Sendable {
    /// On its way; a QoS 1 message is acknowledged under this token later.
    case sent(token: UInt64)
    /// Not taken: no connection, or the broker reads too slowly. It may be tried again.
    case refused
    /// It can never be sent: the broker takes no message of this size.
    case impossible
}

/// The broker as the bridge uses it.
@EventLoopActor
public protocol BrokerPort: AnyObject {
    var delegate: (any BrokerDelegate)? { get set }
    var isConnected: Bool { get }
    /// True where messages carry MQTT 5 properties.
    var hasProperties: Bool { get }
    /// How often the connection was made again.
    var reconnects: UInt64 { get }
    /// Bytes that wait for the broker to read them.
    var queuedBytes: Int { get }

    func start()
    func stop(flushWithin: Duration) async
    func subscribe(_ filter: String)

    /// - Parameter topic: the topic's bytes with a NUL after them, which the count includes.
    func publish(
        topic: UnsafeBufferPointer<UInt8>, payload: UnsafeRawBufferPointer, qos: UInt8, retain: Bool,
        properties: MessageProperties?
    ) -> PublishResult

    /// The same at QoS 0, not retained and without properties: what comes thousands of times a second.
    func publishPlain(topic: UnsafeBufferPointer<UInt8>, payload: UnsafeRawBufferPointer) -> PublishResult
}

extension BrokerPort {
    public func publishPlain(topic: UnsafeBufferPointer<UInt8>, payload: UnsafeRawBufferPointer) -> PublishResult {
        publish(topic: topic, payload: payload, qos: 0, retain: false, properties: nil)
    }
}

/// What the broker's connection tells the bridge, synchronously and on the loop.
@EventLoopActor
public protocol BrokerDelegate: AnyObject {
    func brokerDidConnect()
    /// - Parameter isSerious: a person should look (credentials, a takeover), as opposed to an unreachable broker.
    func brokerDidDisconnect(reason: String, isSerious: Bool)
    func brokerDidReceive(_ message: InboundMessage)
    func brokerDidAcknowledge(token: UInt64)
}
