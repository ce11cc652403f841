internal import Bluetooth
public import YAML

/// Reads fleet files.
public enum FleetFile {
    /// - Throws: `YAMLError` that names the file, the place and the key.
    public static func load(_ path: String) throws(YAMLError) -> Fleet {
        try fleet(try YAMLDocument.load(path: path, limits: limits))
    }

    /// The same for a text; `file` is its name in errors.
    public static func parse(_ text: String, file: String = "fleet.yaml") throws(YAMLError) -> Fleet {
        try fleet(try YAMLDocument.parse(Array(text.utf8), file: file, limits: limits))
    }

    /// A fleet of ten thousand devices may be written out one by one.
    private static let limits: YAMLLimits = {
        var limits = YAMLLimits()
        limits.size = 16 << 20
        limits.nodes = 2_000_000
        return limits
    }()

    private static let mostDevices = 100_000

    private static func fleet(_ root: YAMLNode) throws(YAMLError) -> Fleet {
        try root.checkKeys(["seed", "adapters", "devices", "duplicate_filter", "experimental"])
        var fleet = Fleet()
        fleet.seed = UInt64(clamping: try root.integer("seed", in: 0...Int.max) ?? 1)
        fleet.isExperimental = try root.bool("experimental") ?? true
        let filter = try root.choice("duplicate_filter", of: Fleet.DuplicateFilter.self) ?? .none
        let adapters = try root.items("adapters")
        if adapters.isEmpty { fleet.adapters[0].duplicateFilter = filter } else { fleet.adapters = [] }
        for node in adapters {
            let made = try adapter(node, filter)
            if fleet.adapters.contains(where: { $0.name == made.name || $0.address == made.address }) {
                throw node.error("there is already an adapter \(made.name) or \(made.address)")
            }
            fleet.adapters.append(made)
        }
        var ids: Set<String> = []
        for node in try root.items("devices") {
            for device in try devices(node, adapters: fleet.adapters.map(\.name)) {
                guard ids.insert(device.id).inserted else {
                    throw node.error("there is already a device '\(device.id)'")
                }
                fleet.devices.append(device)
            }
            if fleet.devices.count > mostDevices { throw node.error("more than \(mostDevices) devices") }
        }
        return fleet
    }

    private static func adapter(_ node: YAMLNode, _ filter: Fleet.DuplicateFilter) throws(YAMLError) -> Fleet.Adapter {
        try node.checkKeys(["name", "address", "alias", "duplicate_filter", "plugged"])
        let name = try node.required("name").string()
        guard name.hasPrefix("hci"), let number = Int(name.dropFirst(3)), (0...999).contains(number) else {
            throw try node.required("name").error("'\(name)' is not a name such as hci0")
        }
        let address = try node.address("address", from: try node.required("address"))
        var adapter = Fleet.Adapter(name: "hci\(number)", address: address, alias: try node.text("alias"))
        adapter.duplicateFilter = try node.choice("duplicate_filter", of: Fleet.DuplicateFilter.self) ?? filter
        adapter.isPlugged = try node.bool("plugged") ?? true
        return adapter
    }

    private static let deviceKeys = [
        "id", "name", "gap_name", "count", "address", "address_type", "adapters", "rotate", "rssi", "rssi_jitter",
        "tx_power", "interval", "advertise", "connectable", "appearance", "services", "solicited", "manufacturer_data",
        "service_data", "sequence", "mtu", "pairing", "passkey", "answers", "drops_after", "refuses", "battery1",
        "gatt",
    ]

    /// The devices an entry stands for: one, or `count`.
    private static func devices(_ node: YAMLNode, adapters: [String]) throws(YAMLError) -> [Fleet.Device] {
        try node.checkKeys(deviceKeys)
        let device = try device(node, adapters: adapters)
        let count = try node.integer("count", in: 1...10_000)
        var made: [Fleet.Device] = []
        for number in 0..<(count ?? 1) {
            var copy = device
            if count != nil {
                copy.id = "\(device.id)-\(number)"
                copy.address = device.address.advanced(by: number)
                copy.name = device.name.map { numbered($0, number) }
                copy.gapName = numbered(device.gapName, number)
            }
            made.append(copy)
        }
        for device in made {
            guard AdvertisedContent(device) != nil else {
                throw node.error(
                    "'\(device.id)': what it advertises does not fit in 31 bytes and a scan response of 31")
            }
        }
        return made
    }

    private static func device(_ node: YAMLNode, adapters: [String]) throws(YAMLError) -> Fleet.Device {
        let rotate = try node.integer("rotate", in: 100...86_400_000) ?? 0
        var address = BluetoothAddress(value: 0x4000_0000_0000)
        if let given = node["address"], !given.isNull {
            address = try node.address("address", from: given)
        } else if rotate == 0 {
            throw node.error("a device needs an address, or rotate")
        }
        var device = Fleet.Device(id: try node.required("id").string(), address: address)
        device.rotate = rotate
        device.name = try node.text("name")
        device.gapName = try node.text("gap_name") ?? device.name ?? ""
        device.addressType = try node.choice("address_type", of: ["random", "public"]) == "public" ? .public : .random
        let heardBy = try node.texts("adapters")
        for name in heardBy where !adapters.contains(name) {
            throw node.error("adapters: there is no adapter '\(name)'; there is \(adapters.joined(separator: ", "))")
        }
        device.adapters = heardBy.isEmpty ? nil : heardBy
        device.rssi = try node.integer("rssi", in: -127...20) ?? -60
        device.rssiJitter = try node.integer("rssi_jitter", in: 0...60) ?? 0
        device.txPower = try node.integer("tx_power", in: -127...127).map { Int8(clamping: $0) }
        device.interval = try node.integer("interval", in: 5...600_000) ?? 200
        device.advertises = try node.bool("advertise") ?? true
        device.isConnectable = try node.bool("connectable") ?? true
        let appearance = try node.bytes("appearance", count: 2) ?? [0, 0]
        device.appearance = UInt16(appearance[0]) << 8 | UInt16(appearance[1])
        try readContent(node, into: &device)
        try readBehaviour(node, into: &device)
        return device
    }

    private static func readContent(_ node: YAMLNode, into device: inout Fleet.Device) throws(YAMLError) {
        device.services = try node.uuids("services")
        device.solicited = try node.uuids("solicited")
        for entry in try node.entries("manufacturer_data") {
            guard entry.key.utf8.count == 4, let company = UInt16(entry.key, radix: 16) else {
                throw entry.value.error("'\(entry.key)' is no company identifier of 4 hex digits")
            }
            device.manufacturerData.append(.init(company: company, data: try entry.value.bytes()))
        }
        for entry in try node.entries("service_data") {
            guard let uuid = BluetoothUUID(parsing: entry.key) else {
                throw entry.value.error("'\(entry.key)' is not a UUID of 4 hex digits or the dashed form")
            }
            device.serviceData.append(.init(uuid: uuid, data: try entry.value.bytes()))
        }
        if let text = try node.text("sequence") {
            guard let counter = counter(text, in: device) else {
                throw node.error(
                    "sequence: '\(text)' names no two bytes of manufacturer_data/KEY/OFFSET or service_data/…")
            }
            device.counter = counter
        }
    }

    private static func readBehaviour(_ node: YAMLNode, into device: inout Fleet.Device) throws(YAMLError) {
        device.mtu = try node.integer("mtu", in: 23...517) ?? 247
        device.pairing = try node.choice("pairing", of: Fleet.Pairing.self) ?? .none
        device.passkey = UInt32(clamping: try node.integer("passkey", in: 0...999_999) ?? 123_456)
        device.answers = try node.bool("answers") ?? true
        device.dropsAfter = try node.integer("drops_after", in: 1...86_400_000) ?? 0
        device.refuses = try node.bool("refuses") ?? false
        device.hidesBattery = try node.bool("battery1") ?? false
        for item in try node.items("gatt") { device.gatt.append(try service(item)) }
        let ids = device.gatt.compactMap(\.id)
        if Set(ids).count != ids.count { throw node.error("gatt: two services have the same id") }
        for service in device.gatt { try checkIncludes(node, service, in: device.gatt, above: []) }
    }

    /// `manufacturer_data/0499/20`: where a 16-bit counter stands in what is advertised.
    private static func counter(_ text: String, in device: Fleet.Device) -> Fleet.Counter? {
        let parts = text.split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count == 3, let offset = Int(parts[2]), offset >= 0 else { return nil }
        switch parts[0] {
        case "manufacturer_data":
            guard let company = UInt16(parts[1], radix: 16),
                let data = device.manufacturerData.first(where: { $0.company == company })?.data,
                offset <= data.count - 2
            else { return nil }
            return Fleet.Counter(place: .manufacturerData(company), offset: offset)
        case "service_data":
            guard let uuid = BluetoothUUID(parsing: parts[1]),
                let data = device.serviceData.first(where: { $0.uuid == uuid })?.data, offset <= data.count - 2
            else { return nil }
            return Fleet.Counter(place: .serviceData(uuid), offset: offset)
        default: return nil
        }
    }

    private static func numbered(_ name: String, _ number: Int) -> String {
        var result = ""
        var rest = Substring(name)
        while let character = rest.first {
            if rest.hasPrefix("{n}") {
                result += String(number)
                rest = rest.dropFirst(3)
            } else {
                result.append(character)
                rest = rest.dropFirst()
            }
        }
        return result
    }

    private static func checkIncludes(
        _ node: YAMLNode, _ service: Fleet.Service, in all: [Fleet.Service], above: [String]
    ) throws(YAMLError) {
        for include in service.includes {
            guard let included = all.first(where: { $0.id == include }) else {
                throw node.error("gatt: includes: there is no service with the id '\(include)' in this device")
            }
            if above.contains(include) || include == service.id {
                throw node.error("gatt: includes: '\(include)' includes itself")
            }
            try checkIncludes(node, included, in: all, above: above + [include])
        }
    }

    private static func service(_ node: YAMLNode) throws(YAMLError) -> Fleet.Service {
        try node.checkKeys(["uuid", "id", "primary", "includes", "characteristics"])
        var service = Fleet.Service(try node.required("uuid").uuid())
        service.id = try node.text("id")
        service.isPrimary = try node.bool("primary") ?? true
        service.includes = try node.texts("includes")
        for item in try node.items("characteristics") { service.characteristics.append(try characteristic(item)) }
        return service
    }

    private static func characteristic(_ node: YAMLNode) throws(YAMLError) -> Fleet.Characteristic {
        try node.checkKeys([
            "uuid", "properties", "value", "text", "length", "notify_every", "encrypted", "answers", "att_error",
            "descriptors",
        ])
        var characteristic = Fleet.Characteristic(try node.required("uuid").uuid())
        for name in try node.texts("properties") {
            guard let property = CharacteristicProperties(name: name), property != .extendedProperties else {
                throw node.error("properties: '\(name)' is no property")
            }
            characteristic.properties.insert(property)
        }
        characteristic.value = try node.value()
        characteristic.notifyEvery = try node.integer("notify_every", in: 0...86_400_000) ?? 0
        characteristic.isEncrypted = try node.bool("encrypted") ?? false
        characteristic.answers = try node.bool("answers") ?? true
        characteristic.attError = UInt8(clamping: try node.integer("att_error", in: 0...255) ?? 0)
        for item in try node.items("descriptors") { characteristic.descriptors.append(try descriptor(item)) }
        return characteristic
    }

    private static func descriptor(_ node: YAMLNode) throws(YAMLError) -> Fleet.Descriptor {
        try node.checkKeys(["uuid", "value", "text", "length", "writable"])
        var descriptor = Fleet.Descriptor(try node.required("uuid").uuid())
        descriptor.value = try node.value()
        descriptor.isWritable = try node.bool("writable") ?? false
        return descriptor
    }
}
