import Bluetooth
import Bridge
import EventLoop
import MQTT

/// Notifications that leave, and commands that come.
@EventLoopActor
enum MessageCases {
    static func run(_ runner: Runner) throws {
        try notification(runner)
        try commands(runner)
        topics(runner)
    }

    /// A value, numbered, kept in the outbox, written, sent and acknowledged.
    private static func notification(_ runner: Runner) throws {
        let stand = Stand(devices: 0)
        let value = [UInt8](0..<20)
        let before = stand.broker.published
        runner.measure("notification, to the acknowledgement") { round in
            stand.tick()
            value.withUnsafeBytes { bytes in
                stand.bridge.didReceive(
                    HeardValue(
                        address: Signals.address(round % 20), service: "fff0", characteristic: "fff1", bytes: bytes,
                        isRead: false))
            }
            stand.broker.acknowledge()
        }
        guard stand.broker.published > before else {
            throw BenchFault(description: "notifications were not published: the case measures nothing")
        }
    }

    private static func commands(_ runner: Runner) throws {
        let text = #"{"id":"q00000001","device":"C0:FE:00:00:00:01","service":"fff0","characteristic":"fff1"}"#
        let payload = Array(text.utf8)
        var isFine = true
        runner.measure("command, from JSON to request") { _ in
            payload.withUnsafeBytes { bytes in
                if (try? Request.parse(verb: "read", payload: bytes, isTooLarge: false)) == nil { isFine = false }
            }
        }
        guard isFine else { throw BenchFault(description: "the command was refused") }

        // A verb that there is not is refused at once, so it shows the way in and out without a task.
        let stand = Stand(devices: 0)
        let before = stand.broker.published
        runner.measure("command, refused and answered") { _ in
            stand.tick()
            send(stand, "blueferry/bench/request/juggle", payload)
            stand.broker.acknowledge()
        }
        guard stand.broker.published > before else { throw BenchFault(description: "no command was answered") }
    }

    private static func topics(_ runner: Runner) {
        let stand = Stand(devices: 0)
        runner.measure("topic that is no command") { _ in
            send(stand, "blueferry/bench/devices/c0fe00000001/advertisement", [])
        }
        guard let filter = TopicFilter("blueferry/+/devices/+/characteristics/#") else { return }
        let topic = "blueferry/bench/devices/c0fe00000001/characteristics/fff0/fff1"
        var matches = 0
        runner.measure("topic against a filter") { _ in
            if filter.matches(topic) { matches += 1 }
        }
    }

    private static func send(_ stand: Stand, _ topic: String, _ payload: [UInt8]) {
        var topic = topic
        topic.withUTF8 { topic in
            payload.withUnsafeBytes { payload in
                stand.bridge.brokerDidReceive(
                    InboundMessage(topic: UnsafeRawBufferPointer(topic), payload: payload))
            }
        }
    }
}
