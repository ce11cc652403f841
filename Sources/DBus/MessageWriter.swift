internal import CDBus
internal import Glibc

/// Appends arguments to a message, one after another. What may not stand there becomes the message's
/// ``DBusMessage/fault``, and all after it is dropped: libdbus would end the process over it. That is a value that does
/// not fit the signature of its container, text with a NUL, a path or a signature that is none, and any change of a
/// message that was sent. Source: `dbus_message_iter_append_basic` and its kin.
public struct MessageWriter {
    /// What a place still takes.
    private enum Room {
        /// Anything: the message itself, and a structure that stands there.
        case any
        /// Any number of values of one type: an array.
        case each(String)
        /// Values of these types in their order: a variant, a dictionary's entry, a structure of a known type.
        case sequence(Substring)
    }

    private var iterator = DBusMessageIter()
    private var room: Room
    private let depth: Int
    /// Characters that the message's signature can still take, where the room is for anything.
    private var signatureLeft: Int
    private let message: DBusMessage

    // Source: D-Bus specification, "Valid Signatures", "Marshaling" and "Message Format".
    private static let longestSignature = 255
    private static let deepest = 64
    private static let longestArray = 1 << 26

    init(_ message: DBusMessage) {
        self.message = message
        room = .any
        depth = 0
        dbus_message_iter_init_append(message.pointer, &iterator)
        let used = dbus_message_get_signature(message.pointer).map { strlen($0) } ?? 0
        signatureLeft = Self.longestSignature - used
    }

    private init(inside outer: MessageWriter, _ room: Room, signatureLeft: Int) {
        message = outer.message
        depth = outer.depth + 1
        self.room = room
        self.signatureLeft = signatureLeft
    }

    // MARK: What fits

    private var isWritable: Bool {
        if message.isSealed { message.fail("the message was sent already: fill a copy") }
        return !message.hasFault
    }

    /// Takes the room for a value of a complete type; false, and a fault, where there is none.
    private mutating func take(_ type: String) -> Bool {
        guard isWritable else { return false }
        switch room {
        case .any:
            if type.utf8.count <= signatureLeft {
                signatureLeft -= type.utf8.count
                return true
            }
            message.fail("the arguments' signature is longer than \(Self.longestSignature)")
        case .each(let element):
            if element == type { return true }
            message.fail("a value of type \(type) stands in an array of \(element)")
        case .sequence(let rest):
            // No complete type is the start of another.
            if rest.utf8.starts(with: type.utf8) {
                room = .sequence(rest.dropFirst(type.utf8.count))
                return true
            }
            message.fail("a value of type \(type) stands where \(rest.isEmpty ? "nothing" : String(rest)) belongs")
        }
        return false
    }

    private func check(_ isDone: dbus_bool_t) {
        if isDone == 0 { message.fail("out of memory") }
    }

    // MARK: Plain values

    private mutating func append<Value: BitwiseCopyable>(_ code: Int32, _ type: String, _ value: Value) {
        guard take(type) else { return }
        var value = value
        check(dbus_message_iter_append_basic(&iterator, code, &value))
    }

    public mutating func append(byte: UInt8) { append(cdbus_type_byte, "y", byte) }
    public mutating func append(bool: Bool) { append(cdbus_type_boolean, "b", UInt32(bool ? 1 : 0)) }
    public mutating func append(int16: Int16) { append(cdbus_type_int16, "n", int16) }
    public mutating func append(uint16: UInt16) { append(cdbus_type_uint16, "q", uint16) }
    public mutating func append(int32: Int32) { append(cdbus_type_int32, "i", int32) }
    public mutating func append(uint32: UInt32) { append(cdbus_type_uint32, "u", uint32) }
    public mutating func append(int64: Int64) { append(cdbus_type_int64, "x", int64) }
    public mutating func append(uint64: UInt64) { append(cdbus_type_uint64, "t", uint64) }
    public mutating func append(double: Double) { append(cdbus_type_double, "d", double) }

    /// A string. A NUL in it is a fault; the fault does not tell the text, which may be secret.
    public mutating func append(string: String) {
        guard take("s") else { return }
        guard string.utf8.count < Self.longestArray else { return message.fail("a string is longer than 64 MiB") }
        appendText(cdbus_type_string, string, orFail: "a string holds a NUL")
    }

    /// An object path; what is none is a fault.
    public mutating func append(objectPath: String) {
        guard take("o") else { return }
        if let wrong = Syntax.path.fault(objectPath) { return message.fail(wrong.message) }
        appendText(cdbus_type_object_path, objectPath, orFail: "an object path holds a NUL")
    }

    private mutating func appendText(_ code: Int32, _ text: String, orFail fault: String) {
        text.withCString { start in
            guard strlen(start) == text.utf8.count else { return message.fail(fault) }
            var start: UnsafePointer<CChar>? = start
            check(dbus_message_iter_append_basic(&iterator, code, &start))
        }
    }

    /// An `ay`.
    public mutating func append(bytes: [UInt8]) {
        bytes.withUnsafeBytes { append(rawBytes: $0) }
    }

    /// An `ay` of bytes that are not copied before.
    public mutating func append(rawBytes: UnsafeRawBufferPointer) {
        guard take("ay") else { return }
        guard rawBytes.count <= Self.longestArray else { return message.fail("an array is longer than 64 MiB") }
        nest(cdbus_type_array, "y", .each("y")) { inner in
            guard var start = rawBytes.baseAddress, !rawBytes.isEmpty else { return }
            inner.check(
                dbus_message_iter_append_fixed_array(
                    &inner.iterator, cdbus_type_byte, &start, Int32(clamping: rawBytes.count)))
        }
    }

    /// A descriptor, which libdbus duplicates: the caller's stays open.
    public mutating func append(descriptor: Int32) {
        guard take("h") else { return }
        var value = descriptor
        if dbus_message_iter_append_basic(&iterator, cdbus_type_unix_fd, &value) == 0 {
            message.fail("descriptor \(descriptor) cannot be duplicated into a message")
        }
    }

    // MARK: Containers

    /// An array whose elements have the given signature, `{…}` for a dictionary; `body` appends them. What is not the
    /// signature of one type is a fault.
    public mutating func array(of signature: String, _ body: (inout MessageWriter) -> Void) {
        let type = "a" + signature
        guard isWritable else { return }
        guard Syntax.isSingleType(type) else {
            return message.fail("\(signature.prefix(100).debugDescription) is not the type of an array's elements")
        }
        if take(type) { nest(cdbus_type_array, signature, .each(signature), body) }
    }

    /// One entry of a dictionary, inside an array of `{…}`; `body` appends key and value.
    public mutating func entry(_ body: (inout MessageWriter) -> Void) {
        guard isWritable else { return }
        guard case .each(let element) = room, element.utf8.first == UInt8(ascii: "{") else {
            return message.fail("an entry stands outside a dictionary")
        }
        nest(cdbus_type_dict_entry, nil, .sequence(element.dropFirst().dropLast()), body)
    }

    /// A structure; `body` appends its fields, one at least.
    public mutating func structure(_ body: (inout MessageWriter) -> Void) {
        guard isWritable else { return }
        let type: String
        switch room {
        case .any: return freeStructure(body)
        case .each(let element): type = element
        case .sequence(let rest): type = String(Syntax.firstType(of: rest))
        }
        guard type.utf8.first == UInt8(ascii: "(") else {
            return message.fail("a structure stands where \(type.isEmpty ? "nothing" : type) belongs")
        }
        if take(type) { nest(cdbus_type_struct, nil, .sequence(type.dropFirst().dropLast()), body) }
    }

    /// A structure whose type is what is written into it.
    private mutating func freeStructure(_ body: (inout MessageWriter) -> Void) {
        guard signatureLeft > 2 else {
            return message.fail("the arguments' signature is longer than \(Self.longestSignature)")
        }
        let room = signatureLeft - 2
        signatureLeft = nest(cdbus_type_struct, nil, .any, signatureLeft: room, body)
        if signatureLeft == room { message.fail("a structure is empty") }
    }

    /// A variant whose value has the given signature; `body` appends it. What is not the signature of one type is a
    /// fault.
    public mutating func variant(of signature: String, _ body: (inout MessageWriter) -> Void) {
        guard isWritable else { return }
        guard Syntax.isSingleType(signature) else {
            return message.fail("\(signature.prefix(100).debugDescription) is not the type of one value")
        }
        if take("v") { nest(cdbus_type_variant, signature, .sequence(signature[...]), body) }
    }

    /// Gives back what is left of the message's signature.
    @discardableResult
    private mutating func nest(
        _ code: Int32, _ contained: String?, _ room: Room, signatureLeft: Int = 0, _ body: (inout MessageWriter) -> Void
    ) -> Int {
        guard depth < Self.deepest else {
            message.fail("the arguments are nested deeper than \(Self.deepest) levels")
            return signatureLeft
        }
        var inner = MessageWriter(inside: self, room, signatureLeft: signatureLeft)
        guard dbus_message_iter_open_container(&iterator, code, contained, &inner.iterator) != 0 else {
            message.fail("out of memory")
            return signatureLeft
        }
        body(&inner)
        if case .sequence(let rest) = inner.room, !rest.isEmpty { message.fail("a value of type \(rest) is missing") }
        // What is known to be shallow is written most often.
        if contained != "{sv}", contained != "y" { message.isFreelyNested = true }
        if message.hasFault {
            dbus_message_iter_abandon_container(&iterator, &inner.iterator)
        } else {
            check(dbus_message_iter_close_container(&iterator, &inner.iterator))
        }
        return inner.signatureLeft
    }

    // MARK: Values

    /// An `a{sv}`, as options and properties are.
    public mutating func appendOptions(_ options: [(String, DBusValue)]) {
        if options.isEmpty {
            if take("a{sv}") { nest(cdbus_type_array, "{sv}", .each("{sv}")) { _ in } }
            return
        }
        array(of: "{sv}") { array in
            for (key, value) in options {
                array.entry { entry in
                    entry.append(string: key)
                    entry.append(.variant(value))
                }
            }
        }
    }

    /// Any value; one whose parts are not of the types that it names is a fault.
    public mutating func append(_ value: DBusValue) {
        switch value {
        case .byte(let value): append(byte: value)
        case .bool(let value): append(bool: value)
        case .int16(let value): append(int16: value)
        case .uint16(let value): append(uint16: value)
        case .int32(let value): append(int32: value)
        case .uint32(let value): append(uint32: value)
        case .int64(let value): append(int64: value)
        case .uint64(let value): append(uint64: value)
        case .double(let value): append(double: value)
        case .string(let value): append(string: value)
        case .objectPath(let value): append(objectPath: value)
        case .bytes(let value): append(bytes: value)
        case .properties(let options): appendOptions(options)
        case .array(let element, let items):
            array(of: element) { array in
                for item in items { array.append(item) }
            }
        case .dictionary(let signature, let entries):
            array(of: "{\(signature)}") { array in
                for (key, value) in entries {
                    array.entry { entry in
                        entry.append(key)
                        entry.append(value)
                    }
                }
            }
        case .structure(let fields):
            structure { structure in
                for field in fields { structure.append(field) }
            }
        case .variant(let value):
            variant(of: value.signature) { $0.append(value) }
        }
    }
}
