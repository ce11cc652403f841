import EventLoop
import JSON
import MQTT
import Sandbox
import TestKit
import XCTest

/// Links that hang, refuse, break, and outlive the program; and the broker's side of a broken session.
final class LinkFaultContractTests: ContractCase {
    /// What a peer saw of subscriptions and links, in order.
    @EventLoopActor
    private func events(_ world: World, _ id: String, _ names: [String]) async throws -> [String] {
        let log = try await world.radio.send("log", ["device": .string(id)]).arrayValue ?? []
        return log.compactMap { $0["event"]?.stringValue }.filter(names.contains)
    }

    /// What the device sends from now on reaches the broker. The topic.
    @EventLoopActor @discardableResult
    private func arrives(_ world: World, _ id: String, _ node: String) async throws -> String {
        world.probe.discard()
        try await world.radio.send(
            "notify", ["device": .string(id), "characteristic": .string("fff0/fff1"), "value": .string("beef")])
        let topic = "\(world.topic)/devices/\(Self.topicForm(node))/characteristics/fff0/fff1"
        try await world.probe.wait(for: topic) { $0.json["value"] == .string("beef") }
        return topic
    }

    @EventLoopActor
    func testALinkThatBreaksDuringAReadFailsItAtOnceAndComesBackWithOneSubscriptionEach() async throws {
        let node = Self.node(0)
        let settings = "devices: [{ address: \"\(node)\", connect: always, subscribe: [fff0/fff1] }]"
        try await inWorld(settings) { world in
            try await waitForPeer(world, "node-0", toSee: "subscribe")
            let before = try await events(world, "node-0", ["subscribe"]).count
            try await world.radio.send(
                "hang", ["device": .string("node-0"), "characteristic": .string("fff0/fff2"), "on": .bool(true)])
            let asked = MonotonicTime.now
            async let hung = world.refusal(
                "read", Self.at(node, "fff0", "fff2", ["timeout": .int(20_000)]), within: .seconds(25))
            // The request is on its way once another call has been answered after it.
            _ = try await world.ask("devices", ["limit": .int(1)])
            try await world.radio.send("disconnect", ["device": .string("node-0")])
            let error = try await hung
            XCTAssertEqual(error["code"], .string("not_connected"), "\(error)")
            XCTAssertLessThan(MonotonicTime.now - asked, .seconds(15))
            try await world.radio.send(
                "hang", ["device": .string("node-0"), "characteristic": .string("fff0/fff2"), "on": .bool(false)])
            try await waitForPeer(world, "node-0", toSee: "subscribe")
            // BlueZ subscribes by itself before the link is of use to anybody.
            try await link(world, node)
            let value = try await world.ask("read", Self.at(node, "fff0", "fff2"), within: .seconds(30))
            XCTAssertNotNil(value["value"]?.stringValue)
            let after = try await events(world, "node-0", ["subscribe"]).count
            XCTAssertEqual(after - before, 1)
            // One subscription: what is sent once comes once.
            let topic = try await arrives(world, "node-0", node)
            try await world.ask("read", Self.at(node, "fff0", "fff2"))
            try await world.probe.settle()
            XCTAssertEqual(world.probe.messages.filter { $0.topic == topic && $0.text.contains("beef") }.count, 1)
        }
    }

    @EventLoopActor
    func testALinkThatEndsDuringASubscriptionLeavesItPossible() async throws {
        let node = Self.node(2)
        try await inWorld("devices: [{ address: \"\(node)\", connect: always }]") { world in
            try await link(world, node)
            let peer: [String: JSONValue] = ["device": .string("node-2")]
            let path: [String: JSONValue] = ["characteristic": .string("fff0/fff1")]
            try await world.radio.send("hang", peer.merging(path) { $1 }.merging(["on": .bool(true)]) { $1 })
            async let hung = world.refusal(
                "subscribe", Self.at(node, "fff0", "fff1", ["timeout": .int(20_000)]), within: .seconds(25))
            try await waitForPeer(world, "node-2", toSee: "unanswered")
            try await world.radio.send("disconnect", peer)
            let error = try await hung
            XCTAssertEqual(error["code"], .string("not_connected"), "\(error)")
            try await world.radio.send("hang", peer.merging(path) { $1 }.merging(["on": .bool(false)]) { $1 })
            try await connect(world, node)
            try await world.ask("subscribe", Self.at(node, "fff0", "fff1"), within: .seconds(30))
            try await arrives(world, "node-2", node)
        }
    }

    @EventLoopActor
    func testARefusedSubscriptionIsToldAndIsPossibleLater() async throws {
        let node = Self.node(0)
        try await inWorld { world in
            try await connect(world, node)
            let peer: [String: JSONValue] = [
                "device": .string("node-0"), "characteristic": .string("fff0/fff1"),
            ]
            // Write Not Permitted
            try await world.radio.send("att_error", peer.merging(["code": .int(3)]) { $1 })
            let error = try await world.refusal("subscribe", Self.at(node, "fff0", "fff1"), within: .seconds(25))
            XCTAssertEqual(error["code"], .string("att_error"), "\(error)")
            try await world.radio.send("att_error", peer.merging(["code": .int(0)]) { $1 })
            try await world.ask("subscribe", Self.at(node, "fff0", "fff1"), within: .seconds(25))
            try await arrives(world, "node-0", node)
        }
    }

    /// BlueZ says at once that a session of an earlier link stands, and nothing where the peer then refuses it.
    @EventLoopActor
    func testASubscriptionThatIsRefusedOnTheNextLinkIsToldAndComesBack() async throws {
        let node = Self.node(1)
        let settings = "devices: [{ address: \"\(node)\", connect: always, subscribe: [fff0/fff1] }]"
        try await inWorld(settings) { world in
            try await waitForPeer(world, "node-1", toSee: "subscribe")
            try await link(world, node)
            let peer: [String: JSONValue] = [
                "device": .string("node-1"), "characteristic": .string("fff0/fff1"),
            ]
            // An application error: what is not permitted would not be tried again on this link.
            try await world.radio.send("att_error", peer.merging(["code": .int(0x80)]) { $1 })
            world.probe.discard()
            try await world.radio.send("disconnect", ["device": .string("node-1")])
            try await world.probe.wait(for: "\(world.topic)/events", within: .seconds(30)) {
                $0.json["code"] == .string("subscribe_failed")
            }
            try await world.radio.send("att_error", peer.merging(["code": .int(0)]) { $1 })
            try await waitForPeer(world, "node-1", toSee: "subscribe")
            try await arrives(world, "node-1", node)
        }
    }

    @EventLoopActor
    func testEachFaultOfTheStackLeavesOneSubscription() async throws {
        let settings = "devices: [{ address: \"\(Self.node(1))\", connect: always, subscribe: [fff0/fff1] }]"
        try await inWorld(settings) { world in
            try await waitForPeer(world, "node-1", toSee: "subscribe")
            let topic = "\(world.topic)/devices/\(Self.topicForm(Self.node(1)))"
            let adapter: [String: JSONValue] = ["adapter": .string("hci0")]
            let faults: [(String, String, [String: JSONValue])] = [
                ("adapter_remove", "adapter_add", adapter), ("daemon_kill", "daemon_start", [:]),
            ]
            for (begin, end, parameters) in faults {
                let before = try await events(world, "node-1", ["subscribe"]).count
                world.probe.discard()
                try await world.radio.send(begin, parameters)
                try await world.probe.wait(for: "\(topic)/connection", within: .seconds(20)) {
                    $0.json["state"] != .string("connected")
                }
                try await world.radio.send(end, parameters)
                try await world.probe.wait(for: "\(topic)/connection", within: .seconds(60)) {
                    $0.json["state"] == .string("connected")
                }
                try await waitForPeer(world, "node-1", toSee: "subscribe")
                try await world.ask("read", Self.at(Self.node(1), "fff0", "fff2"), within: .seconds(30))
                let after = try await events(world, "node-1", ["subscribe"]).count
                XCTAssertEqual(after - before, 1, begin)
            }
        }
    }

    @EventLoopActor
    func testARefusedReadIsNamedOnceAndTheLinkStays() async throws {
        try await inWorld { world in
            try await connect(world, Self.strap)
            let before = try await events(world, "strap", ["read", "disconnected"])
            let order: [String: JSONValue] = ["device": .string("strap"), "characteristic": .string("180f/2a19")]
            try await world.radio.send("att_error", order.merging(["code": .int(2)]) { $1 })
            let error = try await world.refusal("read", Self.at(Self.strap, "180f", "2a19"))
            XCTAssertEqual(error["code"], .string("att_error"))
            XCTAssertEqual(error["att"], .int(2))
            XCTAssertEqual(error["bluez"], .string("org.bluez.Error.NotPermitted"))
            try await world.radio.send("att_error", order.merging(["code": .int(0)]) { $1 })
            let value = try await world.ask("read", Self.at(Self.strap, "180f", "2a19"))
            XCTAssertEqual(value["value"], .string("64"))
            // No repetition of the refused one, and no end of the link.
            let after = try await events(world, "strap", ["read", "disconnected"])
            XCTAssertLessThanOrEqual(after.count - before.count, 2)
            XCTAssertFalse(after.dropFirst(before.count).contains("disconnected"))
        }
    }

    @EventLoopActor
    func testALinkThatOutlivedTheProgramIsUsedByTheNext() async throws {
        try await inWorld { world in
            try await connect(world, Self.strap)
            try await world.killBridge()
            world.probe.discard()
            try await world.startBridge()
            let connection = try await world.ask(
                "connect", ["device": .string(Self.strap), "timeout": .int(20_000)], within: .seconds(30))
            XCTAssertEqual(connection["state"], .string("connected"))
            let tree = try await world.ask("services", ["device": .string(Self.strap)])
            XCTAssertFalse(tree["services"]?.arrayValue?.isEmpty ?? true)
            let value = try await world.ask("read", Self.at(Self.strap, "180f", "2a19"))
            XCTAssertEqual(value["value"], .string("64"))
        }
    }

    /// A second client of the same id drives the program out: the broker publishes the will, and the program is back, says
    /// so, and tells a person what happened.
    @EventLoopActor
    func testASessionThatIsTakenOverIsToldAndTakenBack() async throws {
        try await inWorld { world in
            try await world.hear(Self.strap)
            world.probe.discard()
            let id = world.clientID
            XCTAssertTrue(id.hasPrefix("blueferry-gw-") && id.count == 19, id)
            let thief = try await MQTTProbe.connect(port: world.broker.port, subscribing: []) { $0.clientID = id }
            try await world.probe.wait(for: "\(world.topic)/status") { $0.text == "offline" }
            // They drive each other out, ever more seldom. Not every broker says why it closes a connection.
            let told = try await world.probe.wait(for: "\(world.topic)/events", within: .seconds(60)) {
                $0.json["code"] == .string("broker")
            }
            XCTAssertEqual(told.json["level"], .string("error"))
            XCTAssertTrue(told.json["message"]?.stringValue?.contains(id) == true, told.text)
            await thief.stop()
            let deadline = MonotonicTime.now + .seconds(30)
            while world.probe.newest("\(world.topic)/status")?.text != "online", MonotonicTime.now < deadline {
                try await world.probe.settle()
            }
            let late = try await MQTTProbe.connect(port: world.broker.port)
            let status = try await late.wait(for: "\(world.topic)/status")
            XCTAssertTrue(status.retain)
            XCTAssertEqual(status.text, "online")
            await late.stop()
            // Commands are heard again, and each runs once.
            let answer = try await world.ask("devices", ["limit": .int(1)])
            XCTAssertNotNil(answer["devices"])
            try await world.probe.settle()
            XCTAssertEqual(world.probe.messages.filter { $0.topic == "\(world.topic)/response/devices" }.count, 1)
        }
    }
}
