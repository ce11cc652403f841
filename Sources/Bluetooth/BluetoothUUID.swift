/// A UUID of 16, 32 or 128 bits, always held as 128. Source: Bluetooth Core, Vol 3 Part B §2.5.1.
public struct BluetoothUUID: Hashable, Comparable, Sendable, CustomStringConvertible {
    public let high: UInt64
    public let low: UInt64

    private static let baseHigh: UInt64 = 0x0000_0000_0000_1000
    private static let baseLow: UInt64 = 0x8000_0080_5f9b_34fb

    public init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    /// A 16-bit UUID on the Bluetooth base.
    public init(_ short: UInt16) {
        self.init(short32: UInt32(short))
    }

    /// A 32-bit UUID on the Bluetooth base.
    public init(short32: UInt32) {
        high = UInt64(short32) << 32 | Self.baseHigh
        low = Self.baseLow
    }

    /// Reads 4, 8, 32 (plain) or 36 (dashed) characters, in either case, with or without `0x`.
    @inlinable
    public init?(parsing text: some StringProtocol) {
        self.init(parsingBytes: text.utf8)
    }

    /// The same for text that stands as UTF-8 bytes.
    @inlinable
    public init?(parsingBytes text: some Collection<UInt8>) {
        guard
            let parsed = text.withContiguousStorageIfAvailable({ Self.parse($0) })
                ?? Array(text).withUnsafeBufferPointer({ Self.parse($0) })
        else { return nil }
        self = parsed
    }

    @usableFromInline
    static func parse(_ text: UnsafeBufferPointer<UInt8>) -> BluetoothUUID? {
        var first = 0
        if text.count > 2, text[0] == UInt8(ascii: "0"), text[1] | 32 == UInt8(ascii: "x") { first = 2 }
        let length = text.count - first
        guard length == 4 || length == 8 || length == 32 || length == 36 else { return nil }
        var high: UInt64 = 0
        var low: UInt64 = 0
        for index in 0..<length {
            let character = text[first + index]
            if length == 36, index == 8 || index == 13 || index == 18 || index == 23 {
                guard character == UInt8(ascii: "-") else { return nil }
                continue
            }
            guard let digit = Hex.value(of: character) else { return nil }
            high = high << 4 | low >> 60
            low = low << 4 | UInt64(digit)
        }
        return length <= 8
            ? BluetoothUUID(short32: UInt32(truncatingIfNeeded: low)) : BluetoothUUID(high: high, low: low)
    }

    /// Reads the 2, 4 or 16 bytes of an advertisement or a packet, least significant first.
    public init?(littleEndian bytes: some BidirectionalCollection<UInt8>) {
        var high: UInt64 = 0
        var low: UInt64 = 0
        for byte in bytes.reversed() {
            high = high << 8 | low >> 56
            low = low << 8 | UInt64(byte)
        }
        switch bytes.count {
        case 2, 4: self.init(short32: UInt32(truncatingIfNeeded: low))
        case 16: self.init(high: high, low: low)
        default: return nil
        }
    }

    public static func < (left: BluetoothUUID, right: BluetoothUUID) -> Bool {
        (left.high, left.low) < (right.high, right.low)
    }

    private var isOnBase: Bool { low == Self.baseLow && high & 0xffff_ffff == Self.baseHigh }

    /// The 16-bit form, where the UUID is on the Bluetooth base and fits.
    public var short: UInt16? {
        isOnBase && high >> 48 == 0 ? UInt16(truncatingIfNeeded: high >> 32) : nil
    }

    /// The 32-bit form, where the UUID is on the Bluetooth base.
    public var short32: UInt32? {
        isOnBase ? UInt32(truncatingIfNeeded: high >> 32) : nil
    }

    /// The dashed form, lowercase, as BlueZ writes it.
    public var description: String {
        let first = Hex.encode(high, digits: 16)
        let second = Hex.encode(low, digits: 16)
        return
            "\(first.prefix(8))-\(first.dropFirst(8).prefix(4))-\(first.suffix(4))-\(second.prefix(4))-\(second.suffix(12))"
    }

    /// Four lowercase digits where the UUID is on the Bluetooth base and fits, else the dashed form: as in topics.
    public var topicForm: String {
        short.map { Hex.encode(UInt64($0), digits: 4) } ?? description
    }

    /// The shortest form as bytes, least significant first: 2, 4 or 16 of them, as on the air.
    public var littleEndianBytes: [UInt8] {
        if let short { return [UInt8(truncatingIfNeeded: short), UInt8(truncatingIfNeeded: short >> 8)] }
        if let short32 { return (0..<4).map { UInt8(truncatingIfNeeded: short32 >> (8 * UInt32($0))) } }
        return (0..<8).map { UInt8(truncatingIfNeeded: low >> UInt64(8 * $0)) }
            + (0..<8).map { UInt8(truncatingIfNeeded: high >> UInt64(8 * $0)) }
    }
}
