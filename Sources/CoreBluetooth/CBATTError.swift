// Apple's names.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

public import Foundation

/// The domain of ``CBATTError`` in NSError's form.
public let CBATTErrorDomain = "CBATTErrorDomain"

/// An error that the peer's attribute server gave (Bluetooth Core, Vol 3 Part F §3.4.1.1).
///
/// Codes that an application profile defines (0x80 and up) have no case: ``code`` is then
/// ``Code/unlikelyError``, and `errorCode`, or the code of the NSError, is the peer's number.
public struct CBATTError: _BridgedStoredNSError, @unchecked Sendable {
    // `@unchecked Sendable`: NSError is immutable.
    public let _nsError: NSError

    public init(_nsError error: NSError) { _nsError = error }

    public static var _nsErrorDomain: String { CBATTErrorDomain }
    public static var errorDomain: String { CBATTErrorDomain }

    public var code: Code { Code(rawValue: _nsError.code) ?? .unlikelyError }

    /// Error codes of the Attribute Protocol (Bluetooth Core, Vol 3 Part F §3.4.1.1).
    public enum Code: Int, _ErrorCodeProtocol, Sendable {
        public typealias _ErrorType = CBATTError

        /// No error.
        case success = 0
        /// The attribute is not there on this peer.
        case invalidHandle = 1
        /// The attribute cannot be read.
        case readNotPermitted = 2
        /// The attribute cannot be written.
        case writeNotPermitted = 3
        /// The peer did not understand the request.
        case invalidPdu = 4
        /// The peer wants to be paired first.
        case insufficientAuthentication = 5
        /// The peer, or the characteristic, has no such operation.
        case requestNotSupported = 6
        /// The offset is beyond the end of the value.
        case invalidOffset = 7
        /// The peer has not authorised this machine.
        case insufficientAuthorization = 8
        /// Too many prepared writes wait.
        case prepareQueueFull = 9
        /// No attribute was found in the range.
        case attributeNotFound = 10
        /// The attribute cannot be read in parts.
        case attributeNotLong = 11
        /// The key of the encrypted link is too short for the peer.
        case insufficientEncryptionKeySize = 12
        /// The value has a wrong length for the attribute.
        case invalidAttributeValueLength = 13
        /// The peer failed in a way of its own.
        case unlikelyError = 14
        /// The peer wants an encrypted link.
        case insufficientEncryption = 15
        /// The peer does not group attributes by this type.
        case unsupportedGroupType = 16
        /// The peer lacks what the request takes.
        case insufficientResources = 17

        /// Never nil: Apple's takes any number too, and a peer or a program may send any. What is not listed is
        /// ``unlikelyError``.
        public init?(rawValue: Int) {
            switch rawValue {
            case 0: self = .success
            case 1: self = .invalidHandle
            case 2: self = .readNotPermitted
            case 3: self = .writeNotPermitted
            case 4: self = .invalidPdu
            case 5: self = .insufficientAuthentication
            case 6: self = .requestNotSupported
            case 7: self = .invalidOffset
            case 8: self = .insufficientAuthorization
            case 9: self = .prepareQueueFull
            case 10: self = .attributeNotFound
            case 11: self = .attributeNotLong
            case 12: self = .insufficientEncryptionKeySize
            case 13: self = .invalidAttributeValueLength
            case 14: self = .unlikelyError
            case 15: self = .insufficientEncryption
            case 16: self = .unsupportedGroupType
            case 17: self = .insufficientResources
            default: self = .unlikelyError
            }
        }
    }

    public static var success: Code { .success }
    public static var invalidHandle: Code { .invalidHandle }
    public static var readNotPermitted: Code { .readNotPermitted }
    public static var writeNotPermitted: Code { .writeNotPermitted }
    public static var invalidPdu: Code { .invalidPdu }
    public static var insufficientAuthentication: Code { .insufficientAuthentication }
    public static var requestNotSupported: Code { .requestNotSupported }
    public static var invalidOffset: Code { .invalidOffset }
    public static var insufficientAuthorization: Code { .insufficientAuthorization }
    public static var prepareQueueFull: Code { .prepareQueueFull }
    public static var attributeNotFound: Code { .attributeNotFound }
    public static var attributeNotLong: Code { .attributeNotLong }
    public static var insufficientEncryptionKeySize: Code { .insufficientEncryptionKeySize }
    public static var invalidAttributeValueLength: Code { .invalidAttributeValueLength }
    public static var unlikelyError: Code { .unlikelyError }
    public static var insufficientEncryption: Code { .insufficientEncryption }
    public static var unsupportedGroupType: Code { .unsupportedGroupType }
    public static var insufficientResources: Code { .insufficientResources }

    /// - Parameter number: the code as the peer sent it, listed or not.
    init(number: UInt8, _ message: String) {
        self.init(
            _nsError: NSError(
                domain: CBATTErrorDomain, code: Int(number), userInfo: [NSLocalizedDescriptionKey: message]))
    }
}

extension CBATTError: _ObjectiveCBridgeable {
    public typealias _ObjectiveCType = NSError

    public func _bridgeToObjectiveC() -> NSError { _nsError }

    public static func _forceBridgeFromObjectiveC(_ source: NSError, result: inout CBATTError?) {
        result = source.domain == CBATTErrorDomain ? CBATTError(_nsError: source) : nil
    }

    public static func _conditionallyBridgeFromObjectiveC(_ source: NSError, result: inout CBATTError?) -> Bool {
        _forceBridgeFromObjectiveC(source, result: &result)
        return result != nil
    }

    public static func _unconditionallyBridgeFromObjectiveC(_ source: NSError?) -> CBATTError {
        source.map { CBATTError(_nsError: $0) } ?? CBATTError(.unlikelyError)
    }
}
