/// What MQTT 5 can say about a message. Source: MQTT 5.0, section 3.3.2.3. Under 3.1.1 all of it is left out.
public struct PublishProperties: Sendable, Equatable {
    /// Where an answer is expected.
    public var responseTopic: String?
    /// Sent back with the answer, unread.
    public var correlationData: [UInt8]?
    /// Seconds after which the broker drops the message.
    public var messageExpiry: UInt32?
    public var contentType: String?
    public var userProperties: [UserProperty] = []

    public struct UserProperty: Sendable, Equatable {
        public var name: String
        public var value: String

        public init(name: String, value: String) {
            self.name = name
            self.value = value
        }
    }

    public init() {}

    public var isEmpty: Bool { self == PublishProperties() }
}

/// A message from the broker.
public struct MQTTReceived: Sendable {
    public let topic: String
    /// Empty where ``isTooLarge``.
    public let payload: [UInt8]
    public let payloadLength: Int
    /// The payload was over ``MQTTSettings/receivedPayloadLimit`` and is not here.
    public let isTooLarge: Bool
    public let qos: UInt8
    public let retain: Bool
    public let properties: PublishProperties
}

/// A message from the broker as it lies in the connection's memory, valid during the call.
public struct MQTTInbound {
    public let topic: UnsafeRawBufferPointer
    /// Empty where ``isTooLarge``.
    public let payload: UnsafeRawBufferPointer
    public let payloadLength: Int
    /// The payload was over ``MQTTSettings/receivedPayloadLimit`` and is not here.
    public let isTooLarge: Bool
    public let qos: UInt8
    public let retain: Bool
    public let properties: PublishProperties

    /// A copy that may be kept.
    var copy: MQTTReceived {
        MQTTReceived(
            topic: String(decoding: topic, as: UTF8.self), payload: Array(payload), payloadLength: payloadLength,
            isTooLarge: isTooLarge, qos: qos, retain: retain, properties: properties)
    }
}

/// Names one message of QoS 1 until its acknowledgement. Tokens of a client only grow.
public struct PublishToken: Hashable, Comparable, Sendable {
    public let number: UInt64
    /// What QoS 0 gets: nothing will be heard of it.
    public static let none = PublishToken(number: 0)

    public static func < (left: PublishToken, right: PublishToken) -> Bool { left.number < right.number }
}

/// What became of a call to publish.
public enum PublishOutcome: Sendable, Equatable {
    /// Taken. At QoS 1 the token is acknowledged, or reported as lost, later.
    case sent(PublishToken)
    /// Not taken; nothing more will be heard of it.
    case dropped(DropReason)
}

/// Why a message was not taken.
public enum DropReason: Sendable, Equatable {
    case notConnected
    /// The broker reads too slowly, and ``MQTTSettings/pendingLimit`` is reached.
    case slow
    /// Too many messages of QoS 1 wait for their acknowledgement.
    case full
    /// Larger than the broker, or MQTT, allows.
    case tooLarge
    /// Empty, with a wildcard, a NUL or bytes that are not UTF-8, or over 65,535 bytes.
    case invalidTopic
    /// The library refused it: out of memory, or properties that MQTT does not allow.
    case failed
}

/// What a subscription asks for beyond its filter. Source: MQTT 5.0, section 3.8.3.1. Under 3.1.1 only `qos` counts.
public struct SubscribeOptions: Sendable, Equatable {
    public var qos: QoS
    /// Our own messages do not come back.
    public var noLocal = false
    /// The retain flag is as it was published, not only on what was stored.
    public var retainAsPublished = false

    public init(qos: QoS = .atLeastOnce, noLocal: Bool = false, retainAsPublished: Bool = false) {
        self.qos = qos
        self.noLocal = noLocal
        self.retainAsPublished = retainAsPublished
    }
}

/// What the broker said when it took us. Source: MQTT 5.0, section 3.2.2.3; under 3.1.1 the limits are MQTT's own.
public struct ConnectInfo: Sendable, Equatable {
    public var sessionPresent = false
    public var receiveMaximum: UInt16 = 65_535
    public var maximumPacketSize: UInt32 = 268_435_460
    public var maximumQoS: UInt8 = 2
    public var retainAvailable = true
    /// Seconds; nil where ours holds.
    public var serverKeepAlive: UInt16?
}

/// Where a client stands.
public enum MQTTState: Sendable, Equatable {
    case stopped
    case connecting
    case connected
    /// Waits before the next attempt.
    case waiting
}

/// Counts since the client was made, and what is under way now.
public struct MQTTStatistics: Sendable, Equatable {
    public var published: UInt64 = 0
    public var publishedBytes: UInt64 = 0
    public var acknowledged: UInt64 = 0
    /// Of QoS 1, by a broken connection; the owner sends them again.
    public var lost: UInt64 = 0
    public var droppedNotConnected: UInt64 = 0
    public var droppedSlow: UInt64 = 0
    public var droppedFull: UInt64 = 0
    public var droppedOther: UInt64 = 0
    public var received: UInt64 = 0
    public var receivedBytes: UInt64 = 0
    public var receivedTooLarge: UInt64 = 0
    public var connects: UInt64 = 0
    public var faults: UInt64 = 0
    /// QoS 0 bytes that wait for the socket.
    public var pendingBytes = 0
    /// Messages of QoS 1 that wait for the broker.
    public var unacknowledged = 0

    public var dropped: UInt64 { droppedNotConnected &+ droppedSlow &+ droppedFull &+ droppedOther }

    mutating func count(_ reason: DropReason) {
        switch reason {
        case .notConnected: droppedNotConnected &+= 1
        case .slow: droppedSlow &+= 1
        case .full: droppedFull &+= 1
        case .tooLarge, .invalidTopic, .failed: droppedOther &+= 1
        }
    }
}
