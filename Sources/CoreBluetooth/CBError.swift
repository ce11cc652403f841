// Apple's names.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

public import Foundation

/// The domain of ``CBError`` in NSError's form.
public let CBErrorDomain = "CBErrorDomain"

/// A failure of a Bluetooth operation that did not come from the peer's attribute server.
///
/// It bridges to and from `NSError`, as Apple's does: `error as NSError`, `nsError as? CBError`, and
/// `catch CBError.connectionTimeout`.
public struct CBError: _BridgedStoredNSError, @unchecked Sendable {
    // `@unchecked Sendable`: NSError is immutable.
    public let _nsError: NSError

    public init(_nsError error: NSError) { _nsError = error }

    public static var _nsErrorDomain: String { CBErrorDomain }
    public static var errorDomain: String { CBErrorDomain }

    /// The kind of failure. Unlike the property that the bridge brings, it never stops on a number it does not know.
    public var code: Code { Code(rawValue: _nsError.code) ?? .unknown }

    /// What went wrong outside of the Attribute Protocol.
    public enum Code: Int, _ErrorCodeProtocol, Sendable {
        public typealias _ErrorType = CBError

        /// Something else went wrong; the description says what.
        case unknown = 0
        /// An argument cannot be meant so.
        case invalidParameters = 1
        /// The attribute is gone: the peer has changed its services.
        case invalidHandle = 2
        /// The peripheral is not connected.
        case notConnected = 3
        /// What is asked for is taken by another operation or program.
        case outOfSpace = 4
        /// The program itself has ended what this belonged to.
        case operationCancelled = 5
        /// The link was lost, since the peer fell silent; or an operation reached its deadline.
        case connectionTimeout = 6
        /// The peer, or another program of this machine, ended the link.
        case peripheralDisconnected = 7
        /// Of the peripheral role: never given on Linux.
        case uuidNotAllowed = 8
        /// Of the peripheral role: never given on Linux.
        case alreadyAdvertising = 9
        /// No link or channel came about, or Bluetooth went off meanwhile.
        case connectionFailed = 10
        /// Not given on Linux: the engine waits for a free place.
        case connectionLimitReached = 11
        /// BlueZ does not know the device.
        case unknownDevice = 12
        /// BlueZ, the kernel or this library cannot do what was asked.
        case operationNotSupported = 13
        /// The peer has forgotten the pairing; not told apart by BlueZ.
        case peerRemovedPairingInformation = 14
        /// The link was not encrypted in time; not told apart by BlueZ.
        case encryptionTimedOut = 15
        /// Never given on Linux.
        case tooManyLEPairedDevices = 16
        /// Never given on Linux: there are no background limits.
        case leGattExceededBackgroundNotificationLimit = 17
        /// Never given on Linux: there are no background limits.
        case leGattNearBackgroundNotificationLimit = 18

        /// Never nil: Apple's takes any number too, and a peer or a program may send any. What is not listed is
        /// ``unknown``.
        public init?(rawValue: Int) {
            switch rawValue {
            case 0: self = .unknown
            case 1: self = .invalidParameters
            case 2: self = .invalidHandle
            case 3: self = .notConnected
            case 4: self = .outOfSpace
            case 5: self = .operationCancelled
            case 6: self = .connectionTimeout
            case 7: self = .peripheralDisconnected
            case 8: self = .uuidNotAllowed
            case 9: self = .alreadyAdvertising
            case 10: self = .connectionFailed
            case 11: self = .connectionLimitReached
            case 12: self = .unknownDevice
            case 13: self = .operationNotSupported
            case 14: self = .peerRemovedPairingInformation
            case 15: self = .encryptionTimedOut
            case 16: self = .tooManyLEPairedDevices
            case 17: self = .leGattExceededBackgroundNotificationLimit
            case 18: self = .leGattNearBackgroundNotificationLimit
            default: self = .unknown
            }
        }

        @available(*, deprecated, renamed: "unknownDevice")
        public static var unkownDevice: Code { .unknownDevice }
    }

    public static var unknown: Code { .unknown }
    public static var invalidParameters: Code { .invalidParameters }
    public static var invalidHandle: Code { .invalidHandle }
    public static var notConnected: Code { .notConnected }
    public static var outOfSpace: Code { .outOfSpace }
    public static var operationCancelled: Code { .operationCancelled }
    public static var connectionTimeout: Code { .connectionTimeout }
    public static var peripheralDisconnected: Code { .peripheralDisconnected }
    public static var uuidNotAllowed: Code { .uuidNotAllowed }
    public static var alreadyAdvertising: Code { .alreadyAdvertising }
    public static var connectionFailed: Code { .connectionFailed }
    public static var connectionLimitReached: Code { .connectionLimitReached }
    public static var unknownDevice: Code { .unknownDevice }
    @available(*, deprecated, renamed: "unknownDevice")
    public static var unkownDevice: Code { .unknownDevice }
    public static var operationNotSupported: Code { .operationNotSupported }
    public static var peerRemovedPairingInformation: Code { .peerRemovedPairingInformation }
    public static var encryptionTimedOut: Code { .encryptionTimedOut }
    public static var tooManyLEPairedDevices: Code { .tooManyLEPairedDevices }
    public static var leGattExceededBackgroundNotificationLimit: Code { .leGattExceededBackgroundNotificationLimit }
    public static var leGattNearBackgroundNotificationLimit: Code { .leGattNearBackgroundNotificationLimit }

    init(_ code: Code, _ message: String) {
        self.init(code, userInfo: [NSLocalizedDescriptionKey: message])
    }
}

/// The bridge that `as?` and `catch` use. `_BridgedStoredNSError` alone does not reach it on Linux.
extension CBError: _ObjectiveCBridgeable {
    public typealias _ObjectiveCType = NSError

    public func _bridgeToObjectiveC() -> NSError { _nsError }

    public static func _forceBridgeFromObjectiveC(_ source: NSError, result: inout CBError?) {
        result = source.domain == CBErrorDomain ? CBError(_nsError: source) : nil
    }

    public static func _conditionallyBridgeFromObjectiveC(_ source: NSError, result: inout CBError?) -> Bool {
        _forceBridgeFromObjectiveC(source, result: &result)
        return result != nil
    }

    public static func _unconditionallyBridgeFromObjectiveC(_ source: NSError?) -> CBError {
        source.map { CBError(_nsError: $0) } ?? CBError(.unknown)
    }
}
