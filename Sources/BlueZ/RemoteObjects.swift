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
    public internal(set) final var isGone = false
    /// The number of the last load that had it.
    final var seenInLoad: UInt32 = 0
    nonisolated let pathHash: UInt64
    /// The path with a final zero; empty for a device whose path follows from its adapter's and its address.
    private nonisolated let storedPath: [UInt8]

    /// - Parameter isImplied: the path is that of ``RemoteDevice/impliedPath``.
    nonisolated init(path: UnsafeRawBufferPointer, kind: Kind, isImplied: Bool = false) {
        self.kind = kind
        storedPath = isImplied ? [] : Array(path) + [0]
        pathHash = PathTable.hash(path)
    }

    /// The path, with a final zero for C.
    nonisolated final var pathBytes: [UInt8] { impliedBy.map(\.impliedPath) ?? storedPath }

    /// The device that this is, where its path is not stored.
    private nonisolated final var impliedBy: RemoteDevice? {
        kind == .device && storedPath.isEmpty ? unsafeDowncast(self, to: RemoteDevice.self) : nil
    }

    public nonisolated final var path: String { String(decoding: pathBytes.dropLast(), as: UTF8.self) }

    nonisolated final func hasPath(_ path: UnsafeRawBufferPointer) -> Bool {
        if let device = impliedBy { return DevicePath(path, below: device.adapter)?.address == device.pathAddress }
        return path.count == storedPath.count - 1 && Self.begins(path, storedPath, path.count)
    }

    /// Whether a path begins with the path of this object, which is a stored one, and a slash.
    nonisolated final func isParent(of path: UnsafeRawBufferPointer) -> Bool {
        let length = storedPath.count - 1
        return length > 0 && path.count > length && path[length] == UInt8(ascii: "/")
            && Self.begins(path, storedPath, length)
    }

    /// Whether the first `count` bytes, which both have, are the same.
    private nonisolated static func begins(_ path: UnsafeRawBufferPointer, _ other: [UInt8], _ count: Int) -> Bool {
        guard let start = path.baseAddress else { return count == 0 }
        return memcmp(start, other, count) == 0
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
    // What each advertisement touches comes first.
    public nonisolated let adapter: RemoteAdapter
    @exclusivity(unchecked) var advertised = AdvertisedBytes()
    /// This object as the owner of the mirror knows it.
    @exclusivity(unchecked) public var owner: AnyObject?
    @exclusivity(unchecked) public internal(set) var rssi: Int8?
    @exclusivity(unchecked) public internal(set) var txPower: Int8?
    public internal(set) var advertisingFlags: UInt8?
    @exclusivity(unchecked) public internal(set) var services: [BluetoothUUID] = []
    public internal(set) var address = BluetoothAddress(value: 0)
    /// The address in the path.
    nonisolated let pathAddress: UInt64
    public internal(set) var isRandomAddress = false
    public internal(set) var isConnected = false
    public internal(set) var isResolved = false
    public internal(set) var isPaired = false
    public internal(set) var isBonded = false
    public internal(set) var isTrusted = false
    public internal(set) var isBlocked = false
    public internal(set) var appearance: UInt16?
    /// Battery1.Percentage.
    public internal(set) var battery: UInt8?
    /// Device1 has come; before, the object only stands for its path.
    @exclusivity(unchecked) var isAnnounced = false
    @exclusivity(unchecked) private var extras: Extras?

    /// What few of thousands of devices have.
    private final class Extras {
        var disconnectReason: String?
        var solicited: [BluetoothUUID] = []
        var gatt: [RemoteService] = []
    }

    nonisolated init(path: UnsafeRawBufferPointer, adapter: RemoteAdapter) {
        self.adapter = adapter
        let implied = DevicePath(path, below: adapter)
        pathAddress = implied?.address ?? 0
        super.init(path: path, kind: .device, isImplied: implied != nil)
    }

    /// The path that BlueZ gives to a device with ``pathAddress``, with a final zero.
    nonisolated var impliedPath: [UInt8] {
        var path = adapter.pathBytes
        _ = path.popLast()
        path.append(contentsOf: "/dev_\(BluetoothAddress(value: pathAddress).pathForm)".utf8)
        path.append(0)
        return path
    }

    /// Name as the device gave it, UTF-8; empty while unknown. Alias is no source: BlueZ invents one from the address.
    public var name: [UInt8] { Array(nameBytes) }
    /// The same where it lies, until the next change.
    public var nameBytes: UnsafeRawBufferPointer { advertised[.name] }
    public var manufacturerData: Records { Records(bytes: advertised[.manufacturerData]) }
    public var serviceData: Records { Records(bytes: advertised[.serviceData]) }

    /// Why the link last ended, where BlueZ says (its newer versions do).
    public internal(set) var disconnectReason: String? {
        get { extras?.disconnectReason }
        set { makeExtras().disconnectReason = newValue }
    }
    public internal(set) var solicited: [BluetoothUUID] {
        get { extras?.solicited ?? [] }
        set { if extras != nil || !newValue.isEmpty { makeExtras().solicited = newValue } }
    }
    public internal(set) var gatt: [RemoteService] {
        get { extras?.gatt ?? [] }
        set { if extras != nil || !newValue.isEmpty { makeExtras().gatt = newValue } }
    }

    private func makeExtras() -> Extras {
        if let extras { return extras }
        let made = Extras()
        extras = made
        return made
    }
}

/// `…/hci0/dev_A4_C1_38_5E_07_D3`: the path of a device, from which its adapter's and an address follow.
struct DevicePath {
    let address: UInt64

    /// Nil for any other path; that is then kept as it is.
    init?(_ path: UnsafeRawBufferPointer, below adapter: RemoteAdapter) {
        let start = path.count - 22
        guard start > 0, adapter.isParent(of: path), adapter.pathBytes.count - 1 == start,
            path.loadUnaligned(fromByteOffset: start, as: UInt32.self) == Self.prefix,
            path[start + 4] == UInt8(ascii: "_")
        else { return nil }
        var address: UInt64 = 0
        for place in stride(from: start + 5, to: path.count, by: 3) {
            guard let high = Self.digit(path[place]), let low = Self.digit(path[place + 1]),
                place + 2 == path.count || path[place + 2] == UInt8(ascii: "_")
            else { return nil }
            address = address << 8 | UInt64(high << 4 | low)
        }
        self.address = address
    }

    /// `/dev`, as the bytes of a number.
    private static let prefix = UInt32(littleEndian: 0x7665_642f)

    /// Of a digit as BlueZ writes it, in capitals.
    private static func digit(_ character: UInt8) -> UInt8? {
        switch character {
        case 0x30...0x39: character &- 0x30
        case 0x41...0x46: character &- 0x37
        default: nil
        }
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
    /// StartNotify was granted and StopNotify not called since: BlueZ subscribes anew with each link, until the bus
    /// connection ends.
    public internal(set) var hasSession = false
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
