internal import Bluetooth

/// Where an answer goes.
struct AnswerRoute: Equatable, Sendable {
    var topic: String
    /// Echoed with the answer (MQTT 5).
    var correlationData: [UInt8]?

    /// The route of a request: its response topic (MQTT 5), `reply_to` (3.1.1), or the verb's own topic.
    /// - Parameter verb: as in the request's topic; one that is no topic level is answered under `unknown`.
    /// - Throws: the default route and the error, where the response topic is one that answers must not go to.
    static func of(
        verb: String, properties: MessageProperties, replyTo: String?, in space: TopicSpace, homeAssistantPrefix: String
    ) -> (route: AnswerRoute, refused: CommandError?) {
        let level = isTopicSafe(verb, limit: 64) ? verb : "unknown"
        let usual = AnswerRoute(
            topic: space.response(level, replyTo: replyTo), correlationData: properties.correlationData)
        guard let topic = properties.responseTopic else { return (usual, nil) }
        if let reason = refusal(topic, in: space, homeAssistantPrefix: homeAssistantPrefix) {
            return (usual, reason)
        }
        return (AnswerRoute(topic: topic, correlationData: properties.correlationData), nil)
    }

    private static func refusal(_ topic: String, in space: TopicSpace, homeAssistantPrefix: String) -> CommandError? {
        let bytes = topic.utf8
        guard !bytes.isEmpty, bytes.count <= 65_535, !bytes.contains(where: { "+#\0".utf8.contains($0) }) else {
            return CommandError(.badRequest, "the response topic is empty, too long or has a wildcard")
        }
        func refused(_ what: String) -> CommandError {
            CommandError(.forbidden, "the response topic is \(what); answers never go there")
        }
        if bytes.first == UInt8(ascii: "$") { return refused("under '$'") }
        if topic == homeAssistantPrefix || topic.hasPrefix(homeAssistantPrefix + "/") {
            return refused("under the Home Assistant prefix '\(homeAssistantPrefix)'")
        }
        guard topic == space.base || topic.hasPrefix(space.base + "/") else { return nil }
        let levels = topic.dropFirst(space.base.count + 1).split(separator: "/", omittingEmptySubsequences: false)
        if levels.count >= 3, levels[1] == "response" { return nil }
        return refused("under '\(space.base)/', but not under '\(space.prefix)response/'")
    }
}
