internal import CDBus
internal import EventLoop

/// A message's bytes as libdbus copies them out, until they are freed. Source: `dbus_message_marshal`.
struct MarshalledMessage: @unchecked Sendable {
    private let start: UnsafeMutablePointer<CChar>
    let arguments: UnsafeRawBufferPointer

    /// Nil where the sender has the other byte order or memory is out.
    init?(_ message: OpaquePointer) {
        var copy: UnsafeMutablePointer<CChar>?
        var length: Int32 = 0
        guard dbus_message_marshal(message, &copy, &length) != 0, let copy else { return nil }
        let bytes = UnsafeRawBufferPointer(start: copy, count: Int(length))
        // The header's first 16 bytes: order, type, flags, version, the arguments' length, serial, fields' length.
        guard bytes.count >= 16, bytes[0] == Self.ownOrder,
            let size = Int(exactly: bytes.loadUnaligned(fromByteOffset: 4, as: UInt32.self)), size <= bytes.count - 16
        else {
            dbus_free(copy)
            return nil
        }
        start = copy
        arguments = UnsafeRawBufferPointer(rebasing: bytes[(bytes.count - size)...])
    }

    func free() { dbus_free(start) }

    private static var ownOrder: UInt8 { UInt16(1).littleEndian == 1 ? UInt8(ascii: "l") : UInt8(ascii: "B") }
}

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
