internal import DBus
internal import EventLoop

extension DBusMessage {
    /// The values of the message; a descriptor among them is left out.
    var allValues: [DBusValue] {
        var reader = reader()
        var values: [DBusValue] = []
        while !reader.isAtEnd {
            if let value = reader.value() { values.append(value) }
            reader.next()
        }
        return values
    }
}

/// What a value is, where it is that; a variant is looked through.
extension DBusValue {
    var unwrapped: DBusValue {
        if case .variant(let value) = self { value.unwrapped } else { self }
    }

    var text: String? {
        switch unwrapped {
        case .string(let text), .objectPath(let text): text
        default: nil
        }
    }

    var flag: Bool? {
        if case .bool(let value) = unwrapped { value } else { nil }
    }

    var integer: Int? {
        switch unwrapped {
        case .byte(let value): Int(value)
        case .int16(let value): Int(value)
        case .uint16(let value): Int(value)
        case .int32(let value): Int(value)
        case .uint32(let value): Int(value)
        case .int64(let value): Int(value)
        case .uint64(let value): Int(exactly: value)
        default: nil
        }
    }

    var byteArray: [UInt8]? {
        switch unwrapped {
        case .bytes(let bytes): bytes
        case .array(of: "y", let items): items.compactMap { $0.integer.map { UInt8(truncatingIfNeeded: $0) } }
        default: nil
        }
    }

    var elements: [DBusValue]? {
        switch unwrapped {
        case .array(_, let items), .structure(let items): items
        case .bytes(let bytes): bytes.map { .byte($0) }
        default: nil
        }
    }

    /// The entries of a dictionary with text keys.
    var options: [(String, DBusValue)]? {
        switch unwrapped {
        case .properties(let pairs): pairs.map { ($0.0, $0.1.unwrapped) }
        case .dictionary(_, let entries): entries.compactMap { key, value in key.text.map { ($0, value.unwrapped) } }
        case .array(_, let items) where items.isEmpty: []
        default: nil
        }
    }

    subscript(key: String) -> DBusValue? { options?.first { $0.0 == key }?.1 }
}
