internal import Bluetooth
internal import DBus
internal import EventLoop

/// Properties of Device1 and Battery1 as they stand in a message, into a device: in place, and touching only what came.
/// What has a wrong type is passed over.
@EventLoopActor
enum DeviceParser {
    private static let records = RecordWriter()

    /// Reads `{sv}` entries. What changes with each advertisement is asked for first.
    static func apply<Reader: ArgumentReader>(_ entries: inout Reader, to device: RemoteDevice) -> DeviceFields {
        var fields: DeviceFields = []
        while entries.isAt(.dictEntry) {
            let key = entries.enter()
            var value = key
            value.next()
            value = value.enter()
            if !applyAdvertised(key, value, to: device, &fields) { applyState(key, value, to: device, &fields) }
            entries.next()
        }
        return fields
    }

    private static func applyAdvertised<Reader: ArgumentReader>(
        _ key: Reader, _ value: Reader, to device: RemoteDevice, _ fields: inout DeviceFields
    ) -> Bool {
        if key.equals("RSSI") {
            device.rssi = signal(value.int16())
            fields.insert(.rssi)
        } else if key.equals("ManufacturerData") {
            guard value.isAt(.array) else { return true }
            manufacturerData(value.enter(), of: device)
            fields.insert(.manufacturerData)
        } else if key.equals("ServiceData") {
            guard value.isAt(.array) else { return true }
            serviceData(value.enter(), of: device)
            fields.insert(.serviceData)
        } else if key.equals("TxPower") {
            device.txPower = signal(value.int16())
            fields.insert(.txPower)
        } else if key.equals("AdvertisingFlags") {
            device.advertisingFlags = value.withByteArray { $0.first } ?? nil
            fields.insert(.advertisingFlags)
        } else if key.equals("AdvertisingData") {
            guard value.isAt(.array) else { return true }
            if advertisingData(value.enter(), of: device) { fields.insert(.services) }
            fields.insert(.advertisingData)
        } else {
            return false
        }
        return true
    }

    /// 127 says "not known". Source: Core specification, Vol 4 Part E §7.7.65.2.
    private static func signal(_ value: Int16?) -> Int8? {
        guard let value, value != rssiUnavailable else { return nil }
        return Int8(exactly: value)
    }

    private static func manufacturerData(_ entries: some ArgumentReader, of device: RemoteDevice) {
        let records = records
        var entries = entries
        records.removeAll()
        while entries.isAt(.dictEntry) {
            var entry = entries.enter()
            let company = entry.uint16()
            entry.next()
            if let company { entry.enter().withByteArray { records.append(company: company, $0) } }
            entries.next()
        }
        device.advertised.set(.manufacturerData, to: records.bytes)
    }

    private static func serviceData(_ entries: some ArgumentReader, of device: RemoteDevice) {
        let records = records
        var entries = entries
        records.removeAll()
        while entries.isAt(.dictEntry) {
            var entry = entries.enter()
            let uuid = entry.uuid()
            entry.next()
            if let uuid { entry.enter().withByteArray { records.append(uuid: uuid, $0) } }
            entries.next()
        }
        device.advertised.set(.serviceData, to: records.bytes)
    }

    /// AD structures that BlueZ has no property for; of these the solicited services are used. True where they changed.
    /// Source: Core Specification Supplement, Part A §1.10.
    private static func advertisingData(_ entries: some ArgumentReader, of device: RemoteDevice) -> Bool {
        var entries = entries
        var solicited: [BluetoothUUID] = []
        while entries.isAt(.dictEntry) {
            var entry = entries.enter()
            let type = entry.byte()
            entry.next()
            let size = type == ADType.solicited16 ? 2 : type == ADType.solicited32 ? 4 : 16
            if type == ADType.solicited16 || type == ADType.solicited32 || type == ADType.solicited128 {
                entry.enter().withByteArray { bytes in
                    for start in stride(from: 0, to: bytes.count - size + 1, by: size) {
                        let uuid = BluetoothUUID(littleEndian: bytes[start..<start + size])
                        if let uuid { solicited.append(uuid) }
                    }
                }
            }
            entries.next()
        }
        guard solicited != device.solicited else { return false }
        device.solicited = solicited
        return true
    }

    // MARK: What changes seldom

    private static func applyState<Reader: ArgumentReader>(
        _ key: Reader, _ value: Reader, to device: RemoteDevice, _ fields: inout DeviceFields
    ) {
        if key.equals("Connected") {
            set(&device.isConnected, value.bool(), .connected, &fields)
        } else if key.equals("ServicesResolved") {
            set(&device.isResolved, value.bool(), .servicesResolved, &fields)
        } else if key.equals("Name") {
            let isChanged = value.withBytes { name in
                if device.nameBytes.elementsEqual(name) { return false }
                device.advertised.set(.name, to: name)
                return true
            }
            if isChanged == true { fields.insert(.name) }
        } else if key.equals("UUIDs") {
            if services(value, of: device) { fields.insert(.services) }
        } else if key.equals("Paired") {
            set(&device.isPaired, value.bool(), .security, &fields)
        } else if key.equals("Bonded") {
            set(&device.isBonded, value.bool(), .security, &fields)
        } else if key.equals("Trusted") {
            set(&device.isTrusted, value.bool(), .security, &fields)
        } else if key.equals("Blocked") {
            set(&device.isBlocked, value.bool(), .security, &fields)
        } else if key.equals("Appearance") {
            device.appearance = value.uint16()
            fields.insert(.appearance)
        } else if key.equals("Address") {
            guard let address = value.address() else { return }
            device.address = address
        } else if key.equals("AddressType") {
            device.isRandomAddress = value.equals("random")
        }
    }

    private static func set(
        _ flag: inout Bool, _ value: Bool?, _ field: DeviceFields, _ fields: inout DeviceFields
    ) {
        guard let value, value != flag else { return }
        flag = value
        fields.insert(field)
    }

    private static func services(_ value: some ArgumentReader, of device: RemoteDevice) -> Bool {
        guard value.isAt(.array) else { return false }
        var names = value.enter()
        var services: [BluetoothUUID] = []
        while names.isAt(.string) {
            if let uuid = names.uuid() { services.append(uuid) }
            names.next()
        }
        guard services != device.services else { return false }
        device.services = services
        return true
    }

    /// The names of Battery1's properties that BlueZ withdraws.
    static func invalidateBattery(_ names: inout some ArgumentReader, of device: RemoteDevice) -> DeviceFields {
        var fields: DeviceFields = []
        while names.isAt(.string) {
            if names.equals("Percentage") {
                device.battery = nil
                fields.formUnion([.battery, .withdrawn])
            }
            names.next()
        }
        return fields
    }

    /// Percentage of Battery1.
    static func applyBattery(_ entries: inout some ArgumentReader, to device: RemoteDevice) -> DeviceFields {
        var fields: DeviceFields = []
        while entries.isAt(.dictEntry) {
            var key = entries.enter()
            let isPercentage = key.equals("Percentage")
            key.next()
            if isPercentage, let value = key.enter().byte() {
                device.battery = value
                fields.insert(.battery)
            }
            entries.next()
        }
        return fields
    }

    private static var nothing: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: nil, count: 0) }

    /// Names of properties that BlueZ withdraws.
    static func invalidate(_ names: inout some ArgumentReader, of device: RemoteDevice) -> DeviceFields {
        var fields: DeviceFields = []
        while names.isAt(.string) {
            if names.equals("RSSI") {
                device.rssi = nil
                fields.insert(.withdrawn)
            } else if names.equals("TxPower") {
                device.txPower = nil
                fields.insert(.withdrawn)
            } else if names.equals("Name") {
                device.advertised.set(.name, to: Self.nothing)
                fields.formUnion([.name, .withdrawn])
            } else if names.equals("ManufacturerData") {
                device.advertised.set(.manufacturerData, to: Self.nothing)
                fields.insert(.withdrawn)
            } else if names.equals("ServiceData") {
                device.advertised.set(.serviceData, to: Self.nothing)
                fields.insert(.withdrawn)
            } else if names.equals("AdvertisingFlags") {
                device.advertisingFlags = nil
                fields.insert(.withdrawn)
            } else if names.equals("AdvertisingData") {
                if !device.solicited.isEmpty { fields.insert(.services) }
                device.solicited = []
                fields.insert(.withdrawn)
            } else if names.equals("Appearance") {
                device.appearance = nil
                fields.formUnion([.appearance, .withdrawn])
            }
            names.next()
        }
        return fields
    }
}
