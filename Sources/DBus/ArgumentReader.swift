/// A place in a message's arguments: what ``MessageReader`` and ``WireReader`` have in common, so that one parser serves
/// both. Reading what is not there, or is of another type, gives nil and moves nothing; it never traps.
public protocol ArgumentReader {
    var isAtEnd: Bool { get }
    func isAt(_ type: DBusType) -> Bool
    /// Moves to the next argument, element or entry.
    mutating func next()
    /// A reader of what is inside an array, a variant, a structure or a dictionary's entry; of anything else an end.
    func enter() -> Self

    func byte() -> UInt8?
    func bool() -> Bool?
    func int16() -> Int16?
    func uint16() -> UInt16?
    /// A string, an object path or a signature.
    func string() -> String?
    /// The UTF-8 bytes of a string, an object path or a signature, without its end; nothing is copied.
    func withBytes<Result>(_ body: (UnsafeRawBufferPointer) -> Result) -> Result?
    /// True where a string, an object path or a signature reads so.
    func equals(_ text: StaticString) -> Bool
    /// The bytes of an `ay`; nothing is copied.
    @discardableResult
    func withByteArray<Result>(_ body: (UnsafeRawBufferPointer) -> Result) -> Result?
}

extension MessageReader: ArgumentReader {}

extension DBusType {
    /// The character that stands for the type in a signature; a structure and an entry show by their bracket.
    /// Source: D-Bus specification, "Type System".
    @inlinable
    public var character: UInt8 {
        switch self {
        case .byte: UInt8(ascii: "y")
        case .bool: UInt8(ascii: "b")
        case .int16: UInt8(ascii: "n")
        case .uint16: UInt8(ascii: "q")
        case .int32: UInt8(ascii: "i")
        case .uint32: UInt8(ascii: "u")
        case .int64: UInt8(ascii: "x")
        case .uint64: UInt8(ascii: "t")
        case .double: UInt8(ascii: "d")
        case .string: UInt8(ascii: "s")
        case .objectPath: UInt8(ascii: "o")
        case .signature: UInt8(ascii: "g")
        case .unixFd: UInt8(ascii: "h")
        case .array: UInt8(ascii: "a")
        case .variant: UInt8(ascii: "v")
        case .structure: UInt8(ascii: "(")
        case .dictEntry: UInt8(ascii: "{")
        }
    }
}
