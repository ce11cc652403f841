internal import CPattern

/// Why a text is no pattern.
public struct PatternError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The offset in bytes at which it fails.
    public let offset: Int
    public let message: String

    public var description: String { "at character \(offset + 1): \(message)" }
}

/// A regular expression that must match the whole of a text. Source: PCRE2, `pcre2_match` with PCRE2_ANCHORED and
/// PCRE2_ENDANCHORED. Matching is bounded, so that no pattern and no text can hold the loop.
///
/// `@unchecked Sendable` is not claimed: a pattern keeps its match data and belongs to one thread.
public final class Pattern {
    public let text: String
    /// How often a match was given up at its limit; such a text does not match.
    public private(set) var givenUp = 0
    private let code: OpaquePointer
    private let data: OpaquePointer
    private let context: OpaquePointer

    /// The longest pattern, in bytes.
    public static let longest = 1024
    private static let matchLimit: UInt32 = 10_000
    private static let depthLimit: UInt32 = 1_000
    private static let heapLimitKiB: UInt32 = 1_024

    /// - Throws: ``PatternError`` for what is no regular expression, or is longer than ``longest``.
    public init(_ text: String) throws(PatternError) {
        guard text.utf8.count <= Self.longest else {
            throw PatternError(offset: Self.longest, message: "longer than \(Self.longest) bytes")
        }
        var status: Int32 = 0
        var offset = 0
        let options =
            UInt32(PCRE2_UTF) | UInt32(PCRE2_NEVER_BACKSLASH_C) | UInt32(PCRE2_ANCHORED) | UInt32(PCRE2_ENDANCHORED)
        let bytes = Array(text.utf8)
        guard let code = pcre2_compile_8(bytes, bytes.count, options, &status, &offset, nil) else {
            throw PatternError(offset: offset, message: Self.message(status))
        }
        guard let data = pcre2_match_data_create_from_pattern_8(code, nil),
            let context = pcre2_match_context_create_8(nil)
        else {
            pcre2_code_free_8(code)
            throw PatternError(offset: 0, message: "out of memory")
        }
        pcre2_set_match_limit_8(context, Self.matchLimit)
        pcre2_set_depth_limit_8(context, Self.depthLimit)
        pcre2_set_heap_limit_8(context, Self.heapLimitKiB)
        self.text = text
        self.code = code
        self.data = data
        self.context = context
    }

    deinit {
        pcre2_match_context_free_8(context)
        pcre2_match_data_free_8(data)
        pcre2_code_free_8(code)
    }

    /// True where the pattern matches all of the bytes. Bytes that are no UTF-8 do not match.
    public func matchesWhole(_ bytes: UnsafeRawBufferPointer) -> Bool {
        var nothing: UInt8 = 0
        let status = withUnsafePointer(to: &nothing) { empty in
            pcre2_match_8(
                code, bytes.baseAddress?.assumingMemoryBound(to: UInt8.self) ?? empty, bytes.count, 0, 0, data, context)
        }
        if status == PCRE2_ERROR_MATCHLIMIT || status == PCRE2_ERROR_DEPTHLIMIT || status == PCRE2_ERROR_HEAPLIMIT {
            givenUp &+= 1
        }
        return status >= 0
    }

    public func matchesWhole(_ text: String) -> Bool {
        var text = text
        return text.withUTF8 { matchesWhole(UnsafeRawBufferPointer($0)) }
    }

    private static func message(_ status: Int32) -> String {
        var buffer = [UInt8](repeating: 0, count: 256)
        let length = pcre2_get_error_message_8(status, &buffer, buffer.count)
        return String(decoding: buffer.prefix(max(0, Int(length))), as: UTF8.self)
    }
}
