internal import Bluetooth
internal import Configuration
internal import JSON

/// A command from a plain topic, whose payload a person typed.
enum PlainCommand: Equatable {
    case connect
    case disconnect
    case write([UInt8])
    case get
    case notify(Bool)

    static let maximumSize = 4096

    /// The verb that does the same.
    var verb: Verb {
        switch self {
        case .connect: .connect
        case .disconnect: .disconnect
        case .write: .write
        case .get: .read
        case .notify(let isOn): isOn ? .subscribe : .unsubscribe
        }
    }

    /// Pure: what a payload on `connection/set` means.
    static func connection(_ payload: UnsafeRawBufferPointer) throws(CommandError) -> PlainCommand {
        switch try text(payload) {
        case "connect": return .connect
        case "disconnect": return .disconnect
        default: throw CommandError(.ambiguousValue, "the payload must be 'connect' or 'disconnect'")
        }
    }

    /// Pure: what a payload on `…/set`, `…/get` or `…/notify` of a characteristic means.
    static func characteristic(
        _ action: InboundTopic.Action, _ payload: UnsafeRawBufferPointer
    ) throws(CommandError) -> PlainCommand {
        switch action {
        case .get: return .get
        case .notify:
            switch try text(payload) {
            case "on": return .notify(true)
            case "off": return .notify(false)
            default: throw CommandError(.ambiguousValue, "the payload must be 'on' or 'off'")
            }
        case .set: return .write(try value(payload))
        }
    }

    private static func value(_ payload: UnsafeRawBufferPointer) throws(CommandError) -> [UInt8] {
        let text = try text(payload)
        if text.hasPrefix("0x") || text.hasPrefix("0X") {
            return try ambiguous { () throws(CommandError) in try ValueEncoding.hexBytes(text, "value") }
        }
        let hint = "write it as 0x64, or as {\"value\": 100, \"encoding\": \"uint8\"}"
        guard text.hasPrefix("{") else {
            throw CommandError(.ambiguousValue, "'\(text.prefix(40))' could be text, hex or a number; \(hint)")
        }
        guard let json = try? JSONValue.parse(payload), case .object(let members) = json else {
            throw CommandError(.ambiguousValue, "the payload is no JSON object; \(hint)")
        }
        let fields = Fields(members)
        guard let value = fields["value"] else {
            throw CommandError(.ambiguousValue, "the payload has no 'value'; \(hint)")
        }
        return try ambiguous { () throws(CommandError) in
            try fields.check(["value", "encoding"], of: "the payload")
            guard let name = try fields.string("encoding", hint: "one of \(ValueEncoding.names)") else {
                throw CommandError(.ambiguousValue, "the payload has no 'encoding'; \(hint)")
            }
            return try ValueEncoding(parsing: name).bytes(of: value)
        }
    }

    /// A value that cannot be understood is ambiguous, whatever the reason.
    private static func ambiguous(_ body: () throws(CommandError) -> [UInt8]) throws(CommandError) -> [UInt8] {
        do {
            return try body()
        } catch {
            throw CommandError(.ambiguousValue, error.message)
        }
    }

    private static func text(_ payload: UnsafeRawBufferPointer) throws(CommandError) -> String {
        guard payload.count <= maximumSize else {
            throw CommandError(.badRequest, "the payload is longer than \(maximumSize) bytes")
        }
        guard let text = String(validating: payload) else {
            throw CommandError(.ambiguousValue, "the payload is not UTF-8 text; write bytes as 0x64")
        }
        var trimmed = text[...]
        while let last = trimmed.last, last.isWhitespace { trimmed.removeLast() }
        while let first = trimmed.first, first.isWhitespace { trimmed.removeFirst() }
        return String(trimmed)
    }
}
