import EventLoop
import JSON
import MQTT
import Sandbox
import TestKit
import XCTest

final class DiscoveryContractTests: ContractCase {
    @EventLoopActor
    func testStandingTopicsAreRetained() async throws {
        try await inWorld { world in
            let late = try await MQTTProbe.connect(port: world.broker.port)
            for topic in ["status", "info", "discovery", "health"] {
                let message = try await late.wait(for: "\(world.topic)/\(topic)")
                XCTAssertTrue(message.retain, topic)
            }
            let adapter = try await late.wait(for: "\(world.topic)/adapters/+") { $0.json["state"] == .string("poweredOn") }
            XCTAssertEqual(adapter.json["address"], .string("00:1A:7D:DA:71:13"))
            XCTAssertEqual(late.newest("\(world.topic)/status")?.text, "online")
            await late.stop()
        }
    }

    @EventLoopActor
    func testTheFleetIsHeardAsItAdvertises() async throws {
        try await inWorld { world in
            let heard = { (address: String) async throws -> JSONValue in
                try await world.probe.wait(
                    for: "\(world.topic)/devices/\(Self.topicForm(address))/advertisement", within: .seconds(20)
                ).json
            }
            let bthome = try await heard("A4:C1:38:5E:07:D3")
            XCTAssertEqual(bthome["address_type"], .string("public"))
            XCTAssertEqual(bthome["service_data"], .object([("fcd2", .string("40024e0c"))]))
            let ruuvi = try await heard("CB:B8:33:4C:88:4F")
            let data = ruuvi["manufacturer_data"]?["0499"]?.stringValue
            XCTAssertEqual(data?.hasPrefix("0512fc5394c37c0004fffc040cac3642"), true, "\(ruuvi)")
            XCTAssertEqual(ruuvi["name"], .null)
            let nameless = try await heard("C0:00:00:00:00:20")
            XCTAssertEqual(nameless["name"], .null)
            XCTAssertEqual(nameless["services"], .array([.string("180a")]))
            let weird = try await world.probe.wait(
                for: "\(world.topic)/devices/c00000000021/advertisement", within: .seconds(20)
            ) { $0.json["name"] != .null }
            XCTAssertEqual(weird.json["name"], .string("a/b+c#d\te"))
            for message in world.probe.messages {
                XCTAssertFalse(message.topic.contains("a/b"), message.topic)
            }
        }
    }

    @EventLoopActor
    func testEveryAdvertisementOfAFloodIsPublishedOnce() async throws {
        try await inWorld { world in
            _ = try await world.probe.wait(for: "\(world.topic)/devices/+/advertisement", within: .seconds(20))
            let rate = 200
            let seconds = 5
            try await world.radio.send(
                "flood", ["rate": .int(Int64(rate)), "seconds": .int(Int64(seconds)), "addresses": .int(50)])
            var sequences: [UInt32: Int] = [:]
            while sequences.count < rate * seconds {
                let message = try await world.probe.wait(
                    for: "\(world.topic)/devices/+/advertisement", within: .seconds(30)
                ) { $0.json["manufacturer_data"]?["ffff"] != nil }
                guard let hex = message.json["manufacturer_data"]?["ffff"]?.stringValue, let number = UInt32(hex, radix: 16)
                else { return XCTFail("no sequence in \(message.text)") }
                sequences[number.byteSwapped, default: 0] += 1
            }
            XCTAssertEqual(Set(sequences.keys), Set(0..<UInt32(rate * seconds)))
            XCTAssertEqual(sequences.values.filter { $0 > 1 }.count, 0)
        }
    }

    @EventLoopActor
    func testACommandedScanKeepsItsFiltersAndEnds() async throws {
        try await inWorld("bluetooth: { scan: { enabled: false } }") { world in
            let data = try await world.ask("scan", ["services": .array([.string("180d")]), "timeout": .int(4000)])
            let session = try XCTUnwrap(data["session"])
            let found = try await world.probe.wait(for: "\(world.topic)/discovery/event", within: .seconds(10)) {
                $0.json["event"] == .string("device")
            }
            XCTAssertEqual(found.json["session"], session)
            let ended = try await world.probe.wait(for: "\(world.topic)/discovery/event", within: .seconds(15)) {
                $0.json["event"] == .string("stopped")
            }
            XCTAssertEqual(ended.json["session"], session)
            XCTAssertEqual(ended.json["reason"], .string("timeout"))
            try await world.probe.settle()
            let heard = world.probe.messages.filter { $0.topic.hasSuffix("/advertisement") }
            XCTAssertFalse(heard.isEmpty)
            for message in heard { XCTAssertEqual(message.json["address"], .string(Self.strap), message.topic) }
        }
    }

    @EventLoopActor
    func testAScanByNameMatchesTheWholeName() async throws {
        try await inWorld("bluetooth: { scan: { enabled: false } }") { world in
            try await world.ask("scan", ["name": .string("Old.*|Tag"), "timeout": .int(8000)])
            for name in ["Old lock", "Tag"] {
                try await world.probe.wait(for: "\(world.topic)/devices/+/advertisement", within: .seconds(10)) {
                    $0.json["name"] == .string(name)
                }
            }
            try await world.ask("stop_scan")
            try await world.probe.settle()
            let names = world.probe.messages.filter { $0.topic.hasSuffix("/advertisement") }.map { $0.json["name"] }
            XCTAssertTrue(names.allSatisfy { $0 == .string("Old lock") || $0 == .string("Tag") }, "\(names)")
            let fault = try await world.refusal("scan", ["name": .string("a(b"), "timeout": .int(1000)])
            XCTAssertEqual(fault["code"], .string("bad_request"))
            let zero = try await world.refusal("scan", ["timeout": .int(0)])
            XCTAssertEqual(zero["code"], .string("bad_request"))
        }
    }

    @EventLoopActor
    func testAScanAskedForWhileTheAdapterIsOffStartsWhenItIsOn() async throws {
        try await inWorld("bluetooth: { scan: { enabled: false } }") { world in
            try await world.radio.send("power", ["adapter": .string("hci0"), "on": .bool(false)])
            try await world.waitForAdapter { $0["state"] == .string("poweredOff") }
            try await world.ask("scan", ["name": .string("HR strap"), "timeout": .int(60_000)])
            try await world.radio.send("power", ["adapter": .string("hci0"), "on": .bool(true)])
            try await world.waitForAdapter { $0["state"] == .string("poweredOn") }
            try await world.hear(Self.strap)
        }
    }

    @EventLoopActor
    func testARotatingAddressLeavesNothingRetained() async throws {
        try await inWorld { world in
            try await world.probe.wait(for: "\(world.topic)/devices/+/advertisement", within: .seconds(20)) {
                $0.json["manufacturer_data"]?["004c"] == .string("10050b1c6f4a2e")
            }
            try await world.probe.settle()
            let late = try await MQTTProbe.connect(port: world.broker.port)
            try await late.settle()
            for message in late.messages where message.retain && message.topic.contains("/devices/") {
                let device = message.topic.split(separator: "/").drop { $0 != "devices" }.dropFirst().first ?? ""
                let isPrivate = device.first.map { "4567".contains($0) } ?? false
                XCTAssertFalse(isPrivate, message.topic)
            }
            await late.stop()
        }
    }
}
