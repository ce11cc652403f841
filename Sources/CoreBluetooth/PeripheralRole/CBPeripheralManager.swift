// Apple's names.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

public import Dispatch
public import Foundation

// The peripheral role is not what this library is for. Its types are here so that files which mention them compile; what
// they cannot do, they say in an error.

/// The permissions of an attribute that a program offers.
public struct CBAttributePermissions: OptionSet, Sendable {
    public let rawValue: UInt
    public init(rawValue: UInt) { self.rawValue = rawValue }

    public static let readable = CBAttributePermissions(rawValue: 0x01)
    public static let writeable = CBAttributePermissions(rawValue: 0x02)
    public static let readEncryptionRequired = CBAttributePermissions(rawValue: 0x04)
    public static let writeEncryptionRequired = CBAttributePermissions(rawValue: 0x08)
}

/// How fast a peripheral asks its connection to be.
public enum CBPeripheralManagerConnectionLatency: Int, Sendable {
    case low = 0
    case medium
    case high
}

@available(*, deprecated, message: "Use CBManagerAuthorization")
public enum CBPeripheralManagerAuthorizationStatus: Int, Sendable {
    case notDetermined = 0
    case restricted
    case denied
    case authorized
}

@available(*, deprecated, message: "Use CBManagerState")
public enum CBPeripheralManagerState: Int, Sendable {
    case unknown = 0
    case resetting
    case unsupported
    case unauthorized
    case poweredOff
    case poweredOn
}

public let CBPeripheralManagerOptionShowPowerAlertKey = "kCBInitOptionShowPowerAlert"
public let CBPeripheralManagerOptionRestoreIdentifierKey = "kCBInitOptionRestoreIdentifier"
public let CBPeripheralManagerRestoredStateServicesKey = "kCBRestoredServices"
public let CBPeripheralManagerRestoredStateAdvertisementDataKey = "kCBRestoredAdvertisement"

/// What a ``CBPeripheralManager`` tells. All but the first have defaults that do nothing.
public protocol CBPeripheralManagerDelegate: NSObjectProtocol {
    /// On Linux the state becomes `unsupported`, and stays so.
    func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager)
    func peripheralManager(_ peripheral: CBPeripheralManager, willRestoreState dict: [String: Any])
    func peripheralManagerDidStartAdvertising(_ peripheral: CBPeripheralManager, error: (any Error)?)
    func peripheralManager(_ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?)
    func peripheralManager(
        _ peripheral: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic)
    func peripheralManager(
        _ peripheral: CBPeripheralManager, central: CBCentral, didUnsubscribeFrom characteristic: CBCharacteristic)
    func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest)
    func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest])
    func peripheralManagerIsReady(toUpdateSubscribers peripheral: CBPeripheralManager)
    func peripheralManager(
        _ peripheral: CBPeripheralManager, didPublishL2CAPChannel psm: CBL2CAPPSM, error: (any Error)?)
    func peripheralManager(
        _ peripheral: CBPeripheralManager, didUnpublishL2CAPChannel psm: CBL2CAPPSM, error: (any Error)?)
    func peripheralManager(
        _ peripheral: CBPeripheralManager, didOpen channel: CBL2CAPChannel?, error: (any Error)?)
}

extension CBPeripheralManagerDelegate {
    public func peripheralManager(_ peripheral: CBPeripheralManager, willRestoreState dict: [String: Any]) {}
    public func peripheralManagerDidStartAdvertising(_ peripheral: CBPeripheralManager, error: (any Error)?) {}
    public func peripheralManager(
        _ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?
    ) {}
    public func peripheralManager(
        _ peripheral: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic
    ) {}
    public func peripheralManager(
        _ peripheral: CBPeripheralManager, central: CBCentral, didUnsubscribeFrom characteristic: CBCharacteristic
    ) {}
    public func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest) {}
    public func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest]) {}
    public func peripheralManagerIsReady(toUpdateSubscribers peripheral: CBPeripheralManager) {}
    public func peripheralManager(
        _ peripheral: CBPeripheralManager, didPublishL2CAPChannel psm: CBL2CAPPSM, error: (any Error)?
    ) {}
    public func peripheralManager(
        _ peripheral: CBPeripheralManager, didUnpublishL2CAPChannel psm: CBL2CAPPSM, error: (any Error)?
    ) {}
    public func peripheralManager(
        _ peripheral: CBPeripheralManager, didOpen channel: CBL2CAPChannel?, error: (any Error)?
    ) {}
}

/// The peripheral role's manager: `unsupported` on Linux. Each command that has an answer is answered with
/// `CBError.operationNotSupported`; the others are logged.
///
/// `@unchecked Sendable`: its variables are behind a lock, or immutable.
open class CBPeripheralManager: CBManager, @unchecked Sendable {
    private struct State {
        weak var delegate: (any CBPeripheralManagerDelegate)?
    }

    private let variables: Locked<State>
    private let queue: DispatchQueue

    public convenience override init() {
        self.init(delegate: nil, queue: nil, options: nil)
    }

    public convenience init(delegate: (any CBPeripheralManagerDelegate)?, queue: DispatchQueue?) {
        self.init(delegate: delegate, queue: queue, options: nil)
    }

    public init(
        delegate: (any CBPeripheralManagerDelegate)?, queue: DispatchQueue?, options: [String: Any]? = nil
    ) {
        variables = Locked(State(delegate: delegate))
        self.queue = DispatchQueue(label: "blueferry.corebluetooth.peripheral", target: queue ?? .main)
        super.init()
        tell { manager, delegate in
            manager.setState(.unsupported)
            delegate?.peripheralManagerDidUpdateState(manager)
        }
    }

    open weak var delegate: (any CBPeripheralManagerDelegate)? {
        get { variables.withLock { $0.delegate } }
        set { variables.withLock { $0.delegate = newValue } }
    }

    /// Always false.
    open var isAdvertising: Bool { false }

    @available(*, deprecated, message: "Use CBManager.authorization")
    open class func authorizationStatus() -> CBPeripheralManagerAuthorizationStatus { .authorized }

    /// Answered with an error.
    open func startAdvertising(_ advertisementData: [String: Any]?) {
        tell { manager, delegate in
            delegate?.peripheralManagerDidStartAdvertising(manager, error: Self.unsupported)
        }
    }

    open func stopAdvertising() {}

    open func setDesiredConnectionLatency(
        _ latency: CBPeripheralManagerConnectionLatency, for central: CBCentral
    ) {
        Misuse.log("the peripheral role is not supported on Linux")
    }

    /// Answered with an error.
    open func add(_ service: CBMutableService) {
        tell { manager, delegate in
            delegate?.peripheralManager(manager, didAdd: service, error: Self.unsupported)
        }
    }

    open func remove(_ service: CBMutableService) {}

    open func removeAllServices() {}

    open func respond(to request: CBATTRequest, withResult result: CBATTError.Code) {
        Misuse.log("the peripheral role is not supported on Linux: there is no request to respond to")
    }

    /// Always false: nothing was sent.
    open func updateValue(
        _ value: Data, for characteristic: CBMutableCharacteristic, onSubscribedCentrals centrals: [CBCentral]?
    ) -> Bool {
        Misuse.log("the peripheral role is not supported on Linux: no value was sent")
        return false
    }

    /// Answered with an error.
    open func publishL2CAPChannel(withEncryption encryptionRequired: Bool) {
        tell { manager, delegate in
            delegate?.peripheralManager(manager, didPublishL2CAPChannel: 0, error: Self.unsupported)
        }
    }

    /// Answered with an error.
    open func unpublishL2CAPChannel(_ psm: CBL2CAPPSM) {
        tell { manager, delegate in
            delegate?.peripheralManager(manager, didUnpublishL2CAPChannel: psm, error: Self.unsupported)
        }
    }

    private static var unsupported: CBError {
        CBError(.operationNotSupported, "The peripheral role is not supported on Linux.")
    }

    private func tell(
        _ body: @escaping @Sendable (CBPeripheralManager, (any CBPeripheralManagerDelegate)?) -> Void
    ) {
        queue.async { [weak self] in
            guard let self else { return }
            body(self, self.delegate)
        }
    }
}
