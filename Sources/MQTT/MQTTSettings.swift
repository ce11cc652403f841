/// The protocol that is spoken.
public enum MQTTVersion: Sendable {
    case v311
    case v5
}

/// Quality of service; the third level is not offered.
public enum QoS: UInt8, Sendable, Comparable {
    case atMostOnce = 0
    case atLeastOnce = 1

    public static func < (left: QoS, right: QoS) -> Bool { left.rawValue < right.rawValue }
}

/// A message of our own: a will, or one that is published.
public struct MQTTMessage: Sendable, Equatable {
    public var topic: String
    public var payload: [UInt8]
    public var qos: QoS
    public var retain: Bool

    public init(topic: String, payload: [UInt8], qos: QoS = .atLeastOnce, retain: Bool = false) {
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
    }
}

/// How the broker is recognised and, where it asks for it, how we are.
public struct TLSSettings: Sendable {
    /// PEM file of the certificate authorities that are trusted; the system's where it is nil.
    public var caFile: String?
    public var certificateFile: String?
    public var keyFile: String?
    /// Of an encrypted key file. Never described.
    public var keyPassword: String?
    /// False accepts a certificate for another host name. For tests and for brokers that are known by address.
    public var verifiesHostName = true

    public init(caFile: String? = nil, certificateFile: String? = nil, keyFile: String? = nil) {
        self.caFile = caFile
        self.certificateFile = certificateFile
        self.keyFile = keyFile
    }
}

/// Where the broker is, who we are, and the limits that hold.
public struct MQTTSettings: Sendable {
    public var host: String
    public var port: UInt16
    /// A unix socket instead of host and port.
    public var unixSocketPath: String?
    public var tls: TLSSettings?
    public var version: MQTTVersion = .v5
    public var clientID: String
    public var username: String?
    /// Never described.
    public var password: String?
    /// Seconds without traffic after which the broker is asked whether it is there; 0 never asks, else at least 5.
    public var keepAlive: UInt16 = 30
    /// Published by the broker when we vanish.
    public var will: MQTTMessage?

    /// From the start of an attempt to the broker's answer.
    public var connectTimeout: Duration = .seconds(10)
    /// Bytes of QoS 0 messages that may wait for a slow broker; what comes then is dropped and counted. So is, over
    /// 512 KiB, what comes while others have waited for a second.
    public var pendingLimit = 4 << 20
    /// Messages of QoS 1 under way at a time; the broker's own Receive Maximum holds too.
    public var inFlight: UInt16 = 100
    /// Messages of QoS 1 without an acknowledgement, and their bytes, that are taken before ``DropReason/full``.
    public var unacknowledgedLimit = 1_000
    public var unacknowledgedBytesLimit = 16 << 20
    /// A longer payload is not handed on: the message arrives marked as too large.
    public var receivedPayloadLimit = 256 << 10
    /// The largest packet that the broker may send at all (MQTT 5).
    public var receivedPacketLimit: UInt32 = 16 << 20

    public init(host: String, port: UInt16 = 1883, clientID: String) {
        self.host = host
        self.port = port
        self.clientID = clientID
    }

    public init(unixSocketPath: String, clientID: String) {
        self.init(host: "", port: 0, clientID: clientID)
        self.unixSocketPath = unixSocketPath
    }

    /// Where the broker is, for people: never with credentials.
    public var endpoint: String {
        if let unixSocketPath { return unixSocketPath }
        return host.utf8.contains(UInt8(ascii: ":")) ? "[\(host)]:\(port)" : "\(host):\(port)"
    }
}

extension MQTTSettings: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    public var description: String {
        let user = username.map { ", user \($0)" } ?? ""
        return "\(tls == nil ? "mqtt" : "mqtts") \(endpoint), client id \(clientID)\(user)"
    }

    public var debugDescription: String { description }
    /// Keeps secrets out of `dump`.
    public var customMirror: Mirror { Mirror(self, children: ["description": description]) }
}

extension TLSSettings: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    public var description: String { "ca \(caFile ?? "system"), certificate \(certificateFile ?? "none")" }
    public var debugDescription: String { description }
    public var customMirror: Mirror { Mirror(self, children: ["description": description]) }
}
