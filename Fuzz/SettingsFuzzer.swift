internal import Bluetooth
internal import Configuration
internal import EventLoop
internal import JSON
internal import MQTT

@testable internal import Bridge

/// A settings file, to what the bridge and its broker's client are given; each line is also tried as an argument.
@EventLoopActor
enum SettingsFuzzer {
    static func run(_ input: UnsafeRawBufferPointer) {
        let text = String(decoding: input, as: UTF8.self)
        if let settings = try? Settings.parse(text, file: "f.yaml") { use(settings) }
        for line in text.split(separator: "\n").prefix(4) {
            let parts = line.split(separator: "=", maxSplits: 1).map(String.init)
            // A password file is read, and the input may name any.
            guard parts.count == 2, !parts[0].contains("file") else { continue }
            if let settings = try? Settings.load(path: nil, overrides: [(parts[0], parts[1])]) { use(settings) }
        }
    }

    private static func use(_ settings: Settings) {
        let bridge = BridgeSettings(settings, version: "0")
        let client = MQTTSettings(settings, bridge: bridge, clientID: "client")
        precondition(MQTTTopic.isValid(client.will?.topic ?? ""), "the will's topic is not valid")
        precondition(isTopicSafe(bridge.gateway, limit: 64), "the gateway's id cannot stand in a topic")
        precondition(!bridge.dump.serialised().isEmpty)
    }
}

/// The broker's URL: what is read shows as a URL that reads the same, and without credentials.
@EventLoopActor
enum URLFuzzer {
    static func run(_ input: UnsafeRawBufferPointer) {
        guard let url = try? BrokerURL(parsing: String(decoding: input, as: UTF8.self)) else { return }
        let again = try? BrokerURL(parsing: url.description)
        precondition(again?.host == url.host && again?.port == url.port, "'\(url)' does not read the same")
        precondition(again?.isTLS == url.isTLS && again?.socketPath == url.socketPath)
        precondition(again?.username == nil && again?.password == nil, "'\(url)' shows credentials")
    }
}
