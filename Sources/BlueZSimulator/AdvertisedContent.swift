internal import Bluetooth

/// What a device advertises: the values, and the AD structures of its advertisement and scan response together, as the
/// kernel hands them to bluetoothd. Source: Core Specification Supplement, Part A; legacy packets have 31 bytes each.
struct AdvertisedContent {
    private(set) var advertisement: Advertisement
    /// Of both packets, one after the other.
    private(set) var structures: [UInt8] = []
    /// Where the counter stands in `structures`.
    private var counterOffset: Int?
    private let counter: Fleet.Counter?
    private var count: UInt16?

    /// General discoverable, no BR/EDR.
    static let fleetFlags: UInt8 = 0x06

    /// Nil where it does not fit.
    init?(_ device: Fleet.Device) {
        var advertisement = Advertisement()
        advertisement.name = device.name
        advertisement.txPower = device.txPower
        advertisement.appearance = device.appearance == 0 ? nil : device.appearance
        advertisement.services = device.services
        advertisement.solicited = device.solicited
        advertisement.manufacturerData = device.manufacturerData
        advertisement.serviceData = device.serviceData
        advertisement.flags = Self.fleetFlags
        self.init(advertisement, counter: device.counter)
    }

    init?(_ advertisement: Advertisement, counter: Fleet.Counter? = nil) {
        self.advertisement = advertisement
        self.counter = counter
        guard pack() else { return nil }
    }

    /// The same with other parts; nil where they do not fit. A counter begins again where its bytes say.
    func changed(_ change: (inout Advertisement) -> Void) -> AdvertisedContent? {
        var advertisement = self.advertisement
        change(&advertisement)
        return AdvertisedContent(advertisement, counter: counter)
    }

    /// Puts the next number in place; the first advertisement carries what the fleet file says.
    mutating func countUp() {
        guard let counter else { return }
        switch counter.place {
        case .manufacturerData(let company):
            guard let index = advertisement.manufacturerData.firstIndex(where: { $0.company == company }) else {
                return
            }
            count = Self.countUp(count, at: counter.offset, in: &advertisement.manufacturerData[index].data)
        case .serviceData(let uuid):
            guard let index = advertisement.serviceData.firstIndex(where: { $0.uuid == uuid }) else { return }
            count = Self.countUp(count, at: counter.offset, in: &advertisement.serviceData[index].data)
        }
        if let counterOffset, let count, counterOffset + 1 < structures.count {
            structures[counterOffset] = UInt8(truncatingIfNeeded: count >> 8)
            structures[counterOffset + 1] = UInt8(truncatingIfNeeded: count)
        }
    }

    private static func countUp(_ count: UInt16?, at offset: Int, in data: inout [UInt8]) -> UInt16? {
        guard offset >= 0, offset + 1 < data.count else { return count }
        let next = count.map { $0 &+ 1 } ?? (UInt16(data[offset]) << 8 | UInt16(data[offset + 1]))
        data[offset] = UInt8(truncatingIfNeeded: next >> 8)
        data[offset + 1] = UInt8(truncatingIfNeeded: next)
        return next
    }

    /// Name and power go into the scan response, the rest where there is room. False where a part fits in neither.
    private mutating func pack() -> Bool {
        var first = AdvertisingDataBuilder()
        var response = AdvertisingDataBuilder()
        first.append(ADType.flags, [advertisement.flags ?? 0])
        if let name = advertisement.name, !response.append(ADType.completeName, Array(name.utf8)) { return false }
        if let power = advertisement.txPower, !response.append(ADType.txPower, [UInt8(bitPattern: power)]) {
            return false
        }
        for (type, data) in parts() {
            if !first.append(type, data), !response.append(type, data) { return false }
        }
        structures = first.bytes + response.bytes
        counterOffset = findCounter()
        return true
    }

    private func parts() -> [(UInt8, [UInt8])] {
        var parts: [(UInt8, [UInt8])] = []
        for entry in advertisement.manufacturerData {
            let company = [UInt8(truncatingIfNeeded: entry.company), UInt8(truncatingIfNeeded: entry.company >> 8)]
            parts.append((ADType.manufacturerData, company + entry.data))
        }
        for entry in advertisement.serviceData {
            let uuid = entry.uuid.littleEndianBytes
            let type = uuid.count == 2 ? ADType.serviceData16 : uuid.count == 4 ? ADType.serviceData32 : 0x21
            parts.append((type, uuid + entry.data))
        }
        parts += Self.lists(advertisement.services, ADType.completeServices16, 0x05, ADType.completeServices128)
        parts += Self.lists(advertisement.solicited, ADType.solicited16, 0x1f, ADType.solicited128)
        if let appearance = advertisement.appearance {
            parts.append(
                (
                    ADType.appearance,
                    [UInt8(truncatingIfNeeded: appearance), UInt8(truncatingIfNeeded: appearance >> 8)]
                ))
        }
        return parts
    }

    private static func lists(
        _ uuids: [BluetoothUUID], _ short: UInt8, _ medium: UInt8, _ long: UInt8
    ) -> [(UInt8, [UInt8])] {
        let bytes = uuids.map(\.littleEndianBytes)
        return [(2, short), (4, medium), (16, long)].compactMap { width, type in
            let list = bytes.filter { $0.count == width }.flatMap { $0 }
            return list.isEmpty ? nil : (type, list)
        }
    }

    private func findCounter() -> Int? {
        guard let counter else { return nil }
        var position = 0
        while position + 1 < structures.count {
            let type = structures[position + 1]
            let data = structures[(position + 2)...].prefix(max(0, Int(structures[position]) - 1))
            switch counter.place {
            case .manufacturerData(let company):
                let key = [UInt8(truncatingIfNeeded: company), UInt8(truncatingIfNeeded: company >> 8)]
                if type == ADType.manufacturerData, data.starts(with: key) {
                    return data.startIndex + 2 + counter.offset
                }
            case .serviceData(let uuid):
                let key = uuid.littleEndianBytes
                if [ADType.serviceData16, ADType.serviceData32, 0x21].contains(type), data.starts(with: key) {
                    return data.startIndex + key.count + counter.offset
                }
            }
            position += 1 + Int(structures[position])
        }
        return nil
    }
}
