import EventLoop
import Glibc
import MQTT
import Sandbox
import TestKit
import XCTest

/// A client whose events a test can wait for.
@EventLoopActor
final class Recorder {
    let client: MQTTClient
    let monitor: Monitor
    var connects: [ConnectInfo] = []
    var faults: [MQTTFault] = []
    var acknowledged: [PublishToken] = []
    var lost: [PublishToken] = []
    var subscribed: [String] = []
    var messages: [MQTTReceived] = []

    init(_ settings: MQTTSettings, monitor: Monitor = Monitor()) {
        self.monitor = monitor
        client = MQTTClient(settings)
        client.onConnect = { [unowned self] in
            connects.append($0)
            monitor.changed()
        }
        client.onDisconnect = { [unowned self] in
            faults.append($0)
            monitor.changed()
        }
        client.onPublished = { [unowned self] token, refused in
            XCTAssertNil(refused)
            acknowledged.append(token)
            monitor.changed()
        }
        client.onLost = { [unowned self] in lost += $0 }
        client.onSubscribed = { [unowned self] filter, _ in
            subscribed.append(filter)
            monitor.changed()
        }
        client.onMessage = { [unowned self] in
            messages.append($0)
            monitor.changed()
        }
    }

    func connect() async throws {
        client.start()
        try await monitor.wait("a connection") { self.client.state == .connected }
    }

    func fault(_ number: Int = 1, within timeout: Duration = .seconds(10)) async throws -> MQTTFault {
        try await monitor.wait("fault \(number)", within: timeout) { self.faults.count >= number }
        return faults[number - 1]
    }
}

class BrokerTestCase: XCTestCase {
    override class func setUp() {
        EventLoop.shared.startThread()
    }

    @EventLoopActor
    func settings(_ broker: PrivateBroker, _ id: String = "bridge", _ version: MQTTVersion = .v5) -> MQTTSettings {
        var settings = MQTTSettings(host: "127.0.0.1", port: broker.port, clientID: id)
        settings.version = version
        return settings
    }

    /// Source: proc(5), /proc/self/statm.
    func residentKilobytes() -> Int {
        guard let file = fopen("/proc/self/statm", "r") else { return 0 }
        defer { fclose(file) }
        var line = [CChar](repeating: 0, count: 256)
        guard fgets(&line, Int32(line.count), file) != nil else { return 0 }
        let text = String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        let pages = text.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0
        return pages * Int(sysconf(Int32(_SC_PAGESIZE))) / 1_024
    }
}

final class ClientTests: BrokerTestCase {
    @EventLoopActor
    func testMessagesGoThereAndBackInBothVersions() async throws {
        let broker = try await PrivateBroker.start()
        for version in [MQTTVersion.v5, .v311] {
            let probe = try await MQTTProbe.connect(port: broker.port, version: version)
            let recorder = Recorder(settings(broker, "bridge", version))
            try await recorder.connect()
            XCTAssertEqual(recorder.client.publish("a/b", [1, 2, 3]), .sent(.none))
            let first = try await probe.wait(for: "a/b")
            XCTAssertEqual(first.payload, [1, 2, 3])
            XCTAssertFalse(first.retain)
            guard case .sent(let token) = recorder.client.publish("a/c", [], qos: .atLeastOnce) else {
                return XCTFail("not sent")
            }
            try await recorder.monitor.wait("the acknowledgement") { recorder.acknowledged == [token] }
            let second = try await probe.wait(for: "a/c")
            XCTAssertEqual(second.qos, 1)
            XCTAssertEqual(second.payload, [])
            XCTAssertEqual(recorder.client.statistics.unacknowledged, 0)
            await recorder.client.stop(flushWithin: .seconds(1))
            await probe.stop()
        }
        await broker.stop()
    }

    @EventLoopActor
    func testPropertiesOfVersion5Travel() async throws {
        let broker = try await PrivateBroker.start()
        let probe = try await MQTTProbe.connect(port: broker.port)
        let recorder = Recorder(settings(broker))
        try await recorder.connect()
        var properties = PublishProperties()
        properties.responseTopic = "answers/here"
        properties.correlationData = [0, 255, 7]
        properties.messageExpiry = 60
        properties.contentType = "application/json"
        properties.userProperties = [.init(name: "a", value: "1"), .init(name: "b", value: "ü")]
        recorder.client.publish("q", Array("{}".utf8), qos: .atLeastOnce, properties: properties)
        let received = try await probe.wait(for: "q").properties
        XCTAssertEqual(received.responseTopic, properties.responseTopic)
        XCTAssertEqual(received.correlationData, properties.correlationData)
        XCTAssertEqual(received.contentType, properties.contentType)
        XCTAssertEqual(received.userProperties, properties.userProperties)
        XCTAssertLessThanOrEqual(try XCTUnwrap(received.messageExpiry), 60)
        properties.responseTopic = "answers/#"
        XCTAssertEqual(recorder.client.publish("q", [], properties: properties), .dropped(.failed))
        await recorder.client.stop(flushWithin: .seconds(1))
        await probe.stop()
        await broker.stop()
    }

    @EventLoopActor
    func testWrongTopicsAreRefusedAndTheLinkStays() async throws {
        let broker = try await PrivateBroker.start()
        let recorder = Recorder(settings(broker))
        try await recorder.connect()
        for topic in ["", "a/+", "#", "a\0b", String(repeating: "x", count: 70_000)] {
            XCTAssertEqual(recorder.client.publish(topic, [1]), .dropped(.invalidTopic), String(topic.prefix(5)))
        }
        let notUTF8: [CChar] = [97, -1, 0]
        let outcome = notUTF8.withUnsafeBufferPointer { topic in
            topic.baseAddress.map {
                recorder.client.publish(topic: $0, payload: UnsafeRawBufferPointer(start: nil, count: 0))
            }
        }
        XCTAssertEqual(outcome, .dropped(.invalidTopic))
        recorder.client.subscribe("a/#/b")
        XCTAssertEqual(recorder.subscribed, ["a/#/b"])
        recorder.client.publish("fine", [1], qos: .atLeastOnce)
        try await recorder.monitor.wait("the acknowledgement") { recorder.acknowledged.count == 1 }
        XCTAssertEqual(recorder.faults, [])
        await recorder.client.stop(flushWithin: .seconds(1))
        await broker.stop()
    }

    @EventLoopActor
    func testLargePayloadsArriveOrAreMarked() async throws {
        let broker = try await PrivateBroker.start()
        var limits = settings(broker)
        limits.receivedPayloadLimit = 1_000
        let recorder = Recorder(limits)
        try await recorder.connect()
        recorder.client.subscribe("in/#")
        try await recorder.monitor.wait("the subscription") { recorder.subscribed == ["in/#"] }
        let probe = try await MQTTProbe.connect(port: broker.port, subscribing: ["out/#"])
        let large = (0..<1 << 20).map { UInt8(truncatingIfNeeded: $0 &* 31) }
        recorder.client.publish("out/large", large, qos: .atLeastOnce)
        let received = try await probe.wait(for: "out/large")
        XCTAssertTrue(received.payload == large)
        try await probe.publish("in/large", large)
        try await probe.publish("in/small", Array(large.prefix(1_000)))
        try await recorder.monitor.wait("two messages") { recorder.messages.count == 2 }
        XCTAssertEqual(recorder.messages.map(\.isTooLarge), [true, false])
        XCTAssertEqual(recorder.messages.map(\.payloadLength), [1 << 20, 1_000])
        XCTAssertEqual(recorder.messages.map(\.payload.count), [0, 1_000])
        await recorder.client.stop(flushWithin: .seconds(1))
        await probe.stop()
        await broker.stop()
    }

    @EventLoopActor
    func testThePacketLimitOfTheBrokerHolds() async throws {
        var options = PrivateBroker.Options()
        options.lines = ["max_packet_size 2000"]
        let broker = try await PrivateBroker.start(options)
        let recorder = Recorder(settings(broker))
        try await recorder.connect()
        XCTAssertEqual(recorder.connects.first?.maximumPacketSize, 2_000)
        for qos in [QoS.atMostOnce, .atLeastOnce] {
            let large = [UInt8](repeating: 0, count: 2_000)
            XCTAssertEqual(recorder.client.publish("t", large, qos: qos), .dropped(.tooLarge))
        }
        recorder.client.publish("t", [UInt8](repeating: 0, count: 1_900), qos: .atLeastOnce)
        try await recorder.monitor.wait("the acknowledgement") { recorder.acknowledged.count == 1 }
        XCTAssertEqual(recorder.faults, [])
        await recorder.client.stop(flushWithin: .seconds(1))
        await broker.stop()
    }

    @EventLoopActor
    func testFiftyThousandMessagesArriveInOrder() async throws {
        var options = PrivateBroker.Options()
        options.lines = ["max_queued_messages 0", "log_type error"]
        let broker = try await PrivateBroker.start(options)
        let listener = Recorder(settings(broker, "listener"))
        try await listener.connect()
        listener.client.subscribe("t/#", SubscribeOptions(qos: .atMostOnce))
        try await listener.monitor.wait("the subscription") { listener.subscribed.count == 1 }
        var next = 0
        var failures = 0
        listener.client.onMessage = { message in
            if message.payload != Array("\(next)".utf8) { failures += 1 }
            next += 1
            if next == 50_000 { listener.monitor.changed() }
        }
        let recorder = Recorder(settings(broker))
        try await recorder.connect()
        for number in 0..<50_000 {
            while recorder.client.publish("t/x", Array("\(number)".utf8)) == .dropped(.slow) {
                try await SystemClock.shared.sleep(for: .milliseconds(1))
            }
        }
        try await listener.monitor.wait("all messages", within: .seconds(60)) { next == 50_000 }
        XCTAssertEqual(failures, 0)
        await recorder.client.stop(flushWithin: .seconds(1))
        await listener.client.stop(flushWithin: .seconds(1))
        await broker.stop()
    }

    @EventLoopActor
    func testManyMessagesOfQoS1AreAcknowledgedOnceEach() async throws {
        var options = PrivateBroker.Options()
        options.lines = ["max_queued_messages 0", "log_type error"]
        let broker = try await PrivateBroker.start(options)
        for version in [MQTTVersion.v5, .v311] {
            let recorder = Recorder(settings(broker, "bridge", version))
            try await recorder.connect()
            var sent: [PublishToken] = []
            while sent.count < 5_000 {
                switch recorder.client.publish("t", Array("\(sent.count)".utf8), qos: .atLeastOnce) {
                case .sent(let token): sent.append(token)
                case .dropped(let reason):
                    XCTAssertEqual(reason, .full)
                    let before = recorder.acknowledged.count
                    try await recorder.monitor.wait("room") { recorder.acknowledged.count > before }
                }
            }
            try await recorder.monitor.wait("all acknowledgements") { recorder.acknowledged.count == 5_000 }
            XCTAssertEqual(recorder.acknowledged, sent)
            await recorder.client.stop(flushWithin: .seconds(1))
        }
        await broker.stop()
    }

    @EventLoopActor
    func testAUnixSocketServes() async throws {
        var options = PrivateBroker.Options()
        options.listener += ["listener 0 {directory}/socket"]
        let broker = try await PrivateBroker.start(options)
        let path = broker.directory.file("socket")
        let recorder = Recorder(MQTTSettings(unixSocketPath: path, clientID: "bridge"))
        try await recorder.connect()
        recorder.client.publish("t", [1], qos: .atLeastOnce)
        try await recorder.monitor.wait("the acknowledgement") { recorder.acknowledged.count == 1 }
        await recorder.client.stop(flushWithin: .seconds(1))
        await broker.stop()
    }
}
