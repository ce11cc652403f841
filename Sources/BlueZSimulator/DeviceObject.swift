internal import Bluetooth
internal import DBus
internal import EventLoop

/// A device as bluetoothd shows it: `/org/bluez/hciN/dev_…`. Source: src/device.c of BlueZ 5.66.
@EventLoopActor
final class DeviceObject: BusObject {
    let path: String
    let address: BluetoothAddress
    let addressType: AddressType
    unowned let adapter: AdapterObject
    /// The device on the air; one that was read from storage has none before it is heard.
    weak var peripheral: Peripheral?
    var lastSeen: MonotonicTime
    var isConnectable = true
    private(set) var isTemporary = true

    private(set) var name: String?
    private var alias: String?
    private var appearance: UInt16?
    private var rssi: Int8 = 0
    private var txPower: Int8?
    private var advertisedServices: [BluetoothUUID] = []
    private var knownServices: [BluetoothUUID] = []
    private var manufacturerData: [Advertisement.ManufacturerData] = []
    private var serviceData: [Advertisement.ServiceData] = []
    private var solicited: [BluetoothUUID] = []
    private var flags: UInt8?
    private(set) var isPaired = false
    private var isTrusted = false
    private var isBlocked = false
    private(set) var isResolved = false
    private(set) var isExported = false

    var link: Link?
    var connectCall: MethodCall?
    var disconnectCalls: [MethodCall] = []
    var disconnectTimer: LoopTimer?
    var isRemovedAtEnd = false
    var pairing: Pairing?
    private(set) var madeGATT: GATTClient?

    /// Made when it is needed: most devices are never connected to.
    var gatt: GATTClient {
        if let madeGATT { return madeGATT }
        let made = GATTClient(self)
        madeGATT = made
        return made
    }

    init(_ address: BluetoothAddress, _ type: AddressType, adapter: AdapterObject) {
        self.address = address
        addressType = type
        self.adapter = adapter
        path = "\(adapter.path)/dev_\(address.pathForm)"
        lastSeen = adapter.daemon.clock.now
    }

    var daemon: Daemon { adapter.daemon }
    var bus: DaemonBus { adapter.daemon.bus }
    var isConnected: Bool { link != nil }
    var isConnecting: Bool { connectCall != nil || pairing != nil }
    /// A private address is never kept. Source: device_address_is_private.
    var isPrivate: Bool { addressType == .random && address.value >> 46 != 0b11 }

    /// Kept from now on, or not any more. Source: btd_device_set_temporary.
    func setTemporary(_ value: Bool) {
        guard value != isTemporary, !isPrivate else { return }
        isTemporary = value
        lastSeen = daemon.clock.now
    }

    // MARK: Properties

    var interfaces: [(String, Properties)] {
        var list = [(Interface.device, properties)]
        if let battery = madeGATT?.batteryProperties { list.append((Interface.battery, battery)) }
        return list
    }

    private var visibleAlias: String {
        alias ?? name ?? String(address.description.map { $0 == ":" ? "-" : $0 })
    }

    private var services: [BluetoothUUID] {
        if isResolved { return knownServices }
        return advertisedServices.isEmpty ? knownServices : advertisedServices
    }

    var properties: Properties {
        var list: Properties = [
            ("Address", .string(address.description)), ("AddressType", .string(addressType.rawValue)),
        ]
        if let name { list.append(("Name", .string(name))) }
        list.append(("Alias", .string(visibleAlias)))
        if let appearance {
            list.append(("Appearance", .uint16(appearance)))
            if let icon = Self.icon(appearance) { list.append(("Icon", .string(icon))) }
        }
        list += [
            ("Paired", .bool(isPaired)), ("Bonded", .bool(isPaired)), ("Trusted", .bool(isTrusted)),
            ("Blocked", .bool(isBlocked)), ("LegacyPairing", .bool(false)),
        ]
        if rssi != 0 { list.append(("RSSI", .int16(Int16(rssi)))) }
        list += [("Connected", .bool(isConnected)), servicesProperty, ("Adapter", .objectPath(adapter.path))]
        if !manufacturerData.isEmpty { list.append(("ManufacturerData", manufacturerValue)) }
        if !serviceData.isEmpty { list.append(("ServiceData", serviceValue)) }
        if let txPower { list.append(("TxPower", .int16(Int16(txPower)))) }
        list.append(("ServicesResolved", .bool(isResolved)))
        if daemon.isExperimental {
            if let flags { list.append(("AdvertisingFlags", .bytes([flags]))) }
            if !solicited.isEmpty { list.append(("AdvertisingData", advertisingData)) }
        }
        return list
    }

    var servicesProperty: (String, DBusValue) {
        ("UUIDs", .array(of: "s", services.map { .string($0.description) }))
    }

    private var manufacturerValue: DBusValue {
        .dictionary("qv", manufacturerData.map { (.uint16($0.company), .variant(.bytes($0.data))) })
    }

    private var serviceValue: DBusValue {
        .dictionary("sv", serviceData.map { (.string($0.uuid.description), .variant(.bytes($0.data))) })
    }

    /// What bluetoothd keeps unread: the solicited services. Source: eir_parse and device_set_data.
    private var advertisingData: DBusValue {
        let bytes = solicited.map(\.littleEndianBytes)
        let entries: [(DBusValue, DBusValue)] = [(2, ADType.solicited16), (16, ADType.solicited128)].compactMap {
            let (width, type) = $0
            let list = bytes.filter { $0.count == width }.flatMap { $0 }
            return list.isEmpty ? nil : (.byte(type), .variant(.bytes(list)))
        }
        return .dictionary("yv", entries)
    }

    /// Source: gap_appearance_to_icon.
    private static func icon(_ appearance: UInt16) -> String? {
        switch (appearance >> 6, appearance & 63) {
        case (1, _): "phone"
        case (2, _): "computer"
        case (15, 1): "input-keyboard"
        case (15, 2): "input-mouse"
        case (15, 3), (15, 4): "input-gaming"
        case (15, 5): "input-tablet"
        default: nil
        }
    }

    func set(_ property: String, _ value: DBusValue, _ call: MethodCall) -> Bool {
        switch (property, value) {
        case ("Trusted", .bool(let on)):
            isTrusted = on
            bus.changed(path, Interface.device, [("Trusted", .bool(on))])
        case ("Blocked", .bool(let on)):
            isBlocked = on
            bus.changed(path, Interface.device, [("Blocked", .bool(on))])
        case ("Alias", .string(let text)):
            alias = text.isEmpty ? nil : text
            bus.changed(path, Interface.device, [("Alias", .string(visibleAlias))])
        default: return false
        }
        call.reply()
        return true
    }

    // MARK: On the bus

    func export() {
        guard !isExported else { return }
        isExported = true
        daemon.register(self)
        bus.added(self)
    }

    func unexport() {
        guard isExported else { return }
        isExported = false
        madeGATT?.unexport()
        daemon.unregister(self)
        bus.removed(path, interfaces.map(\.0))
    }

    func tearDown() {
        disconnectTimer?.cancel()
        link?.onClose = nil
        link?.onValue = nil
        link = nil
        madeGATT?.tearDown()
    }

    // MARK: Advertisements

    /// Takes in the first advertisement; nothing is said.
    func adopt(_ heard: Heard) {
        let advertisement = heard.advertisement
        rssi = heard.rssi
        txPower = advertisement.txPower ?? txPower
        appearance = advertisement.appearance ?? appearance
        name = advertisement.name ?? name
        add(advertisement.services)
        add(advertisement.serviceData.map(\.uuid))
        manufacturerData = advertisement.manufacturerData
        serviceData = advertisement.serviceData
        solicited = advertisement.solicited
        flags = advertisement.flags
    }

    @discardableResult
    private func add(_ uuids: [BluetoothUUID]) -> Bool {
        guard !isResolved else { return false }
        let new = uuids.filter { !advertisedServices.contains($0) }
        advertisedServices += new
        return !new.isEmpty
    }

    /// What one later advertisement changes, in one signal. Source: btd_adapter_device_found and what it calls.
    /// - Parameters:
    ///   - isDuplicate: a client asked for DuplicateData, so that equal data counts as new.
    ///   - hasProximity: a client filters its discovery, so that each reading of the signal strength counts.
    func update(_ heard: Heard, isDuplicate: Bool, hasProximity: Bool) {
        let advertisement = heard.advertisement
        var rare: Properties = []
        var isSignal = false
        if rssi == 0 || hasProximity || abs(Int(rssi) - Int(heard.rssi)) >= 8 {
            rssi = heard.rssi
            isSignal = true
        }
        if let power = advertisement.txPower, power != txPower {
            txPower = power
            rare.append(("TxPower", .int16(Int16(power))))
        }
        if advertisement.appearance != nil, advertisement.appearance != appearance {
            appearance = advertisement.appearance
            if let appearance { rare.append(("Appearance", .uint16(appearance))) }
        }
        if let new = advertisement.name, new != name {
            name = new
            rare.append(("Name", .string(new)))
            if alias == nil { rare.append(("Alias", .string(new))) }
        }
        if add(advertisement.services) || add(advertisement.serviceData.map(\.uuid)) { rare.append(servicesProperty) }
        if let new = advertisement.flags, new != flags {
            flags = new
            if daemon.isExperimental { rare.append(("AdvertisingFlags", .bytes([new]))) }
        }
        solicited = advertisement.solicited
        let isManufacturer = takeManufacturerData(advertisement.manufacturerData, isDuplicate)
        let isService = takeServiceData(advertisement.serviceData, isDuplicate)
        guard isSignal || isManufacturer || isService || !rare.isEmpty else { return }
        emit(isSignal: isSignal, isManufacturer: isManufacturer, isService: isService, rare)
    }

    private func takeManufacturerData(_ data: [Advertisement.ManufacturerData], _ isDuplicate: Bool) -> Bool {
        guard !data.isEmpty, isDuplicate || data != manufacturerData else { return false }
        if isDuplicate {
            manufacturerData = data
            return true
        }
        var isChanged = false
        for entry in data {
            if let index = manufacturerData.firstIndex(where: { $0.company == entry.company }) {
                if manufacturerData[index] == entry { continue }
                manufacturerData[index] = entry
            } else {
                manufacturerData.append(entry)
            }
            isChanged = true
        }
        return isChanged
    }

    private func takeServiceData(_ data: [Advertisement.ServiceData], _ isDuplicate: Bool) -> Bool {
        guard !data.isEmpty, isDuplicate || data != serviceData else { return false }
        if isDuplicate {
            serviceData = data
            return true
        }
        var isChanged = false
        for entry in data {
            if let index = serviceData.firstIndex(where: { $0.uuid == entry.uuid }) {
                if serviceData[index] == entry { continue }
                serviceData[index] = entry
            } else {
                serviceData.append(entry)
            }
            isChanged = true
        }
        return isChanged
    }

    private func emit(isSignal: Bool, isManufacturer: Bool, isService: Bool, _ rare: Properties) {
        let rssi = Int16(rssi)
        let manufacturer = isManufacturer ? manufacturerData : []
        let service = isService ? serviceData : []
        bus.changed(path, Interface.device) { array in
            if isSignal { array.property("RSSI", "n") { $0.append(int16: rssi) } }
            for (name, value) in rare { array.property(name, value.signature) { $0.append(value) } }
            if !manufacturer.isEmpty {
                array.property("ManufacturerData", "a{qv}") { value in
                    value.array(of: "{qv}") { dictionary in
                        for entry in manufacturer {
                            dictionary.entry { pair in
                                pair.append(uint16: entry.company)
                                pair.variant(of: "ay") { $0.append(bytes: entry.data) }
                            }
                        }
                    }
                }
            }
            if !service.isEmpty {
                array.property("ServiceData", "a{sv}") { value in
                    value.array(of: "{sv}") { dictionary in
                        for entry in service {
                            dictionary.property(entry.uuid.description, "ay") { $0.append(bytes: entry.data) }
                        }
                    }
                }
            }
        }
    }

    /// Discovery has ended. Source: invalidate_rssi_and_tx_power.
    func invalidateSignal() {
        var names: [String] = []
        if rssi != 0 { names.append("RSSI") }
        if txPower != nil { names.append("TxPower") }
        rssi = 0
        txPower = nil
        bus.changed(path, Interface.device, [], invalidated: names)
    }

    // MARK: State

    func setResolved(_ value: Bool, services: [BluetoothUUID] = []) {
        if value { knownServices = services }
        isResolved = value
    }

    func forgetAdvertisedServices() { advertisedServices = [] }

    func setPaired(_ value: Bool) {
        guard value != isPaired else { return }
        isPaired = value
        bus.changed(path, Interface.device, [("Bonded", .bool(value)), ("Paired", .bool(value))])
    }

    /// RemoveDevice was called: nothing is kept of it.
    func forget() {
        setTemporary(true)
        isPaired = false
    }

    /// What bluetoothd keeps across its restarts; nil where it keeps nothing.
    var stored: StoredDevice? {
        guard !isTemporary, !isPrivate else { return nil }
        return StoredDevice(
            address: address, type: addressType, name: name, appearance: appearance, services: knownServices,
            isPaired: isPaired, isTrusted: isTrusted)
    }

    func restore(_ stored: StoredDevice) {
        name = stored.name
        appearance = stored.appearance
        knownServices = stored.services
        isPaired = stored.isPaired
        isTrusted = stored.isTrusted
        isTemporary = false
        peripheral = daemon.air.peripherals.first { $0.address == address && $0.spec.addressType == addressType }
    }
}

/// A device in bluetoothd's storage.
struct StoredDevice {
    let address: BluetoothAddress
    let type: AddressType
    let name: String?
    let appearance: UInt16?
    let services: [BluetoothUUID]
    let isPaired: Bool
    let isTrusted: Bool
}

extension MessageWriter {
    /// An entry of an `a{sv}`.
    mutating func property(_ name: String, _ signature: String, _ body: (inout MessageWriter) -> Void) {
        entry { entry in
            entry.append(string: name)
            entry.variant(of: signature, body)
        }
    }
}
