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
        writeHead(heard, at: time, to: output)
        heard.withName { name in
            if name.isEmpty {
                output.append("null" as StaticString)
            } else {
                output.appendJSONString(name)
            }
        }
        writeServices(heard, to: output)
        var isFirst = true
        heard.forEachServiceData { uuid, bytes in
            // A comma, a UUID in quotes, a colon, and the bytes in quotes.
            output.appendInPlace(48 + 2 * bytes.count) { start in
                var writer = PlaceWriter(start)
                writer.separate(&isFirst)
                writer.put(uuid)
                writer.put(":")
                writer.put(hex: bytes)
                return writer.count
            }
        }
        output.append("},\"manufacturer_data\":{" as StaticString)
        isFirst = true
        heard.forEachManufacturerData { company, bytes in
            output.appendInPlace(16 + 2 * bytes.count) { start in
                var writer = PlaceWriter(start)
                writer.separate(&isFirst)
                writer.put("\"")
                writer.put(hex: UInt64(company), digits: 4)
                writer.put("\":")
                writer.put(hex: bytes)
                return writer.count
            }
        }
        output.append("}}" as StaticString)
    }

    /// As far as the name: about 150 bytes.
    @EventLoopActor
    private mutating func writeHead(_ heard: some AdvertisementSource, at time: WallTime, to output: OutputBuffer) {
        timestamps.set(time)
        output.appendInPlace(256) { start in
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
    }

    /// From the name to the service data.
    @EventLoopActor
    private func writeServices(_ heard: some AdvertisementSource, to output: OutputBuffer) {
        let services = heard.advertisedServices
        output.appendInPlace(96 + 40 * services.count) { start in
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
        put(byte: UInt8(ascii: "\""))
        for shift in stride(from: 44, through: 0, by: -4) {
            let digit = UInt8(truncatingIfNeeded: address.value >> UInt64(shift)) & 0xf
            put(byte: digit < 10 ? UInt8(ascii: "0") &+ digit : UInt8(ascii: "A") &+ digit &- 10)
            if shift > 0, shift % 8 == 0 { put(byte: UInt8(ascii: ":")) }
        }
        put(byte: UInt8(ascii: "\""))
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
        put(byte: UInt8(ascii: "\""))
        for byte in bytes {
            put(byte: Self.digit(byte >> 4))
            put(byte: Self.digit(byte & 0xf))
        }
        put(byte: UInt8(ascii: "\""))
    }

    @inline(__always)
    private static func digit(_ value: UInt8) -> UInt8 {
        value < 10 ? UInt8(ascii: "0") &+ value : UInt8(ascii: "a") &+ value &- 10
    }
}
