internal import Bluetooth
internal import DBus

/// What a client asked SetDiscoveryFilter for. Source: parse_discovery_filter_dict in src/adapter.c of BlueZ 5.66.
struct DiscoveryFilter {
    var services: Set<BluetoothUUID> = []
    var rssi: Int?
    var pathLoss: Int?
    var duplicateData = false
    var pattern: String?

    static let names = ["UUIDs", "RSSI", "Pathloss", "Transport", "DuplicateData", "Discoverable", "Pattern"]

    /// Nil in the first place for arguments that are not valid; nil in the second for an empty filter, which takes back
    /// the one before.
    static func parse(_ arguments: [DBusValue]) -> DiscoveryFilter?? {
        guard arguments.count == 1, let options = arguments[0].options else { return nil }
        if options.isEmpty { return .some(nil) }
        var filter = DiscoveryFilter()
        for (name, value) in options {
            guard filter.take(name, value) else { return nil }
        }
        if filter.rssi != nil, filter.pathLoss != nil { return nil }
        return .some(filter)
    }

    private mutating func take(_ name: String, _ value: DBusValue) -> Bool {
        switch (name, value) {
        case ("UUIDs", _):
            guard let texts = value.elements?.map(\.text) else { return false }
            for text in texts {
                guard let text, let uuid = BluetoothUUID(parsing: text) else { return false }
                services.insert(uuid)
            }
        case ("RSSI", .int16(let value)) where (-127...20).contains(value): rssi = Int(value)
        case ("Pathloss", .uint16(let value)) where value <= 137: pathLoss = Int(value)
        case ("Transport", .string("auto")), ("Transport", .string("le")), ("Transport", .string("bredr")): break
        case ("DuplicateData", .bool(let value)): duplicateData = value
        case ("Discoverable", .bool): break
        case ("Pattern", .string(let value)): pattern = value
        default: return false
        }
        return true
    }

    /// Source: is_filter_match.
    func matches(_ heard: Heard) -> Bool {
        if !services.isEmpty {
            let advertised = heard.advertisement.services + heard.advertisement.serviceData.map(\.uuid)
            if services.isDisjoint(with: advertised) { return false }
        }
        if let rssi { return Int(heard.rssi) >= rssi }
        if let pathLoss { return heard.advertisement.txPower.map { Int($0) - Int(heard.rssi) <= pathLoss } ?? false }
        return true
    }

    /// Source: device_is_discoverable: the pattern is the beginning of an address or a name.
    func matchesPattern(_ heard: Heard) -> Bool? {
        guard let pattern else { return nil }
        return heard.address.description.hasPrefix(pattern) || (heard.advertisement.name?.hasPrefix(pattern) ?? false)
    }
}
