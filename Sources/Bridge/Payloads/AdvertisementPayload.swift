internal import Bluetooth
internal import EventLoop
internal import JSON

/// Writes `devices/<dev>/advertisement`: the payload that is made thousands of times a second, so into one buffer that
/// is used again, without a string or an array of its own.
struct AdvertisementPayload {
    private var timestamps = TimestampWriter()

    @EventLoopActor
    mutating func write(_ heard: some AdvertisementSource, at time: WallTime, to output: OutputBuffer) {
        output.append("{\"time\":" as StaticString)
        timestamps.append(time, to: output)
        output.append(",\"adapter\":" as StaticString)
        if let adapter = heard.adapterAddress {
            output.appendQuoted(adapter)
        } else {
            output.append("null" as StaticString)
        }
        output.append(",\"address\":" as StaticString)
        output.appendQuoted(heard.address)
        output.append(
            heard.addressType == .public
                ? ",\"address_type\":\"public\",\"name\":" : ",\"address_type\":\"random\",\"name\":" as StaticString)
        heard.withName { name in
            if name.isEmpty {
                output.append("null" as StaticString)
            } else {
                output.appendJSONString(name)
            }
        }
        output.append(",\"rssi\":" as StaticString)
        output.appendNumberOrNull(heard.rssi)
        output.append(",\"tx_power\":" as StaticString)
        output.appendNumberOrNull(heard.txPower)
        writeLists(heard, to: output)
        output.append(UInt8(ascii: "}"))
    }

    @EventLoopActor
    private func writeLists(_ heard: some AdvertisementSource, to output: OutputBuffer) {
        output.append(",\"services\":[" as StaticString)
        var isFirst = true
        for uuid in heard.advertisedServices {
            output.appendSeparator(&isFirst)
            output.appendQuoted(uuid)
        }
        output.append("],\"service_data\":{" as StaticString)
        isFirst = true
        heard.forEachServiceData { uuid, bytes in
            output.appendSeparator(&isFirst)
            output.appendQuoted(uuid)
            output.append(UInt8(ascii: ":"))
            output.appendQuotedHex(bytes)
        }
        output.append("},\"manufacturer_data\":{" as StaticString)
        isFirst = true
        heard.forEachManufacturerData { company, bytes in
            output.appendSeparator(&isFirst)
            output.append(UInt8(ascii: "\""))
            output.appendHex(UInt64(company), digits: 4)
            output.append("\":" as StaticString)
            output.appendQuotedHex(bytes)
        }
        output.append(UInt8(ascii: "}"))
    }
}

extension OutputBuffer {
    /// A comma, except before the first item.
    func appendSeparator(_ isFirst: inout Bool) {
        if isFirst {
            isFirst = false
        } else {
            append(UInt8(ascii: ","))
        }
    }

    /// `"AA:BB:CC:DD:EE:FF"`
    func appendQuoted(_ address: BluetoothAddress) {
        append(UInt8(ascii: "\""))
        for shift in stride(from: 40, through: 0, by: -8) {
            let byte = UInt8(truncatingIfNeeded: address.value >> UInt64(shift))
            append(upperHexDigit(byte >> 4))
            append(upperHexDigit(byte & 0xf))
            if shift > 0 { append(UInt8(ascii: ":")) }
        }
        append(UInt8(ascii: "\""))
    }

    /// The UUID as in topics: 4 digits on the Bluetooth base, else dashed.
    func appendQuoted(_ uuid: BluetoothUUID) {
        append(UInt8(ascii: "\""))
        if let short = uuid.short {
            appendHex(UInt64(short), digits: 4)
        } else {
            appendHex(uuid.high >> 32, digits: 8)
            append(UInt8(ascii: "-"))
            appendHex(uuid.high >> 16 & 0xffff, digits: 4)
            append(UInt8(ascii: "-"))
            appendHex(uuid.high & 0xffff, digits: 4)
            append(UInt8(ascii: "-"))
            appendHex(uuid.low >> 48, digits: 4)
            append(UInt8(ascii: "-"))
            appendHex(uuid.low & 0xffff_ffff_ffff, digits: 12)
        }
        append(UInt8(ascii: "\""))
    }

    /// Lowercase hex, padded with zeros.
    func appendHex(_ value: UInt64, digits: Int) {
        for shift in stride(from: (digits - 1) * 4, through: 0, by: -4) {
            append(Hex.digit(UInt8(truncatingIfNeeded: value >> UInt64(shift)) & 0xf))
        }
    }

    /// Bytes as lowercase hex in quotes.
    func appendQuotedHex(_ bytes: UnsafeRawBufferPointer) {
        append(UInt8(ascii: "\""))
        appendHex(bytes)
        append(UInt8(ascii: "\""))
    }

    func appendNumberOrNull(_ value: Int8?) {
        if let value {
            appendNumber(Int64(value))
        } else {
            append("null" as StaticString)
        }
    }
}

@inline(__always)
private func upperHexDigit(_ value: UInt8) -> UInt8 {
    value < 10 ? UInt8(ascii: "0") &+ value : UInt8(ascii: "A") &+ value &- 10
}
