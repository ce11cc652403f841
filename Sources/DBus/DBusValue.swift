/// A value with its D-Bus type, for messages that are rare.
public indirect enum DBusValue: Equatable, Sendable {
    case byte(UInt8)
    case bool(Bool)
    case int16(Int16)
    case uint16(UInt16)
    case int32(Int32)
    case uint32(UInt32)
    case int64(Int64)
    case uint64(UInt64)
    case double(Double)
    case string(String)
    case objectPath(String)
    /// `ay`
    case bytes([UInt8])
    /// An array; its elements' signature is given, since it may be empty.
    case array(of: String, [DBusValue])
    /// `a{…}`, with the entry's two types: `sv`, `sa{sv}`.
    case dictionary(String, [(DBusValue, DBusValue)])
    /// `a{sv}`, each value in a variant of its own.
    case properties([(String, DBusValue)])
    case structure([DBusValue])
    case variant(DBusValue)

    /// The type's signature. Source: D-Bus specification, "Type System".
    public var signature: String {
        switch self {
        case .byte: "y"
        case .bool: "b"
        case .int16: "n"
        case .uint16: "q"
        case .int32: "i"
        case .uint32: "u"
        case .int64: "x"
        case .uint64: "t"
        case .double: "d"
        case .string: "s"
        case .objectPath: "o"
        case .bytes: "ay"
        case .array(let element, _): "a" + element
        case .dictionary(let entry, _): "a{\(entry)}"
        case .properties: "a{sv}"
        case .structure(let fields): "(" + fields.map(\.signature).joined() + ")"
        case .variant: "v"
        }
    }

    public static func == (left: DBusValue, right: DBusValue) -> Bool {
        switch (left, right) {
        case (.byte(let a), .byte(let b)): a == b
        case (.bool(let a), .bool(let b)): a == b
        case (.int16(let a), .int16(let b)): a == b
        case (.uint16(let a), .uint16(let b)): a == b
        case (.int32(let a), .int32(let b)): a == b
        case (.uint32(let a), .uint32(let b)): a == b
        case (.int64(let a), .int64(let b)): a == b
        case (.uint64(let a), .uint64(let b)): a == b
        case (.double(let a), .double(let b)): a == b
        case (.string(let a), .string(let b)), (.objectPath(let a), .objectPath(let b)): a == b
        case (.bytes(let a), .bytes(let b)): a == b
        case (.array(let s, let a), .array(let t, let b)): s == t && a == b
        case (.dictionary(let s, let a), .dictionary(let t, let b)):
            s == t && a.elementsEqual(b) { $0.0 == $1.0 && $0.1 == $1.1 }
        case (.properties(let a), .properties(let b)): a.elementsEqual(b) { $0.0 == $1.0 && $0.1 == $1.1 }
        case (.structure(let a), .structure(let b)): a == b
        case (.variant(let a), .variant(let b)): a == b
        default: false
        }
    }
}
