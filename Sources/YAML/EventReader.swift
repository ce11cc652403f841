internal import CYAML

/// libyaml's event parser over a text that outlives it.
final class EventReader {
    struct Event {
        enum Kind {
            case scalar(String, isPlain: Bool)
            case sequence, mapping, end, streamEnd, other
        }
        let kind: Kind
        let position: YAMLPosition
    }

    private let text: UnsafeBufferPointer<UInt8>
    private let file: String
    /// On the heap, since libyaml keeps the parser's own address in it. Nil for an empty text.
    private var parser: UnsafeMutablePointer<yaml_parser_t>?

    /// `yaml_parser_initialize`, `yaml_parser_set_input_string`.
    init(_ text: UnsafeBufferPointer<UInt8>, file: String) throws(YAMLError) {
        // libyaml would count a byte order mark as the first column.
        let text = text.starts(with: [0xef, 0xbb, 0xbf]) ? UnsafeBufferPointer(rebasing: text.dropFirst(3)) : text
        self.text = text
        self.file = file
        guard let start = text.baseAddress, !text.isEmpty else { return }
        let parser = UnsafeMutablePointer<yaml_parser_t>.allocate(capacity: 1)
        guard yaml_parser_initialize(parser) == 1 else {
            parser.deallocate()
            throw YAMLError(file: file, position: nil, message: "out of memory")
        }
        yaml_parser_set_encoding(parser, YAML_UTF8_ENCODING)
        yaml_parser_set_input_string(parser, start, text.count)
        self.parser = parser
    }

    deinit {
        guard let parser else { return }
        yaml_parser_delete(parser)
        parser.deallocate()
    }

    /// `yaml_parser_parse`. Anchors, aliases and tags are refused.
    func next() throws(YAMLError) -> Event {
        guard let parser else { return Event(kind: .streamEnd, position: YAMLPosition(line: 1, column: 1)) }
        var event = yaml_event_t()
        guard yaml_parser_parse(parser, &event) == 1 else { throw problem(of: parser.pointee) }
        defer { yaml_event_delete(&event) }
        let position = Self.position(event.start_mark)
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
        if tag != nil { throw fault("tags (!name) are not supported; quote a text that begins with !", position) }
    }

    private func problem(of parser: yaml_parser_t) -> YAMLError {
        var message = parser.problem.map { String(cString: $0) } ?? "not readable as YAML"
        // A reader's fault, such as bytes that are no text, has an offset and no mark.
        guard parser.error != YAML_READER_ERROR else {
            return fault("is not UTF-8 text (\(message))", position(ofByte: parser.problem_offset))
        }
        if let context = parser.context, parser.context_mark.line != parser.problem_mark.line {
            message += " \(String(cString: context)) that begins in line \(parser.context_mark.line + 1)"
        } else if message == "found character that cannot start any token" {
            message = "a value cannot begin so; a tab cannot indent, and text that begins with @ ` or % needs quotes"
        }
        return fault(message, Self.position(parser.problem_mark))
    }

    private func position(ofByte offset: Int) -> YAMLPosition {
        let before = text.prefix(max(0, offset))
        let newline = UInt8(ascii: "\n")
        let line = before.reduce(1) { $1 == newline ? $0 + 1 : $0 }
        let column = before.reversed().prefix { $0 != newline }.count + 1
        return YAMLPosition(line: line, column: column)
    }

    private static func position(_ mark: yaml_mark_t) -> YAMLPosition {
        YAMLPosition(line: Int(clamping: mark.line) + 1, column: Int(clamping: mark.column) + 1)
    }

    private func fault(_ message: String, _ position: YAMLPosition) -> YAMLError {
        YAMLError(file: file, position: position, message: message)
    }
}
