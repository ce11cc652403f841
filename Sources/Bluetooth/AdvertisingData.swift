/// The types of AD structures that are read and written here. Source: Bluetooth Assigned Numbers §2.3.
public enum ADType {
    public static let flags: UInt8 = 0x01
    public static let incompleteServices16: UInt8 = 0x02
    public static let completeServices16: UInt8 = 0x03
    public static let incompleteServices32: UInt8 = 0x04
    public static let completeServices32: UInt8 = 0x05
    public static let incompleteServices128: UInt8 = 0x06
    public static let completeServices128: UInt8 = 0x07
    public static let shortenedName: UInt8 = 0x08
    public static let completeName: UInt8 = 0x09
    public static let txPower: UInt8 = 0x0a
    public static let solicited16: UInt8 = 0x14
    public static let solicited128: UInt8 = 0x15
    public static let serviceData16: UInt8 = 0x16
    public static let appearance: UInt8 = 0x19
    public static let solicited32: UInt8 = 0x1f
    public static let serviceData32: UInt8 = 0x20
    public static let serviceData128: UInt8 = 0x21
    public static let manufacturerData: UInt8 = 0xff
}

extension Advertisement {
    /// Merges the AD structures of one packet into this advertisement. A structure that is cut short or too short for
    /// its type is passed over; what stood before it counts.
    public mutating func merge(advertisingData bytes: [UInt8]) {
        var rest = bytes[...]
        while let length = rest.first, length > 0 {
            let structure = rest.dropFirst().prefix(Int(length))
            guard structure.count == Int(length), let type = structure.first else { return }
            merge(type: type, structure.dropFirst())
            rest = rest.dropFirst(1 + Int(length))
        }
    }

    private mutating func merge(type: UInt8, _ data: ArraySlice<UInt8>) {
        switch type {
        case ADType.flags: flags = data.first ?? flags
        case ADType.completeName: name = String(decoding: data, as: UTF8.self)
        case ADType.shortenedName:
            // Only the beginning of the name: of no use where the whole is known already.
            let beginning = String(decoding: data, as: UTF8.self)
            if name?.hasPrefix(beginning) != true { name = beginning }
        case ADType.txPower: txPower = data.first.map { Int8(bitPattern: $0) } ?? txPower
        case ADType.incompleteServices16, ADType.completeServices16: Self.add(data, width: 2, to: &services)
        case ADType.incompleteServices32, ADType.completeServices32: Self.add(data, width: 4, to: &services)
        case ADType.incompleteServices128, ADType.completeServices128: Self.add(data, width: 16, to: &services)
        case ADType.solicited16: Self.add(data, width: 2, to: &solicited)
        case ADType.solicited32: Self.add(data, width: 4, to: &solicited)
        case ADType.solicited128: Self.add(data, width: 16, to: &solicited)
        case ADType.serviceData16: addServiceData(data, width: 2)
        case ADType.serviceData32: addServiceData(data, width: 4)
        case ADType.serviceData128: addServiceData(data, width: 16)
        case ADType.appearance:
            if data.count == 2 { appearance = data.reversed().reduce(0) { $0 << 8 | UInt16($1) } }
        case ADType.manufacturerData: addManufacturerData(data)
        default: break
        }
    }

    private static func add(_ data: ArraySlice<UInt8>, width: Int, to list: inout [BluetoothUUID]) {
        var rest = data
        while rest.count >= width {
            if let uuid = BluetoothUUID(littleEndian: rest.prefix(width)), !list.contains(uuid) { list.append(uuid) }
            rest = rest.dropFirst(width)
        }
    }

    private mutating func addServiceData(_ data: ArraySlice<UInt8>, width: Int) {
        guard data.count >= width, let uuid = BluetoothUUID(littleEndian: data.prefix(width)) else { return }
        serviceData.removeAll { $0.uuid == uuid }
        serviceData.append(ServiceData(uuid: uuid, data: Array(data.dropFirst(width))))
    }

    private mutating func addManufacturerData(_ data: ArraySlice<UInt8>) {
        guard data.count >= 2 else { return }
        let company = data.prefix(2).reversed().reduce(UInt16(0)) { $0 << 8 | UInt16($1) }
        manufacturerData.removeAll { $0.company == company }
        manufacturerData.append(ManufacturerData(company: company, data: Array(data.dropFirst(2))))
    }
}

/// Writes AD structures one after another. What does not fit in the packet is left out and `false` is given back.
public struct AdvertisingDataBuilder: Sendable {
    public private(set) var bytes: [UInt8] = []
    private let limit: Int

    /// - Parameter limit: the packet's bytes: 31 for a legacy advertisement, 254 for an extended one.
    public init(limit: Int = 31) {
        self.limit = limit
    }

    @discardableResult
    public mutating func append(_ type: UInt8, _ data: some Collection<UInt8>) -> Bool {
        guard data.count <= 254, bytes.count + data.count + 2 <= limit else { return false }
        bytes.append(UInt8(data.count + 1))
        bytes.append(type)
        bytes.append(contentsOf: data)
        return true
    }
}
