internal import CDBus
public import EventLoop
internal import Glibc

/// The arguments of a message that came, as bytes of their own.
@EventLoopActor
public final class WireArguments {
    private nonisolated let copy: MarshalledMessage
    private nonisolated let signature: [UInt8]

    fileprivate init(_ copy: MarshalledMessage, signature: String) {
        self.copy = copy
        self.signature = Array(signature.utf8)
    }

    deinit { copy.free() }

    /// The reader is good during the call only.
    public func withReader<Result>(_ body: @EventLoopActor (WireReader) -> Result) -> Result {
        signature.withUnsafeBytes { body(WireReader(copy.arguments, signature: $0)) }
    }
}

extension DBusMessage {
    /// Takes the arguments out of a message that came, which has none afterwards: for a large one, whose bytes would
    /// otherwise stand in memory twice while they are read. Nil, and the message stays as it is, where the sender has
    /// the other byte order or memory is out.
    public func takeArguments() -> WireArguments? {
        guard isSealed, let copy = MarshalledMessage(pointer) else { return nil }
        let arguments = WireArguments(copy, signature: signature)
        return empty() ? arguments : nil
    }
}

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
