internal import CDBus
internal import EventLoop

/// Messages as they lie on the wire, without a connection: for tests and fuzzers of what reads them.
extension DBusMessage {
    /// The first message of the bytes, and how many of them it takes; nil where there is none that is whole and valid.
    /// Source: `dbus_message_demarshal_bytes_needed`, `dbus_message_demarshal`.
    static func demarshal(_ bytes: ArraySlice<UInt8>) -> (message: DBusMessage, count: Int)? {
        bytes.withUnsafeBytes { bytes in
            guard let start = bytes.baseAddress?.assumingMemoryBound(to: CChar.self) else { return nil }
            let count = dbus_message_demarshal_bytes_needed(start, Int32(clamping: bytes.count))
            guard count > 0, count <= bytes.count else { return nil }
            guard let pointer = dbus_message_demarshal(start, count, nil) else { return nil }
            return (DBusMessage(adopting: pointer), Int(count))
        }
    }

    /// The bytes of the message; nil where it has a fault. Source: `dbus_message_marshal`.
    func marshalled() -> [UInt8]? {
        var start: UnsafeMutablePointer<CChar>?
        var count: Int32 = 0
        guard fault == nil, dbus_message_marshal(pointer, &start, &count) != 0, let start else { return nil }
        defer { dbus_free(start) }
        return Array(UnsafeRawBufferPointer(start: start, count: Int(count)))
    }
}
