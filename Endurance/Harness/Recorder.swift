internal import EventLoop
internal import JSON
internal import TestKit

/// The time that everything here is measured by: milliseconds of the monotonic clock, as the radio's log has them too.
func milliseconds() -> Double { Double(MonotonicTime.now.nanoseconds) / 1e6 }

/// Notes what arrives: values and answers from the probe, acknowledgements from the relay.
@EventLoopActor
final class Recorder {
    let monitor = Monitor()
    private(set) var received: [ReceivedValue] = []
    private(set) var acknowledged: Set<UInt64> = []
    /// The highest number of each channel that has arrived.
    private(set) var highest: [UInt32?]
    private(set) var advertisements = 0
    /// Codes on `events`, and how often.
    private(set) var events: [String: Int] = [:]
    /// Markers of the harness itself.
    private(set) var markers: Set<String> = []
    var onAnswer: (@EventLoopActor (JSONValue) -> Void)?

    // Since ``watch(from:)``
    private(set) var firstValueAt: Double?
    private(set) var firstAdvertisementAt: Double?
    /// When a value of each channel arrived that was sent after the watch began.
    private(set) var freshAt: [Double?]
    private var fresh: [UInt32] = []

    private let prefix: String
    private var channels: [String: Int] = [:]

    /// - Parameter devices: of each channel, as topics name it.
    init(prefix: String, devices: [String]) {
        self.prefix = prefix
        highest = [UInt32?](repeating: nil, count: devices.count)
        freshAt = [Double?](repeating: nil, count: devices.count)
        for (index, device) in devices.enumerated() {
            channels["\(prefix)/devices/\(device)/characteristics/fff0/fff1"] = index
        }
    }

    var channelCount: Int { highest.count }

    /// A new row: what came before is forgotten, but for what has arrived of each channel.
    func begin() {
        received = []
        acknowledged = []
        advertisements = 0
        events = [:]
    }

    /// Notes from now on the first value, the first advertisement, and of each channel the first of these numbers or
    /// above.
    func watch() {
        firstValueAt = nil
        firstAdvertisementAt = nil
        fresh = []
        freshAt = [Double?](repeating: nil, count: channelCount)
    }

    func watch(from numbers: [UInt32]) { fresh = numbers }

    var isAllFresh: Bool { !fresh.isEmpty && freshAt.allSatisfy { $0 != nil } }

    // MARK: From the probe

    func take(topic: Substring, payload: Substring) {
        let text = String(topic)
        if text.hasSuffix("/advertisement") {
            advertisements += 1
            if firstAdvertisementAt == nil { firstAdvertisementAt = milliseconds() }
        } else if let channel = channels[text] {
            takeValue(channel, payload)
        } else if text.hasPrefix("endurance/") {
            markers.insert(String(payload))
        } else if text.hasPrefix("\(prefix)/response/") {
            if let answer = try? JSONValue.parse(Array(payload.utf8)) { onAnswer?(answer) }
        } else if text == "\(prefix)/events" {
            let code = (try? JSONValue.parse(Array(payload.utf8)))?["code"]?.stringValue ?? "?"
            events[code, default: 0] += 1
        }
        monitor.changed()
    }

    private func takeValue(_ channel: Int, _ payload: Substring) {
        guard let value = Self.value(channel, Array(payload.utf8)) else { return }
        received.append(value)
        highest[channel] = max(highest[channel] ?? 0, value.number)
        if firstValueAt == nil { firstValueAt = value.at }
        if !fresh.isEmpty, value.number >= fresh[channel], freshAt[channel] == nil { freshAt[channel] = value.at }
    }

    private static func value(_ channel: Int, _ payload: [UInt8]) -> ReceivedValue? {
        guard let json = try? JSONValue.parse(payload), json["source"] == .string("notify"),
            let epoch = json["epoch"]?.stringValue, let sequence = json["sequence"]?.intValue,
            let number = json["value"]?.stringValue.flatMap({ UInt32($0.prefix(8), radix: 16)?.byteSwapped })
        else { return nil }
        return ReceivedValue(
            channel: channel, epoch: epoch, sequence: UInt64(clamping: sequence), number: number, at: milliseconds())
    }

    // MARK: From the relay

    func noteAcknowledged(_ message: PublishFrame) {
        guard let channel = channels[message.topic], let value = Self.value(channel, message.payload) else { return }
        acknowledged.insert(Notes.key(channel, value.number))
    }
}
