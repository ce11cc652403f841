internal import Bluetooth
internal import JSON

/// How a characteristic's bytes stand in JSON. Numbers are little-endian, as GATT formats are.
public enum ValueEncoding: String, Sendable, CaseIterable {
    case hex, base64, text
    case uint8, uint16, uint24, uint32, uint64
    case int8, int16, int24, int32, int64
    case float, double

    static let names = allCases.map(\.rawValue).joined(separator: ", ")

    /// The name of a request's `encoding`.
    /// - Throws: `not_supported` for the decoded form, `bad_request` for an unknown name.
    init(parsing name: String) throws(CommandError) {
        guard let encoding = ValueEncoding(rawValue: name) else {
            if name == "decoded" {
                throw CommandError(.notSupported, "'encoding' is 'decoded', but no format is registered for this value")
            }
            throw CommandError(
                .badRequest, "'encoding' is '\(name.prefix(40))'; it must be one of \(ValueEncoding.names)")
        }
        self = encoding
    }

    /// Width in bytes and whether negative numbers are allowed, for the integer encodings.
    private var integer: (width: Int, isSigned: Bool)? {
        switch self {
        case .uint8: (1, false)
        case .uint16: (2, false)
        case .uint24: (3, false)
        case .uint32: (4, false)
        case .uint64: (8, false)
        case .int8: (1, true)
        case .int16: (2, true)
        case .int24: (3, true)
        case .int32: (4, true)
        case .int64: (8, true)
        case .hex, .base64, .text, .float, .double: nil
        }
    }

    // MARK: Bytes from JSON

    /// The bytes that `value` stands for.
    /// - Throws: `bad_request` that names the field and what it must be.
    func bytes(of value: JSONValue, field: String = "value") throws(CommandError) -> [UInt8] {
        switch self {
        case .hex: return try Self.hexBytes(text(value, field, "hex digits, such as \"0x0164\""), field)
        case .text: return Array(try text(value, field, "text").utf8)
        case .base64:
            guard let bytes = Base64.decode(try text(value, field, "base64 text")) else {
                throw CommandError(.badRequest, "'\(field)' is not base64 (RFC 4648, with padding)")
            }
            return bytes
        case .float: return Self.littleEndian(UInt64(Float(try number(value, field)).bitPattern), 4)
        case .double: return Self.littleEndian(try number(value, field).bitPattern, 8)
        default:
            guard let (width, isSigned) = integer else { return [] }
            return try integerBytes(value, field, width: width, isSigned: isSigned)
        }
    }

    private func text(_ value: JSONValue, _ field: String, _ expected: String) throws(CommandError) -> String {
        guard case .string(let text) = value else {
            throw CommandError(.badRequest, "'\(field)' must be a string of \(expected)")
        }
        return text
    }

    private func number(_ value: JSONValue, _ field: String) throws(CommandError) -> Double {
        switch value {
        case .int(let number): return Double(number)
        case .double(let number): return number
        default: throw CommandError(.badRequest, "'\(field)' must be a number for encoding '\(rawValue)'")
        }
    }

    private func integerBytes(
        _ value: JSONValue, _ field: String, width: Int, isSigned: Bool
    ) throws(CommandError) -> [UInt8] {
        let bits = width * 8
        let wrong = CommandError(
            .badRequest,
            "'\(field)' must be a whole number \(Self.range(bits: bits, isSigned: isSigned)) for '\(rawValue)'")
        let number: Int64
        switch value {
        case .int(let whole): number = whole
        case .double(let fraction):
            // Numbers over Int64 come as doubles; only unsigned 64-bit ones have a use for them.
            if let whole = Int64(exactly: fraction) {
                number = whole
            } else if self == .uint64, let whole = UInt64(exactly: fraction) {
                return Self.littleEndian(whole, 8)
            } else {
                throw wrong
            }
        default: throw wrong
        }
        if bits < 64 {
            let low: Int64 = isSigned ? -(1 << (bits - 1)) : 0
            let high: Int64 = isSigned ? (1 << (bits - 1)) - 1 : (1 << bits) - 1
            guard (low...high).contains(number) else { throw wrong }
        } else if !isSigned, number < 0 {
            throw wrong
        }
        return Self.littleEndian(UInt64(bitPattern: number), width)
    }

    private static func range(bits: Int, isSigned: Bool) -> String {
        guard bits < 64 else { return isSigned ? "of 64 bits" : "from 0 up" }
        return isSigned
            ? "from \(-(Int64(1) << (bits - 1))) to \((Int64(1) << (bits - 1)) - 1)"
            : "from 0 to \((Int64(1) << bits) - 1)"
    }

    private static func littleEndian(_ value: UInt64, _ width: Int) -> [UInt8] {
        (0..<width).map { UInt8(truncatingIfNeeded: value >> UInt64($0 * 8)) }
    }

    /// Hex digits, with or without `0x`, in pairs; spaces, colons and dashes between pairs are fine.
    static func hexBytes(_ text: String, _ field: String) throws(CommandError) -> [UInt8] {
        var digits = text[...]
        if digits.hasPrefix("0x") || digits.hasPrefix("0X") { digits = digits.dropFirst(2) }
        var bytes: [UInt8] = []
        var half: UInt8?
        for character in digits.utf8 {
            guard let digit = Hex.value(of: character) else {
                if half == nil, [UInt8(ascii: " "), UInt8(ascii: ":"), UInt8(ascii: "-")].contains(character) {
                    continue
                }
                throw CommandError(.badRequest, "'\(field)' is not hex: only 0-9 and a-f, two digits for each byte")
            }
            if let high = half {
                bytes.append(high << 4 | digit)
                half = nil
            } else {
                half = digit
            }
        }
        guard half == nil else {
            throw CommandError(.badRequest, "'\(field)' has an odd number of hex digits; each byte takes two")
        }
        return bytes
    }

    // MARK: JSON from bytes

    /// What the bytes are in this encoding.
    /// - Throws: `not_supported` where they do not fit it (a wrong length, or text that is not UTF-8).
    func value(of bytes: [UInt8]) throws(CommandError) -> JSONValue {
        switch self {
        case .hex: return .string(Hex.encode(bytes))
        case .base64: return .string(Base64.encode(bytes))
        case .text:
            guard let text = String(validating: bytes) else {
                throw CommandError(.notSupported, "the value \(Hex.encode(bytes)) is not UTF-8 text; read it as hex")
            }
            return .string(text)
        case .float:
            return .double(Double(Float(bitPattern: UInt32(truncatingIfNeeded: try unsigned(bytes, width: 4)))))
        case .double: return .double(Double(bitPattern: try unsigned(bytes, width: 8)))
        default:
            guard let (width, isSigned) = integer else { return .null }
            let number = try unsigned(bytes, width: width)
            guard isSigned else {
                return Int64(exactly: number).map { .int($0) } ?? .double(Double(number))
            }
            let unused = UInt64(64 - width * 8)
            return .int(Int64(bitPattern: number << unused) >> Int64(unused))
        }
    }

    private func unsigned(_ bytes: [UInt8], width: Int) throws(CommandError) -> UInt64 {
        guard bytes.count == width else {
            throw CommandError(
                .notSupported, "the value has \(bytes.count) bytes, '\(rawValue)' takes \(width); read it as hex")
        }
        return bytes.reversed().reduce(0) { $0 << 8 | UInt64($1) }
    }
}

/// Base64 with padding. Source: RFC 4648, section 4.
enum Base64 {
    private static let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)

    static func encode(_ bytes: [UInt8]) -> String {
        var text: [UInt8] = []
        for start in stride(from: 0, to: bytes.count, by: 3) {
            let group = bytes[start..<min(start + 3, bytes.count)]
            var bits = group.reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
            bits <<= UInt32(8 * (3 - group.count))
            for index in 0..<4 {
                let isPadding = index > group.count
                text.append(isPadding ? UInt8(ascii: "=") : alphabet[Int(bits >> UInt32(18 - 6 * index) & 0x3f)])
            }
        }
        return String(decoding: text, as: UTF8.self)
    }

    /// Nil where the text is not whole groups of the alphabet, or leaves bits over.
    static func decode(_ text: String) -> [UInt8]? {
        let characters = Array(text.utf8)
        guard characters.count % 4 == 0 else { return nil }
        let padding = characters.reversed().prefix { $0 == UInt8(ascii: "=") }.count
        guard padding <= 2 else { return nil }
        var bytes: [UInt8] = []
        var bits: UInt32 = 0
        var count = 0
        for character in characters.dropLast(padding) {
            guard let value = alphabet.firstIndex(of: character) else { return nil }
            bits = bits << 6 | UInt32(value)
            count += 6
            if count >= 8 {
                count -= 8
                bytes.append(UInt8(truncatingIfNeeded: bits >> UInt32(count)))
                bits &= (1 << UInt32(count)) - 1
            }
        }
        return bits == 0 ? bytes : nil
    }
}
