internal import Bluetooth
internal import JSON

/// What is wrong with a command, in a sentence.
struct ControlFault: Error {
    let text: String

    init(_ text: String) {
        self.text = text
    }
}

/// A command whose parameters are taken by kind.
struct ControlRequest {
    let fields: JSONValue

    func has(_ key: String) -> Bool { fields[key] != nil }

    private func wrong(_ key: String) -> ControlFault {
        let given = fields[key].map { String(decoding: $0.serialised().prefix(80), as: UTF8.self) }
        return ControlFault(given.map { "\(key) is of the wrong kind: \($0)" } ?? "\(key) is missing")
    }

    func text(_ key: String) throws(ControlFault) -> String {
        guard let value = fields[key]?.stringValue else { throw wrong(key) }
        return value
    }

    func flag(_ key: String) throws(ControlFault) -> Bool {
        guard let value = fields[key]?.boolValue else { throw wrong(key) }
        return value
    }

    /// A number within bounds; `default` where it is missing.
    func number(_ key: String, in range: ClosedRange<Double>, default: Double? = nil) throws(ControlFault) -> Double {
        let value: Double
        switch fields[key] {
        case .int(let number)?: value = Double(number)
        case .double(let number)?: value = number
        case nil:
            guard let `default` else { throw wrong(key) }
            return `default`
        default: throw wrong(key)
        }
        guard range.contains(value) else {
            throw ControlFault("\(key) is not between \(Int(range.lowerBound)) and \(Int(range.upperBound))")
        }
        return value
    }

    func integer(_ key: String, in range: ClosedRange<Int>, default: Int? = nil) throws(ControlFault) -> Int {
        Int(
            try number(
                key, in: Double(range.lowerBound)...Double(range.upperBound), default: `default`.map { Double($0) }))
    }

    /// Bytes in hex, or nil where they are missing.
    func bytes(_ key: String) throws(ControlFault) -> [UInt8]? {
        guard has(key) else { return nil }
        return try Self.bytes(fields[key], key)
    }

    private static func bytes(_ value: JSONValue?, _ key: String) throws(ControlFault) -> [UInt8] {
        guard let bytes = value?.stringValue.flatMap({ Hex.decode($0) }) else {
            throw ControlFault("\(key) is not hex digits in pairs")
        }
        return bytes
    }

    /// An object of texts to bytes in hex, or nil where it is missing.
    func bytesByKey(_ key: String) throws(ControlFault) -> [(String, [UInt8])]? {
        guard let value = fields[key] else { return nil }
        guard case .object(let members) = value else { throw wrong(key) }
        var result: [(String, [UInt8])] = []
        for (name, value) in members { result.append((name, try Self.bytes(value, "\(key).\(name)"))) }
        return result
    }
}
