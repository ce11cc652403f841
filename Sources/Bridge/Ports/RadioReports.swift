public import Bluetooth
public import EventLoop

/// What the bridge says of an adapter.
public struct AdapterReport: Equatable, Sendable {
    /// The adapter states of the MQTT contract.
    public enum State: String, Sendable {
        case unknown, resetting, unsupported, unauthorized, poweredOff, poweredOn
    }

    public var address: BluetoothAddress
    public var systemName: String
    public var name: String
    public var state: State
    public var isPresent: Bool
    public var isSelected: Bool
    public var isDiscovering: Bool
    /// How advertisements are heard: `monitor`, `discovery` or `none`.
    public var method: String
    public var connections: Int

    public init(
        address: BluetoothAddress, systemName: String, name: String, state: State, isPresent: Bool = true,
        isSelected: Bool = true, isDiscovering: Bool = false, method: String = "none", connections: Int = 0
    ) {
        self.address = address
        self.systemName = systemName
        self.name = name
        self.state = state
        self.isPresent = isPresent
        self.isSelected = isSelected
        self.isDiscovering = isDiscovering
        self.method = method
        self.connections = connections
    }
}

/// The state of a device's link.
public struct LinkReport: Equatable, Sendable {
    public enum State: String, Sendable {
        case disconnected, connecting, connected, disconnecting
    }

    public var state: State
    public var adapter: BluetoothAddress?
    public var mtu: Int?
    public var since: WallTime?
    public var attempts: Int
    /// Why the last link ended, where that is known.
    public var reason: String?

    public init(
        state: State = .disconnected, adapter: BluetoothAddress? = nil, mtu: Int? = nil, since: WallTime? = nil,
        attempts: Int = 0, reason: String? = nil
    ) {
        self.state = state
        self.adapter = adapter
        self.mtu = mtu
        self.since = since
        self.attempts = attempts
        self.reason = reason
    }
}

/// What the radio knows of a device now.
public struct DeviceReport: Equatable, Sendable {
    public var address: BluetoothAddress
    /// Nil until it was heard.
    public var addressType: AddressType?
    public var adapter: BluetoothAddress?
    /// The name it gives itself.
    public var name: String?
    public var rssi: Int8?
    public var lastSeen: WallTime?
    public var isBonded: Bool
    public var services: [BluetoothUUID]
    public var link: LinkReport

    public init(
        address: BluetoothAddress, addressType: AddressType?, adapter: BluetoothAddress? = nil, name: String? = nil,
        rssi: Int8? = nil, lastSeen: WallTime? = nil, isBonded: Bool = false, services: [BluetoothUUID] = [],
        link: LinkReport = LinkReport()
    ) {
        self.address = address
        self.addressType = addressType
        self.adapter = adapter
        self.name = name
        self.rssi = rssi
        self.lastSeen = lastSeen
        self.isBonded = isBonded
        self.services = services
        self.link = link
    }
}

/// A device's attributes as the `services` topic shows them.
public struct ServiceReport: Equatable, Sendable {
    public struct Characteristic: Equatable, Sendable {
        public var uuid: BluetoothUUID
        public var handle: UInt16
        /// The topic level: the UUID, with the handle where it has a twin.
        public var key: String
        public var properties: [String]
        public var descriptors: [Descriptor]

        public init(
            uuid: BluetoothUUID, handle: UInt16, key: String, properties: [String], descriptors: [Descriptor] = []
        ) {
            self.uuid = uuid
            self.handle = handle
            self.key = key
            self.properties = properties
            self.descriptors = descriptors
        }
    }

    public struct Descriptor: Equatable, Sendable {
        public var uuid: BluetoothUUID
        public var handle: UInt16

        public init(uuid: BluetoothUUID, handle: UInt16) {
            self.uuid = uuid
            self.handle = handle
        }
    }

    public var uuid: BluetoothUUID
    public var handle: UInt16
    public var key: String
    public var isPrimary: Bool
    public var includes: [UInt16]
    public var characteristics: [Characteristic]

    public init(
        uuid: BluetoothUUID, handle: UInt16, key: String, isPrimary: Bool = true, includes: [UInt16] = [],
        characteristics: [Characteristic] = []
    ) {
        self.uuid = uuid
        self.handle = handle
        self.key = key
        self.isPrimary = isPrimary
        self.includes = includes
        self.characteristics = characteristics
    }
}

/// A scan that is asked for.
public struct ScanCommand: Equatable, Sendable {
    public var isConfigured: Bool
    /// A pattern that matches the whole name.
    public var name: String?
    public var services: [BluetoothUUID]
    public var solicited: [BluetoothUUID]
    public var rssi: Int?
    public var timeout: Duration?
    public var allowDuplicates: Bool
    public var adapter: String?

    public init(
        isConfigured: Bool = false, name: String? = nil, services: [BluetoothUUID] = [],
        solicited: [BluetoothUUID] = [], rssi: Int? = nil, timeout: Duration? = nil, allowDuplicates: Bool = true,
        adapter: String? = nil
    ) {
        self.isConfigured = isConfigured
        self.name = name
        self.services = services
        self.solicited = solicited
        self.rssi = rssi
        self.timeout = timeout
        self.allowDuplicates = allowDuplicates
        self.adapter = adapter
    }
}

/// A scan that runs.
public struct ScanReport: Equatable, Sendable {
    public var id: String
    public var command: ScanCommand
    public var started: WallTime
    public var ends: WallTime?

    public init(id: String, command: ScanCommand, started: WallTime, ends: WallTime? = nil) {
        self.id = id
        self.command = command
        self.started = started
        self.ends = ends
    }
}

/// What the radio counted since the start.
public struct RadioCounts: Equatable, Sendable {
    public var advertisements: UInt64 = 0
    public var notifications: UInt64 = 0
    /// Links that came up, and links that ended by themselves.
    public var connects: UInt64 = 0
    public var linksLost: UInt64 = 0
    public var scanStarts: UInt64 = 0
    /// How often the bus went away, and how often bluetoothd did.
    public var busLosses: UInt64 = 0
    public var blueZLosses: UInt64 = 0
    /// Silences of a discovery that were set about to be cured.
    public var silences: UInt64 = 0
    public var callsInFlight: Int = 0
    public var devices: Int = 0
    public init() {}
}
