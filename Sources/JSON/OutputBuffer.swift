/// Bytes that are written again and again: it grows once and is then reused, so that a message costs no allocation.
public final class OutputBuffer {
    @exclusivity(unchecked) private var start: UnsafeMutablePointer<UInt8>
    @exclusivity(unchecked) private var capacity: Int
    // Private, so that the compiler sees every access and none has to be checked while the program runs.
    @exclusivity(unchecked) private var used = 0
    public var count: Int { used }

    public init(capacity: Int = 1024) {
        self.capacity = max(capacity, 64)
        start = .allocate(capacity: self.capacity)
    }

    deinit { start.deallocate() }

    /// Forgets what was written; the memory stays.
    public func removeAll() { used = 0 }

    /// Forgets all but the first bytes.
    public func truncate(to length: Int) { used = min(used, max(0, length)) }

    /// What was written, until the next call that changes it.
    public func withUnsafeBytes<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result {
        try body(UnsafeRawBufferPointer(start: start, count: used))
    }

    /// A copy of what was written.
    public var bytes: [UInt8] { Array(UnsafeRawBufferPointer(start: start, count: used)) }

    private func reserve(_ more: Int) {
        guard used + more > capacity else { return }
        let larger = max(capacity * 2, used + more)
        let fresh = UnsafeMutablePointer<UInt8>.allocate(capacity: larger)
        fresh.update(from: start, count: used)
        start.deallocate()
        start = fresh
        capacity = larger
    }

    public func append(_ byte: UInt8) {
        reserve(1)
        start[used] = byte
        used += 1
    }

    public func append(_ text: StaticString) {
        text.withUTF8Buffer { append(UnsafeRawBufferPointer($0)) }
    }

    public func append(_ bytes: UnsafeRawBufferPointer) {
        guard let from = bytes.baseAddress else { return }
        reserve(bytes.count)
        UnsafeMutableRawPointer(start + used).copyMemory(from: from, byteCount: bytes.count)
        used += bytes.count
    }

    public func append(_ text: String) {
        var text = text
        text.withUTF8 { append(UnsafeRawBufferPointer($0)) }
    }

    /// Lets `body` write at most `maximum` bytes in place; it gives back how many it wrote.
    public func appendInPlace(_ maximum: Int, _ body: (UnsafeMutablePointer<UInt8>) -> Int) {
        reserve(maximum)
        let written = body(start + used)
        used += min(max(0, written), maximum)
    }

    /// A whole number in decimal digits.
    public func appendNumber(_ number: Int64) {
        reserve(20)
        if number < 0 {
            start[used] = UInt8(ascii: "-")
            used += 1
        }
        var rest = number.magnitude
        let first = used
        repeat {
            start[used] = UInt8(ascii: "0") + UInt8(truncatingIfNeeded: rest % 10)
            used += 1
            rest /= 10
        } while rest > 0
        var left = first
        var right = used - 1
        while left < right {
            swap(&start[left], &start[right])
            left += 1
            right -= 1
        }
    }

    /// Two lowercase hexadecimal digits for each byte.
    public func appendHex(_ bytes: UnsafeRawBufferPointer) {
        reserve(bytes.count * 2)
        for byte in bytes {
            start[used] = Self.digit(byte >> 4)
            start[used + 1] = Self.digit(byte & 15)
            used += 2
        }
    }

    private static func digit(_ value: UInt8) -> UInt8 {
        value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "a") + value - 10
    }

    /// A JSON string with its quotes. What is not valid UTF-8 becomes U+FFFD. Source: RFC 8259 §7.
    public func appendJSONString(_ bytes: UnsafeRawBufferPointer) {
        append(UInt8(ascii: "\""))
        var plainStart = 0
        var index = 0
        while index < bytes.count {
            let byte = bytes[index]
            if byte >= 0x20, byte < 0x7f, byte != UInt8(ascii: "\""), byte != UInt8(ascii: "\\") {
                index += 1
                continue
            }
            let length = byte < 0x80 ? 0 : Self.sequenceLength(bytes, at: index)
            if length > 0 {
                index += length
                continue
            }
            append(UnsafeRawBufferPointer(rebasing: bytes[plainStart..<index]))
            if byte < 0x80 { appendEscaped(byte) } else { append("\\ufffd") }
            index += 1
            plainStart = index
        }
        append(UnsafeRawBufferPointer(rebasing: bytes[plainStart..<index]))
        append(UInt8(ascii: "\""))
    }

    public func appendJSONString(_ text: String) {
        var text = text
        text.withUTF8 { appendJSONString(UnsafeRawBufferPointer($0)) }
    }

    private func appendEscaped(_ byte: UInt8) {
        switch byte {
        case UInt8(ascii: "\""): append("\\\"")
        case UInt8(ascii: "\\"): append("\\\\")
        case 0x08: append("\\b")
        case 0x09: append("\\t")
        case 0x0a: append("\\n")
        case 0x0c: append("\\f")
        case 0x0d: append("\\r")
        default:
            append("\\u00")
            append(Self.digit(byte >> 4))
            append(Self.digit(byte & 15))
        }
    }

    /// The bytes of the well-formed UTF-8 sequence that starts at a byte above 0x7f; 0 where there is none.
    /// Source: Unicode 15, table 3-7.
    private static func sequenceLength(_ bytes: UnsafeRawBufferPointer, at index: Int) -> Int {
        let lead = bytes[index]
        let length: Int
        var second: ClosedRange<UInt8> = 0x80...0xbf
        switch lead {
        case 0xc2...0xdf: length = 2
        case 0xe0:
            length = 3
            second = 0xa0...0xbf
        case 0xe1...0xec, 0xee...0xef: length = 3
        case 0xed:
            length = 3
            second = 0x80...0x9f
        case 0xf0:
            length = 4
            second = 0x90...0xbf
        case 0xf1...0xf3: length = 4
        case 0xf4:
            length = 4
            second = 0x80...0x8f
        default: return 0
        }
        guard index + length <= bytes.count, second.contains(bytes[index + 1]) else { return 0 }
        for offset in 2..<max(length, 2) where bytes[index + offset] & 0xc0 != 0x80 { return 0 }
        return length
    }

    public func append(_ value: JSONValue) {
        switch value {
        case .null: append("null")
        case .bool(let flag): append(flag ? "true" : "false")
        case .int(let number): appendNumber(number)
        case .double(let number): append(number.isFinite ? "\(number)" : "null")
        case .string(let text): appendJSONString(text)
        case .array(let items):
            append(UInt8(ascii: "["))
            for index in items.indices {
                if index > 0 { append(UInt8(ascii: ",")) }
                append(items[index])
            }
            append(UInt8(ascii: "]"))
        case .object(let members):
            append(UInt8(ascii: "{"))
            for index in members.indices {
                if index > 0 { append(UInt8(ascii: ",")) }
                appendJSONString(members[index].0)
                append(UInt8(ascii: ":"))
                append(members[index].1)
            }
            append(UInt8(ascii: "}"))
        }
    }
}
