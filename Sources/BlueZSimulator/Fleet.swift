public import Bluetooth

/// The devices that are around, and the adapters that hear them: what a fleet file says, checked.
public struct Fleet: Sendable {
    /// Where jitter and rotating addresses begin.
    public var seed: UInt64 = 1
    public var adapters: [Adapter] = [.standard]
    public var devices: [Device] = []
    /// Whether bluetoothd runs with its experimental interfaces (`-E`): advertisement monitors among them.
    public var isExperimental = true

    public init() {}

    /// What a controller leaves out while no advertisement monitor is active.
    public enum DuplicateFilter: String, Sendable, CaseIterable {
        case none
        /// Each address once in about 11 s.
        case address
        /// Each address with the same data once in about 11 s.
        case data
    }

    /// A controller of the gateway.
    public struct Adapter: Sendable {
        public var name: String
        public var address: BluetoothAddress
        public var alias: String?
        public var duplicateFilter = DuplicateFilter.none
        /// Whether it is there from the start.
        public var isPlugged = true

        public init(name: String, address: BluetoothAddress, alias: String? = nil) {
            self.name = name
            self.address = address
            self.alias = alias
        }

        public static let standard = Adapter(name: "hci0", address: BluetoothAddress(value: 0x001a_7dda_7113))
    }

    public enum Pairing: String, Sendable, CaseIterable {
        case none
        case justWorks = "just_works"
        case passkey
    }

    /// One device of the fleet.
    public struct Device: Sendable {
        public var id: String
        public var name: String?
        /// The device name characteristic's value.
        public var gapName = ""
        /// The first address of a device that rotates.
        public var address: BluetoothAddress
        public var addressType = AddressType.random
        /// The names of the adapters that hear it; nil: all.
        public var adapters: [String]?
        /// Milliseconds to the next private address; 0: it keeps its own.
        public var rotate = 0
        /// In dBm.
        public var rssi = -60
        public var rssiJitter = 0
        public var txPower: Int8?
        /// Milliseconds between advertisements.
        public var interval = 200
        public var advertises = true
        public var isConnectable = true
        public var appearance: UInt16 = 0
        public var services: [BluetoothUUID] = []
        public var solicited: [BluetoothUUID] = []
        public var manufacturerData: [Advertisement.ManufacturerData] = []
        public var serviceData: [Advertisement.ServiceData] = []
        public var counter: Counter?
        public var mtu = 247
        public var pairing = Pairing.none
        public var passkey: UInt32 = 123_456
        public var answers = true
        /// Milliseconds after which it drops a link itself; 0: never.
        public var dropsAfter = 0
        public var refuses = false
        /// BlueZ shows the battery as Battery1 alone, without its service, as older ones did.
        public var hidesBattery = false
        public var gatt: [Service] = []

        public init(id: String, address: BluetoothAddress) {
            self.id = id
            self.address = address
        }
    }

    /// Two bytes of what is advertised that count up, most significant first.
    public struct Counter: Sendable, Equatable {
        public enum Place: Sendable, Equatable {
            case manufacturerData(UInt16)
            case serviceData(BluetoothUUID)
        }

        public var place: Place
        public var offset: Int
    }

    public struct Service: Sendable {
        public var uuid: BluetoothUUID
        public var id: String?
        public var isPrimary = true
        public var includes: [String] = []
        public var characteristics: [Characteristic] = []

        public init(_ uuid: BluetoothUUID) {
            self.uuid = uuid
        }
    }

    public struct Characteristic: Sendable {
        public var uuid: BluetoothUUID
        public var properties: CharacteristicProperties = []
        public var value: [UInt8] = []
        /// Milliseconds between the values it sends while someone subscribes; 0: none by itself.
        public var notifyEvery = 0
        public var isEncrypted = false
        public var answers = true
        /// The ATT error that answers each request; 0: none.
        public var attError: UInt8 = 0
        public var descriptors: [Descriptor] = []

        public init(_ uuid: BluetoothUUID) {
            self.uuid = uuid
        }
    }

    public struct Descriptor: Sendable {
        public var uuid: BluetoothUUID
        public var value: [UInt8] = []
        public var isWritable = false

        public init(_ uuid: BluetoothUUID) {
            self.uuid = uuid
        }
    }
}
