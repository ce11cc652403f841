internal import Bluetooth
public import Configuration
internal import JSON

/// The verbs of `request/<verb>`.
public typealias Verb = Settings.Commands.Verb

extension Verb {
    /// True for what is recorded before it acts, where it has an `id`.
    var changesState: Bool {
        switch self {
        case .scan, .stopScan, .connect, .disconnect, .write, .subscribe, .unsubscribe, .pair, .unpair, .forget: true
        case .devices, .services, .read, .rssi, .config: false
        }
    }

    /// The fields of its requests, beside those that every request may have.
    var fields: [String] {
        switch self {
        case .scan: ["name", "services", "solicited", "rssi", "allow_duplicates", "adapter"]
        case .stopScan: ["session"]
        case .devices: ["ids", "addresses", "connected", "services", "limit", "after"]
        case .connect: ["device", "keep", "adapter"]
        case .disconnect: ["device", "force"]
        case .services: ["device", "services"]
        case .read: ["device", "service", "characteristic", "descriptor", "offset", "encoding"]
        case .write:
            ["device", "service", "characteristic", "descriptor", "value", "encoding", "type", "offset"]
        case .subscribe, .unsubscribe: ["device", "service", "characteristic"]
        case .rssi, .pair, .unpair, .forget: ["device"]
        case .config: ["get", "set"]
        }
    }
}

/// A command as it was sent, taken apart but not yet understood.
package struct Request {
    /// Bytes that a request may have; more is refused before it is parsed.
    static let maximumSize = 65_536
    static let maximumIDSize = 256
    private static let commonFields = ["id", "timeout", "reply_to"]
    private static let knownFields = Dictionary(
        uniqueKeysWithValues: Verb.allCases.map { ($0, $0.fields + commonFields) })

    var verb: Verb
    /// A string or a number, echoed as given; null where there is none.
    var id: JSONValue
    var timeout: Duration?
    var replyTo: String?
    var fields: Fields
    /// The bytes as sent: a repeat is told from another request under the same id by them.
    var payload: [UInt8]
}

/// A request that cannot run: where to answer it is known even so.
package struct RefusedRequest: Error {
    var id: JSONValue
    var replyTo: String?
    var error: CommandError
}

extension Request {
    /// Takes a request apart. Pure.
    package static func parse(
        verb name: String, payload: UnsafeRawBufferPointer, isTooLarge: Bool
    ) throws(RefusedRequest) -> Request {
        func refused(_ message: String, code: CommandError.Code = .badRequest) -> RefusedRequest {
            RefusedRequest(id: .null, replyTo: nil, error: CommandError(code, message))
        }
        guard !isTooLarge, payload.count <= maximumSize else {
            throw refused("the request is longer than \(maximumSize) bytes; nothing of it was read")
        }
        let value: JSONValue
        do {
            value = try JSONValue.parse(payload)
        } catch {
            throw refused("the request is not a JSON object: \(error)")
        }
        guard case .object(let members) = value else { throw refused("the request is JSON, but not an object {…}") }
        let fields = Fields(members)
        let id = try usableID(fields)
        let replyTo: String?
        do {
            replyTo = try self.replyTo(fields)
        } catch {
            throw RefusedRequest(id: id, replyTo: nil, error: error)
        }
        guard let verb = Verb(rawValue: name) else {
            let known = Verb.allCases.map(\.rawValue).joined(separator: ", ")
            let error = CommandError(.unknownVerb, "there is no verb '\(name.prefix(40))'; there are \(known)")
            throw RefusedRequest(id: id, replyTo: replyTo, error: error)
        }
        do {
            try fields.check(knownFields[verb] ?? [], of: "'\(verb.rawValue)'")
            let timeout = try fields.milliseconds("timeout")
            return Request(
                verb: verb, id: id, timeout: timeout, replyTo: replyTo, fields: fields, payload: Array(payload))
        } catch {
            throw RefusedRequest(id: id, replyTo: replyTo, error: error)
        }
    }

    private static func usableID(_ fields: Fields) throws(RefusedRequest) -> JSONValue {
        switch fields["id"] {
        case nil: return .null
        case .string(let text)? where text.utf8.count <= maximumIDSize: return .string(text)
        case .int(let number)?: return .int(number)
        case .double(let number)?: return .double(number)
        default:
            throw RefusedRequest(
                id: .null, replyTo: nil,
                error: CommandError(
                    .badRequest, "'id' must be a string of at most \(maximumIDSize) bytes or a number"))
        }
    }

    private static func replyTo(_ fields: Fields) throws(CommandError) -> String? {
        guard fields["reply_to"] != nil else { return nil }
        let hint = "one topic level of A-Z a-z 0-9 _ -, at most 64 characters"
        guard let text = try fields.string("reply_to", hint: hint) else { return nil }
        guard isTopicSafe(text, limit: 64) else { throw CommandError(.badRequest, "'reply_to' must be \(hint)") }
        return text
    }
}

/// True for a non-empty text of `[A-Za-z0-9_-]`.
func isTopicSafe(_ text: String, limit: Int) -> Bool {
    let bytes = text.utf8
    guard !bytes.isEmpty, bytes.count <= limit else { return false }
    return bytes.allSatisfy { byte in
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), UInt8(ascii: "-"):
            true
        default: false
        }
    }
}
