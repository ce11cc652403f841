internal import CYAML
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
    /// - Throws: ``YAMLError`` for a file that is missing, unreadable, a directory or too large, and as ``parse(_:file:limits:)``.
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
        var builder = TreeBuilder(file: file, limits: limits)
        return try bytes.withUnsafeBufferPointer { buffer in
            Result<YAMLNode, YAMLError> { () throws(YAMLError) in try builder.read(buffer) }
        }.get()
    }

    private static func readFile(_ path: String, limit: Int) throws(YAMLError) -> [UInt8] {
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
    let file: String
    let limits: YAMLLimits
    var nodes = 0

    mutating func read(_ text: UnsafeBufferPointer<UInt8>) throws(YAMLError) -> YAMLNode {
        var parser = yaml_parser_t()
        guard yaml_parser_initialize(&parser) == 1 else { throw fault("out of memory", nil) }
        defer { yaml_parser_delete(&parser) }
        yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING)
        yaml_parser_set_input_string(&parser, text.baseAddress, text.count)

        var root = node(.scalar("", isPlain: true), YAMLPosition(line: 1, column: 1), "")
        var hasDocument = false
        while true {
            let event = try next(&parser)
            switch event.kind {
            case .streamEnd: return root
            case .other: continue
            default:
                guard !hasDocument else { throw fault("a second document; one is expected", event.position) }
                hasDocument = true
                root = try build(event, &parser, path: "", depth: 0)
            }
        }
    }

    private struct Event {
        enum Kind {
            case scalar(String, isPlain: Bool)
            case sequence, mapping, end, streamEnd, other
        }
        let kind: Kind
        let position: YAMLPosition
    }

    private func next(_ parser: inout yaml_parser_t) throws(YAMLError) -> Event {
        var event = yaml_event_t()
        guard yaml_parser_parse(&parser, &event) == 1 else {
            let problem = parser.problem.map { String(cString: $0) } ?? "not readable as YAML"
            let mark = parser.problem_mark
            // A reader's error (bad UTF-8) has an offset and no mark.
            let hasMark = parser.error != YAML_READER_ERROR
            throw fault(problem, hasMark ? YAMLPosition(line: Int(mark.line) + 1, column: Int(mark.column) + 1) : nil)
        }
        defer { yaml_event_delete(&event) }
        let position = YAMLPosition(line: Int(event.start_mark.line) + 1, column: Int(event.start_mark.column) + 1)
        switch event.type {
        case YAML_SCALAR_EVENT:
            let scalar = event.data.scalar
            try refuse(anchor: scalar.anchor, tag: scalar.tag, position)
            let bytes = UnsafeBufferPointer(start: scalar.value, count: scalar.length)
            let isPlain = scalar.style == YAML_PLAIN_SCALAR_STYLE
            return Event(kind: .scalar(String(decoding: bytes, as: UTF8.self), isPlain: isPlain), position: position)
        case YAML_SEQUENCE_START_EVENT:
            try refuse(anchor: event.data.sequence_start.anchor, tag: event.data.sequence_start.tag, position)
            return Event(kind: .sequence, position: position)
        case YAML_MAPPING_START_EVENT:
            try refuse(anchor: event.data.mapping_start.anchor, tag: event.data.mapping_start.tag, position)
            return Event(kind: .mapping, position: position)
        case YAML_ALIAS_EVENT: throw fault("aliases (*name) are not supported; write the value out", position)
        case YAML_SEQUENCE_END_EVENT, YAML_MAPPING_END_EVENT: return Event(kind: .end, position: position)
        case YAML_STREAM_END_EVENT: return Event(kind: .streamEnd, position: position)
        default: return Event(kind: .other, position: position)
        }
    }

    private func refuse(
        anchor: UnsafeMutablePointer<yaml_char_t>?, tag: UnsafeMutablePointer<yaml_char_t>?, _ position: YAMLPosition
    ) throws(YAMLError) {
        if anchor != nil { throw fault("anchors (&name) are not supported; write the value out", position) }
        if tag != nil { throw fault("tags (!name) are not supported", position) }
    }

    private mutating func build(
        _ event: Event, _ parser: inout yaml_parser_t, path: String, depth: Int
    ) throws(YAMLError) -> YAMLNode {
        nodes += 1
        guard nodes <= limits.nodes else { throw fault("more than \(limits.nodes) values", event.position) }
        guard depth <= limits.depth else { throw fault("nested deeper than \(limits.depth) levels", event.position) }
        switch event.kind {
        case .scalar(let text, let isPlain):
            return node(.scalar(text, isPlain: isPlain), event.position, path)
        case .sequence:
            var items: [YAMLNode] = []
            while true {
                let item = try next(&parser)
                if case .end = item.kind { return node(.sequence(items), event.position, path) }
                items.append(try build(item, &parser, path: "\(path)[\(items.count)]", depth: depth + 1))
            }
        case .mapping:
            return node(.mapping(try entries(&parser, path: path, depth: depth)), event.position, path)
        case .end, .streamEnd, .other:
            throw fault("unexpected end", event.position)
        }
    }

    private mutating func entries(
        _ parser: inout yaml_parser_t, path: String, depth: Int
    ) throws(YAMLError) -> [YAMLNode.Entry] {
        var entries: [YAMLNode.Entry] = []
        var lines: [String: Int] = [:]
        while true {
            let event = try next(&parser)
            if case .end = event.kind { return entries }
            guard case .scalar(let key, _) = event.kind else { throw fault("a key must be text", event.position) }
            if let line = lines.updateValue(event.position.line, forKey: key) {
                throw YAMLError(
                    file: file, position: event.position, path: path,
                    message: "'\(key)' stands twice, first in line \(line)")
            }
            let valuePath = path.isEmpty ? key : "\(path).\(key)"
            let value = try build(try next(&parser), &parser, path: valuePath, depth: depth + 1)
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
