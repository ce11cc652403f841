public import Foundation

/// What services, characteristics and descriptors have in common.
///
/// `@unchecked Sendable`: immutable here; subclasses give their own proof.
open class CBAttribute: NSObject, @unchecked Sendable {
    /// The attribute's type.
    public let uuid: CBUUID
    /// The place in the peer's attribute table; 0 for attributes made by a program.
    let handle: UInt16

    init(uuid: CBUUID, handle: UInt16) {
        self.uuid = uuid
        self.handle = handle
        super.init()
    }
}

/// A service of a peripheral.
///
/// `@unchecked Sendable`: its variables are behind a lock.
open class CBService: CBAttribute, @unchecked Sendable {
    struct State {
        weak var peripheral: CBPeripheral?
        var included: [CBService]?
        var characteristics: [CBCharacteristic]?
    }

    let storage: Locked<State>
    private let primary: Bool

    init(uuid: CBUUID, handle: UInt16, primary: Bool, peripheral: CBPeripheral?) {
        self.primary = primary
        storage = Locked(State(peripheral: peripheral))
        super.init(uuid: uuid, handle: handle)
    }

    /// The peripheral that offers the service; nil once that object is gone.
    open var peripheral: CBPeripheral? { storage.withLock { $0.peripheral } }

    /// Whether the service stands for itself, not only in others that include it.
    open var isPrimary: Bool { primary }

    /// The included services discovered so far; nil before.
    open var includedServices: [CBService]? { storage.withLock { $0.included } }

    /// The characteristics discovered so far, in the order of their handles; nil before.
    open var characteristics: [CBCharacteristic]? { storage.withLock { $0.characteristics } }

    open override var description: String {
        "<CBService: isPrimary = \(isPrimary ? "YES" : "NO"), UUID = \(uuid)>"
    }
}

/// How a characteristic may be used (Bluetooth Core, Vol 3 Part G §3.3.1.1).
public struct CBCharacteristicProperties: OptionSet, Sendable {
    public let rawValue: UInt
    public init(rawValue: UInt) { self.rawValue = rawValue }

    /// The value may be broadcast in advertisements.
    public static let broadcast = CBCharacteristicProperties(rawValue: 0x01)
    /// It can be read.
    public static let read = CBCharacteristicProperties(rawValue: 0x02)
    /// It can be written without an answer of the peer.
    public static let writeWithoutResponse = CBCharacteristicProperties(rawValue: 0x04)
    /// It can be written, and the peer answers.
    public static let write = CBCharacteristicProperties(rawValue: 0x08)
    /// Its changes can be notified, without an answer to the peer.
    public static let notify = CBCharacteristicProperties(rawValue: 0x10)
    /// Its changes can be indicated; BlueZ answers each.
    public static let indicate = CBCharacteristicProperties(rawValue: 0x20)
    /// It takes signed writes.
    public static let authenticatedSignedWrites = CBCharacteristicProperties(rawValue: 0x40)
    /// Descriptor 2900 has more properties.
    public static let extendedProperties = CBCharacteristicProperties(rawValue: 0x80)
    /// For the peripheral role.
    public static let notifyEncryptionRequired = CBCharacteristicProperties(rawValue: 0x100)
    /// For the peripheral role.
    public static let indicateEncryptionRequired = CBCharacteristicProperties(rawValue: 0x200)
}

/// Whether a write asks the peer for an answer.
public enum CBCharacteristicWriteType: Int, Sendable {
    /// The peer answers, and `didWriteValueFor` tells how.
    case withResponse = 0
    /// Nobody answers. See ``CBPeripheral/canSendWriteWithoutResponse``.
    case withoutResponse
}

/// A characteristic of a service.
///
/// `@unchecked Sendable`: its variables are behind a lock.
open class CBCharacteristic: CBAttribute, @unchecked Sendable {
    struct State {
        weak var service: CBService?
        var properties: CBCharacteristicProperties
        var value: Data?
        var descriptors: [CBDescriptor]?
        var isNotifying = false
    }

    let storage: Locked<State>

    init(uuid: CBUUID, handle: UInt16, properties: CBCharacteristicProperties, service: CBService?) {
        storage = Locked(State(service: service, properties: properties))
        super.init(uuid: uuid, handle: handle)
    }

    /// The service that the characteristic belongs to; nil once that object is gone.
    open var service: CBService? { storage.withLock { $0.service } }

    /// How the characteristic may be used.
    open var properties: CBCharacteristicProperties { storage.withLock { $0.properties } }

    /// The value of the newest read or notification, as of the newest callback.
    open var value: Data? { storage.withLock { $0.value } }

    /// The descriptors discovered so far; nil before.
    open var descriptors: [CBDescriptor]? { storage.withLock { $0.descriptors } }

    /// Always false: BlueZ offers no broadcasts of a characteristic.
    @available(*, deprecated)
    open var isBroadcasted: Bool { false }

    /// Whether this manager gets the characteristic's notifications or indications.
    open var isNotifying: Bool { storage.withLock { $0.isNotifying } }

    open override var description: String {
        "<CBCharacteristic: UUID = \(uuid), properties = 0x\(String(properties.rawValue, radix: 16)), "
            + "notifying = \(isNotifying ? "YES" : "NO")>"
    }
}

/// A descriptor of a characteristic.
///
/// `@unchecked Sendable`: its variables are behind a lock.
open class CBDescriptor: CBAttribute, @unchecked Sendable {
    struct State {
        weak var characteristic: CBCharacteristic?
        var value: Any?
    }

    let storage: Locked<State>

    init(uuid: CBUUID, handle: UInt16, characteristic: CBCharacteristic?) {
        storage = Locked(State(characteristic: characteristic))
        super.init(uuid: uuid, handle: handle)
    }

    /// The characteristic that the descriptor belongs to; nil once that object is gone.
    open var characteristic: CBCharacteristic? { storage.withLock { $0.characteristic } }

    /// The value of the newest read: `NSNumber` for the extended properties (2900), the client and the server
    /// configuration (2902, 2903) and a PSM; `String` for the user description (2901); `Data` for all others.
    open var value: Any? { storage.withLock { $0.value } }

    func setValue(bytes: [UInt8]) {
        let value: Any
        switch uuid.uuidString {
        case CBUUIDCharacteristicExtendedPropertiesString, CBUUIDClientCharacteristicConfigurationString,
            CBUUIDServerCharacteristicConfigurationString, CBUUIDL2CAPPSMCharacteristicString:
            value = NSNumber(value: bytes.prefix(2).reversed().reduce(0) { $0 << 8 | UInt16($1) })
        case CBUUIDCharacteristicUserDescriptionString:
            value = String(decoding: bytes, as: UTF8.self)
        default:
            value = Data(bytes)
        }
        storage.withLock { $0.value = value }
    }

    open override var description: String { "<CBDescriptor: UUID = \(uuid)>" }
}
