internal import EventLoop
internal import JSON
internal import MQTT

/// What became of the commands.
public struct CommandCount: Equatable, Sendable {
    public var asked = 0
    public var once = 0
    public var twice = 0
    public var ok = 0
    public var unknown = 0
    /// Answered by another error, and how often each.
    public var refused: [String: Int] = [:]
    /// Never answered, though asked again and again.
    public var unanswered = 0
    /// Answered `ok` and never seen by the peer.
    public var pretended = 0
    /// Answered at first so, and when repeated otherwise.
    public var contradicted = 0

    public init() {}

    /// One command: the first answer (nil: none), and how often its peer saw it.
    public mutating func add(answer: String?, contradicted isContradicted: Bool, acted: Int) {
        asked += 1
        if acted == 1 { once += 1 }
        if acted > 1 { twice += 1 }
        if isContradicted { contradicted += 1 }
        switch answer {
        case nil: unanswered += 1
        case "ok"?:
            ok += 1
            if acted == 0 { pretended += 1 }
        case "outcome_unknown"?: unknown += 1
        case let code?: refused[code, default: 0] += 1
        }
    }
}

/// Asks for writes as a careful client does: each has an id, and is asked again under it until it is answered. Each
/// fifth is sent twice at once.
@EventLoopActor
final class Commander {
    private final class Asked {
        let channel: Int
        let value: String
        let payload: [UInt8]
        var sentAt: Double
        var answer: String?
        var isContradicted = false

        init(channel: Int, value: String, payload: [UInt8], sentAt: Double) {
            (self.channel, self.value, self.payload, self.sentAt) = (channel, value, payload, sentAt)
        }
    }

    private static let patience = 3_000.0

    private let client: MQTTClient
    private let topic: String
    private let devices: [String]
    private var asked: [String: Asked] = [:]
    private var order: [String] = []
    private var timer: LoopTimer?
    private var repeater: LoopTimer?
    /// Unlike those of any earlier row, which the radio's log still has.
    private var number = UInt32.random(in: 0..<0x4000_0000)
    private var next = 0
    /// Since when there are commands that have not been counted.
    private(set) var since = milliseconds()

    init(port: UInt16, prefix: String, devices: [String]) {
        var settings = MQTTSettings(host: "127.0.0.1", port: port, clientID: "endurance-commander")
        settings.connectTimeout = .seconds(3)
        client = MQTTClient(settings)
        topic = "\(prefix)/request/write"
        self.devices = devices
        client.start()
    }

    var isConnected: Bool { client.state == .connected }

    /// Asks so many times a second.
    func start(rate: Double) {
        guard rate > 0 else { return }
        let pause = Duration.milliseconds(Int64(1000 / rate))
        timer = SystemClock.shared.schedule(after: pause) { [weak self] in
            self?.ask()
            self?.start(rate: rate)
        }
        if repeater == nil { askAgain() }
    }

    /// Asks nothing new.
    func pause() {
        timer?.cancel()
        timer = nil
    }

    func stop() async {
        pause()
        repeater?.cancel()
        await client.stop(flushWithin: .seconds(1))
    }

    var unanswered: Int { asked.values.count { $0.answer == nil } }

    /// Publishes a marker, which the probe is to see.
    func mark(_ text: String) { client.publish("endurance/marker", Array(text.utf8), qos: .atLeastOnce) }

    private func ask() {
        guard isConnected else { return }
        number &+= 1
        next += 1
        let channel = next % devices.count
        let bytes = (0..<4).map { UInt8(truncatingIfNeeded: number >> (8 * UInt32($0))) }
        let value = bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
        let id = "endurance-\(number)"
        let payload = JSONValue.object([
            ("id", .string(id)), ("device", .string(devices[channel])), ("service", .string("fff0")),
            ("characteristic", .string("fff2")), ("value", .string(value)), ("type", .string("request")),
            ("timeout", .int(5000)),
        ]).serialised()
        asked[id] = Asked(channel: channel, value: value, payload: payload, sentAt: milliseconds())
        order.append(id)
        client.publish(topic, payload, qos: .atLeastOnce)
        if next % 5 == 0 { client.publish(topic, payload, qos: .atLeastOnce) }
    }

    private func askAgain() {
        repeater = SystemClock.shared.schedule(after: .milliseconds(500)) { [weak self] in
            guard let self else { return }
            let now = milliseconds()
            for id in order where isConnected {
                guard let command = asked[id], command.answer == nil, now - command.sentAt > Self.patience else {
                    continue
                }
                command.sentAt = now
                client.publish(topic, command.payload, qos: .atLeastOnce)
            }
            askAgain()
        }
    }

    /// What was asked until now is not counted.
    func forget() {
        asked = [:]
        order = []
        since = milliseconds()
    }

    func take(_ answer: JSONValue) {
        guard let id = answer["id"]?.stringValue, let command = asked[id] else { return }
        let said = answer["status"] == .string("ok") ? "ok" : answer["error"]?["code"]?.stringValue ?? "?"
        // A refusal for want of room is no answer to keep: a repeat may find room.
        if let first = command.answer, first != "busy" {
            if first != said, said != "busy" { command.isContradicted = true }
        } else {
            command.answer = said
        }
    }

    /// Counts what was asked by what the peers wrote down, by channel: the values in the order of their writes. A new row
    /// begins.
    func settle(_ written: [[String]]) -> CommandCount {
        var count = CommandCount()
        var acted: [String: Int] = [:]
        for value in written.joined() { acted[value, default: 0] += 1 }
        for id in order {
            guard let command = asked[id] else { continue }
            count.add(
                answer: command.answer, contradicted: command.isContradicted, acted: acted[command.value] ?? 0)
        }
        forget()
        return count
    }
}
