internal import BlueZ
public import Bluetooth
public import EventLoop

/// What an advertisement brought.
public struct AdvertisementFields: OptionSet, Sendable {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    public static let rssi = AdvertisementFields(rawValue: 1 << 0)
    public static let txPower = AdvertisementFields(rawValue: 1 << 1)
    public static let manufacturerData = AdvertisementFields(rawValue: 1 << 2)
    public static let serviceData = AdvertisementFields(rawValue: 1 << 3)
    public static let flags = AdvertisementFields(rawValue: 1 << 4)
    public static let otherData = AdvertisementFields(rawValue: 1 << 5)
    public static let services = AdvertisementFields(rawValue: 1 << 6)
    public static let name = AdvertisementFields(rawValue: 1 << 7)
}

/// One advertisement, as BlueZ signals it: the device holds what is known of it now, ``changed`` says what this one
/// brought.
public struct AdvertisementEvent {
    public let device: Device
    public let adapter: Adapter
    public let rssi: Int8?
    public let time: MonotonicTime
    public let wall: WallTime
    public let changed: AdvertisementFields
    /// The scans that get it.
    public let sessions: ScanSessionSet
    /// Those of them that had not got this device before.
    public let firstFor: ScanSessionSet
}

/// What changed in a device, its RSSI and what it advertises apart.
public struct DeviceChanges: OptionSet, Sendable {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    public static let name = DeviceChanges(rawValue: 1 << 0)
    public static let services = DeviceChanges(rawValue: 1 << 1)
    public static let pairing = DeviceChanges(rawValue: 1 << 2)
    public static let appearance = DeviceChanges(rawValue: 1 << 3)
    /// RSSI or transmit power became unknown.
    public static let signalLost = DeviceChanges(rawValue: 1 << 4)
    public static let adapter = DeviceChanges(rawValue: 1 << 5)
}

public enum ConnectionState: String, Sendable {
    case disconnected
    case connecting
    case connected
    case disconnecting
}

public struct ConnectionSnapshot: Sendable, Equatable {
    public var state = ConnectionState.disconnected
    public var adapter: BluetoothAddress?
    public var mtu: Int?
    /// When the state was reached.
    public var since: WallTime?
    /// Attempts since a link last held for more than 10 s, the one that made the present link included.
    public var attempts = 0
    /// Why the link last ended or an attempt failed, `unknown` where BlueZ does not say; nil while connected, and where
    /// neither has happened.
    public var reason: String?
}

/// A device, known by its address: gone from BlueZ and back, it is the same to those who want it.
@EventLoopActor
public final class Device {
    // What each advertisement touches is here; what few of thousands of devices have is apart.
    public nonisolated let address: BluetoothAddress
    /// The controller that last heard it, or that holds its link.
    public internal(set) var adapter: Adapter?
    /// What BlueZ shows; with several controllers, on that of ``adapter``.
    @exclusivity(unchecked) var remote: RemoteDevice?
    /// What an observer knows of this device, so that the hot path finds it without a look-up. It goes with this object,
    /// and does not keep it.
    @exclusivity(unchecked) public var note: AnyObject?
    @exclusivity(unchecked) private var extras: Extras?
    /// Nanoseconds of the monotonic clock, 0 for never, and milliseconds of the wall clock.
    @exclusivity(unchecked) private var seenAt: UInt64 = 0
    @exclusivity(unchecked) private var seenAtWall: Int64 = 0
    @exclusivity(unchecked) var candidates: ScanSessionSet = []
    @exclusivity(unchecked) var reported: ScanSessionSet = []
    @exclusivity(unchecked) var candidateGeneration: UInt32 = 0
    public internal(set) var addressType = AddressType.public

    @EventLoopActor
    private final class Extras {
        var services: [GATTService] = []
        var attachment: AnyObject?
        var others: [RemoteDevice] = []
        var link: Link?
        weak var countedOn: Adapter?
        var connection = ConnectionSnapshot()
        var lastSnapshot = ConnectionSnapshot()
    }

    init(address: BluetoothAddress) {
        self.address = address
    }

    private func makeExtras() -> Extras {
        if let extras { return extras }
        let made = Extras()
        extras = made
        return made
    }

    public var lastSeen: MonotonicTime? { seenAt > 0 ? MonotonicTime(nanoseconds: seenAt) : nil }
    public var lastSeenWall: WallTime? { seenAt > 0 ? WallTime(milliseconds: seenAtWall) : nil }

    func noteSeen(at time: MonotonicTime, wall: WallTime) {
        seenAt = time.nanoseconds
        seenAtWall = wall.milliseconds
    }

    public internal(set) var connection: ConnectionSnapshot {
        get { extras?.connection ?? ConnectionSnapshot() }
        set { makeExtras().connection = newValue }
    }
    var lastSnapshot: ConnectionSnapshot {
        get { extras?.lastSnapshot ?? ConnectionSnapshot() }
        set { makeExtras().lastSnapshot = newValue }
    }
    /// The GATT tree; empty until BlueZ has resolved it.
    public internal(set) var services: [GATTService] {
        get { extras?.services ?? [] }
        set { if extras != nil || !newValue.isEmpty { makeExtras().services = newValue } }
    }
    /// The state that an observer keeps for this device. While it is set the object stays, even where BlueZ has removed the
    /// device.
    public var attachment: AnyObject? {
        get { extras?.attachment }
        set { if extras != nil || newValue != nil { makeExtras().attachment = newValue } }
    }
    /// The same device on further controllers.
    var others: [RemoteDevice] {
        get { extras?.others ?? [] }
        set { if extras != nil || !newValue.isEmpty { makeExtras().others = newValue } }
    }
    var link: Link? {
        get { extras?.link }
        set { if extras != nil || newValue != nil { makeExtras().link = newValue } }
    }
    /// The controller whose links this device's is among.
    var countedOn: Adapter? {
        get { extras?.countedOn }
        set { if extras != nil || newValue != nil { makeExtras().countedOn = newValue } }
    }

    /// BlueZ has an object for it.
    public var isPresent: Bool { remote != nil }
    public var isPaired: Bool { remote?.isPaired ?? false }
    public var isBonded: Bool { remote?.isBonded ?? false }
    public var isTrusted: Bool { remote?.isTrusted ?? false }
    public var isBlocked: Bool { remote?.isBlocked ?? false }
    public var isConnected: Bool { extras?.connection.state == .connected }
    public var mtu: Int? { extras?.connection.mtu }
    /// Someone holds it connected or wants it so.
    public var isWanted: Bool { link?.isWanted ?? false }
    public var holders: [HolderID] { link.map { Array($0.holders.keys) } ?? [] }

    /// dBm; nil while BlueZ does not know it.
    public var rssi: Int8? { remote?.rssi }
    public var txPower: Int8? { remote?.txPower }
    public var appearance: UInt16? { remote?.appearance }
    /// The Flags AD type. Source: Core Specification Supplement, Part A §1.3.
    public var flags: UInt8? { remote?.advertisingFlags }
    public var advertisedServices: [BluetoothUUID] { remote?.services ?? [] }
    public var solicitedServices: [BluetoothUUID] { remote?.solicited ?? [] }

    /// The name the device gave; nil until it is really known. BlueZ's alias is none: it is made of the address.
    public var name: String? {
        guard let remote, !remote.nameBytes.isEmpty else { return nil }
        return String(decoding: remote.nameBytes, as: UTF8.self)
    }

    /// The name's UTF-8 where it lies, for writing it on without a string; empty while unknown.
    public func withName(_ body: (UnsafeRawBufferPointer) -> Void) {
        body(remote?.nameBytes ?? UnsafeRawBufferPointer(start: nil, count: 0))
    }

    /// Company identifier and data of each record; the bytes are valid during the call.
    public func forEachManufacturerData(_ body: (UInt16, UnsafeRawBufferPointer) -> Void) {
        remote?.manufacturerData.forEachCompany(body)
    }

    public func forEachServiceData(_ body: (BluetoothUUID, UnsafeRawBufferPointer) -> Void) {
        remote?.serviceData.forEachService(body)
    }
}
