import EventLoop
import JSON
import MQTT
import Sandbox
import TestKit
import XCTest

final class SessionContractTests: ContractCase {
    @EventLoopActor
    func testConnectServicesReadWriteDisconnect() async throws {
        try await inWorld { world in
            try await connect(world, Self.strap)
            let connection = try await world.probe.wait(for: "\(world.topic)/devices/c00000000001/connection") {
                $0.json["state"] == .string("connected")
            }
            XCTAssertNotNil(connection.json["mtu"]?.intValue)
            let tree = try await world.ask("services", ["device": .string(Self.strap)])
            let services = tree["services"]?.arrayValue ?? []
            let heartRate = try XCTUnwrap(services.first { $0["uuid"] == .string("180d") })
            let characteristics = heartRate["characteristics"]?.arrayValue ?? []
            XCTAssertEqual(characteristics.map { $0["uuid"] }, [.string("2a37"), .string("2a38"), .string("2a39")])
            XCTAssertEqual(characteristics.first?["properties"], .array([.string("notify")]))
            XCTAssertEqual(characteristics.first?["descriptors"]?.arrayValue?.first?["uuid"], .string("2902"))
            let battery = try await world.ask("read", Self.at(Self.strap, "180f", "2a19"))
            XCTAssertEqual(battery["value"], .string("64"))
            XCTAssertEqual(battery["length"], .int(1))
            let text = try await world.ask("read", Self.at(Self.strap, "180f", "2a19", ["descriptor": .string("2901")]))
            XCTAssertEqual(text["value"], .string("42617474657279206c6576656c"))
            try await world.ask("write", Self.at(Self.strap, "180D", "2A39", ["value": .string("01")]))
            let written = try await writes(world, "strap").last
            XCTAssertEqual(written?["value"], .string("01"))
            XCTAssertEqual(written?["kind"], .string("request"))
            try await world.ask("disconnect", ["device": .string(Self.strap)])
            try await world.probe.wait(for: "\(world.topic)/devices/c00000000001/connection") {
                $0.json["state"] == .string("disconnected")
            }
            let error = try await world.refusal("read", Self.at(Self.strap, "180f", "2a19"))
            XCTAssertEqual(error["code"], .string("not_connected"))
        }
    }

    @EventLoopActor
    func testPlainTopicsServePeople() async throws {
        try await inWorld { world in
            let device = "\(world.topic)/devices/c00000000003"
            try await world.hear(Self.tag)
            let before = try await writes(world, "tag").count
            try await world.probe.publish("\(device)/connection/set", "connect")
            try await world.probe.wait(for: "\(device)/connection", within: .seconds(20)) {
                $0.json["state"] == .string("connected")
            }
            try await world.probe.publish("\(device)/characteristics/180f/2a19/get", "")
            let value = try await world.probe.wait(for: "\(device)/characteristics/180f/2a19")
            XCTAssertEqual(value.json["value"], .string("32"))
            XCTAssertEqual(value.json["source"], .string("read"))
            try await world.probe.publish("\(device)/characteristics/1802/2a06/set", "0x02")
            try await world.probe.publish("\(device)/characteristics/180f/2a19/notify", "on")
            try await world.probe.publish("\(device)/characteristics/180f/2a19/set", "nonsense")
            let event = try await world.probe.wait(for: "\(world.topic)/events") {
                $0.json["code"] == .string("ambiguous_value")
            }
            XCTAssertEqual(event.json["device"], .string("C0:00:00:00:00:03"), event.text)
            try await world.probe.publish("\(device)/connection/set", "disconnect")
            try await world.probe.wait(for: "\(device)/connection", within: .seconds(20)) {
                $0.json["state"] == .string("disconnected")
            }
            let written = try await writes(world, "tag").dropFirst(before)
            XCTAssertEqual(written.map { $0["value"] }, [.string("02")])
            XCTAssertEqual(written.first?["kind"], .string("command"))
        }
    }

    @EventLoopActor
    func testEachWayToWrite() async throws {
        try await inWorld { world in
            let service = "0000ff00-5a3c-4c1e-9a0b-6f2d1e7c8b90"
            let name = { (digit: Int) in "0000ff0\(digit)-5a3c-4c1e-9a0b-6f2d1e7c8b90" }
            try await connect(world, Self.bulb)
            let before = try await writes(world, "bulb").count
            try await world.ask("write", Self.at(Self.bulb, service, name(1), ["value": .string("01")]))
            try await world.ask("write", Self.at(Self.bulb, service, name(2), ["value": .string("0000ff")]))
            try await world.ask("write", Self.at(Self.bulb, service, name(3), ["value": .string("40")]))
            try await world.ask(
                "write",
                Self.at(
                    Self.bulb, service, name(3),
                    ["value": .int(7), "encoding": .string("uint8"), "type": .string("command")]))
            let refused = try await world.refusal(
                "write", Self.at(Self.bulb, service, name(2), ["value": .string("00"), "type": .string("command")]))
            XCTAssertEqual(refused["code"], .string("not_supported"))
            let long = try await world.refusal(
                "write", Self.at(Self.bulb, service, name(2), ["value": .string(String(repeating: "00", count: 513))]))
            XCTAssertEqual(long["code"], .string("too_long"))
            // A read after the command on the same link makes sure that it has arrived.
            let value = try await world.ask("read", Self.at(Self.bulb, service, name(3)))
            XCTAssertEqual(value["value"], .string("07"))
            let written = try await writes(world, "bulb").dropFirst(before)
            XCTAssertEqual(
                written.map { $0["value"] }, [.string("01"), .string("0000ff"), .string("40"), .string("07")])
            XCTAssertEqual(
                written.map { $0["kind"] },
                [.string("command"), .string("request"), .string("request"), .string("command")])
        }
    }

    @EventLoopActor
    func testNotificationsArriveAllAndInOrder() async throws {
        try await inWorld { world in
            try await connect(world, Self.node(0))
            try await world.ask("subscribe", Self.at(Self.node(0), "fff0", "fff1"))
            let sent = try await world.radio.send(
                "notify",
                [
                    "device": .string("node-0"), "characteristic": .string("fff0/fff1"), "count": .int(200),
                    "gap": .int(5),
                ])
            XCTAssertEqual(sent["sent"], .int(200))
            var values: [String] = []
            var sequences: [Int64] = []
            for _ in 0..<200 {
                let message = try await world.probe.wait(
                    for: "\(world.topic)/devices/c00000000100/characteristics/fff0/fff1")
                values.append(message.json["value"]?.stringValue ?? "")
                sequences.append(message.json["sequence"]?.intValue ?? -1)
                XCTAssertEqual(message.json["source"], .string("notify"))
            }
            let numbers = values.map { UInt32($0, radix: 16).map { $0.byteSwapped } ?? .max }
            let first = try XCTUnwrap(numbers.first)
            XCTAssertEqual(numbers, (0..<200).map { first + UInt32($0) })
            let start = try XCTUnwrap(sequences.first)
            XCTAssertEqual(sequences, (0..<200).map { start + Int64($0) })
            try await world.ask("unsubscribe", Self.at(Self.node(0), "fff0", "fff1"))
            try await waitForPeer(world, "node-0", toSee: "unsubscribe")
        }
    }

    @EventLoopActor
    func testIndicationsAndEmptyValues() async throws {
        try await inWorld { world in
            try await connect(world, Self.thermometer)
            try await world.ask("subscribe", Self.at(Self.thermometer, "1809", "2a1c"))
            let topic = "\(world.topic)/devices/c00000000010/characteristics/1809/2a1c"
            let order: [String: JSONValue] = ["device": .string("thermometer"), "characteristic": .string("1809/2a1c")]
            try await world.radio.send("indicate", order.merging(["value": .string("066e0100ff")]) { $1 })
            let first = try await world.probe.wait(for: topic)
            XCTAssertEqual(first.json["value"], .string("066e0100ff"))
            try await world.radio.send("indicate", order.merging(["value": .string("")]) { $1 })
            let empty = try await world.probe.wait(for: topic)
            XCTAssertEqual(empty.json["value"], .string(""))
            XCTAssertEqual(empty.json["length"], .int(0))
            XCTAssertFalse(empty.retain)
            try await world.radio.send("indicate", order.merging(["value": .string("01")]) { $1 })
            let third = try await world.probe.wait(for: topic)
            XCTAssertEqual(third.json["value"], .string("01"))
        }
    }

    @EventLoopActor
    func testPairingOpensWhatIsEncrypted() async throws {
        try await inWorld { world in
            try await connect(world, Self.lock)
            try await world.ask("pair", ["device": .string(Self.lock), "timeout": .int(30_000)], within: .seconds(40))
            let value = try await world.ask("read", Self.at(Self.lock, "fff5", "fff6"))
            XCTAssertEqual(value["value"], .string("01"))
            try await world.ask("unpair", ["device": .string(Self.lock)])
        }
    }

    @EventLoopActor
    func testPairingByPasskey() async throws {
        try await inWorld("devices: [{ address: \"\(Self.safe)\", name: safe, passkey: 123456 }]") { world in
            try await world.hear(Self.safe)
            try await world.ask("connect", ["device": .string("safe"), "timeout": .int(30_000)], within: .seconds(40))
            try await world.ask("pair", ["device": .string("safe"), "timeout": .int(30_000)], within: .seconds(40))
            let value = try await world.ask("read", Self.at("safe", "fff5", "fff6"))
            XCTAssertEqual(value["value"], .string("0badcafe"))
            try await world.ask("unpair", ["device": .string("safe")])
        }
    }

    @EventLoopActor
    func testTwinsAreFourAndABareNameIsAmbiguous() async throws {
        try await inWorld { world in
            try await connect(world, Self.twins)
            let tree = try await world.ask("services", ["device": .string(Self.twins)])
            var names: [(service: String, characteristic: String)] = []
            for service in tree["services"]?.arrayValue ?? [] where service["uuid"] == .string("1802") {
                for characteristic in service["characteristics"]?.arrayValue ?? [] {
                    let handles = [service["handle"]?.stringValue ?? "", characteristic["handle"]?.stringValue ?? ""]
                    names.append(("1802_\(handles[0])", "2a06_\(handles[1])"))
                }
            }
            XCTAssertEqual(names.count, 4)
            XCTAssertEqual(Set(names.map(\.characteristic)).count, 4)
            let before = try await writes(world, "twins").count
            let fault = try await world.refusal("write", Self.at(Self.twins, "1802", "2a06", ["value": .string("aa")]))
            XCTAssertEqual(fault["code"], .string("ambiguous_attribute"))
            let after = try await writes(world, "twins").count
            XCTAssertEqual(after, before)
            for (index, name) in names.enumerated() {
                let value = try await world.ask("read", Self.at(Self.twins, name.service, name.characteristic))
                XCTAssertEqual(value["value"], .string("0\(index)"))
            }
            let last = try XCTUnwrap(names.last)
            try await world.ask("subscribe", Self.at(Self.twins, last.service, last.characteristic))
            try await world.radio.send(
                "notify",
                ["device": .string("twins"), "characteristic": .string("1802/2a06#3"), "value": .string("bb")])
            let told = try await world.probe.wait(
                for: "\(world.topic)/devices/c00000000008/characteristics/\(last.service)/\(last.characteristic)"
            ) { $0.json["source"] == .string("notify") }
            XCTAssertEqual(told.json["value"], .string("bb"))
        }
    }

    @EventLoopActor
    func testLongValuesGoBothWays() async throws {
        try await inWorld { world in
            try await connect(world, Self.large)
            let value = try await world.ask("read", Self.at(Self.large, "ffd0", "ffd1"))
            XCTAssertEqual(value["length"], .int(512))
            let bytes = (0..<512).map { UInt8(truncatingIfNeeded: $0 &* 7) }
            let hex = bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
            try await world.ask("write", Self.at(Self.large, "ffd0", "ffd2", ["value": .string(hex)]))
            let written = try await writes(world, "large").last
            XCTAssertEqual(written?["value"], .string(hex))
            let back = try await world.ask("read", Self.at(Self.large, "ffd0", "ffd2"))
            XCTAssertEqual(back["value"], .string(hex))
        }
    }

    @EventLoopActor
    func testADeviceThatNeverAnswersHoldsNobody() async throws {
        try await inWorld { world in
            try await connect(world, Self.stubborn)
            try await connect(world, Self.strap)
            let asked = MonotonicTime.now
            async let hung = world.refusal(
                "read", Self.at(Self.stubborn, "ffe0", "ffe1", ["timeout": .int(3000)]), within: .seconds(10))
            let other = try await world.ask("read", Self.at(Self.strap, "180f", "2a19"))
            XCTAssertEqual(other["value"], .string("64"))
            XCTAssertLessThan(MonotonicTime.now - asked, .seconds(3))
            let error = try await hung
            XCTAssertEqual(error["code"], .string("timeout"))
        }
    }

    @EventLoopActor
    func testErrorsOfThePeerAreNamed() async throws {
        try await inWorld { world in
            try await connect(world, Self.stubborn)
            let error = try await world.refusal("read", Self.at(Self.stubborn, "ffe0", "ffe2"))
            XCTAssertEqual(error["code"], .string("att_error"))
            XCTAssertEqual(error["att"], .int(128))
            let fine = try await world.ask("read", Self.at(Self.stubborn, "ffe0", "ffe3"))
            XCTAssertEqual(fine["value"], .string("03"))
            let unknown = try await world.refusal("read", Self.at(Self.stubborn, "ffe0", "beef"))
            XCTAssertEqual(unknown["code"], .string("unknown_attribute"))
            let nobody = try await world.refusal("read", Self.at("C0:99:99:99:99:99", "180f", "2a19"))
            XCTAssertTrue(
                nobody["code"] == .string("unknown_device") || nobody["code"] == .string("not_connected"), "\(nobody)")
        }
    }

    /// The lab runs the program with CAP_NET_ADMIN and a kernel that has a management socket; the simulator has neither.
    @EventLoopActor
    func testSignalStrengthIsOfTheLiveLinkOrNothing() async throws {
        try await inWorld { world in
            try await connect(world, Self.strap)
            if World.isLab {
                let data = try await world.ask("rssi", ["device": .string(Self.strap)])
                let rssi = try XCTUnwrap(data["rssi"]?.intValue, "\(data)")
                XCTAssertTrue((-127...20).contains(rssi), "\(rssi)")
            } else {
                let error = try await world.refusal("rssi", ["device": .string(Self.strap)])
                XCTAssertEqual(error["code"], .string("not_supported"))
            }
        }
    }
}
