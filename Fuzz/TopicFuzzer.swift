internal import Bluetooth
internal import EventLoop
internal import MQTT

@testable internal import Bridge

/// Topics: a line with a filter, a line with a topic. Matching is held to a second, plain reading of the rule; a command
/// topic and a response topic to what the contract says of them.
@EventLoopActor
enum TopicFuzzer {
    private static let space = TopicSpace(base: "blueferry", gateway: "gw")

    static func run(_ input: UnsafeRawBufferPointer) {
        let parts = input.parts(2)
        let topic = String(decoding: parts[1], as: UTF8.self)
        if let filter = TopicFilter(String(decoding: parts[0], as: UTF8.self)), MQTTTopic.isValid(topic) {
            let expected = matches(Array(filter.description.utf8), Array(topic.utf8))
            precondition(filter.matches(topic) == expected, "'\(filter)' on '\(topic)'")
        }
        parts[1].withUnsafeBytes { bytes in
            if case .characteristic(let device, _, _, _) = InboundTopic(bytes, in: space) {
                _ = BluetoothAddress(parsing: device)
            }
        }
        var properties = MessageProperties()
        properties.responseTopic = topic
        let verb = String(decoding: parts[0], as: UTF8.self)
        let (route, _) = AnswerRoute.of(
            verb: verb, properties: properties, replyTo: nil, in: space, homeAssistantPrefix: "homeassistant")
        precondition(mayBeAnswered(route.topic), "an answer would go to '\(route.topic)'")
    }

    /// What the contract says of topics that answers go to.
    static func mayBeAnswered(_ topic: String) -> Bool {
        let bytes = Array(topic.utf8)
        guard MQTTTopic.isValid(topic), bytes.first != UInt8(ascii: "$") else { return false }
        let levels = bytes.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false).map { Array($0) }
        if levels.first == Array("homeassistant".utf8) { return false }
        guard levels.first == Array("blueferry".utf8) else { return true }
        return levels.count >= 4 && levels[2] == Array("response".utf8)
    }

    /// MQTT 5.0, section 4.7, level by level.
    private static func matches(_ filter: [UInt8], _ topic: [UInt8]) -> Bool {
        let wanted = filter.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false).map { Array($0) }
        let given = topic.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false).map { Array($0) }
        let isWild = wanted.first == [UInt8(ascii: "#")] || wanted.first == [UInt8(ascii: "+")]
        if isWild, topic.first == UInt8(ascii: "$") { return false }
        for (index, level) in wanted.enumerated() {
            if level == [UInt8(ascii: "#")] { return given.count >= index }
            guard index < given.count else { return false }
            if level != [UInt8(ascii: "+")], level != given[index] { return false }
        }
        return wanted.count == given.count
    }
}
