internal import Glibc

/// A place in a message's arguments as they stand on the wire.
///
/// For signals that come thousands of times a second: libdbus's iterators cost several times as much. Every step is
/// checked against the bytes and the signature that are there, so that nothing in them can lead outside: what does not
/// add up reads as the end. Source: D-Bus specification, "Marshaling (Wire Format)".
public struct WireReader: ArgumentReader {
    /// The first byte of the arguments: offsets are counted, and aligned, from here.
    @usableFromInline let base: UnsafePointer<UInt8>
    /// Where the value stands.
    @usableFromInline var place: Int
    /// Where what this reader may see ends.
    @usableFromInline var end: Int
    /// The type of the value, and in a sequence of arguments those of the ones behind it.
    @usableFromInline var types: UnsafePointer<UInt8>
    @usableFromInline let typesEnd: UnsafePointer<UInt8>
    /// Elements of an array have one type until the bytes end.
    @usableFromInline let isElement: Bool
    /// The first character of the type; 0 at the end.
    @usableFromInline var code: UInt8 = 0

    /// - Parameters:
    ///   - bytes: the arguments, which begin at an offset of the message that is a multiple of eight.
    ///   - signature: their types. Both have to outlive the reader.
    init(_ bytes: UnsafeRawBufferPointer, signature: UnsafeRawBufferPointer) {
        self.init(
            base: bytes.assumingMemoryBound(to: UInt8.self), place: 0, end: bytes.count,
            types: signature.assumingMemoryBound(to: UInt8.self))
    }

    init(
        base: UnsafeBufferPointer<UInt8>, place: Int, end: Int, types: UnsafeBufferPointer<UInt8>
    ) {
        let start = types.baseAddress ?? Self.nothing
        self.init(
            base: base.baseAddress ?? Self.nothing, place: place, end: end, types: start, typesEnd: start + types.count,
            isElement: false)
    }

    @inlinable
    init(
        base: UnsafePointer<UInt8>, place: Int, end: Int, types: UnsafePointer<UInt8>, typesEnd: UnsafePointer<UInt8>,
        isElement: Bool
    ) {
        self.base = base
        self.place = place
        self.end = end
        self.types = types
        self.typesEnd = typesEnd
        self.isElement = isElement
        arrive()
    }

    /// What an empty buffer may have instead of an address.
    private static var nothing: UnsafePointer<UInt8> { ("" as StaticString).utf8Start }

    /// Settles on the value that begins at or behind `place`.
    @inlinable
    mutating func arrive() {
        code = 0
        guard types < typesEnd, !isElement || place < end else { return }
        let alignment = Self.alignment(of: types.pointee)
        guard alignment > 0 else { return }
        let aligned = Self.align(place, to: alignment)
        guard aligned <= end else { return }
        place = aligned
        code = types.pointee
    }

    @inlinable
    static func align(_ place: Int, to alignment: Int) -> Int { (place &+ alignment &- 1) & ~(alignment &- 1) }

    /// 0 for what is no type.
    @inlinable
    static func alignment(of code: UInt8) -> Int {
        switch code {
        case UInt8(ascii: "y"), UInt8(ascii: "g"), UInt8(ascii: "v"): 1
        case UInt8(ascii: "n"), UInt8(ascii: "q"): 2
        case UInt8(ascii: "b"), UInt8(ascii: "i"), UInt8(ascii: "u"), UInt8(ascii: "s"), UInt8(ascii: "o"),
            UInt8(ascii: "a"), UInt8(ascii: "h"):
            4
        case UInt8(ascii: "x"), UInt8(ascii: "t"), UInt8(ascii: "d"), UInt8(ascii: "("), UInt8(ascii: "{"): 8
        default: 0
        }
    }

    /// The characters of the complete type that stands here; 0 where it has no end.
    @inlinable var typeLength: Int {
        // The one type of an array's elements, and what is one character, need no search.
        if isElement { return typesEnd - types }
        return code != UInt8(ascii: "a") && code != UInt8(ascii: "(") && code != UInt8(ascii: "{")
            ? 1 : Self.length(of: types, typesEnd)
    }

    /// The characters of the complete type that begins at `start`; 0 where it has no end.
    @usableFromInline
    static func length(of start: UnsafePointer<UInt8>, _ end: UnsafePointer<UInt8>) -> Int {
        var place = start
        while place < end, place.pointee == UInt8(ascii: "a") { place += 1 }
        var depth = 0
        while place < end {
            switch place.pointee {
            case UInt8(ascii: "("), UInt8(ascii: "{"): depth += 1
            case UInt8(ascii: ")"), UInt8(ascii: "}"): depth -= 1
            default: break
            }
            place += 1
            if depth <= 0 { return depth == 0 ? place - start : 0 }
        }
        return 0
    }

    // MARK: Moving

    @inlinable public var isAtEnd: Bool { code == 0 }

    @inlinable
    public func isAt(_ type: DBusType) -> Bool { code == type.character }

    @inlinable
    public mutating func next() {
        guard code != 0 else { return }
        guard let behind = skip(types, types + typeLength, at: place, depth: 0) else {
            code = 0
            return
        }
        place = behind
        if !isElement { types += typeLength }
        arrive()
    }

    /// Where the value of the type at `types` ends; nil where it is not all there.
    @usableFromInline
    func skip(
        _ types: UnsafePointer<UInt8>, _ typesEnd: UnsafePointer<UInt8>, at start: Int, depth: Int
    ) -> Int? {
        guard types < typesEnd, depth <= 64 else { return nil }
        let code = types.pointee
        let alignment = Self.alignment(of: code)
        guard alignment > 0 else { return nil }
        let place = Self.align(start, to: alignment)
        switch code {
        case UInt8(ascii: "s"), UInt8(ascii: "o"):
            guard let length = length32(at: place) else { return nil }
            return bounded(place + 4 + length + 1)
        case UInt8(ascii: "g"):
            guard place < end else { return nil }
            return bounded(place + 1 + Int(base[place]) + 1)
        case UInt8(ascii: "a"):
            guard let length = length32(at: place), types + 1 < typesEnd else { return nil }
            let element = Self.alignment(of: types[1])
            guard element > 0 else { return nil }
            return bounded(Self.align(place + 4, to: element) + length)
        case UInt8(ascii: "v"):
            guard let inner = variantTypes(at: place) else { return nil }
            let first = inner.baseAddress ?? types
            return skip(first, first + inner.count, at: place + inner.count + 2, depth: depth + 1)
        case UInt8(ascii: "("), UInt8(ascii: "{"):
            // A type that stands alone is as long as what there is.
            let length = depth == 0 ? typesEnd - types : Self.length(of: types, typesEnd)
            guard length > 2 else { return nil }
            return skipAll(types + 1, types + length - 1, at: place, depth: depth + 1)
        default:
            // The alignment of a fixed type is its size.
            return bounded(place + alignment)
        }
    }

    private func skipAll(
        _ first: UnsafePointer<UInt8>, _ typesEnd: UnsafePointer<UInt8>, at start: Int, depth: Int
    ) -> Int? {
        var types = first
        var place = start
        while types < typesEnd {
            let first = types.pointee
            let isLong = first == UInt8(ascii: "a") || first == UInt8(ascii: "(") || first == UInt8(ascii: "{")
            let length = isLong ? Self.length(of: types, typesEnd) : 1
            guard length > 0, let behind = skip(types, typesEnd, at: place, depth: depth) else { return nil }
            place = behind
            types += length
        }
        return place
    }

    private func bounded(_ place: Int) -> Int? { place <= end ? place : nil }

    @inlinable
    func length32(at place: Int) -> Int? {
        guard place + 4 <= end else { return nil }
        return Int(UnsafeRawPointer(base + place).loadUnaligned(as: UInt32.self))
    }

    /// The signature at the front of a variant.
    @inlinable
    func variantTypes(at place: Int) -> UnsafeBufferPointer<UInt8>? {
        guard place < end else { return nil }
        let length = Int(base[place])
        guard place + length + 2 <= end else { return nil }
        return UnsafeBufferPointer(start: base + place + 1, count: length)
    }

    @inlinable
    public func enter() -> WireReader {
        switch code {
        case UInt8(ascii: "v"):
            guard let inner = variantTypes(at: place), let first = inner.baseAddress else { return ended }
            return WireReader(
                base: base, place: place + inner.count + 2, end: end, types: first, typesEnd: first + inner.count,
                isElement: false)
        case UInt8(ascii: "a"):
            let length = typeLength
            guard length > 1, let count = length32(at: place) else { return ended }
            let alignment = Self.alignment(of: types[1])
            guard alignment > 0 else { return ended }
            let start = Self.align(place + 4, to: alignment)
            guard start + count <= end else { return ended }
            return WireReader(
                base: base, place: start, end: start + count, types: types + 1, typesEnd: types + length,
                isElement: true)
        case UInt8(ascii: "("), UInt8(ascii: "{"):
            let length = typeLength
            guard length > 2 else { return ended }
            return WireReader(
                base: base, place: place, end: end, types: types + 1, typesEnd: types + length - 1, isElement: false)
        default: return ended
        }
    }

    @inlinable var ended: WireReader {
        WireReader(base: base, place: end, end: end, types: typesEnd, typesEnd: typesEnd, isElement: false)
    }

    // MARK: Values

    @inlinable
    func load<Value: FixedWidthInteger & BitwiseCopyable>(_ expected: DBusType, as type: Value.Type) -> Value? {
        guard code == expected.character, place &+ MemoryLayout<Value>.size <= end else { return nil }
        return UnsafeRawPointer(base + place).loadUnaligned(as: type)
    }

    @inlinable public func byte() -> UInt8? { load(.byte, as: UInt8.self) }
    @inlinable public func int16() -> Int16? { load(.int16, as: Int16.self) }
    @inlinable public func uint16() -> UInt16? { load(.uint16, as: UInt16.self) }

    @inlinable
    public func bool() -> Bool? {
        guard let value = load(.bool, as: UInt32.self) else { return nil }
        return value != 0
    }

    /// The bytes of the text that stands here.
    @inlinable
    var text: UnsafeRawBufferPointer? {
        let first: Int
        let length: Int
        switch code {
        case UInt8(ascii: "s"), UInt8(ascii: "o"):
            guard let count = length32(at: place) else { return nil }
            length = count
            first = place + 4
        case UInt8(ascii: "g"):
            guard place < end else { return nil }
            length = Int(base[place])
            first = place + 1
        default: return nil
        }
        guard first + length < end else { return nil }
        return UnsafeRawBufferPointer(start: base + first, count: length)
    }

    @inlinable
    public func withBytes<Result>(_ body: (UnsafeRawBufferPointer) -> Result) -> Result? {
        guard let text else { return nil }
        return body(text)
    }

    public func string() -> String? { text.map { String(decoding: $0, as: UTF8.self) } }

    @inlinable
    public func equals(_ other: StaticString) -> Bool {
        guard other.hasPointerRepresentation, let text, text.count == other.utf8CodeUnitCount,
            let start = text.baseAddress
        else { return false }
        return Self.areEqual(start, other.utf8Start, text.count)
    }

    @usableFromInline
    static func areEqual(_ left: UnsafeRawPointer, _ right: UnsafePointer<UInt8>, _ count: Int) -> Bool {
        memcmp(left, right, count) == 0
    }

    /// The bytes of the `ay` that stands here.
    @inlinable
    var byteArray: UnsafeRawBufferPointer? {
        guard code == UInt8(ascii: "a"), types + 1 < typesEnd, types[1] == UInt8(ascii: "y"),
            let count = length32(at: place), place + 4 + count <= end
        else { return nil }
        return UnsafeRawBufferPointer(start: base + place + 4, count: count)
    }

    @inlinable
    @discardableResult
    public func withByteArray<Result>(_ body: (UnsafeRawBufferPointer) -> Result) -> Result? {
        guard let byteArray else { return nil }
        return body(byteArray)
    }
}
