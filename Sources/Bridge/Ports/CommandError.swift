/// Why a command did not work: the words of the MQTT contract.
public struct CommandError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The error codes that users see. Source: docs/topics.md, "Answers".
    public enum Code: String, Sendable, CaseIterable {
        case badRequest = "bad_request"
        case unknownVerb = "unknown_verb"
        case forbidden
        case unknownDevice = "unknown_device"
        case unknownAdapter = "unknown_adapter"
        case unknownAttribute = "unknown_attribute"
        case ambiguousAttribute = "ambiguous_attribute"
        case ambiguousValue = "ambiguous_value"
        case notConnected = "not_connected"
        case notSupported = "not_supported"
        case notPermitted = "not_permitted"
        case tooLong = "too_long"
        case timeout
        case cancelled
        case busy
        case idReused = "id_reused"
        case outcomeUnknown = "outcome_unknown"
        case retainedCommand = "retained_command"
        case adapterOff = "adapter_off"
        case connectionFailed = "connection_failed"
        case pairingFailed = "pairing_failed"
        case attError = "att_error"
        case `internal`
    }

    public var code: Code
    /// What is wrong, where, and what to do about it.
    public var message: String
    /// The device's ATT error code, where it sent one. Source: Core Specification, Vol 3, Part F, 3.4.1.1.
    public var att: UInt8?
    /// The D-Bus error name of BlueZ, where it gave one.
    public var bluez: String?

    public init(_ code: Code, _ message: String, att: UInt8? = nil, bluez: String? = nil) {
        self.code = code
        self.message = message
        self.att = att
        self.bluez = bluez
    }

    public var description: String { "\(code.rawValue): \(message)" }
}
