internal import Bluetooth
internal import JSON

/// A request's JSON object, read field by field; each error names the field and what it must be.
struct Fields {
    private let members: [(String, JSONValue)]

    init(_ members: [(String, JSONValue)]) {
        self.members = members
    }

    /// A field that is not known is most likely a misspelt one: without it the request would mean something else.
    func check(_ known: [String], of what: @autoclosure () -> String) throws(CommandError) {
        guard let stranger = members.first(where: { !known.contains($0.0) }) else { return }
        throw CommandError(
            .badRequest, "\(what()) has no field '\(stranger.0.prefix(40))'; it takes \(known.joined(separator: ", "))")
    }

    /// Nil where the field is missing or null.
    subscript(_ name: String) -> JSONValue? {
        guard let member = members.first(where: { $0.0 == name }) else { return nil }
        if case .null = member.1 { return nil }
        return member.1
    }

    func string(_ name: String, hint: @autoclosure () -> String) throws(CommandError) -> String? {
        guard let value = self[name] else { return nil }
        guard case .string(let text) = value else {
            throw CommandError(.badRequest, "'\(name)' must be a string; give \(hint())")
        }
        return text
    }

    func required(_ name: String, hint: @autoclosure () -> String) throws(CommandError) -> String {
        guard let text = try string(name, hint: hint()) else {
            throw CommandError(.badRequest, "'\(name)' is missing; give \(hint())")
        }
        return text
    }

    func bool(_ name: String) throws(CommandError) -> Bool? {
        guard let value = self[name] else { return nil }
        guard case .bool(let flag) = value else {
            throw CommandError(.badRequest, "'\(name)' must be true or false")
        }
        return flag
    }

    func integer(_ name: String, in range: ClosedRange<Int>) throws(CommandError) -> Int? {
        guard let value = self[name] else { return nil }
        let wrong = CommandError(
            .badRequest, "'\(name)' must be a whole number from \(range.lowerBound) to \(range.upperBound)")
        let number: Int
        switch value {
        case .int(let whole):
            guard let whole = Int(exactly: whole) else { throw wrong }
            number = whole
        case .double(let fraction):
            guard let whole = Int(exactly: fraction) else { throw wrong }
            number = whole
        default: throw wrong
        }
        guard range.contains(number) else { throw wrong }
        return number
    }

    func strings(_ name: String, hint: @autoclosure () -> String) throws(CommandError) -> [String]? {
        guard let value = self[name] else { return nil }
        let wrong = CommandError(.badRequest, "'\(name)' must be a list of strings, such as \(hint())")
        guard case .array(let items) = value else { throw wrong }
        guard items.count <= 1000 else {
            throw CommandError(.badRequest, "'\(name)' has \(items.count) items; at most 1000 are taken")
        }
        var texts: [String] = []
        for item in items {
            guard case .string(let text) = item else { throw wrong }
            texts.append(text)
        }
        return texts
    }

    func uuids(_ name: String) throws(CommandError) -> [BluetoothUUID] {
        var uuids: [BluetoothUUID] = []
        for text in try strings(name, hint: "[\"180f\"]") ?? [] {
            guard let uuid = BluetoothUUID(parsing: text) else {
                throw CommandError(
                    .badRequest, "'\(name)' has '\(text.prefix(64))', which is no UUID; give one such as 180f")
            }
            uuids.append(uuid)
        }
        return uuids
    }

    func attribute(_ name: String, example: String) throws(CommandError) -> AttributeName {
        guard let attribute = try optionalAttribute(name, example: example) else {
            throw CommandError(.badRequest, "'\(name)' is missing; give its UUID, such as \(example)")
        }
        return attribute
    }

    func optionalAttribute(_ name: String, example: String) throws(CommandError) -> AttributeName? {
        guard let text = try string(name, hint: "its UUID, such as \(example)") else { return nil }
        guard let attribute = AttributeName(parsing: text) else {
            throw CommandError(
                .badRequest, "'\(name)' is '\(text.prefix(64))', which is no UUID; give one such as \(example)")
        }
        return attribute
    }

    /// `service`, `characteristic` and, where allowed, `descriptor`.
    func attributePath(withDescriptor: Bool) throws(CommandError) -> AttributePath {
        AttributePath(
            service: try attribute("service", example: "180f"),
            characteristic: try attribute("characteristic", example: "2a19"),
            descriptor: withDescriptor ? try optionalAttribute("descriptor", example: "2901") : nil)
    }

    /// A time in milliseconds that is not zero.
    func milliseconds(_ name: String) throws(CommandError) -> Duration? {
        try integer(name, in: 1...86_400_000).map { .milliseconds($0) }
    }
}
