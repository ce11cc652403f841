internal import Bluetooth
internal import YAML

/// Keys of a fleet file, read by kind. A key that is missing or empty is nil.
extension YAMLNode {
    private func given(_ key: String) -> YAMLNode? {
        guard let node = self[key], !node.isNull else { return nil }
        return node
    }

    func required(_ key: String) throws(YAMLError) -> YAMLNode {
        guard let node = given(key) else { throw error("\(key) is missing") }
        return node
    }

    func text(_ key: String) throws(YAMLError) -> String? { try given(key)?.string() }

    func bool(_ key: String) throws(YAMLError) -> Bool? { try given(key)?.bool() }

    func integer(_ key: String, in range: ClosedRange<Int>) throws(YAMLError) -> Int? {
        try given(key)?.integer(in: range)
    }

    func items(_ key: String) throws(YAMLError) -> [YAMLNode] { try given(key)?.sequence() ?? [] }

    func entries(_ key: String) throws(YAMLError) -> [Entry] { try given(key)?.mapping() ?? [] }

    func texts(_ key: String) throws(YAMLError) -> [String] {
        var result: [String] = []
        for item in try items(key) { result.append(try item.string()) }
        return result
    }

    func choice(_ key: String, of words: [String]) throws(YAMLError) -> String? {
        guard let node = given(key) else { return nil }
        let word = try node.string()
        guard words.contains(word) else { throw node.error("'\(word)' is none of \(words.joined(separator: ", "))") }
        return word
    }

    func choice<Word: RawRepresentable<String> & CaseIterable>(
        _ key: String, of type: Word.Type
    ) throws(YAMLError) -> Word? {
        try choice(key, of: Word.allCases.map(\.rawValue)).flatMap(Word.init(rawValue:))
    }

    func address(_ key: String, from node: YAMLNode) throws(YAMLError) -> BluetoothAddress {
        let text = try node.string()
        guard let address = BluetoothAddress(parsing: text) else {
            throw node.error("'\(text)' is not an address such as C0:00:00:00:00:01")
        }
        return address
    }

    func uuid() throws(YAMLError) -> BluetoothUUID {
        let text = try string()
        guard let uuid = BluetoothUUID(parsing: text) else {
            throw error("'\(text)' is not a UUID of 4 hex digits or the dashed form")
        }
        return uuid
    }

    func uuids(_ key: String) throws(YAMLError) -> [BluetoothUUID] {
        var result: [BluetoothUUID] = []
        for item in try items(key) { result.append(try item.uuid()) }
        return result
    }

    /// A scalar of hex digits; empty text is no bytes.
    func bytes() throws(YAMLError) -> [UInt8] {
        let text = isNull ? "" : try string()
        guard let bytes = Hex.decode(text) else { throw error("'\(text)' is not hex digits in pairs") }
        return bytes
    }

    func bytes(_ key: String, count: Int) throws(YAMLError) -> [UInt8]? {
        guard let node = given(key) else { return nil }
        let bytes = try node.bytes()
        guard bytes.count == count else { throw node.error("expected \(count) bytes of hex digits") }
        return bytes
    }

    /// `value` in hex, `text`, or `length` bytes 00 01 02 … ff 00 …; nothing: empty.
    func value() throws(YAMLError) -> [UInt8] {
        let given = ["value", "text", "length"].filter { self[$0] != nil }
        if given.count > 1 { throw error("\(given.joined(separator: " and ")) exclude each other") }
        if let length = try integer("length", in: 0...ATT.longestValue) {
            return (0..<length).map { UInt8(truncatingIfNeeded: $0) }
        }
        let text = try text("text") ?? ""
        let bytes = try self["value"]?.bytes() ?? Array(text.utf8)
        if bytes.count > ATT.longestValue {
            throw error("a value has at most \(ATT.longestValue) bytes, this has \(bytes.count)")
        }
        return bytes
    }
}
