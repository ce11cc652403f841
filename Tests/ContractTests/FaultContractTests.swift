import EventLoop
import JSON
import MQTT
import Sandbox
import TestKit
import XCTest

final class FaultContractTests: ContractCase {
    @EventLoopActor
    private var keptStrap: String {
        "devices: [{ address: \"\(Self.strap)\", name: strap, connect: always, subscribe: [180d/2a37] }]"
    }

    /// Waits until the kept strap notifies, and says how it is with the link.
    @EventLoopActor
    private func waitForHeartbeat(_ world: World, within timeout: Duration = .seconds(40)) async throws {
        world.probe.discard()
        try await world.probe.wait(
            for: "\(world.topic)/devices/c00000000001/characteristics/180d/2a37", within: timeout
        ) { $0.json["source"] == .string("notify") }
    }

    @EventLoopActor
    func testALostLinkComesBackWithItsSubscription() async throws {
        try await inWorld(keptStrap) { world in
            try await waitForHeartbeat(world)
            try await world.radio.send("disconnect", ["device": .string("strap")])
            try await world.probe.wait(for: "\(world.topic)/devices/c00000000001/connection") {
                $0.json["state"] != .string("connected")
            }
            try await waitForHeartbeat(world)
            // One subscription, not two: each notification comes once.
            world.probe.discard()
            let sent = try await world.radio.send(
                "notify",
                [
                    "device": .string("strap"), "characteristic": .string("180d/2a37"), "count": .int(5),
                    "gap": .int(20), "size": .int(9),
                ])
            XCTAssertEqual(sent["sent"], .int(5))
            var values: [String] = []
            while values.count < 5 {
                let message = try await world.probe.wait(
                    for: "\(world.topic)/devices/c00000000001/characteristics/180d/2a37"
                ) { $0.json["length"] == .int(9) }
                values.append(message.json["value"]?.stringValue ?? "")
            }
            try await world.probe.settle()
            let more = world.probe.unread.filter { $0.topic.hasSuffix("180d/2a37") && $0.json["length"] == .int(9) }
            XCTAssertEqual(more.count, 0)
            XCTAssertEqual(Set(values).count, 5)
        }
    }

    @EventLoopActor
    func testTheDaemonKilledAndBack() async throws {
        try await inWorld(keptStrap) { world in
            try await waitForHeartbeat(world)
            try await world.radio.send("daemon_kill")
            try await world.waitForAdapter { $0["state"] != .string("poweredOn") }
            try await world.probe.wait(for: "\(world.topic)/devices/c00000000001/connection") {
                $0.json["state"] != .string("connected")
            }
            try await world.radio.send("daemon_start")
            try await world.waitForAdapter(within: .seconds(30)) { $0["state"] == .string("poweredOn") }
            world.probe.discard()
            // BlueZ answers InProgress for about nine seconds after it was killed while it discovered.
            try await world.probe.wait(for: "\(world.topic)/devices/+/advertisement", within: .seconds(30))
            try await waitForHeartbeat(world)
            XCTAssertEqual(world.bridge?.isRunning, true)
        }
    }

    @EventLoopActor
    func testTheDaemonStoppedAndBack() async throws {
        try await inWorld { world in
            try await world.hear(Self.strap)
            try await world.radio.send("daemon_stop")
            try await world.waitForAdapter { $0["state"] != .string("poweredOn") }
            try await world.radio.send("daemon_start")
            try await world.radio.send("power", ["adapter": .string("hci0"), "on": .bool(true)])
            try await world.waitForAdapter(within: .seconds(30)) { $0["state"] == .string("poweredOn") }
            world.probe.discard()
            try await world.hear(Self.strap, within: .seconds(20))
        }
    }

    @EventLoopActor
    func testTheAdapterUnpluggedAndBack() async throws {
        try await inWorld(keptStrap) { world in
            try await waitForHeartbeat(world)
            try await world.radio.send("adapter_remove", ["adapter": .string("hci0")])
            try await world.waitForAdapter { $0["state"] != .string("poweredOn") }
            try await world.radio.send("adapter_add", ["adapter": .string("hci0")])
            try await world.waitForAdapter(within: .seconds(30)) { $0["state"] == .string("poweredOn") }
            try await waitForHeartbeat(world)
        }
    }

    @EventLoopActor
    func testTheBrokerRestartedGetsEverythingRetainedAndCommandsAgain() async throws {
        try await inWorld { world in
            try await connect(world, Self.strap)
            await world.broker.stopBroker()
            world.probe.discard()
            try await world.broker.startBroker()
            let topics = [
                "status", "info", "discovery", "devices/c00000000001/connection", "devices/c00000000001/services",
            ]
            // What comes while somebody is subscribed does not come as retained.
            for topic in topics { try await world.probe.wait(for: "\(world.topic)/\(topic)", within: .seconds(10)) }
            let late = try await MQTTProbe.connect(port: world.broker.port)
            for topic in topics {
                let message = try await late.wait(for: "\(world.topic)/\(topic)")
                XCTAssertTrue(message.retain, topic)
            }
            await late.stop()
            let value = try await world.ask("read", Self.at(Self.strap, "180f", "2a19"))
            XCTAssertEqual(value["value"], .string("64"))
        }
    }

    @EventLoopActor
    func testSIGTERMLeavesOfflineBehindAndExitsCleanly() async throws {
        try await inWorld { world in
            try await world.hear(Self.strap)
            let exit = try await world.stopBridge()
            XCTAssertEqual(exit, .code(0))
            try await world.probe.wait(for: "\(world.topic)/status") { $0.text == "offline" }
            let late = try await MQTTProbe.connect(port: world.broker.port)
            let status = try await late.wait(for: "\(world.topic)/status")
            XCTAssertEqual(status.text, "offline")
            XCTAssertTrue(status.retain)
            await late.stop()
        }
    }

    @EventLoopActor
    func testTwentyDevicesNotifyAtOnceAndNothingIsLost() async throws {
        let devices = (0..<20).map { "{ address: \"\(Self.node($0))\", connect: always, subscribe: [fff0/fff1] }" }
        try await inWorld("devices: [\(devices.joined(separator: ", "))]") { world in
            for number in 0..<20 {
                try await world.probe.wait(
                    for: "\(world.topic)/devices/\(Self.topicForm(Self.node(number)))/connection", within: .seconds(90)
                ) { $0.json["state"] == .string("connected") }
            }
            // Subscribed once the peer has seen it.
            for number in 0..<20 { try await waitForPeer(world, "node-\(number)", toSee: "subscribe") }
            world.probe.discard()
            let orders = (0..<20).map { number in
                Task { @EventLoopActor in
                    try await world.radio.send(
                        "notify",
                        [
                            "device": .string("node-\(number)"), "characteristic": .string("fff0/fff1"),
                            "count": .int(125), "gap": .int(40),
                        ])
                }
            }
            for order in orders { _ = try await order.value }
            for number in 0..<20 {
                let topic = "\(world.topic)/devices/\(Self.topicForm(Self.node(number)))/characteristics/fff0/fff1"
                var numbers: [UInt32] = []
                while numbers.count < 125 {
                    let message = try await world.probe.wait(for: topic, within: .seconds(20))
                    numbers.append(
                        message.json["value"]?.stringValue.flatMap { UInt32($0, radix: 16)?.byteSwapped } ?? .max)
                }
                let first = try XCTUnwrap(numbers.first)
                XCTAssertEqual(numbers, (0..<125).map { first + UInt32($0) }, "node-\(number)")
            }
        }
    }

    @EventLoopActor
    func testMalformedCommandsAreAnsweredAndTheNextGoodOneWorks() async throws {
        try await inWorld { world in
            let verbs = [
                "scan", "connect", "read", "write", "subscribe", "unsubscribe", "services", "devices", "pair", "rssi",
                "nonsense",
            ]
            let payloads: [[UInt8]] =
                [
                    "", "{", "{\"value\":", "[]", "null", "12", "\"x\"", "{\"id\":{}}", "{\"id\":\"1\"}",
                    "{\"id\":\"2\",\"device\":5}",
                    "{\"id\":\"3\",\"device\":\"zz\"}",
                    "{\"id\":\"4\",\"device\":\"C0:00:00:00:00:01\",\"service\":\"18\"}",
                    "{\"id\":\"5\",\"timeout\":-1}", "{\"id\":\"6\",\"timeout\":\"soon\"}",
                    "{\"id\":\"7\",\"id\":\"7\"}",
                    "{\"id\":\"8\",\"device\":\"a/b+c#\"}", "{\"id\":\"9\",\"services\":[1]}",
                    "{\"id\":\"10\",\"name\":\"(\"}",
                    "{\"id\":\"11\",\"rssi\":\"loud\"}", "{\"id\":\"12\",\"limit\":-5}",
                    "{\"id\":\"13\",\"adapter\":\"hci77\"}",
                    String(repeating: "[", count: 10_000),
                ].map { Array($0.utf8) } + [[0xff, 0xfe], [UInt8](repeating: 0x61, count: 1 << 20)]
            var sent = 0
            for verb in verbs {
                for payload in payloads {
                    // A scan or a list without conditions is a good command.
                    let text = String(decoding: payload.prefix(40), as: UTF8.self)
                    if ["scan", "devices"].contains(verb), text.hasPrefix("{\"id\":\"") { continue }
                    // Parameters that a verb does not know are passed over.
                    if ["connect", "services", "pair", "rssi"].contains(verb),
                        text.contains("\"service\"") || text.contains("C0:00:00:00:00:01")
                    {
                        continue
                    }
                    try await world.probe.publish("\(world.topic)/request/\(verb)", payload)
                    let answer = try await world.probe.wait(
                        for: "\(world.topic)/response/\(verb)", within: .seconds(10))
                    XCTAssertEqual(answer.json["status"], .string("error"), "\(verb) \(text): \(answer.text)")
                    XCTAssertNotNil(answer.json["error"]?["code"]?.stringValue, answer.text)
                    sent += 1
                }
            }
            XCTAssertGreaterThanOrEqual(sent, 200)
            let good = try await world.ask("devices", ["limit": .int(3)])
            XCTAssertNotNil(good["devices"]?.arrayValue)
        }
    }
}
