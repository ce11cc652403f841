/// What a characteristic allows. Source: Bluetooth Core, Vol 3 Part G §3.3.1.1.
public struct CharacteristicProperties: OptionSet, Hashable, Sendable {
    public let rawValue: UInt16
    public init(rawValue: UInt16) { self.rawValue = rawValue }

    public static let broadcast = CharacteristicProperties(rawValue: 1 << 0)
    public static let read = CharacteristicProperties(rawValue: 1 << 1)
    public static let writeWithoutResponse = CharacteristicProperties(rawValue: 1 << 2)
    public static let write = CharacteristicProperties(rawValue: 1 << 3)
    public static let notify = CharacteristicProperties(rawValue: 1 << 4)
    public static let indicate = CharacteristicProperties(rawValue: 1 << 5)
    public static let authenticatedSignedWrites = CharacteristicProperties(rawValue: 1 << 6)
    public static let extendedProperties = CharacteristicProperties(rawValue: 1 << 7)

    /// The names that BlueZ's `Flags` and the topics use, in the order of the bits.
    public static let names: [(CharacteristicProperties, String)] = [
        (.broadcast, "broadcast"), (.read, "read"), (.writeWithoutResponse, "write-without-response"),
        (.write, "write"), (.notify, "notify"), (.indicate, "indicate"),
        (.authenticatedSignedWrites, "authenticated-signed-writes"), (.extendedProperties, "extended-properties"),
    ]

    /// The property of one of BlueZ's flags; nil for flags that speak of security or of descriptors.
    public init?(name: some StringProtocol) {
        guard let match = Self.names.first(where: { $0.1 == name }) else { return nil }
        self = match.0
    }

    /// The names of the properties that are set.
    public var names: [String] { Self.names.filter { contains($0.0) }.map(\.1) }
}

/// Limits of the attribute protocol. Source: Bluetooth Core, Vol 3 Part F §3.2.9 and §3.4.
public enum ATT {
    /// The longest value of an attribute, in bytes.
    public static let longestValue = 512
    /// The MTU of LE before any exchange.
    public static let defaultMTU = 23
    /// What a write command or a notification takes from the MTU.
    public static let valueHeader = 3
}

/// An error that a peer answers by. Source: Bluetooth Core, Vol 3 Part F §3.4.1.1.
public struct ATTError: Error, Hashable, Sendable, CustomStringConvertible {
    public let code: UInt8

    public init(code: UInt8) {
        self.code = code
    }

    /// Unlikely Error, which BlueZ also gives where a link ends during a request.
    public static let unlikely: UInt8 = 0x0e

    private static let names: [UInt8: String] = [
        0x01: "Invalid handle", 0x02: "Read not permitted by the device", 0x03: "Write not permitted by the device",
        0x04: "Invalid PDU", 0x05: "Insufficient authentication", 0x06: "Request not supported",
        0x07: "Invalid offset", 0x08: "Insufficient authorization", 0x09: "Prepare queue full",
        0x0a: "Attribute not found", 0x0b: "Attribute not long", 0x0c: "Encryption key size too short",
        0x0d: "Invalid attribute value length", 0x0e: "Unlikely error", 0x0f: "Insufficient encryption",
        0x10: "Unsupported group type", 0x11: "Insufficient resources", 0x12: "Database out of sync",
        0x13: "Value not allowed", 0xfc: "Write request rejected",
        0xfd: "Client characteristic configuration descriptor improperly configured",
        0xfe: "Procedure already in progress", 0xff: "Out of range",
    ]

    public var description: String {
        Self.names[code]
            ?? (0x80...0x9f ~= code
                ? "Application error 0x\(Hex.encode(UInt64(code), digits: 2))"
                : "ATT error 0x\(Hex.encode(UInt64(code), digits: 2))")
    }
}

extension BluetoothUUID {
    // The attributes that the engine itself must know. Source: Bluetooth Assigned Numbers §3.
    public static let batteryService = BluetoothUUID(0x180f)
    public static let batteryLevel = BluetoothUUID(0x2a19)
    public static let genericAccess = BluetoothUUID(0x1800)
    public static let genericAttribute = BluetoothUUID(0x1801)
    public static let deviceName = BluetoothUUID(0x2a00)
    public static let clientCharacteristicConfiguration = BluetoothUUID(0x2902)
}
