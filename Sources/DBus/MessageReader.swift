internal import CDBus
internal import Glibc

/// The types that a reader can stand at.
public enum DBusType: Sendable {
    case byte, bool, int16, uint16, int32, uint32, int64, uint64, double, string, objectPath, signature, unixFd
    case array, variant, structure, dictEntry

    init?(code: Int32) {
        switch code {
        case cdbus_type_byte: self = .byte
        case cdbus_type_boolean: self = .bool
        case cdbus_type_int16: self = .int16
        case cdbus_type_uint16: self = .uint16
        case cdbus_type_int32: self = .int32
        case cdbus_type_uint32: self = .uint32
        case cdbus_type_int64: self = .int64
        case cdbus_type_uint64: self = .uint64
        case cdbus_type_double: self = .double
        case cdbus_type_string: self = .string
        case cdbus_type_object_path: self = .objectPath
        case cdbus_type_signature: self = .signature
        case cdbus_type_unix_fd: self = .unixFd
        case cdbus_type_array: self = .array
        case cdbus_type_variant: self = .variant
        case cdbus_type_struct: self = .structure
        case cdbus_type_dict_entry: self = .dictEntry
        default: return nil
        }
    }
}

/// A place in a message's arguments. Reading what is not there, or is of another type, gives nil and moves nothing; it
/// never traps. Source: `dbus_message_iter_*`.
///
/// A reader of a ``DBusMessage`` keeps it alive. A reader of a ``DBusMessageView`` is good during the handler's call only.
public struct MessageReader {
    private var iterator: DBusMessageIter
    private var code = cdbus_type_invalid
    /// The text that stands here, looked up once: it is often compared with one name after another.
    private var characters: UnsafePointer<CChar>?
    private let owner: MessageHandle?

    init(_ message: OpaquePointer, owner: MessageHandle?) {
        iterator = DBusMessageIter()
        self.owner = owner
        if dbus_message_iter_init(message, &iterator) != 0 { arrive() }
    }

    private init(inside outer: MessageReader) {
        iterator = DBusMessageIter()
        owner = outer.owner
        var place = outer.iterator
        dbus_message_iter_recurse(&place, &iterator)
        arrive()
    }

    private mutating func arrive() {
        code = dbus_message_iter_get_arg_type(&iterator)
        if code == cdbus_type_string || code == cdbus_type_object_path || code == cdbus_type_signature {
            dbus_message_iter_get_basic(&iterator, &characters)
        } else {
            characters = nil
        }
    }

    /// An end with nothing before it.
    private init(endOf reader: MessageReader) {
        iterator = reader.iterator
        owner = reader.owner
    }

    /// The type of what stands here; nil at the end.
    public var type: DBusType? { DBusType(code: code) }
    public var isAtEnd: Bool { code == cdbus_type_invalid }

    public func isAt(_ type: DBusType) -> Bool { self.type == type }

    /// Moves to the next argument, element or entry.
    public mutating func next() {
        guard code != cdbus_type_invalid else { return }
        dbus_message_iter_next(&iterator)
        arrive()
    }

    /// A reader of what is inside an array, a variant, a structure or a dictionary's entry; of anything else an end.
    public func enter() -> MessageReader {
        guard
            code == cdbus_type_array || code == cdbus_type_variant || code == cdbus_type_struct
                || code == cdbus_type_dict_entry
        else { return MessageReader(endOf: self) }
        return MessageReader(inside: self)
    }

    private func basic<Value: BitwiseCopyable>(_ expected: Int32, _ initial: Value) -> Value? {
        guard code == expected else { return nil }
        var value = initial
        var place = iterator
        dbus_message_iter_get_basic(&place, &value)
        return value
    }

    public func byte() -> UInt8? { basic(cdbus_type_byte, 0) }
    public func bool() -> Bool? { basic(cdbus_type_boolean, UInt32(0)).map { $0 != 0 } }
    public func int16() -> Int16? { basic(cdbus_type_int16, 0) }
    public func uint16() -> UInt16? { basic(cdbus_type_uint16, 0) }
    public func int32() -> Int32? { basic(cdbus_type_int32, 0) }
    public func uint32() -> UInt32? { basic(cdbus_type_uint32, 0) }
    public func int64() -> Int64? { basic(cdbus_type_int64, 0) }
    public func uint64() -> UInt64? { basic(cdbus_type_uint64, 0) }
    public func double() -> Double? { basic(cdbus_type_double, 0) }

    /// A string, an object path or a signature.
    public func string() -> String? { characters.map { String(cString: $0) } }

    /// The UTF-8 bytes of a string, an object path or a signature, without its end; nothing is copied.
    public func withBytes<Result>(_ body: (UnsafeRawBufferPointer) -> Result) -> Result? {
        characters.map { body(UnsafeRawBufferPointer(start: $0, count: strlen($0))) }
    }

    /// True where a string, an object path or a signature reads so.
    public func equals(_ text: StaticString) -> Bool {
        guard text.hasPointerRepresentation, let characters else { return false }
        let other = UnsafeRawPointer(text.utf8Start).assumingMemoryBound(to: CChar.self)
        return characters.pointee == other.pointee && strcmp(characters, other) == 0
    }

    /// The bytes of an `ay`; nothing is copied.
    @discardableResult
    public func withByteArray<Result>(_ body: (UnsafeRawBufferPointer) -> Result) -> Result? {
        guard code == cdbus_type_array else { return nil }
        var outer = iterator
        guard dbus_message_iter_get_element_type(&outer) == cdbus_type_byte else { return nil }
        var inner = DBusMessageIter()
        dbus_message_iter_recurse(&outer, &inner)
        var start: UnsafePointer<UInt8>?
        var count: Int32 = 0
        dbus_message_iter_get_fixed_array(&inner, &start, &count)
        return body(UnsafeRawBufferPointer(start: start, count: Int(count)))
    }

    /// A copy of the bytes of an `ay`.
    public func bytes() -> [UInt8]? { withByteArray { Array($0) } }

    /// A descriptor of the message, duplicated: the caller closes it.
    public func takeDescriptor() -> Int32? {
        guard let descriptor = basic(cdbus_type_unix_fd, Int32(-1)), descriptor >= 0 else { return nil }
        return descriptor
    }

    /// Whatever stands here, nested to 32 levels; nil at the end, for a descriptor, and for what is nested deeper.
    public func value(depth: Int = 0) -> DBusValue? {
        guard depth <= 32, let type else { return nil }
        switch type {
        case .byte: return byte().map { .byte($0) }
        case .bool: return bool().map { .bool($0) }
        case .int16: return int16().map { .int16($0) }
        case .uint16: return uint16().map { .uint16($0) }
        case .int32: return int32().map { .int32($0) }
        case .uint32: return uint32().map { .uint32($0) }
        case .int64: return int64().map { .int64($0) }
        case .uint64: return uint64().map { .uint64($0) }
        case .double: return double().map { .double($0) }
        case .string, .signature: return string().map { .string($0) }
        case .objectPath: return string().map { .objectPath($0) }
        case .unixFd: return nil
        case .variant: return enter().value(depth: depth + 1).map { .variant($0) }
        case .structure: return .structure(enter().values(depth: depth + 1))
        case .dictEntry: return nil
        case .array: return array(depth: depth)
        }
    }

    private func values(depth: Int) -> [DBusValue] {
        var reader = self
        var values: [DBusValue] = []
        while !reader.isAtEnd {
            if let value = reader.value(depth: depth) { values.append(value) }
            reader.next()
        }
        return values
    }

    private func array(depth: Int) -> DBusValue {
        if let bytes = bytes() { return .bytes(bytes) }
        var outer = iterator
        let signature = dbus_message_iter_get_signature(&outer)
        defer { dbus_free(signature) }
        let element = String(signature.map { String(cString: $0) }?.dropFirst() ?? "v")
        var reader = enter()
        guard element.hasPrefix("{") else { return .array(of: element, reader.values(depth: depth + 1)) }
        var entries: [(DBusValue, DBusValue)] = []
        while reader.isAt(.dictEntry) {
            var entry = reader.enter()
            let key = entry.value(depth: depth + 1)
            entry.next()
            if let key, let value = entry.value(depth: depth + 1) { entries.append((key, value)) }
            reader.next()
        }
        return .dictionary(String(element.dropFirst().dropLast()), entries)
    }
}
