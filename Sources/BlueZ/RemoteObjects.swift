public import Bluetooth
internal import DBus
public import EventLoop
internal import Glibc

/// An object of org.bluez as the mirror holds it. It lives as long as BlueZ shows it; ``isGone`` tells a late holder.
@EventLoopActor
public class RemoteObject {
    enum Kind: UInt8 {
        case adapter, device, service, characteristic, descriptor
    }

    nonisolated let kind: Kind
    /// The path, with a final zero for C.
    nonisolated let pathBytes: [UInt8]
    nonisolated let pathHash: UInt64
    public internal(set) final var isGone = false
    /// The number of the last load that had it.
    final var seenInLoad: UInt32 = 0

    nonisolated init(path: UnsafeRawBufferPointer, kind: Kind) {
        self.kind = kind
        pathBytes = Array(path) + [0]
        pathHash = PathTable.hash(path)
    }

    public nonisolated var path: String { String(decoding: pathBytes.dropLast(), as: UTF8.self) }

    nonisolated func hasPath(_ path: UnsafeRawBufferPointer) -> Bool {
        guard path.count == pathBytes.count - 1 else { return false }
        return pathBytes.withUnsafeBytes { mine in
            guard let left = mine.baseAddress, let right = path.baseAddress else { return true }
            return memcmp(left, right, path.count) == 0
        }
    }

    /// The last part of the path, as `hci0` or `char0011`.
    nonisolated var lastComponent: String {
        String(path.split(separator: "/").last ?? "")
    }

    /// The device whose GATT tree this object is a part of.
    final var treeOwner: RemoteDevice? {
        switch self {
        case let service as RemoteService: service.device
        case let characteristic as RemoteCharacteristic: characteristic.service?.device
        case let descriptor as RemoteDescriptor: descriptor.characteristic?.service?.device
        default: nil
        }
    }

    /// The handle in the path's last part (`char0011`), where BlueZ gives no Handle property.
    nonisolated var handleInPath: UInt16 {
        UInt16(lastComponent.suffix(4), radix: 16) ?? 0
    }

    nonisolated var parentPath: String {
        let path = self.path
        guard let slash = path.lastIndex(of: "/") else { return "" }
        return String(path[..<slash])
    }
}

/// A controller: Adapter1 and what else is on its path. Source: BlueZ org.bluez.Adapter(5).
public final class RemoteAdapter: RemoteObject {
    public internal(set) var address: BluetoothAddress?
    public internal(set) var alias = ""
    public internal(set) var isPowered = false
    public internal(set) var isDiscovering = false
    /// `on`, `off`, `off-enabling`, `on-disabling`, `off-blocked`; nil where BlueZ has no such property.
    public internal(set) var powerState: String?
    /// AdvertisementMonitorManager1 is there and takes `or_patterns`.
    public internal(set) var supportsMonitor = false
    /// This object as the owner of the mirror knows it.
    public var owner: AnyObject?

    /// `hci0`: for people only; a controller is known by its address.
    public var systemName: String { lastComponent }

    nonisolated init(path: UnsafeRawBufferPointer) { super.init(path: path, kind: .adapter) }
}

/// What changed in a device.
public struct DeviceFields: OptionSet, Sendable {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    public static let rssi = DeviceFields(rawValue: 1 << 0)
    public static let txPower = DeviceFields(rawValue: 1 << 1)
    public static let manufacturerData = DeviceFields(rawValue: 1 << 2)
    public static let serviceData = DeviceFields(rawValue: 1 << 3)
    public static let advertisingFlags = DeviceFields(rawValue: 1 << 4)
    public static let advertisingData = DeviceFields(rawValue: 1 << 5)
    public static let services = DeviceFields(rawValue: 1 << 6)
    public static let name = DeviceFields(rawValue: 1 << 7)
    public static let appearance = DeviceFields(rawValue: 1 << 8)
    public static let connected = DeviceFields(rawValue: 1 << 9)
    public static let servicesResolved = DeviceFields(rawValue: 1 << 10)
    public static let security = DeviceFields(rawValue: 1 << 11)
    public static let battery = DeviceFields(rawValue: 1 << 12)
    public static let identity = DeviceFields(rawValue: 1 << 13)
    /// Fields of the kinds above that BlueZ withdrew rather than gave.
    public static let withdrawn = DeviceFields(rawValue: 1 << 14)
    /// Any of these, given and not withdrawn, says that the device was heard just now.
    public static let heard: DeviceFields = [
        .rssi, .txPower, .manufacturerData, .serviceData, .advertisingFlags, .advertisingData,
    ]
}

/// A device: Device1, and Battery1 where BlueZ keeps the battery service to itself.
/// Sources: BlueZ org.bluez.Device(5), org.bluez.Battery(5).
public final class RemoteDevice: RemoteObject {
    public nonisolated let adapter: RemoteAdapter
    public internal(set) var address = BluetoothAddress(value: 0)
    public internal(set) var isRandomAddress = false
    public internal(set) var isConnected = false
    public internal(set) var isResolved = false
    public internal(set) var isPaired = false
    public internal(set) var isBonded = false
    public internal(set) var isTrusted = false
    public internal(set) var isBlocked = false
    public internal(set) var rssi: Int8?
    public internal(set) var txPower: Int8?
    public internal(set) var advertisingFlags: UInt8?
    public internal(set) var appearance: UInt16?
    /// Battery1.Percentage.
    public internal(set) var battery: UInt8?
    /// Name as the device gave it, UTF-8; empty while unknown. Alias is no source: BlueZ invents one from the address.
    public internal(set) var name: [UInt8] = []
    /// Why the link last ended, where BlueZ says (its newer versions do).
    public internal(set) var disconnectReason: String?
    public internal(set) var services: [BluetoothUUID] = []
    public internal(set) var solicited: [BluetoothUUID] = []
    public internal(set) var manufacturerData = RecordBuffer()
    public internal(set) var serviceData = RecordBuffer()
    public internal(set) var gatt: [RemoteService] = []
    /// Device1 has come; before, the object only stands for its path.
    var isAnnounced = false
    /// This object as the owner of the mirror knows it.
    public var owner: AnyObject?

    nonisolated init(path: UnsafeRawBufferPointer, adapter: RemoteAdapter) {
        self.adapter = adapter
        super.init(path: path, kind: .device)
    }
}

/// A GATT service. Source: BlueZ org.bluez.GattService(5).
public final class RemoteService: RemoteObject {
    public internal(set) weak var device: RemoteDevice?
    public internal(set) var uuid = BluetoothUUID(0)
    public internal(set) var handle: UInt16 = 0
    public internal(set) var isPrimary = true
    /// Handles of the included services.
    public internal(set) var includes: [UInt16] = []
    public internal(set) var characteristics: [RemoteCharacteristic] = []

    nonisolated init(path: UnsafeRawBufferPointer) { super.init(path: path, kind: .service) }
}

/// A GATT characteristic. Source: BlueZ org.bluez.GattCharacteristic(5).
public final class RemoteCharacteristic: RemoteObject {
    public internal(set) weak var service: RemoteService?
    public internal(set) var uuid = BluetoothUUID(0)
    public internal(set) var handle: UInt16 = 0
    public internal(set) var flags: CharacteristicProperties = []
    public internal(set) var isNotifying = false
    /// The ATT MTU of the link; 0 where BlueZ does not say.
    public internal(set) var mtu: UInt16 = 0
    public internal(set) var descriptors: [RemoteDescriptor] = []
    /// Where notifications go. Held here, so that a value finds its way without a look-up.
    public weak var valueHandler: (any CharacteristicValueHandler)?
    /// The call that reads it, once it was read: to be copied.
    var readCall: DBusMessage?

    nonisolated init(path: UnsafeRawBufferPointer) { super.init(path: path, kind: .characteristic) }
}

/// A GATT descriptor. Source: BlueZ org.bluez.GattDescriptor(5).
public final class RemoteDescriptor: RemoteObject {
    public internal(set) weak var characteristic: RemoteCharacteristic?
    public internal(set) var uuid = BluetoothUUID(0)
    public internal(set) var handle: UInt16 = 0

    nonisolated init(path: UnsafeRawBufferPointer) { super.init(path: path, kind: .descriptor) }
}

/// Takes the values that BlueZ signals for a characteristic.
@EventLoopActor
public protocol CharacteristicValueHandler: AnyObject {
    /// `Value` changed: a notification, an indication, or the echo of a read.
    func characteristic(_ characteristic: RemoteCharacteristic, didSignal value: UnsafeRawBufferPointer)
    func characteristicDidChangeNotifying(_ characteristic: RemoteCharacteristic)
}
