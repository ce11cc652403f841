internal import Bluetooth
package import Central
package import EventLoop
package import JSON

/// Writes `devices/<dev>/advertisement`: the payload that is made thousands of times a second, so into one buffer that
/// is used again, without a string or an array of its own, and in a few pieces that are written in place.
package struct AdvertisementPayload {
    private var timestamps = TimestampWriter()

    package init() {}

    /// The same for the engine's devices, where the caller is outside of the module: for the benchmarks.
    @EventLoopActor
    package mutating func write(device: Device, at time: WallTime, to output: OutputBuffer) {
        write(device, at: time, to: output)
    }

    @EventLoopActor
    mutating func write(_ heard: some AdvertisementSource, at time: WallTime, to output: OutputBuffer) {
        timestamps.set(time)
        output.appendInPlace(Self.headSize) { start in
            var writer = PlaceWriter(start)
            writer.put("{\"time\":\"")
            writer.put(timestamps)
            writer.put("\",\"adapter\":")
            if let adapter = heard.adapterAddress { writer.put(adapter) } else { writer.put("null") }
            writer.put(",\"address\":")
            writer.put(heard.address)
            writer.put(
                heard.addressType == .public
                    ? ",\"address_type\":\"public\",\"name\":" : ",\"address_type\":\"random\",\"name\":")
            return writer.count
        }
        writeName(heard, to: output)
        writeRest(heard, to: output)
    }

    /// `discovery/event` of a device that a scan found.
    @EventLoopActor
    mutating func writeFound(
        _ heard: some AdvertisementSource, session: String, isConfigured: Bool, at time: WallTime,
        to output: OutputBuffer
    ) {
        timestamps.set(time)
        output.appendInPlace(Self.headSize) { start in
            var writer = PlaceWriter(start)
            writer.put("{\"time\":\"")
            writer.put(timestamps)
            writer.put("\",\"event\":\"device\",\"session\":")
            return writer.count
        }
        output.appendJSONString(session)
        output.appendInPlace(Self.headSize) { start in
            var writer = PlaceWriter(start)
            writer.put(isConfigured ? ",\"kind\":\"configured\",\"address\":" : ",\"kind\":\"commanded\",\"address\":")
            writer.put(heard.address)
            writer.put(",\"device\":\"")
            writer.put(hex: heard.address.value, digits: 12)
            writer.put("\",\"name\":")
            return writer.count
        }
        writeName(heard, to: output)
        output.append("}" as StaticString)
    }

    /// More than the fixed parts of either payload have before the name.
    private static let headSize = 256

    @EventLoopActor
    private func writeName(_ heard: some AdvertisementSource, to output: OutputBuffer) {
        heard.withName { name in
            if name.isEmpty {
                output.append("null" as StaticString)
            } else {
                output.appendJSONString(name)
            }
        }
    }

    /// What follows the name.
    @EventLoopActor
    private func writeRest(_ heard: some AdvertisementSource, to output: OutputBuffer) {
        let services = heard.advertisedServices
        // A comma, a key in quotes, a colon, and the bytes in quotes.
        var maximum = 160 + 40 * services.count
        heard.forEachServiceData { maximum += 48 + 2 * $1.count }
        heard.forEachManufacturerData { maximum += 16 + 2 * $1.count }
        output.appendInPlace(maximum) { start in
            var writer = PlaceWriter(start)
            writer.put(",\"rssi\":")
            writer.put(heard.rssi)
            writer.put(",\"tx_power\":")
            writer.put(heard.txPower)
            writer.put(",\"services\":[")
            var isFirst = true
            for uuid in services {
                writer.separate(&isFirst)
                writer.put(uuid)
            }
            writer.put("],\"service_data\":{")
            isFirst = true
            heard.forEachServiceData { uuid, bytes in
                writer.separate(&isFirst)
                writer.put(uuid)
                writer.put(":")
                writer.put(hex: bytes)
            }
            writer.put("},\"manufacturer_data\":{")
            isFirst = true
            heard.forEachManufacturerData { company, bytes in
                writer.separate(&isFirst)
                writer.put("\"")
                writer.put(hex: UInt64(company), digits: 4)
                writer.put("\":")
                writer.put(hex: bytes)
            }
            writer.put("}}")
            return writer.count
        }
    }
}

/// Writes into memory whose size was asked for before: the caller has counted the longest that can come.
struct PlaceWriter {
    private let start: UnsafeMutablePointer<UInt8>
    private(set) var count = 0

    init(_ start: UnsafeMutablePointer<UInt8>) {
        self.start = start
    }

    @inline(__always)
    private mutating func put(byte: UInt8) {
        start[count] = byte
        count += 1
    }

    @inline(__always)
    mutating func put(_ text: StaticString) {
        let length = text.utf8CodeUnitCount
        (start + count).update(from: text.utf8Start, count: length)
        count += length
    }

    /// A comma, except before the first item.
    @inline(__always)
    mutating func separate(_ isFirst: inout Bool) {
        if isFirst { isFirst = false } else { put(byte: UInt8(ascii: ",")) }
    }

    /// 24 bytes.
    mutating func put(_ timestamp: TimestampWriter) {
        count += timestamp.copy(to: start + count)
    }

    /// A number of at most four characters, or null.
    mutating func put(_ value: Int8?) {
        guard let value else { return put("null") }
        if value < 0 { put(byte: UInt8(ascii: "-")) }
        let magnitude = value.magnitude
        if magnitude >= 100 { put(byte: UInt8(ascii: "0") + magnitude / 100) }
        if magnitude >= 10 { put(byte: UInt8(ascii: "0") + magnitude / 10 % 10) }
        put(byte: UInt8(ascii: "0") + magnitude % 10)
    }

    /// At most 20 digits.
    mutating func put(decimal value: UInt64) {
        let first = count
        var rest = value
        repeat {
            put(byte: UInt8(ascii: "0") + UInt8(truncatingIfNeeded: rest % 10))
            rest /= 10
        } while rest > 0
        var digits = UnsafeMutableBufferPointer(start: start + first, count: count - first)
        digits.reverse()
    }

    /// `"AA:BB:CC:DD:EE:FF"`: 19 bytes.
    mutating func put(_ address: BluetoothAddress) {
        var place = start + count
        place.pointee = UInt8(ascii: "\"")
        for shift in stride(from: UInt64(40), through: 0, by: -8) {
            let byte = UInt8(truncatingIfNeeded: address.value >> shift)
            place[1] = Self.capital(byte >> 4)
            place[2] = Self.capital(byte & 0xf)
            place[3] = UInt8(ascii: ":")
            place += 3
        }
        // Over the last colon.
        place.pointee = UInt8(ascii: "\"")
        count += 19
    }

    /// The UUID as in topics, in quotes: at most 38 bytes.
    mutating func put(_ uuid: BluetoothUUID) {
        put(byte: UInt8(ascii: "\""))
        if let short = uuid.short {
            put(hex: UInt64(short), digits: 4)
        } else {
            put(hex: uuid.high >> 32, digits: 8)
            put(byte: UInt8(ascii: "-"))
            put(hex: uuid.high >> 16, digits: 4)
            put(byte: UInt8(ascii: "-"))
            put(hex: uuid.high, digits: 4)
            put(byte: UInt8(ascii: "-"))
            put(hex: uuid.low >> 48, digits: 4)
            put(byte: UInt8(ascii: "-"))
            put(hex: uuid.low, digits: 12)
        }
        put(byte: UInt8(ascii: "\""))
    }

    /// The lowest digits, lowercase.
    mutating func put(hex value: UInt64, digits: Int) {
        for shift in stride(from: (digits - 1) * 4, through: 0, by: -4) {
            put(byte: Self.digit(UInt8(truncatingIfNeeded: value >> UInt64(shift)) & 0xf))
        }
    }

    /// Bytes as lowercase hex in quotes.
    mutating func put(hex bytes: UnsafeRawBufferPointer) {
        var place = start + count
        place.pointee = UInt8(ascii: "\"")
        place += 1
        for byte in bytes {
            place[0] = Self.digit(byte >> 4)
            place[1] = Self.digit(byte & 0xf)
            place += 2
        }
        place.pointee = UInt8(ascii: "\"")
        count += 2 * bytes.count + 2
    }

    /// The lowercase digit of a value below 16, without a branch: the letters stand 39 places behind the digit 9.
    @inline(__always)
    private static func digit(_ value: UInt8) -> UInt8 {
        UInt8(ascii: "0") &+ value &+ (39 & (0 &- ((value &+ 6) >> 4)))
    }

    /// The same in capitals, which stand seven places behind.
    @inline(__always)
    private static func capital(_ value: UInt8) -> UInt8 {
        UInt8(ascii: "0") &+ value &+ (7 & (0 &- ((value &+ 6) >> 4)))
    }
}
