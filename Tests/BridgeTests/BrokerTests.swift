import Bluetooth
import Configuration
import EventLoop
import JSON
import MQTT
import Sandbox
import TestKit
import XCTest

@testable import Bridge

/// The bridge on a real broker, with a radio that does what the test says.
final class BrokerTests: LoopTestCase {
    /// A bridge with a broker of its own.
    @EventLoopActor
    private final class Rig {
        let broker: PrivateBroker
        let radio = FakeRadio()
        let client: MQTTClient
        let bridge: Bridge
        private(set) var log: [String] = []
        private final class Log { var lines: [String] = [] }
        private let lines: Log
        var logged: [String] { lines.lines }

        init(
            broker: PrivateBroker, base: String = "blueferry", version: MQTTVersion = .v5, clientID: String = "bridge"
        ) {
            self.broker = broker
            var settings = BridgeSettings()
            settings.base = base
            settings.gateway = "gw"
            settings.devices = [BridgeSettings.Device(address: Bench.strap, name: "strap")]
            var mqtt = MQTTSettings(host: "127.0.0.1", port: broker.port, clientID: clientID)
            mqtt.version = version
            let will = Bridge.will(TopicSpace(base: base, gateway: "gw"))
            mqtt.will = MQTTMessage(topic: will.topic, payload: will.payload, qos: .atLeastOnce, retain: true)
            mqtt.receivedPayloadLimit = Request.maximumSize
            client = MQTTClient(mqtt)
            let lines = Log()
            self.lines = lines
            bridge = Bridge(
                settings: settings, radio: radio, broker: MQTTBroker(client), outbox: MemoryOutbox(limit: 10_000),
                log: { level, code, message, _ in lines.lines.append("\(level.name) \(code) \(message)") })
            radio.devices[Bench.strap] = DeviceReport(
                address: Bench.strap, addressType: .random, name: "a/b+c#d\te", link: LinkReport(state: .connected))
            bridge.start()
        }
    }

    private func json(_ message: MQTTReceived) throws -> JSONValue { try JSONValue.parse(message.payload) }

    @EventLoopActor
    func testCommandsOverMQTT5() async throws {
        let broker = try await PrivateBroker.start()
        let rig = Rig(broker: broker)
        let probe = try await MQTTProbe.connect(port: broker.port)
        try await probe.wait(for: "blueferry/gw/status") { $0.text == "online" }
        var properties = PublishProperties()
        properties.responseTopic = "answers/me"
        properties.correlationData = [0, 1, 2]
        try await probe.publish("blueferry/gw/request/devices", #"{"id":"d"}"#, properties: properties)
        let answer = try await probe.wait(for: "answers/me")
        XCTAssertEqual(answer.properties.correlationData, [0, 1, 2])
        XCTAssertFalse(answer.retain)
        let devices = try json(answer)["data"]?["devices"]?.arrayValue
        XCTAssertEqual(devices?.first?["local_name"]?.stringValue, "a/b+c#d\te")
        XCTAssertEqual(devices?.first?["name"]?.stringValue, "strap")
        for payload in [[0xff, 0xfe], [], Array(#"{"value":"#.utf8), [UInt8](repeating: 0x7b, count: 1 << 20)]
            as [[UInt8]]
        {
            try await probe.publish("blueferry/gw/request/read", payload)
            let refused = try json(try await probe.wait(for: "blueferry/gw/response/read"))
            XCTAssertEqual(refused["error"]?["code"]?.stringValue, "bad_request")
            XCTAssertEqual(refused["id"], .null)
        }
        let read = #"{"id":1,"device":"strap","service":"180f","characteristic":"2a19"}"#
        try await probe.publish("blueferry/gw/request/read", read)
        let ok = try json(try await probe.wait(for: "blueferry/gw/response/read"))
        XCTAssertEqual(ok["data"]?["value"]?.stringValue, "64")
        await probe.stop()
        await rig.bridge.stop()
        await broker.stop()
    }

    @EventLoopActor
    func testCommandsOverMQTT311() async throws {
        let broker = try await PrivateBroker.start()
        let rig = Rig(broker: broker, version: .v311)
        let probe = try await MQTTProbe.connect(port: broker.port, version: .v311)
        try await probe.wait(for: "blueferry/gw/status") { $0.text == "online" }
        try await probe.publish("blueferry/gw/request/config", #"{"id":2,"reply_to":"client-1"}"#)
        let answer = try json(try await probe.wait(for: "blueferry/gw/response/config/client-1"))
        XCTAssertEqual(answer["id"]?.intValue, 2)
        await probe.stop()
        await rig.bridge.stop()
        await broker.stop()
    }

    @EventLoopActor
    func testABaseWithSlashesIsNotMixedUpWithItsNeighbour() async throws {
        let broker = try await PrivateBroker.start()
        let rig = Rig(broker: broker, base: "home/ble/b1")
        let probe = try await MQTTProbe.connect(port: broker.port)
        try await probe.wait(for: "home/ble/b1/gw/status") { $0.text == "online" }
        try await probe.publish("home/ble/b1x/gw/request/devices", #"{"id":1}"#)
        try await probe.publish("home/ble/b1/gw/request/devices", #"{"id":2}"#)
        let answer = try json(try await probe.wait(for: "home/ble/b1/gw/response/devices"))
        XCTAssertEqual(answer["id"]?.intValue, 2)
        await probe.stop()
        await rig.bridge.stop()
        await broker.stop()
    }

    @EventLoopActor
    func testARetainedCommandIsRefusedLiveAndAfterAReconnect() async throws {
        let broker = try await PrivateBroker.start()
        let rig = Rig(broker: broker)
        let probe = try await MQTTProbe.connect(port: broker.port)
        try await probe.wait(for: "blueferry/gw/status") { $0.text == "online" }
        let connect = #"{"id":"r","device":"c00000000001"}"#
        try await probe.publish("blueferry/gw/request/connect", connect, retain: true)
        let event = try json(try await probe.wait(for: "blueferry/gw/events"))
        XCTAssertEqual(event["code"]?.stringValue, "retained_command")
        XCTAssertFalse(rig.radio.calls.contains { $0.hasPrefix("connect") })
        // The empty retained message that takes it away is no command.
        try await probe.publish("blueferry/gw/request/connect", "", retain: true)
        try await probe.publish("blueferry/gw/request/connect", connect)
        try await probe.wait(for: "blueferry/gw/response/connect") { $0.text.contains(#""status":"ok""#) }
        await probe.stop()
        await rig.bridge.stop()
        await broker.stop()
    }

    @EventLoopActor
    func testAfterABrokerRestartTheStateIsBackAndCommandsRun() async throws {
        let broker = try await PrivateBroker.start()
        let rig = Rig(broker: broker)
        let before = try await MQTTProbe.connect(port: broker.port)
        try await before.wait(for: "blueferry/gw/status") { $0.text == "online" }
        await before.stop()
        await broker.killBroker()
        for number in 0..<50 {
            [UInt8(number)].withUnsafeBytes { bytes in
                rig.bridge.didReceive(
                    HeardValue(
                        address: Bench.strap, service: "180f", characteristic: "2a19", bytes: bytes, isRead: false))
            }
        }
        // The probe listens before the bridge is back, or it would miss what is not retained.
        try await broker.startBroker()
        let probe = try await MQTTProbe.connect(port: broker.port)
        try await probe.wait(for: "blueferry/gw/status") { $0.text == "online" }
        try await probe.publish("blueferry/gw/request/config", #"{"id":1}"#)
        try await probe.wait(for: "blueferry/gw/response/config")
        let late = try await MQTTProbe.connect(port: broker.port)
        let status = try await late.wait(for: "blueferry/gw/status")
        XCTAssertEqual(status.text, "online")
        XCTAssertTrue(status.retain)
        try await late.wait(for: "blueferry/gw/devices/c00000000001") { $0.retain }
        await late.stop()
        await probe.stop()
        await rig.bridge.stop()
        await broker.stop()
    }

    @EventLoopActor
    func testACleanStopLeavesOfflineRetained() async throws {
        let broker = try await PrivateBroker.start()
        let rig = Rig(broker: broker)
        let probe = try await MQTTProbe.connect(port: broker.port)
        try await probe.wait(for: "blueferry/gw/status") { $0.text == "online" }
        await rig.bridge.stop()
        try await probe.wait(for: "blueferry/gw/status") { $0.text == "offline" }
        XCTAssertTrue(rig.radio.calls.contains("stop"))
        let late = try await MQTTProbe.connect(port: broker.port)
        let status = try await late.wait(for: "blueferry/gw/status")
        XCTAssertEqual(status.text, "offline")
        await late.stop()
        await probe.stop()
        await broker.stop()
    }

    @EventLoopActor
    func testAStopWithoutABrokerIsQuick() async throws {
        let broker = try await PrivateBroker.start()
        await broker.killBroker()
        let rig = Rig(broker: broker)
        let begin = MonotonicTime.now
        await rig.bridge.stop()
        XCTAssertLessThan(MonotonicTime.now - begin, .seconds(5))
        await broker.stop()
    }

    @EventLoopActor
    func testASecretIsNowhere() async throws {
        var options = PrivateBroker.Options()
        options.listener = ["listener {port} 127.0.0.1", "allow_anonymous true"]
        let broker = try await PrivateBroker.start(options)
        let settings = try Settings.load(
            path: nil,
            overrides: [
                ("mqtt.url", "mqtt://u:s3cr3t@127.0.0.1:\(broker.port)"), ("gateway.id", "gw"),
                ("logging.level", "debug"),
            ])
        let bridgeSettings = BridgeSettings(settings, version: "1")
        var mqtt = MQTTSettings(settings, bridge: bridgeSettings, clientID: "secretive")
        XCTAssertEqual(mqtt.password, "s3cr3t")
        mqtt.connectTimeout = .seconds(5)
        final class Log { var lines: [String] = [] }
        let log = Log()
        let bridge = Bridge(
            settings: bridgeSettings, radio: FakeRadio(), broker: MQTTBroker(MQTTClient(mqtt)),
            outbox: MemoryOutbox(limit: 100)
        ) { level, code, message, _ in log.lines.append("\(level) \(code) \(message)") }
        let probe = try await MQTTProbe.connect(port: broker.port)
        bridge.start()
        try await probe.wait(for: "blueferry/gw/status") { $0.text == "online" }
        try await probe.publish("blueferry/gw/request/config", #"{"id":1}"#)
        try await probe.wait(for: "blueferry/gw/response/config")
        try await probe.settle()
        await bridge.stop()
        XCTAssertFalse(probe.messages.isEmpty)
        for message in probe.messages { XCTAssertFalse(message.text.contains("s3cr3t"), message.topic) }
        for line in log.lines + ["\(mqtt)", "\(settings)"] { XCTAssertFalse(line.contains("s3cr3t"), line) }
        await probe.stop()
        await broker.stop()
    }
}
