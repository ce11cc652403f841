/// Why something that was asked for was not done: the words that users see. Source: docs/topics.md, "Commands".
public enum ErrorCode: String, Sendable, CaseIterable {
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
