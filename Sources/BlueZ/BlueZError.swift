internal import Glibc

/// A refusal by BlueZ or by the bus on the way to it. The D-Bus error name and message are kept as they came.
public struct BlueZError: Error, Sendable, CustomStringConvertible {
    /// What the error means for the one who called.
    public enum Kind: Sendable, Equatable {
        /// The connection to the bus is gone.
        case busLost
        /// Nobody owns org.bluez.
        case noBlueZ
        /// No reply within the deadline.
        case timeout
        case inProgress
        case alreadyConnected
        case alreadyExists
        case notConnected
        case notReady
        case notSupported
        case notPermitted
        case notAuthorized
        case accessDenied
        case invalidArguments
        case invalidLength
        case invalidOffset
        case doesNotExist
        /// The peer could not be reached, or the attempt was aborted.
        case connectionFailed
        case authenticationFailed
        /// The peer answered with an ATT error.
        case att(UInt8)
        case failed
    }

    public let kind: Kind
    /// The D-Bus error name, as `org.bluez.Error.NotPermitted`; nil where the fault is on our side of the bus.
    public let name: String?
    public let message: String

    public init(kind: Kind, name: String?, message: String) {
        self.kind = kind
        self.name = name
        self.message = message
    }

    /// Classifies an error reply. Sources: BlueZ `src/error.c`, `src/gatt-client.c`, the D-Bus specification's error names.
    public init(name: String, message: String) {
        self.init(kind: Self.kind(name: name, message: message), name: name, message: message)
    }

    /// Another client, or this one a moment ago, holds the characteristic's socket (AcquireWrite, AcquireNotify).
    /// Source: BlueZ `src/gatt-client.c`, "Write acquired" and "Notify acquired".
    public var isAcquired: Bool { kind == .notPermitted && message.hasSuffix(" acquired") }

    public var description: String {
        let text = message.isEmpty ? "no message" : message
        guard let name else { return text }
        return "\(text) (\(name))"
    }

    private static let kinds: [String: Kind] = [
        "org.bluez.Error.InProgress": .inProgress,
        "org.bluez.Error.AlreadyConnected": .alreadyConnected,
        "org.bluez.Error.AlreadyExists": .alreadyExists,
        "org.bluez.Error.NotConnected": .notConnected,
        "org.bluez.Error.NotReady": .notReady,
        "org.bluez.Error.NotSupported": .notSupported,
        "org.bluez.Error.NotPermitted": .notPermitted,
        "org.bluez.Error.NotAuthorized": .notAuthorized,
        "org.bluez.Error.InvalidArguments": .invalidArguments,
        "org.bluez.Error.InvalidValueLength": .invalidLength,
        "org.bluez.Error.InvalidOffset": .invalidOffset,
        "org.bluez.Error.DoesNotExist": .doesNotExist,
        "org.bluez.Error.NotAvailable": .connectionFailed,
        "org.bluez.Error.ConnectionAttemptFailed": .connectionFailed,
        "org.bluez.Error.AuthenticationFailed": .authenticationFailed,
        "org.bluez.Error.AuthenticationCanceled": .authenticationFailed,
        "org.bluez.Error.AuthenticationRejected": .authenticationFailed,
        "org.bluez.Error.AuthenticationTimeout": .authenticationFailed,
        "org.freedesktop.DBus.Error.UnknownObject": .doesNotExist,
        "org.freedesktop.DBus.Error.UnknownMethod": .doesNotExist,
        "org.freedesktop.DBus.Error.UnknownInterface": .doesNotExist,
        "org.freedesktop.DBus.Error.ServiceUnknown": .noBlueZ,
        "org.freedesktop.DBus.Error.NameHasNoOwner": .noBlueZ,
        "org.freedesktop.DBus.Error.NoReply": .timeout,
        "org.freedesktop.DBus.Error.Timeout": .timeout,
        "org.freedesktop.DBus.Error.TimedOut": .timeout,
        "org.freedesktop.DBus.Error.Disconnected": .busLost,
        "org.freedesktop.DBus.Error.AccessDenied": .accessDenied,
        "org.freedesktop.DBus.Error.InvalidArgs": .invalidArguments,
    ]

    private static func kind(name: String, message: String) -> Kind {
        guard let kind = kinds[name] else {
            return attCode(in: message).map(Kind.att) ?? kindOfFailure(message)
        }
        return kind
    }

    /// `org.bluez.Error.Failed` says what happened in its message alone.
    private static func kindOfFailure(_ message: String) -> Kind {
        if strstr(message, "Not connected") != nil { return .notConnected }
        for word in ["-connection-", "connection abort", "Connection", "Host is down", "No route to host", "timed out"]
        where strstr(message, word) != nil {
            return .connectionFailed
        }
        if strstr(message, "In Progress") != nil || strstr(message, "in progress") != nil { return .inProgress }
        return .failed
    }

    /// The code in "Operation failed with ATT error: 0x80 (…)"; nil where there is none.
    static func attCode(in message: String) -> UInt8? {
        let text = Array(message.utf8)
        let mark = Array("ATT error: 0x".utf8)
        guard text.count > mark.count else { return nil }
        for start in 0..<(text.count - mark.count) where text[start..<start + mark.count].elementsEqual(mark) {
            let digits = text[(start + mark.count)...].prefix { isHexDigit($0) }.prefix(2)
            return UInt8(String(decoding: digits, as: UTF8.self), radix: 16)
        }
        return nil
    }

    private static func isHexDigit(_ character: UInt8) -> Bool {
        (0x30...0x39).contains(character) || (0x41...0x46).contains(character) || (0x61...0x66).contains(character)
    }
}
