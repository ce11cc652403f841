internal import Bluetooth
public import Configuration
internal import Glibc
internal import JSON
public import MQTT

extension BridgeSettings {
    /// What the bridge needs of the settings.
    public init(_ settings: Settings, version: String) {
        self.init()
        base = settings.mqtt.baseTopic
        host = Self.hostName()
        gateway = settings.gateway.id ?? Self.safe(host)
        self.version = version
        homeAssistantPrefix = settings.homeassistant.prefix
        devices = settings.devices.map(Self.device)
        adapters = settings.bluetooth.adapters
        publishesAdvertisements = settings.publish.advertisements
        publishesUnknownDevices = settings.publish.unknownDevices
        commands = Self.permissions(settings)
        scan = Self.scan(settings.bluetooth.scan)
        dump = Self.dump(settings)
    }

    private static func permissions(_ settings: Settings) -> Permissions {
        var permissions = Permissions()
        permissions.isEnabled = settings.commands.enabled
        if !settings.commands.verbs.isEmpty { permissions.verbs = Set(settings.commands.verbs) }
        guard !settings.commands.devices.isEmpty else { return permissions }
        permissions.devices = Set(
            settings.commands.devices.compactMap { text in
                settings.devices.first { $0.name == text }?.address ?? BluetoothAddress(parsing: text)
            })
        return permissions
    }

    private static func scan(_ scan: Settings.Scan) -> ScanCommand? {
        guard scan.enabled else { return nil }
        return ScanCommand(
            isConfigured: true, name: scan.name, services: scan.services, rssi: scan.rssi > -100 ? scan.rssi : nil,
            allowDuplicates: scan.allowDuplicates)
    }

    private static func device(_ device: Settings.Device) -> Device {
        Device(
            address: device.address, name: device.name, connectsAlways: device.connect == .always,
            adapter: device.adapter,
            subscriptions: device.subscribe.compactMap { name in
                guard let service = AttributeName(parsing: name.service),
                    let characteristic = AttributeName(parsing: name.characteristic)
                else { return nil }
                return AttributePath(service: service, characteristic: characteristic)
            })
    }

    /// The machine's name. Source: `gethostname(2)`.
    static func hostName() -> String {
        var name = [CChar](repeating: 0, count: 256)
        guard gethostname(&name, name.count - 1) == 0 else { return "localhost" }
        return String(decoding: name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    /// A text made to stand in a topic: what is not `[A-Za-z0-9_-]` becomes `-`.
    public static func safe(_ text: String) -> String {
        let bytes = text.utf8.prefix(64).map { byte in
            isTopicSafe(String(UnicodeScalar(byte)), limit: 1) ? byte : UInt8(ascii: "-")
        }
        return bytes.isEmpty ? "gateway" : String(decoding: bytes, as: UTF8.self)
    }

    /// The settings as nested objects, in the file's order; secrets show as dots.
    private static func dump(_ settings: Settings) -> JSONValue {
        var root: [(String, JSONValue)] = []
        for (key, value) in settings.scalarEntries + settings.listEntries {
            root = insert(key.split(separator: ".").map(String.init)[...], json(value), into: root)
        }
        let devices = settings.devices.map { device in
            JSONValue.object([
                ("address", .string(device.address.description)), ("name", .optional(device.name)),
                ("connect", .string(device.connect.rawValue)),
                ("subscribe", .array(device.subscribe.map { .string($0.description) })),
                ("adapter", .optional(device.adapter)),
            ])
        }
        root.append(("devices", .array(devices)))
        return .object(root)
    }

    private static func insert(
        _ path: ArraySlice<String>, _ value: JSONValue, into members: [(String, JSONValue)]
    ) -> [(String, JSONValue)] {
        guard let first = path.first else { return members }
        var members = members
        guard path.count > 1 else {
            members.append((first, value))
            return members
        }
        let index = members.firstIndex { $0.0 == first }
        var inner: [(String, JSONValue)] = []
        if let index, case .object(let known) = members[index].1 { inner = known }
        inner = insert(path.dropFirst(), value, into: inner)
        if let index { members[index].1 = .object(inner) } else { members.append((first, .object(inner))) }
        return members
    }

    private static func json(_ value: SettingValue) -> JSONValue {
        switch value {
        case .none: .null
        case .flag(let flag): .bool(flag)
        case .number(let number): .int(Int64(number))
        case .text(let text): .string(text)
        case .list(let items): .array(items.map { .string($0) })
        }
    }
}

extension MQTTSettings {
    /// The broker of the settings, with the bridge's will.
    public init(_ settings: Settings, bridge: BridgeSettings, clientID: String) {
        let url = settings.mqtt.url
        if let path = url.socketPath {
            self.init(unixSocketPath: path, clientID: clientID)
        } else {
            self.init(host: url.host, port: UInt16(clamping: url.port), clientID: clientID)
        }
        if url.isTLS {
            let files = settings.mqtt.tls
            tls = TLSSettings(
                caFile: files.caFile, certificateFile: files.certificateFile, keyFile: files.keyFile)
        }
        version = settings.mqtt.version == .v5 ? .v5 : .v311
        username = settings.mqtt.username ?? url.username
        password = (settings.mqtt.password ?? url.password)?.reveal()
        keepAlive = UInt16(clamping: settings.mqtt.keepAlive)
        let will = Bridge.will(TopicSpace(base: bridge.base, gateway: bridge.gateway))
        self.will = MQTTMessage(topic: will.topic, payload: will.payload, qos: .atLeastOnce, retain: true)
        // A request is refused beyond 64 KiB; what is longer need not be held.
        receivedPayloadLimit = Request.maximumSize
    }
}
