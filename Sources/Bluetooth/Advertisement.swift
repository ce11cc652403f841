/// What one device advertises, as its latest packets say. Source: Bluetooth Core, Vol 3 Part C §11; Supplement, Part A.
public struct Advertisement: Equatable, Sendable {
    /// The local name, complete or shortened.
    public var name: String?
    /// In dBm; nil where unknown.
    public var rssi: Int8?
    /// In dBm; nil where the device does not say.
    public var txPower: Int8?
    public var services: [BluetoothUUID] = []
    public var solicited: [BluetoothUUID] = []
    public var serviceData: [ServiceData] = []
    /// Each company's data once; a packet may carry several companies'.
    public var manufacturerData: [ManufacturerData] = []
    public var appearance: UInt16?
    /// The flags byte, or nil without one.
    public var flags: UInt8?

    public struct ServiceData: Equatable, Sendable {
        public var uuid: BluetoothUUID
        public var data: [UInt8]

        public init(uuid: BluetoothUUID, data: [UInt8]) {
            self.uuid = uuid
            self.data = data
        }
    }

    public struct ManufacturerData: Equatable, Sendable {
        /// The company identifier that Bluetooth SIG assigned.
        public var company: UInt16
        /// The data without the identifier.
        public var data: [UInt8]

        public init(company: UInt16, data: [UInt8]) {
            self.company = company
            self.data = data
        }
    }

    public init() {}
}

/// The RSSI that HCI reports where none is available. Source: Bluetooth Core, Vol 4 Part E §7.7.65.2.
public let rssiUnavailable: Int16 = 127
