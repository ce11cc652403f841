/// Why there is no connection: one plain sentence for people, and a class that decides how soon it is tried again.
public struct MQTTFault: Error, Sendable, Equatable, CustomStringConvertible {
    public enum Code: String, Sendable {
        /// No broker answers there: name, network, port, silence, or it went away.
        case unreachable
        /// The broker answers and will not have us, for another reason than authorisation.
        case refused
        /// User name, password, certificate or rights.
        case notAuthorised
        /// Another client has come with the same client id.
        case takenOver
        /// The broker's certificate, or ours, or the files that they are in.
        case tls
        /// Something that MQTT does not allow.
        case protocolError
    }

    public let code: Code
    /// What is wrong, where, and what to do. Never a password.
    public let message: String
    /// The reason code of a CONNACK or DISCONNECT packet, where there is one.
    public var reason: UInt8?
    /// True where a connection ended; false where an attempt failed.
    public var wasConnected = false
    /// The time to the next attempt; nil where there is none.
    public var retryDelay: Duration?

    init(_ code: Code, _ message: String, reason: UInt8? = nil) {
        self.code = code
        self.message = message
        self.reason = reason
    }

    public var description: String { message }
}

/// The answers of brokers in plain words.
enum Answer {
    /// A refusal in a CONNACK packet of MQTT 3.1.1. Source: MQTT 3.1.1, table 3.1.
    static func refusal311(_ code: UInt8, clientID: String) -> MQTTFault {
        switch code {
        case 1:
            MQTTFault(.refused, "the broker does not speak MQTT 3.1.1; set mqtt.version to 5", reason: code)
        case 2:
            MQTTFault(.refused, "client identifier rejected: the broker does not accept '\(clientID)'", reason: code)
        case 3:
            MQTTFault(.unreachable, "the broker says that it is not available", reason: code)
        case 4:
            MQTTFault(.notAuthorised, badCredentials, reason: code)
        case 5:
            MQTTFault(.notAuthorised, notAuthorised, reason: code)
        default:
            MQTTFault(.protocolError, "the broker refused the connection with the unknown code \(code)", reason: code)
        }
    }

    /// A refusal in a CONNACK packet of MQTT 5. Source: MQTT 5.0, section 3.2.2.2.
    static func refusal5(_ code: UInt8, said: String?, clientID: String) -> MQTTFault {
        let fault: MQTTFault
        switch code {
        case 0x84, 0x01:
            fault = MQTTFault(.refused, "the broker does not speak MQTT 5; set mqtt.version to 3.1.1")
        case 0x85, 0x02:
            fault = MQTTFault(.refused, "client identifier rejected: the broker does not accept '\(clientID)'")
        case 0x86: fault = MQTTFault(.notAuthorised, badCredentials)
        case 0x87: fault = MQTTFault(.notAuthorised, notAuthorised)
        case 0x8a: fault = MQTTFault(.notAuthorised, "the broker has banned this client")
        case 0x8c: fault = MQTTFault(.notAuthorised, "the broker wants another way of authentication")
        case 0x88, 0x89: fault = MQTTFault(.unreachable, "the broker says that it is not available")
        case 0x97, 0x9f: fault = MQTTFault(.refused, "the broker limits connections: \(words(code))")
        case 0x81, 0x82:
            fault = MQTTFault(.protocolError, "the broker did not accept the CONNECT packet: \(words(code))")
        default: fault = MQTTFault(.refused, "the broker refused the connection: \(words(code))")
        }
        return MQTTFault(fault.code, fault.message + quoted(said), reason: code)
    }

    /// A DISCONNECT packet of the broker. Source: MQTT 5.0, section 3.14.2.1.
    static func disconnect(_ code: UInt8, clientID: String) -> MQTTFault {
        let fault: MQTTFault
        switch code {
        case 0x8e:
            fault = MQTTFault(
                .takenOver,
                "session taken over: another client uses the client id '\(clientID)'; give each its own")
        case 0x87: fault = MQTTFault(.notAuthorised, "the broker ended the connection: not authorised")
        case 0x00, 0x04, 0x88, 0x89, 0x8b, 0x8d, 0xa0:
            fault = MQTTFault(.unreachable, "the broker ended the connection: \(words(code))")
        case 0x81, 0x82, 0x90, 0x93, 0x94, 0x95, 0x99, 0x9a, 0x9b:
            fault = MQTTFault(.protocolError, "the broker ended the connection: \(words(code))")
        default: fault = MQTTFault(.refused, "the broker ended the connection: \(words(code))")
        }
        return MQTTFault(fault.code, fault.message, reason: code)
    }

    static let badCredentials = "bad user name or password: check mqtt.username and mqtt.password"
    static let notAuthorised = "not authorised: the broker does not let this user or client in"

    private static func quoted(_ said: String?) -> String {
        guard let said, !said.isEmpty else { return "" }
        let safe = said.unicodeScalars.filter { $0.value >= 32 && $0.value != 127 }.prefix(200)
        return " (it says: \(String(String.UnicodeScalarView(safe))))"
    }

    /// A reason code of MQTT 5 in words. Source: MQTT 5.0, table 2-6.
    static func words(_ code: UInt8) -> String {
        known[code] ?? "reason code \(code)"
    }

    private static let known: [UInt8: String] = [
        0x00: "normal disconnection", 0x04: "disconnection with will",
        0x80: "unspecified error", 0x81: "malformed packet", 0x82: "protocol error",
        0x83: "implementation specific error", 0x84: "unsupported protocol version",
        0x85: "client identifier not valid", 0x86: "bad user name or password", 0x87: "not authorised",
        0x88: "server unavailable", 0x89: "server busy", 0x8a: "banned", 0x8b: "server shutting down",
        0x8c: "bad authentication method", 0x8d: "keep alive timeout", 0x8e: "session taken over",
        0x8f: "topic filter invalid", 0x90: "topic name invalid", 0x91: "packet identifier in use",
        0x93: "receive maximum exceeded", 0x94: "topic alias invalid", 0x95: "packet too large",
        0x96: "message rate too high", 0x97: "quota exceeded", 0x98: "administrative action",
        0x99: "payload format invalid", 0x9a: "retain not supported", 0x9b: "QoS not supported",
        0x9c: "use another server", 0x9d: "server moved", 0x9e: "shared subscriptions not supported",
        0x9f: "connection rate exceeded", 0xa0: "maximum connect time",
        0xa1: "subscription identifiers not supported", 0xa2: "wildcard subscriptions not supported",
    ]
}
