public import Bluetooth

/// How a person names a service, characteristic or descriptor: its UUID, and `_<handle>` (hex) where it has a twin.
public struct AttributeName: Hashable, Sendable, CustomStringConvertible {
    public var uuid: BluetoothUUID
    public var handle: UInt16?

    public init(uuid: BluetoothUUID, handle: UInt16? = nil) {
        self.uuid = uuid
        self.handle = handle
    }

    /// Takes `180f`, `0x180F`, a full UUID, each with or without `_0010`; nil for anything else.
    public init?(parsing text: String) {
        if !text.utf8.contains(UInt8(ascii: "_")) {
            guard let uuid = BluetoothUUID(parsing: text) else { return nil }
            self.uuid = uuid
            return
        }
        let parts = text.split(separator: "_", maxSplits: 1, omittingEmptySubsequences: false)
        guard let first = parts.first, let uuid = BluetoothUUID(parsing: String(first)) else { return nil }
        self.uuid = uuid
        if parts.count == 2 {
            guard (1...4).contains(parts[1].utf8.count), let handle = UInt16(parts[1], radix: 16), handle != 0,
                parts[1].utf8.first != UInt8(ascii: "+")
            else { return nil }
            self.handle = handle
        }
    }

    public var description: String {
        guard let handle else { return uuid.topicForm }
        return uuid.topicForm + "_" + hexText(handle)
    }
}

/// Four lowercase hex digits.
func hexText(_ value: UInt16) -> String { Hex.encode(UInt64(value), digits: 4) }
