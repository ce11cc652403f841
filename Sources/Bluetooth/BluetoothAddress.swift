/// A device address (BD_ADDR). Source: Bluetooth Core, Vol 6 Part B §1.3.
public struct BluetoothAddress: Hashable, Comparable, Sendable, CustomStringConvertible {
    /// The address as a 48-bit number, its most significant byte written first.
    public let value: UInt64

    /// - Parameter value: of which the low 48 bits count.
    public init(value: UInt64) {
        self.value = value & 0xffff_ffff_ffff
    }

    /// Reads `AA:BB:CC:DD:EE:FF`, `AA-BB-…`, `AA_BB_…` or `aabbccddeeff`, in either case; one separator throughout.
    @inlinable
    public init?(parsing text: some StringProtocol) {
        self.init(parsingBytes: text.utf8)
    }

    /// The same for text that stands as UTF-8 bytes.
    @inlinable
    public init?(parsingBytes text: some Collection<UInt8>) {
        guard
            let parsed = text.withContiguousStorageIfAvailable({ Self.value(of: $0) })
                ?? Array(text).withUnsafeBufferPointer({ Self.value(of: $0) })
        else { return nil }
        self.init(value: parsed)
    }

    @usableFromInline
    static func value(of text: UnsafeBufferPointer<UInt8>) -> UInt64? {
        let isPlain = text.count == 12
        guard isPlain || text.count == 17 else { return nil }
        var value: UInt64 = 0
        var separator: UInt8?
        for index in text.indices {
            let character = text[index]
            if !isPlain, index % 3 == 2 {
                guard separator == nil || separator == character,
                    character == 0x3a || character == 0x2d || character == 0x5f
                else { return nil }
                separator = character
                continue
            }
            guard let digit = Hex.value(of: character) else { return nil }
            value = value << 4 | UInt64(digit)
        }
        return value
    }

    public static func < (left: BluetoothAddress, right: BluetoothAddress) -> Bool { left.value < right.value }

    /// `AA:BB:CC:DD:EE:FF`, as BlueZ writes it.
    public var description: String { separated(by: 0x3a) }

    /// `AA_BB_CC_DD_EE_FF`, as in the paths of BlueZ's objects.
    public var pathForm: String { separated(by: 0x5f) }

    /// Twelve lowercase digits, as in topics.
    public var topicForm: String { Hex.encode(value, digits: 12) }

    /// The six bytes, most significant first.
    public var bytes: [UInt8] { (0..<6).map { UInt8(truncatingIfNeeded: value >> UInt64(40 - 8 * $0)) } }

    /// The address that stands `offset` after this one, around the end of the range.
    public func advanced(by offset: Int) -> BluetoothAddress {
        BluetoothAddress(value: value &+ UInt64(bitPattern: Int64(offset)))
    }

    private func separated(by separator: UInt8) -> String {
        String(unsafeUninitializedCapacity: 17) { buffer in
            for index in 0..<6 {
                let byte = UInt8(truncatingIfNeeded: value >> UInt64(40 - 8 * index))
                buffer[3 * index] = Self.upper(byte >> 4)
                buffer[3 * index + 1] = Self.upper(byte & 15)
                if index < 5 { buffer[3 * index + 2] = separator }
            }
            return 17
        }
    }

    private static func upper(_ value: UInt8) -> UInt8 {
        value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "A") + value - 10
    }
}

/// Whether an address is assigned by the IEEE or made by the device. Source: BlueZ, Device1.AddressType.
public enum AddressType: String, Sendable {
    case `public`
    case random

    /// What kind of address it is, by its type and its two top bits. Source: Bluetooth Core, Vol 6 Part B §1.3.2.
    public func kind(of address: BluetoothAddress) -> AddressKind {
        guard self == .random else { return .public }
        switch address.value >> 46 {
        case 0b11: return .staticRandom
        case 0b01: return .resolvablePrivate
        case 0b00: return .nonResolvablePrivate
        default: return .reserved
        }
    }
}

public enum AddressKind: Sendable {
    case `public`, staticRandom, resolvablePrivate, nonResolvablePrivate, reserved

    /// True where the same device keeps the address, so that it may stand in retained topics.
    public var isStable: Bool { self == .public || self == .staticRandom }
}
