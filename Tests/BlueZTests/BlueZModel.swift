import DBus
import EventLoop

/// A generator that a seed repeats. Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators".
struct SeededRandom: RandomNumberGenerator {
    private var state: UInt64

    init(seed: UInt64) { state = seed }

    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var value = state
        value = (value ^ (value >> 30)) &* 0xbf58_476d_1ce4_e5b9
        value = (value ^ (value >> 27)) &* 0x94d0_49bb_1331_11eb
        return value ^ (value >> 31)
    }
}

/// One message of org.bluez to its clients.
enum BlueZSignal {
    case added(path: String, interfaces: [(String, [(String, DBusValue)])])
    case removed(path: String, interfaces: [String])
    case changed(path: String, interface: String, values: [(String, DBusValue)], withdrawn: [String])
}

/// org.bluez as it behaves towards its clients, with objects that come, change and go at random. As in BlueZ, what is
/// added or changed is told at the end of a turn, in any order of the objects and with the values of that time, and
/// what is removed at once.
struct BlueZModel {
    private typealias Object = [String: [String: DBusValue]]
    private var random: SeededRandom
    private var objects: [String: Object] = [:]
    /// Interfaces that nobody was told of, and properties that changed since.
    private var added: [String: Set<String>] = [:]
    private var changed: [String: [String: Set<String>]] = [:]
    private(set) var signals: [BlueZSignal] = []

    init(seed: UInt64) { random = SeededRandom(seed: seed) }

    mutating func takeSignals() -> [BlueZSignal] {
        defer { signals = [] }
        return signals
    }

    /// What GetManagedObjects says now, in any order of the objects.
    mutating func managedObjects() -> [(String, [(String, [(String, DBusValue)])])] {
        var result: [(String, [(String, [(String, DBusValue)])])] = []
        for path in objects.keys.sorted().shuffled(using: &random) {
            let interfaces = objects[path, default: [:]].sorted { $0.key < $1.key }.shuffled(using: &random)
            result.append((path, interfaces.map { ($0.key, $0.value.sorted { $0.key < $1.key }) }))
        }
        return result
    }

    /// The daemon ends: nobody is told of its objects.
    mutating func end() {
        (objects, added, changed, signals) = ([:], [:], [:], [])
    }

    mutating func chance(_ percent: Int) -> Bool { Int.random(in: 0..<100, using: &random) < percent }

    // MARK: What happens

    mutating func step() {
        switch Int.random(in: 0..<20, using: &random) {
        case 0..<3: addObject()
        case 3: removeObject()
        case 4: toggleInterface()
        case 5..<8: flush()
        default: changeProperty()
        }
    }

    private mutating func addObject() {
        guard let parent = (objects.keys.sorted() + ["/org/bluez"]).randomElement(using: &random) else { return }
        let number = Int.random(in: 1...3, using: &random)
        let path: String
        let interface: String
        switch parent.split(separator: "/").count {
        case 2: (path, interface) = ("/org/bluez/hci\(number)", "org.bluez.Adapter1")
        case 3: (path, interface) = (parent + "/dev_C0_00_00_00_00_0\(number)", "org.bluez.Device1")
        case 4: (path, interface) = (parent + "/service00\(number)0", "org.bluez.GattService1")
        case 5: (path, interface) = (parent + "/char00\(number)1", "org.bluez.GattCharacteristic1")
        case 6: (path, interface) = (parent + "/desc00\(number)3", "org.bluez.GattDescriptor1")
        default: return
        }
        guard objects[path] == nil else { return }
        add(interface, at: path)
    }

    private mutating func add(_ interface: String, at path: String) {
        var values: [String: DBusValue] = [:]
        for property in Self.properties[interface] ?? [] where !property.isOptional || chance(50) {
            values[property.name] = value(of: property, at: path)
        }
        objects[path, default: [:]][interface] = values
        added[path, default: []].insert(interface)
    }

    /// What stands on an adapter or a device beside its own interface.
    private mutating func toggleInterface() {
        guard let path = objects.keys.sorted().randomElement(using: &random) else { return }
        let interface: String
        switch path.split(separator: "/").count {
        case 3: interface = "org.bluez.AdvertisementMonitorManager1"
        case 4: interface = "org.bluez.Battery1"
        default: return
        }
        if objects[path]?[interface] == nil {
            add(interface, at: path)
        } else {
            flush(path)
            objects[path]?[interface] = nil
            signals.append(.removed(path: path, interfaces: [interface]))
        }
    }

    /// An object goes with all that is below it; the order in which clients hear of that is any.
    private mutating func removeObject() {
        guard let path = objects.keys.sorted().randomElement(using: &random) else { return }
        let gone = objects.keys.sorted().filter { $0 == path || $0.hasPrefix(path + "/") }
        for path in gone.shuffled(using: &random) {
            flush(path)
            let interfaces = objects.removeValue(forKey: path) ?? [:]
            signals.append(.removed(path: path, interfaces: interfaces.keys.sorted().shuffled(using: &random)))
        }
    }

    private mutating func changeProperty() {
        guard let path = objects.keys.sorted().randomElement(using: &random),
            let interface = objects[path]?.keys.sorted().randomElement(using: &random),
            let property = Self.properties[interface]?.filter({ !$0.isFixed }).randomElement(using: &random)
        else { return }
        let isGone = property.isOptional && chance(30)
        let value = isGone ? nil : value(of: property, at: path)
        objects[path]?[interface]?[property.name] = value
        changed[path, default: [:]][interface, default: []].insert(property.name)
    }

    /// The end of a turn: everybody is told.
    mutating func flush() {
        let paths = Set(added.keys).union(changed.keys)
        for path in paths.sorted().shuffled(using: &random) { flush(path) }
    }

    private mutating func flush(_ path: String) {
        let news = added.removeValue(forKey: path) ?? []
        if !news.isEmpty {
            let interfaces = news.sorted().shuffled(using: &random).map { name in
                (name, (objects[path]?[name] ?? [:]).sorted { $0.key < $1.key })
            }
            signals.append(.added(path: path, interfaces: interfaces))
        }
        for (interface, names) in (changed.removeValue(forKey: path) ?? [:]).sorted(by: { $0.key < $1.key }) {
            let values = objects[path]?[interface] ?? [:]
            signals.append(
                .changed(
                    path: path, interface: interface,
                    values: names.sorted().compactMap { name in values[name].map { (name, $0) } },
                    withdrawn: names.sorted().filter { values[$0] == nil }))
        }
    }

    // MARK: Properties

    private struct Property {
        var name: String
        var kind: Kind
        /// Not always there.
        var isOptional = false
        /// Never changes.
        var isFixed = false
    }

    private enum Kind {
        case address, addressType, text, flag, signal, company, service, structures, flagsByte, uuids, number, uuid
        case includes, flags, percentage, monitorTypes
    }

    private static let properties: [String: [Property]] = [
        "org.bluez.Adapter1": [
            Property(name: "Address", kind: .address, isFixed: true), Property(name: "Alias", kind: .text),
            Property(name: "Powered", kind: .flag), Property(name: "Discovering", kind: .flag),
        ],
        "org.bluez.AdvertisementMonitorManager1": [
            Property(name: "SupportedMonitorTypes", kind: .monitorTypes, isFixed: true)
        ],
        "org.bluez.Device1": [
            Property(name: "Address", kind: .address, isFixed: true),
            Property(name: "AddressType", kind: .addressType, isFixed: true),
            Property(name: "Name", kind: .text, isOptional: true), Property(name: "Connected", kind: .flag),
            Property(name: "ServicesResolved", kind: .flag), Property(name: "Paired", kind: .flag),
            Property(name: "Bonded", kind: .flag), Property(name: "Trusted", kind: .flag),
            Property(name: "Blocked", kind: .flag), Property(name: "UUIDs", kind: .uuids),
            Property(name: "RSSI", kind: .signal, isOptional: true),
            Property(name: "TxPower", kind: .signal, isOptional: true),
            Property(name: "ManufacturerData", kind: .company, isOptional: true),
            Property(name: "ServiceData", kind: .service, isOptional: true),
            Property(name: "AdvertisingFlags", kind: .flagsByte, isOptional: true),
            Property(name: "AdvertisingData", kind: .structures, isOptional: true),
            Property(name: "Appearance", kind: .number, isOptional: true),
        ],
        "org.bluez.Battery1": [Property(name: "Percentage", kind: .percentage, isOptional: true)],
        "org.bluez.GattService1": [
            Property(name: "UUID", kind: .uuid, isFixed: true), Property(name: "Primary", kind: .flag, isFixed: true),
            Property(name: "Includes", kind: .includes, isFixed: true),
        ],
        "org.bluez.GattCharacteristic1": [
            Property(name: "UUID", kind: .uuid, isFixed: true), Property(name: "Flags", kind: .flags, isFixed: true),
            Property(name: "Notifying", kind: .flag, isOptional: true),
            Property(name: "MTU", kind: .number, isOptional: true),
        ],
        "org.bluez.GattDescriptor1": [Property(name: "UUID", kind: .uuid, isFixed: true)],
    ]

    private static let uuids = [
        "0000180f-0000-1000-8000-00805f9b34fb", "0000180a-0000-1000-8000-00805f9b34fb",
        "f0e1d2c3-b4a5-9687-7869-5a4b3c2d1e0f",
    ]

    private mutating func value(of property: Property, at path: String) -> DBusValue {
        let number = UInt8.random(in: 0...100, using: &random)
        let uuid = Self.uuids[Int(number) % Self.uuids.count]
        let bytes = DBusValue.variant(.bytes([number, number &+ 1]))
        switch property.kind {
        // As the path says, and for an adapter by its number.
        case .address: return .string("C0:00:00:00:0\(path.last ?? "0"):0\(path.split(separator: "/").count)")
        case .addressType: return .string(number % 2 == 0 ? "random" : "public")
        case .text: return .string("name \(number)")
        case .flag: return .bool(number % 2 == 0)
        case .signal: return .int16(-Int16(number))
        case .company: return .dictionary("qv", [(.uint16(UInt16(number)), bytes)])
        case .service: return .dictionary("sv", [(.string(uuid), bytes)])
        case .structures: return .dictionary("yv", [(.byte(0x14), .variant(.bytes([number, 0x18])))])
        case .flagsByte: return .bytes([number])
        case .uuids: return .array(of: "s", Self.uuids.prefix(Int(number) % 4).map { .string($0) })
        case .number: return .uint16(UInt16(number))
        case .uuid: return .string(uuid)
        case .includes: return .array(of: "o", number % 2 == 0 ? [.objectPath(path)] : [])
        case .flags: return .array(of: "s", [.string(number % 2 == 0 ? "notify" : "read")])
        case .percentage: return .byte(number)
        case .monitorTypes: return .array(of: "s", number % 2 == 0 ? [.string("or_patterns")] : [])
        }
    }
}
