/// A place in a YAML text, both counted from 1.
public struct YAMLPosition: Hashable, Sendable, CustomStringConvertible {
    public var line: Int
    public var column: Int

    public init(line: Int, column: Int) {
        self.line = line
        self.column = column
    }

    public var description: String { "\(line):\(column)" }
}

/// What is wrong in a YAML text, and where.
public struct YAMLError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The file's name as the caller gave it.
    public var file: String
    /// Nil where the fault has no place, as with a file that cannot be read.
    public var position: YAMLPosition?
    /// The key that the fault concerns, such as `bluetooth.scan.rssi`; empty at the top.
    public var path: String
    public var message: String

    public init(file: String, position: YAMLPosition?, path: String = "", message: String) {
        self.file = file
        self.position = position
        self.path = path
        self.message = message
    }

    public var description: String {
        let place = position.map { "\(file):\($0): " } ?? "\(file): "
        return place + (path.isEmpty ? message : "\(path): \(message)")
    }
}

/// A node of a YAML document with its place. Scalars stay text: `0499`, `64` and `12:34:56` are what was written, and
/// the reader of a key says what type it expects.
public struct YAMLNode: Sendable {
    public enum Content: Sendable {
        /// - isPlain: written without quotes, so that `null`, `true` or a number may be meant.
        case scalar(String, isPlain: Bool)
        case sequence([YAMLNode])
        case mapping([Entry])
    }

    public struct Entry: Sendable {
        public let key: String
        public let keyPosition: YAMLPosition
        public let value: YAMLNode
    }

    public let content: Content
    public let position: YAMLPosition
    /// The file and the key path, for errors.
    public let file: String
    public let path: String

    /// An error about this node.
    public func error(_ message: String) -> YAMLError {
        YAMLError(file: file, position: position, path: path, message: message)
    }

    /// What the node is, for errors: `'text'`, `a list`, `a mapping`.
    public var whatItIs: String {
        switch content {
        case .scalar(let text, _): text.isEmpty ? "nothing" : Self.quoted(text)
        case .sequence: "a list"
        case .mapping: "a mapping"
        }
    }

    /// Text of a file as errors show it: in quotes, on one line, and not endless.
    public static func quoted(_ text: some StringProtocol) -> String {
        var shown = ""
        for scalar in text.unicodeScalars.prefix(60) {
            let isControl = scalar.value < 0x20 || 0x7f...0x9f ~= scalar.value
            shown.unicodeScalars.append(isControl ? "\u{fffd}" : scalar)
        }
        return "'\(shown)\(text.unicodeScalars.dropFirst(60).isEmpty ? "" : "…")'"
    }

    /// A key as errors show it: without what follows a colon, which is a value that lacks its space.
    static func quotedKey(_ key: String) -> String {
        guard let colon = key.firstIndex(where: { $0 == ":" || $0 == "=" }) else { return quoted(key) }
        return quoted(key[..<colon]) + " (write a space after its colon)"
    }

    /// True for a key without a value, `~` and `null`.
    public var isNull: Bool {
        guard case .scalar(let text, isPlain: true) = content else { return false }
        return text.isEmpty || text == "~" || text == "null" || text == "Null" || text == "NULL"
    }

    /// The text of a scalar, as written.
    public func string() throws(YAMLError) -> String {
        guard case .scalar(let text, _) = content, !isNull else { throw error("expected text, found \(whatItIs)") }
        return text
    }

    /// `true` or `false`; also `yes`, `no`, `on` and `off`, as YAML 1.1 has them.
    public func bool() throws(YAMLError) -> Bool {
        if case .scalar(let text, isPlain: true) = content {
            switch text.lowercased() {
            case "true", "yes", "on": return true
            case "false", "no", "off": return false
            default: break
            }
        }
        throw error("expected true or false, found \(whatItIs)")
    }

    /// A whole number in `range`.
    public func integer(in range: ClosedRange<Int> = Int.min...Int.max) throws(YAMLError) -> Int {
        guard case .scalar(let text, _) = content, let value = Int(text), range.contains(value) else {
            let expected =
                range == Int.min...Int.max
                ? "a whole number" : "a whole number from \(range.lowerBound) to \(range.upperBound)"
            throw error("expected \(expected), found \(whatItIs)")
        }
        return value
    }

    /// A number.
    public func double() throws(YAMLError) -> Double {
        guard case .scalar(let text, _) = content, let value = Double(text), value.isFinite else {
            throw error("expected a number, found \(whatItIs)")
        }
        return value
    }

    /// The items of a list; nothing at all is an empty one.
    public func sequence() throws(YAMLError) -> [YAMLNode] {
        if case .sequence(let items) = content { return items }
        if isNull { return [] }
        throw error("expected a list, found \(whatItIs)")
    }

    /// The entries of a mapping in their order; nothing at all is an empty one.
    public func mapping() throws(YAMLError) -> [Entry] {
        if case .mapping(let entries) = content { return entries }
        if isNull { return [] }
        // A line that lacks the space after its colon is such a text, and may be a password's.
        if case .scalar = content { throw error("expected a mapping, found text; is there a space after each colon?") }
        throw error("expected a mapping, found \(whatItIs)")
    }

    /// The value of a key of a mapping, or nil.
    public subscript(key: String) -> YAMLNode? {
        guard case .mapping(let entries) = content else { return nil }
        return entries.first { $0.key == key }?.value
    }

    /// Throws for the first key that is not among `known`, with the nearest known one as a hint.
    public func checkKeys(_ known: [String]) throws(YAMLError) {
        for entry in try mapping() where !known.contains(entry.key) {
            let name = entry.key.prefix { $0 != ":" && $0 != "=" }
            let hint = Self.nearest(to: String(name), among: known).map { "did you mean '\($0)'?" }
            throw YAMLError(
                file: file, position: entry.keyPosition, path: path,
                message: "unknown key \(Self.quotedKey(entry.key)); "
                    + (hint ?? "known are \(known.joined(separator: ", "))"))
        }
    }

    /// The known word with the fewest edits to `word`, where they are few.
    public static func nearest(to word: String, among known: [String]) -> String? {
        let ranked = known.map { ($0, editDistance(Array(word.utf8.prefix(64)), Array($0.utf8))) }
        guard let best = ranked.min(by: { $0.1 < $1.1 }), best.1 <= max(1, best.0.utf8.count / 3) else { return nil }
        return best.0
    }

    /// Levenshtein's distance.
    private static func editDistance(_ left: [UInt8], _ right: [UInt8]) -> Int {
        var row = Array(0...right.count)
        for (i, character) in left.enumerated() {
            var diagonal = row[0]
            row[0] = i + 1
            for (j, other) in right.enumerated() {
                let above = row[j + 1]
                row[j + 1] = min(above + 1, row[j] + 1, diagonal + (character == other ? 0 : 1))
                diagonal = above
            }
        }
        return row[right.count]
    }
}
