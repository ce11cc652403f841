/// Reads the objects that most requests are, without jansson and its copies: one level, texts of plain ASCII without
/// escapes, whole numbers, `true`, `false` and `null`. What is anything else is left to jansson, faults too.
struct FlatObject {
    /// More members than a request has; names are compared with each other.
    private static let mostMembers = 16
    /// Digits that always fit into 64 bits.
    private static let mostDigits = 18

    private let bytes: UnsafeRawBufferPointer
    private var place = 0

    /// Nil where the text is more than this reads.
    static func parse(_ bytes: UnsafeRawBufferPointer) -> JSONValue? {
        var reader = FlatObject(bytes)
        return reader.object()
    }

    private init(_ bytes: UnsafeRawBufferPointer) {
        self.bytes = bytes
    }

    private mutating func object() -> JSONValue? {
        guard take("{") else { return nil }
        var members: [(String, JSONValue)] = []
        if !take("}") {
            members.reserveCapacity(6)
            repeat {
                guard members.count < Self.mostMembers, let name = text(), take(":"), let value = value() else {
                    return nil
                }
                for member in members where member.0 == name { return nil }
                members.append((name, value))
            } while take(",")
            guard take("}") else { return nil }
        }
        skipSpace()
        return place == bytes.count ? .object(members) : nil
    }

    private mutating func skipSpace() {
        while place < bytes.count {
            switch bytes[place] {
            case 0x20, 0x09, 0x0a, 0x0d: place += 1
            default: return
            }
        }
    }

    /// Takes one character with the space before it.
    private mutating func take(_ character: Unicode.Scalar) -> Bool {
        skipSpace()
        guard place < bytes.count, bytes[place] == UInt8(ascii: character) else { return false }
        place += 1
        return true
    }

    private mutating func text() -> String? {
        guard take("\"") else { return nil }
        let start = place
        while place < bytes.count {
            let byte = bytes[place]
            if byte == UInt8(ascii: "\"") {
                defer { place += 1 }
                return String(decoding: UnsafeRawBufferPointer(rebasing: bytes[start..<place]), as: UTF8.self)
            }
            guard byte >= 0x20, byte < 0x7f, byte != UInt8(ascii: "\\") else { return nil }
            place += 1
        }
        return nil
    }

    private mutating func value() -> JSONValue? {
        skipSpace()
        guard place < bytes.count else { return nil }
        switch bytes[place] {
        case UInt8(ascii: "\""): return text().map { .string($0) }
        case UInt8(ascii: "t"): return word("true") ? .bool(true) : nil
        case UInt8(ascii: "f"): return word("false") ? .bool(false) : nil
        case UInt8(ascii: "n"): return word("null") ? .null : nil
        default: return number().map { .int($0) }
        }
    }

    private mutating func word(_ word: StaticString) -> Bool {
        for index in 0..<word.utf8CodeUnitCount {
            guard place < bytes.count, bytes[place] == word.utf8Start[index] else { return false }
            place += 1
        }
        return true
    }

    /// A whole number; what follows it shows whether it was one.
    private mutating func number() -> Int64? {
        let isNegative = bytes[place] == UInt8(ascii: "-")
        if isNegative { place += 1 }
        let start = place
        var number: Int64 = 0
        while place < bytes.count, place - start < Self.mostDigits, let digit = digit(bytes[place]) {
            number = number * 10 + digit
            place += 1
        }
        let length = place - start
        // A leading zero is a fault, and -0 and what is too long are jansson's.
        guard length > 0, length == 1 ? !(isNegative && number == 0) : bytes[start] != UInt8(ascii: "0") else {
            return nil
        }
        return isNegative ? -number : number
    }

    private func digit(_ byte: UInt8) -> Int64? {
        byte >= UInt8(ascii: "0") && byte <= UInt8(ascii: "9") ? Int64(byte - UInt8(ascii: "0")) : nil
    }
}
