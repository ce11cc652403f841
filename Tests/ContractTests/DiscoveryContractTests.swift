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
            let adapter = try await late.wait(for: "\(world.topic)/adapters/+") {
                $0.json["state"] == .string("poweredOn")
            }
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

    /// bluetoothd merges what comes within a turn of its loop, so what it emitted is the measure: an observer of the bus
    /// counts it, independently of the bridge.
    @EventLoopActor
    func testEveryAdvertisementThatBlueZEmitsIsPublishedOnce() async throws {
        try await inWorld { world in
            _ = try await world.probe.wait(for: "\(world.topic)/devices/+/advertisement", within: .seconds(20))
            let observer = try await FloodObserver.open(world.busAddress)
            let sent = 1000
            try await world.radio.send("flood", ["rate": .int(200), "seconds": .int(5), "addresses": .int(50)])
            let deadline = MonotonicTime.now + .seconds(60)
            while try await world.radio.send("sent")["flood_done"] != .bool(true) {
                guard MonotonicTime.now < deadline else { throw Expired(message: "the flood does not end") }
                // Whoever asks on and on leaves no time to those who are to hear it.
                try await observer.settle()
            }
            try await observer.settle()
            var published: [UInt32: Int] = [:]
            while Set(published.keys) != observer.emitted {
                let message = try await world.probe.wait(
                    for: "\(world.topic)/devices/+/advertisement", within: .seconds(10)
                ) { $0.json["manufacturer_data"]?["ffff"] != nil }
                let hex = message.json["manufacturer_data"]?["ffff"]?.stringValue
                guard let number = hex.flatMap({ UInt32($0, radix: 16) }) else {
                    return XCTFail("no sequence in \(message.text)")
                }
                published[number.byteSwapped, default: 0] += 1
            }
            XCTAssertEqual(published.values.filter { $0 > 1 }.count, 0)
            XCTAssertGreaterThan(
                observer.emitted.count, sent * 8 / 10, "the radio's own \(sent) hardly reached the bus")
            if !World.isLab { XCTAssertEqual(observer.emitted.count, sent) }
            observer.close()
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
