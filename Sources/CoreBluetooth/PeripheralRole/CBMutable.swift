public import Foundation

/// A remote central: never seen on Linux, see ``CBPeripheralManager``.
///
/// `@unchecked Sendable`: immutable.
open class CBCentral: CBPeer, @unchecked Sendable {
    open var maximumUpdateValueLength: Int { 20 }
}

/// A request of a remote central: never seen on Linux, see ``CBPeripheralManager``.
///
/// `@unchecked Sendable`: its variable is behind a lock, the rest immutable.
open class CBATTRequest: NSObject, @unchecked Sendable {
    public let central: CBCentral
    public let characteristic: CBCharacteristic
    public let offset: Int
    private let bytes: Locked<Data?>

    init(central: CBCentral, characteristic: CBCharacteristic, offset: Int, value: Data?) {
        self.central = central
        self.characteristic = characteristic
        self.offset = offset
        bytes = Locked(value)
        super.init()
    }

    open var value: Data? {
        get { bytes.withLock { $0 } }
        set { bytes.withLock { $0 = newValue } }
    }
}

/// A service that a program describes. Offering it is not supported on Linux, see ``CBPeripheralManager``.
///
/// `@unchecked Sendable`: its variables are behind a lock.
open class CBMutableService: CBService, @unchecked Sendable {
    public init(type UUID: CBUUID, primary isPrimary: Bool) {
        super.init(uuid: UUID, handle: 0, primary: isPrimary, peripheral: nil)
    }

    open override var includedServices: [CBService]? {
        get { storage.withLock { $0.included } }
        set { storage.withLock { $0.included = newValue } }
    }

    open override var characteristics: [CBCharacteristic]? {
        get { storage.withLock { $0.characteristics } }
        set {
            storage.withLock { $0.characteristics = newValue }
            for characteristic in newValue ?? [] { characteristic.storage.withLock { $0.service = self } }
        }
    }
}

/// A characteristic that a program describes. Offering it is not supported on Linux, see ``CBPeripheralManager``.
///
/// `@unchecked Sendable`: its variables are behind locks.
open class CBMutableCharacteristic: CBCharacteristic, @unchecked Sendable {
    private let access: Locked<CBAttributePermissions>

    public init(
        type UUID: CBUUID, properties: CBCharacteristicProperties, value: Data?, permissions: CBAttributePermissions
    ) {
        access = Locked(permissions)
        super.init(uuid: UUID, handle: 0, properties: properties, service: nil)
        storage.withLock { $0.value = value }
    }

    open var permissions: CBAttributePermissions {
        get { access.withLock { $0 } }
        set { access.withLock { $0 = newValue } }
    }

    /// Always nil on Linux.
    open var subscribedCentrals: [CBCentral]? { nil }

    open override var properties: CBCharacteristicProperties {
        get { storage.withLock { $0.properties } }
        set { storage.withLock { $0.properties = newValue } }
    }

    open override var value: Data? {
        get { storage.withLock { $0.value } }
        set { storage.withLock { $0.value = newValue } }
    }

    open override var descriptors: [CBDescriptor]? {
        get { storage.withLock { $0.descriptors } }
        set {
            storage.withLock { $0.descriptors = newValue }
            for descriptor in newValue ?? [] { descriptor.storage.withLock { $0.characteristic = self } }
        }
    }
}

/// A descriptor that a program describes. Offering it is not supported on Linux, see ``CBPeripheralManager``.
///
/// `@unchecked Sendable`: its variables are behind a lock.
open class CBMutableDescriptor: CBDescriptor, @unchecked Sendable {
    public init(type UUID: CBUUID, value: Any?) {
        super.init(uuid: UUID, handle: 0, characteristic: nil)
        storage.withLock { $0.value = value }
    }
}
