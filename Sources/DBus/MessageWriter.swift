internal import CDBus

/// Appends arguments to a message, one after another. Source: `dbus_message_iter_append_basic` and its kin.
///
/// Text and paths are checked before libdbus sees them, since it ends the process over what is not valid: a path that is
/// none becomes `/`, and text ends at its first NUL.
public struct MessageWriter {
    private var iterator: DBusMessageIter

    init(_ message: OpaquePointer) {
        iterator = DBusMessageIter()
        dbus_message_iter_init_append(message, &iterator)
    }

    private init(_ iterator: DBusMessageIter) {
        self.iterator = iterator
    }

    private mutating func append<Value: BitwiseCopyable>(_ code: Int32, _ value: Value) {
        var value = value
        dbus_message_iter_append_basic(&iterator, code, &value)
    }

    public mutating func append(byte: UInt8) { append(cdbus_type_byte, byte) }
    public mutating func append(bool: Bool) { append(cdbus_type_boolean, UInt32(bool ? 1 : 0)) }
    public mutating func append(int16: Int16) { append(cdbus_type_int16, int16) }
    public mutating func append(uint16: UInt16) { append(cdbus_type_uint16, uint16) }
    public mutating func append(int32: Int32) { append(cdbus_type_int32, int32) }
    public mutating func append(uint32: UInt32) { append(cdbus_type_uint32, uint32) }
    public mutating func append(int64: Int64) { append(cdbus_type_int64, int64) }
    public mutating func append(uint64: UInt64) { append(cdbus_type_uint64, uint64) }
    public mutating func append(double: Double) { append(cdbus_type_double, double) }

    public mutating func append(string: String) {
        string.withCString { append(cdbus_type_string, $0) }
    }

    public mutating func append(objectPath: String) {
        let isValid = dbus_validate_path(objectPath, nil) != 0
        (isValid ? objectPath : "/").withCString { append(cdbus_type_object_path, $0) }
    }

    /// An `ay`.
    public mutating func append(bytes: [UInt8]) {
        bytes.withUnsafeBytes { append(rawBytes: $0) }
    }

    /// An `ay` of bytes that are not copied before.
    public mutating func append(rawBytes: UnsafeRawBufferPointer) {
        container(cdbus_type_array, "y") { inner in
            guard let start = rawBytes.baseAddress, !rawBytes.isEmpty else { return }
            var pointer: UnsafeRawPointer? = start
            dbus_message_iter_append_fixed_array(
                &inner.iterator, cdbus_type_byte, &pointer, Int32(clamping: rawBytes.count))
        }
    }

    /// A descriptor, which libdbus duplicates: the caller's stays open.
    public mutating func append(descriptor: Int32) { append(cdbus_type_unix_fd, descriptor) }

    private mutating func container(_ code: Int32, _ signature: String?, _ body: (inout MessageWriter) -> Void) {
        var inner = MessageWriter(DBusMessageIter())
        guard dbus_message_iter_open_container(&iterator, code, signature, &inner.iterator) != 0 else { return }
        body(&inner)
        dbus_message_iter_close_container(&iterator, &inner.iterator)
    }

    /// An array whose elements have the given signature; `body` appends them.
    public mutating func array(of signature: String, _ body: (inout MessageWriter) -> Void) {
        container(cdbus_type_array, signature, body)
    }

    /// One entry of a dictionary, inside an array of `{…}`; `body` appends key and value.
    public mutating func entry(_ body: (inout MessageWriter) -> Void) {
        container(cdbus_type_dict_entry, nil, body)
    }

    /// A structure; `body` appends its fields.
    public mutating func structure(_ body: (inout MessageWriter) -> Void) {
        container(cdbus_type_struct, nil, body)
    }

    /// A variant whose value has the given signature; `body` appends it.
    public mutating func variant(of signature: String, _ body: (inout MessageWriter) -> Void) {
        container(cdbus_type_variant, signature, body)
    }

    /// An `a{sv}`, as options and properties are.
    public mutating func appendOptions(_ options: [(String, DBusValue)]) {
        array(of: "{sv}") { array in
            for (key, value) in options {
                array.entry { entry in
                    entry.append(string: key)
                    entry.append(.variant(value))
                }
            }
        }
    }

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
                for item in items where item.signature == element { array.append(item) }
            }
        case .dictionary(let signature, let entries):
            array(of: "{\(signature)}") { array in
                for (key, value) in entries where key.signature + value.signature == signature {
                    array.entry { entry in
                        entry.append(key)
                        entry.append(value)
                    }
                }
            }
        case .structure(let fields):
            guard !fields.isEmpty else { return }
            structure { structure in
                for field in fields { structure.append(field) }
            }
        case .variant(let value):
            variant(of: value.signature) { $0.append(value) }
        }
    }
}
