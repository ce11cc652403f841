internal import CDBus
internal import Glibc

/// The arguments of a message where they lie in it: libdbus keeps a message's body as one piece in the wire's form, and
/// gives out texts as pointers into that piece. So the first text tells where the body begins.
/// Source: `dbus_message_iter_get_basic`.
struct BodyView {
    let arguments: UnsafeRawBufferPointer
    let signature: UnsafeRawBufferPointer

    /// Nil for a message whose arguments do not begin with a text, in however many arrays.
    init?(_ message: OpaquePointer) {
        var place = DBusMessageIter()
        // Brings the body to this machine's byte order, too.
        guard dbus_message_iter_init(message, &place) != 0, let types = dbus_message_get_signature(message) else {
            return nil
        }
        var offset = 0
        var code = dbus_message_iter_get_arg_type(&place)
        while code == Self.array || code == Self.entry {
            if code == Self.array { offset += 4 } else { offset = WireReader.align(offset, to: 8) }
            var inner = DBusMessageIter()
            dbus_message_iter_recurse(&place, &inner)
            place = inner
            code = dbus_message_iter_get_arg_type(&place)
        }
        guard code == DBusType.string.character || code == DBusType.objectPath.character else { return nil }
        var text: UnsafePointer<UInt8>?
        dbus_message_iter_get_basic(&place, &text)
        // Behind the text's length stands its first character.
        offset = WireReader.align(offset, to: 4) + 4
        guard let text, UnsafeRawPointer(text - 4).loadUnaligned(as: UInt32.self) == strlen(text) else { return nil }
        let start = UnsafePointer(text - offset)
        signature = UnsafeRawBufferPointer(start: types, count: strlen(types))
        guard let length = Self.length(start, signature) else { return nil }
        arguments = UnsafeRawBufferPointer(start: start, count: length)
    }

    private static let array = Int32(DBusType.array.character)
    /// Here libdbus's constants are letters, and not the signature's brackets.
    private static let entry = Int32(UInt8(ascii: "e"))

    /// Up to where the arguments reach; nil for a type that the hot path does not know. libdbus has looked at all of them
    /// when the message came, or has written them.
    private static func length(_ start: UnsafePointer<UInt8>, _ signature: UnsafeRawBufferPointer) -> Int? {
        var place = 0
        var type = signature.assumingMemoryBound(to: UInt8.self).baseAddress ?? start
        let end = type + signature.count
        while type < end {
            let code = type.pointee
            let alignment = WireReader.alignment(of: code)
            guard alignment > 0 else { return nil }
            place = WireReader.align(place, to: alignment)
            switch code {
            case UInt8(ascii: "s"), UInt8(ascii: "o"): place += 4 + number(start + place) + 1
            case UInt8(ascii: "a"):
                let size = number(start + place)
                place = WireReader.align(place + 4, to: max(1, WireReader.alignment(of: type[1]))) + size
                type += WireReader.length(of: type, end) - 1
            case UInt8(ascii: "v"), UInt8(ascii: "g"), UInt8(ascii: "("), UInt8(ascii: "{"): return nil
            // The alignment of a fixed type is its size.
            default: place += alignment
            }
            type += 1
        }
        return place
    }

    private static func number(_ place: UnsafePointer<UInt8>) -> Int {
        Int(UnsafeRawPointer(place).loadUnaligned(as: UInt32.self))
    }
}
