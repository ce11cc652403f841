internal import CJSON

/// Bounds on what is read.
public struct JSONLimits: Sendable {
    /// Bytes of the text.
    public var size = 1 << 18
    /// Levels of objects and arrays within each other.
    public var depth = 32

    public init() {}
}

extension JSONValue {
    /// Reads one JSON text by jansson (`json_loadb`). Members are unique in their object; text is valid UTF-8.
    /// - Throws: ``JSONError`` with line and column.
    public static func parse(
        _ bytes: UnsafeRawBufferPointer, limits: JSONLimits = JSONLimits()
    ) throws(JSONError) -> JSONValue {
        guard bytes.count <= limits.size else {
            throw JSONError(line: 0, column: 0, message: "longer than \(limits.size) bytes")
        }
        if limits.depth > 0, let object = FlatObject.parse(bytes) { return object }
        return try parseByLibrary(bytes, limits: limits)
    }

    static func parseByLibrary(_ bytes: UnsafeRawBufferPointer, limits: JSONLimits) throws(JSONError) -> JSONValue {
        // jansson recurses; the depth is looked at before, so that it stays within its own and the stack's bounds.
        guard depth(of: bytes) <= limits.depth else {
            throw JSONError(line: 0, column: 0, message: "nested deeper than \(limits.depth) levels")
        }
        var error = json_error_t()
        let flags = Int(JSON_REJECT_DUPLICATES) | Int(JSON_DECODE_ANY) | Int(JSON_ALLOW_NUL)
        let start = bytes.baseAddress?.assumingMemoryBound(to: CChar.self)
        guard let start, !bytes.isEmpty, let root = json_loadb(start, bytes.count, flags, &error) else {
            throw JSONError(
                line: max(0, Int(error.line)), column: max(0, Int(error.column)),
                message: bytes.isEmpty ? "empty" : text(of: error))
        }
        defer { cjson_decref(root) }
        return value(of: root)
    }

    public static func parse(_ bytes: [UInt8], limits: JSONLimits = JSONLimits()) throws(JSONError) -> JSONValue {
        try bytes.withUnsafeBytes { buffer in
            Result<JSONValue, JSONError> { () throws(JSONError) in try parse(buffer, limits: limits) }
        }.get()
    }

    /// The deepest nesting that the brackets outside of strings make.
    private static func depth(of bytes: UnsafeRawBufferPointer) -> Int {
        var depth = 0
        var deepest = 0
        var isInString = false
        var isEscaped = false
        for byte in bytes {
            if isEscaped {
                isEscaped = false
            } else if isInString {
                if byte == UInt8(ascii: "\\") {
                    isEscaped = true
                } else if byte == UInt8(ascii: "\"") {
                    isInString = false
                }
            } else if byte == UInt8(ascii: "\"") {
                isInString = true
            } else if byte == UInt8(ascii: "[") || byte == UInt8(ascii: "{") {
                depth += 1
                deepest = max(deepest, depth)
            } else if byte == UInt8(ascii: "]") || byte == UInt8(ascii: "}") {
                depth -= 1
            }
        }
        return deepest
    }

    /// jansson's own words, without the piece of input that it quotes.
    private static func text(of error: json_error_t) -> String {
        let text = withUnsafeBytes(of: error.text) { bytes in
            bytes.prefix { $0 != 0 }.filter { $0 >= 0x20 && $0 < 0x7f }
        }
        let quote = Array(" near '".utf8)
        let end = text.indices.first { text[$0...].starts(with: quote) } ?? text.endIndex
        return String(decoding: text[..<end], as: UTF8.self)
    }

    private static func value(of node: UnsafeMutablePointer<json_t>) -> JSONValue {
        switch node.pointee.type {
        case JSON_OBJECT:
            var members: [(String, JSONValue)] = []
            var iterator = json_object_iter(node)
            while let place = iterator {
                if let key = json_object_iter_key(place), let member = json_object_iter_value(place) {
                    members.append((String(cString: key), value(of: member)))
                }
                iterator = json_object_iter_next(node, place)
            }
            return .object(members)
        case JSON_ARRAY:
            return .array((0..<json_array_size(node)).compactMap { json_array_get(node, $0).map { value(of: $0) } })
        case JSON_STRING:
            guard let start = json_string_value(node) else { return .string("") }
            let bytes = UnsafeRawBufferPointer(start: start, count: json_string_length(node))
            return .string(String(decoding: bytes, as: UTF8.self))
        case JSON_INTEGER: return .int(Int64(json_integer_value(node)))
        case JSON_REAL: return .double(json_real_value(node))
        case JSON_TRUE: return .bool(true)
        case JSON_FALSE: return .bool(false)
        default: return .null
        }
    }
}
