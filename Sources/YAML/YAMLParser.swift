internal import Glibc

/// Bounds on what is read, so that no file can use up the machine.
public struct YAMLLimits: Sendable {
    /// Bytes of the whole text.
    public var size = 1 << 20
    /// Levels of lists and mappings within each other.
    public var depth = 64
    /// Nodes in all.
    public var nodes = 100_000

    public init() {}
}

/// Reads one YAML document by libyaml's event parser (`yaml_parser_parse`). Keys are scalars and unique in their
/// mapping; anchors, aliases and tags are refused, since a configuration needs none and a few lines of them can stand
/// for gigabytes.
public enum YAMLDocument {
    /// - Throws: ``YAMLError`` for a file that is missing, unreadable, a directory or too large, and as
    ///   ``parse(_:file:limits:)``.
    public static func load(path: String, limits: YAMLLimits = YAMLLimits()) throws(YAMLError) -> YAMLNode {
        try parse(try readFile(path, limit: limits.size), file: path, limits: limits)
    }

    /// - Parameter file: the name for errors.
    /// - Throws: ``YAMLError`` with line and column. An empty text gives an empty node.
    public static func parse(
        _ bytes: [UInt8], file: String, limits: YAMLLimits = YAMLLimits()
    ) throws(YAMLError) -> YAMLNode {
        guard bytes.count <= limits.size else {
            throw YAMLError(file: file, position: nil, message: "the file is larger than \(limits.size) bytes")
        }
        return try bytes.withUnsafeBufferPointer { text in
            Result<YAMLNode, YAMLError> { () throws(YAMLError) in
                var builder = TreeBuilder(events: try EventReader(text, file: file), file: file, limits: limits)
                return try builder.read()
            }
        }.get()
    }

    /// A whole file's bytes; of a longer one, some beyond the limit.
    /// - Throws: ``YAMLError`` for a file that is missing, unreadable or a directory.
    public static func readFile(_ path: String, limit: Int) throws(YAMLError) -> [UInt8] {
        func fault(_ message: String) -> YAMLError { YAMLError(file: path, position: nil, message: message) }
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw fault("cannot be opened: \(String(cString: strerror(errno)))") }
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 65536)
        while bytes.count <= limit {
            let count = Glibc.read(descriptor, &chunk, chunk.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw fault("cannot be read: \(String(cString: strerror(errno)))") }
            if count == 0 { break }
            bytes.append(contentsOf: chunk[0..<count])
        }
        return bytes
    }
}

/// Builds the tree from libyaml's events.
private struct TreeBuilder {
    let events: EventReader
    let file: String
    let limits: YAMLLimits
    var nodes = 0

    mutating func read() throws(YAMLError) -> YAMLNode {
        var root: YAMLNode?
        while true {
            let event = try events.next()
            switch event.kind {
            case .streamEnd:
                return root ?? node(.scalar("", isPlain: true), YAMLPosition(line: 1, column: 1), "")
            case .other: continue
            default:
                guard root == nil else { throw fault("a second document; one is expected", event.position) }
                root = try build(event, path: "", depth: 0)
            }
        }
    }

    private mutating func build(_ event: EventReader.Event, path: String, depth: Int) throws(YAMLError) -> YAMLNode {
        nodes += 1
        guard nodes <= limits.nodes else { throw fault("more than \(limits.nodes) values", event.position) }
        guard depth <= limits.depth else { throw fault("nested deeper than \(limits.depth) levels", event.position) }
        switch event.kind {
        case .scalar(let text, let isPlain):
            return node(.scalar(text, isPlain: isPlain), event.position, path)
        case .sequence:
            var items: [YAMLNode] = []
            while true {
                let item = try events.next()
                if case .end = item.kind { return node(.sequence(items), event.position, path) }
                items.append(try build(item, path: "\(path)[\(items.count)]", depth: depth + 1))
            }
        case .mapping:
            return node(.mapping(try entries(path: path, depth: depth)), event.position, path)
        case .end, .streamEnd, .other:
            throw fault("unexpected end", event.position)
        }
    }

    private mutating func entries(path: String, depth: Int) throws(YAMLError) -> [YAMLNode.Entry] {
        var entries: [YAMLNode.Entry] = []
        var lines: [String: Int] = [:]
        while true {
            let event = try events.next()
            if case .end = event.kind { return entries }
            guard case .scalar(let key, _) = event.kind else { throw fault("a key must be text", event.position) }
            if let line = lines.updateValue(event.position.line, forKey: key) {
                throw YAMLError(
                    file: file, position: event.position, path: path,
                    message: "\(YAMLNode.quotedKey(key)) stands twice, first in line \(line)")
            }
            let valuePath = path.isEmpty ? key : "\(path).\(key)"
            let value = try build(try events.next(), path: valuePath, depth: depth + 1)
            entries.append(YAMLNode.Entry(key: key, keyPosition: event.position, value: value))
        }
    }

    private func node(_ content: YAMLNode.Content, _ position: YAMLPosition, _ path: String) -> YAMLNode {
        YAMLNode(content: content, position: position, file: file, path: path)
    }

    private func fault(_ message: String, _ position: YAMLPosition?) -> YAMLError {
        YAMLError(file: file, position: position, message: message)
    }
}
