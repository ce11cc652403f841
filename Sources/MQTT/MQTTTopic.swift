/// Names that messages are published under. Source: MQTT 5.0, section 4.7.
public enum MQTTTopic {
    public static let maximumLength = 65_535

    /// True where messages may be published under `name`: not empty, no wildcard, no NUL, at most 65,535 bytes of UTF-8.
    public static func isValid(_ name: String) -> Bool {
        let bytes = name.utf8
        guard !bytes.isEmpty, bytes.count <= maximumLength else { return false }
        return bytes.allSatisfy { $0 != UInt8(ascii: "+") && $0 != UInt8(ascii: "#") && $0 != 0 }
    }
}

/// A pattern of topics with `+` for one level and a final `#` for all that follow. Source: MQTT 5.0, section 4.7.1.
public struct TopicFilter: Hashable, Sendable, CustomStringConvertible {
    public let description: String
    private let levels: [Substring]

    /// Nil where `text` is not a filter: empty, a wildcard beside other characters, `#` before the end, NUL, too long.
    public init?(_ text: String) {
        guard !text.isEmpty, text.utf8.count <= MQTTTopic.maximumLength, !text.utf8.contains(0) else { return nil }
        levels = text.split(separator: "/", omittingEmptySubsequences: false)
        description = text
        for (index, level) in levels.enumerated() {
            if level.utf8.contains(UInt8(ascii: "#")), level != "#" || index != levels.count - 1 { return nil }
            if level.utf8.contains(UInt8(ascii: "+")), level != "+" { return nil }
        }
    }

    /// True where messages under `topic` come to a subscription with this filter. Topics that start with `$` match no
    /// leading wildcard; a final `#` matches its parent too.
    public func matches(_ topic: String) -> Bool {
        var rest = Substring(topic)[...]
        let isSystem = topic.utf8.first == UInt8(ascii: "$")
        if isSystem, let first = levels.first, first == "#" || first == "+" { return false }
        var isAtEnd = false
        for level in levels {
            if level == "#" { return true }
            if isAtEnd { return false }
            let slash = rest.utf8.firstIndex(of: UInt8(ascii: "/"))
            let name = rest[..<(slash ?? rest.endIndex)]
            // Bytes are compared: topics that differ in their Unicode form are different topics.
            if level != "+", !level.utf8.elementsEqual(name.utf8) { return false }
            if let slash {
                rest = rest[rest.utf8.index(after: slash)...]
            } else {
                isAtEnd = true
            }
        }
        return isAtEnd
    }
}
