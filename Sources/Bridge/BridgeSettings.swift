public import Bluetooth
public import JSON

/// What the bridge needs of the settings, checked before.
public struct BridgeSettings: Sendable {
    /// A device that a person named.
    public struct Device: Sendable, Equatable {
        public var address: BluetoothAddress
        public var name: String?
        public var connectsAlways: Bool
        public var adapter: String?
        public var subscriptions: [AttributePath]

        public init(
            address: BluetoothAddress, name: String? = nil, connectsAlways: Bool = false, adapter: String? = nil,
            subscriptions: [AttributePath] = []
        ) {
            self.address = address
            self.name = name
            self.connectsAlways = connectsAlways
            self.adapter = adapter
            self.subscriptions = subscriptions
        }
    }

    public var base = "blueferry"
    public var gateway = "gateway"
    public var homeAssistantPrefix = "homeassistant"
    public var devices: [Device] = []
    /// The configured scan; nil where none runs.
    public var scan: ScanCommand? = ScanCommand(isConfigured: true)
    /// The adapters that the settings name; empty for all.
    public var adapters: [String] = []
    public var publishesAdvertisements = true
    public var publishesUnknownDevices = true
    public var commands = Permissions()
    public var version = "0"
    public var host = "localhost"
    /// The settings as `info` and `config` show them, without secrets.
    public var dump: JSONValue = .object([])

    public init() {}
}
