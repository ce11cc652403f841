internal import Bluetooth
internal import JSON

@testable internal import Bridge
@testable internal import EventLoop

/// A message from the broker, to its answer: a line with the topic below `blueferry/gw/`, a line with the response topic
/// of MQTT 5, and the payload.
@EventLoopActor
enum CommandFuzzer {
    static func run(_ input: UnsafeRawBufferPointer) {
        let parts = input.parts(3)
        let broker = SilentBroker()
        let radio = EmptyRadio()
        var settings = BridgeSettings()
        settings.gateway = "gw"
        let bridge = Bridge(
            settings: settings, radio: radio, broker: broker, outbox: MemoryOutbox(limit: 100), clock: ManualClock())
        bridge.brokerDidConnect()
        broker.sent = []
        var properties = MessageProperties()
        if !parts[1].isEmpty {
            properties.responseTopic = String(decoding: parts[1], as: UTF8.self)
            properties.correlationData = parts[1]
        }
        let topic = Array("blueferry/gw/".utf8) + parts[0]
        topic.withUnsafeBytes { topic in
            parts[2].withUnsafeBytes { payload in
                bridge.brokerDidReceive(InboundMessage(topic: topic, payload: payload, properties: properties))
            }
        }
        // The command is a job of the loop, and so are its steps.
        for _ in 0..<8 { EventLoop.shared.runJobs() }
        check(broker.sent, isRequest: InboundTopic.isRequest(topic))
    }

    private static func check(_ sent: [(topic: String, payload: [UInt8])], isRequest: Bool) {
        var answers = 0
        for (topic, payload) in sent {
            precondition(TopicFuzzer.mayBeAnswered(topic) || topic.hasPrefix("blueferry/gw/"), "sent to \(topic)")
            guard let json = try? JSONValue.parse(payload) else { continue }
            if json["status"] != nil { answers += 1 }
        }
        precondition(!isRequest || answers == 1, "\(answers) answers to a request")
    }
}

extension InboundTopic {
    fileprivate static func isRequest(_ topic: [UInt8]) -> Bool {
        let space = TopicSpace(base: "blueferry", gateway: "gw")
        guard case .request = topic.withUnsafeBytes({ InboundTopic($0, in: space) }) else { return false }
        return true
    }
}

/// Takes everything and keeps it for the check.
@EventLoopActor
private final class SilentBroker: BrokerPort {
    weak var delegate: (any BrokerDelegate)?
    var isConnected: Bool { true }
    var hasProperties: Bool { true }
    var reconnects: UInt64 { 0 }
    var queuedBytes: Int { 0 }
    var sent: [(topic: String, payload: [UInt8])] = []
    private var token: UInt64 = 0

    func start() {}
    func stop(flushWithin: Duration) async {}
    func subscribe(_ filter: String) {}

    func publish(
        topic: UnsafeBufferPointer<UInt8>, payload: UnsafeRawBufferPointer, qos: UInt8, retain: Bool,
        properties: MessageProperties?
    ) -> PublishResult {
        sent.append((String(decoding: topic.dropLast(), as: UTF8.self), Array(payload)))
        token += 1
        return .sent(token: token)
    }
}

/// A radio that answers each call at once, reads with two bytes, the rest with success or with an error by the device.
@EventLoopActor
private final class EmptyRadio: RadioPort {
    weak var delegate: (any RadioDelegate)?
    var problem: String? { nil }
    var adapters: [AdapterReport] { [] }
    var scans: [ScanReport] = []
    var counts: RadioCounts { RadioCounts() }
    var deviceAddresses: [BluetoothAddress] { [] }

    func start() {}
    func stop() async {}
    func device(_ address: BluetoothAddress) -> DeviceReport? { nil }
    func services(_ address: BluetoothAddress) -> [ServiceReport] { [] }

    func startScan(_ command: ScanCommand) throws(CommandError) -> ScanReport {
        let scan = ScanReport(id: "scan1", command: command, started: WallTime(milliseconds: 0))
        scans = [scan]
        return scan
    }
    func stopScan(_ id: String) -> Bool { id == "scan1" }
    func keepConnected(_ address: BluetoothAddress, adapter: String?) {}
    func wantSubscriptions(_ address: BluetoothAddress, _ paths: [AttributePath]) {}
    func cancelConnect(_ address: BluetoothAddress) {}

    private func answer(_ address: BluetoothAddress) throws(CommandError) {
        if address.value & 1 == 0 { throw CommandError(.unknownDevice, "not here") }
    }
    func connect(
        _ address: BluetoothAddress, adapter: String?, timeout: Duration?, keep: Bool
    ) async throws(CommandError) { try answer(address) }
    func disconnect(_ address: BluetoothAddress, force: Bool) async throws(CommandError) -> Bool { force }
    func read(
        _ address: BluetoothAddress, _ path: AttributePath, offset: Int, timeout: Duration
    ) async throws(CommandError) -> [UInt8] {
        try answer(address)
        return [0xc3, 0x28]
    }
    func write(
        _ address: BluetoothAddress, _ path: AttributePath, value: [UInt8], mode: WriteMode, offset: Int,
        timeout: Duration
    ) async throws(CommandError) {
        precondition(value.count + offset <= 512, "longer than an attribute can be")
        try answer(address)
    }
    func subscribe(_ address: BluetoothAddress, _ path: AttributePath, timeout: Duration) async throws(CommandError) {
        try answer(address)
    }
    func unsubscribe(_ address: BluetoothAddress, _ path: AttributePath) async throws(CommandError) {}
    func linkRSSI(_ address: BluetoothAddress) async throws(CommandError) -> Int8 { -60 }
    func pair(_ address: BluetoothAddress, timeout: Duration) async throws(CommandError) { try answer(address) }
    func unpair(_ address: BluetoothAddress) async throws(CommandError) {}
    func forget(_ address: BluetoothAddress) async throws(CommandError) { try answer(address) }
}
