import EventLoop
import JSON
import MQTT
import Sandbox
import TestKit
import XCTest

/// What comes back by itself, and what a person is told meanwhile.
final class RecoveryContractTests: ContractCase {
    private static let first = "00:1A:7D:DA:71:13"
    private static let second = "00:1A:7D:DA:71:14"
    private static let annex = "C0:00:00:00:00:12"

    @EventLoopActor
    private func event(
        _ world: World, _ code: String, within timeout: Duration = .seconds(60)
    ) async throws -> JSONValue {
        try await world.probe.wait(for: "\(world.topic)/events", within: timeout) {
            $0.json["code"] == .string(code)
        }.json
    }

    @EventLoopActor
    private func waitForAdapter(
        _ world: World, _ address: String, within timeout: Duration = .seconds(30),
        where condition: @escaping @EventLoopActor (JSONValue) -> Bool
    ) async throws {
        let topic = "\(world.topic)/adapters/\(Self.topicForm(address))"
        try await world.probe.wait(for: topic, within: timeout) { condition($0.json) }
    }

    /// Waits until `devices/<dev>` says why in words that hold `words`.
    @EventLoopActor
    private func waitForWhy(_ world: World, _ device: String, _ words: String) async throws {
        try await world.probe.wait(
            for: "\(world.topic)/devices/\(Self.topicForm(device))", within: .seconds(20)
        ) { $0.json["why"]?.stringValue?.contains(words) == true }
    }

    /// Lets the program learn how busy the air is: so many looks of the watchdog.
    @EventLoopActor
    private func learn(_ world: World) async throws {
        let end = MonotonicTime.now + .seconds(9)
        while MonotonicTime.now < end {
            world.probe.discard()
            try await world.probe.wait(for: "\(world.topic)/devices/+/advertisement", within: .seconds(20))
        }
    }

    // MARK: Silence

    @EventLoopActor
    func testAScanThatFellSilentIsStartedAnew() async throws {
        try await inWorld("bluetooth: { watchdog: { silence: 4000 } }") { world in
            try await learn(world)
            try await world.radio.send("silence", ["adapter": .string(Self.first), "cure": .string("restart")])
            let told = try await event(world, "scan_silent")
            XCTAssertEqual(told["level"], .string("warning"))
            XCTAssertTrue(told["message"]?.stringValue?.contains(Self.first) == true, "\(told)")
            world.probe.discard()
            try await world.probe.wait(for: "\(world.topic)/devices/+/advertisement", within: .seconds(30))
            _ = try await event(world, "scan_heard")
        }
    }

    @EventLoopActor
    func testAnAdapterThatStaysSilentIsSwitchedOffAndOnWhereThatIsAllowed() async throws {
        try await inWorld("bluetooth: { watchdog: { silence: 4000, power_cycle: true } }") { world in
            try await learn(world)
            try await world.radio.send("silence", ["adapter": .string(Self.first), "cure": .string("power")])
            _ = try await event(world, "scan_silent")
            world.probe.discard()
            try await world.waitForAdapter(within: .seconds(60)) { $0["state"] == .string("poweredOff") }
            try await world.waitForAdapter(within: .seconds(30)) { $0["state"] == .string("poweredOn") }
            try await world.probe.wait(for: "\(world.topic)/devices/+/advertisement", within: .seconds(30))
            _ = try await event(world, "scan_heard")
        }
    }

    @EventLoopActor
    func testASilenceThatNothingCuresIsTold() async throws {
        try await inWorld("bluetooth: { watchdog: { silence: 4000 } }") { world in
            try await learn(world)
            try await world.radio.send("silence", ["adapter": .string(Self.first), "cure": .string("none")])
            let told = try await event(world, "scan_dead", within: .seconds(120))
            XCTAssertEqual(told["level"], .string("error"))
            try await world.radio.send("silence", ["adapter": .string(Self.first), "on": .bool(false)])
            _ = try await event(world, "scan_heard")
            XCTAssertEqual(world.probe.messages.filter { $0.text.contains("scan_dead") }.count, 1)
        }
    }

    // MARK: Adapters

    @EventLoopActor
    func testAConnectWhileTheAdapterIsOffSaysSoAndOneWithoutATimeoutWaits() async throws {
        try await inWorld { world in
            try await world.hear(Self.strap)
            try await world.radio.send("power", ["adapter": .string(Self.first), "on": .bool(false)])
            try await world.waitForAdapter { $0["state"] == .string("poweredOff") }
            let refused = try await world.refusal("connect", ["device": .string(Self.strap), "timeout": .int(1000)])
            XCTAssertEqual(refused["code"], .string("adapter_off"), "\(refused)")
            XCTAssertTrue(refused["message"]?.stringValue?.contains(Self.first) == true, "\(refused)")
            let off = try await event(world, "adapter_off")
            XCTAssertEqual(off["level"], .string("warning"))
            try await world.probe.publish(
                "\(world.topic)/request/connect", "{\"id\":\"pending\",\"device\":\"\(Self.strap)\",\"keep\":true}")
            try await world.probe.wait(for: "\(world.topic)/devices/c00000000001/connection") {
                $0.json["state"] == .string("connecting")
            }
            try await waitForWhy(world, Self.strap, "is off")
            try await world.radio.send("power", ["adapter": .string(Self.first), "on": .bool(true)])
            _ = try await event(world, "adapter")
            let answer = try await world.probe.wait(for: "\(world.topic)/response/connect", within: .seconds(40)) {
                $0.json["id"] == .string("pending")
            }
            XCTAssertEqual(answer.json["status"], .string("ok"), answer.text)
            try await world.probe.wait(for: "\(world.topic)/devices/c00000000001") {
                $0.json["available"] == .bool(true) && $0.json["why"] == .null
            }
        }
    }

    /// What stands in the lab after a test is what the next one finds: the first adapter alone, and as hci0.
    @EventLoopActor
    private func restoreAdapters(_ world: World) async {
        for address in [Self.first, Self.second] {
            _ = try? await world.radio.send("adapter_remove", ["adapter": .string(address)])
        }
        _ = try? await world.radio.send("adapter_add", ["adapter": .string(Self.first)])
    }

    @EventLoopActor
    func testAnAdapterBackUnderAnotherNameIsTheSame() async throws {
        let strap = "devices: [{ address: \"\(Self.strap)\", connect: always, subscribe: [180d/2a37] }]"
        try await inWorld(strap) { world in
            let values = "\(world.topic)/devices/c00000000001/characteristics/180d/2a37"
            do {
                try await world.probe.wait(for: values, within: .seconds(40))
                try await world.radio.send("adapter_remove", ["adapter": .string(Self.first)])
                let gone = try await event(world, "adapter_gone")
                XCTAssertTrue(gone["message"]?.stringValue?.contains("hci0 (\(Self.first))") == true, "\(gone)")
                try await waitForWhy(world, Self.strap, "\(Self.first)) is not there")
                // Another one takes its number.
                try await world.radio.send("adapter_add", ["adapter": .string(Self.second)])
                try await waitForAdapter(world, Self.second) {
                    $0["state"] == .string("poweredOn") && $0["system_name"] == .string("hci0")
                }
                try await world.radio.send("adapter_add", ["adapter": .string(Self.first)])
                try await waitForAdapter(world, Self.first) {
                    $0["state"] == .string("poweredOn") && $0["system_name"] == .string("hci1")
                }
                let back = try await event(world, "adapter")
                XCTAssertTrue(back["message"]?.stringValue?.contains("which was hci0") == true, "\(back)")
                world.probe.discard()
                try await world.probe.wait(for: values, within: .seconds(40))
            } catch {
                await restoreAdapters(world)
                throw error
            }
            await restoreAdapters(world)
        }
    }

    @EventLoopActor
    func testTwoAdaptersWorkSideBySideAndOneGoesOnAlone() async throws {
        try await inWorld { world in
            do {
                try await world.radio.send("adapter_add", ["adapter": .string(Self.second)])
                for address in [Self.first, Self.second] {
                    try await waitForAdapter(world, address) { $0["discovering"] == .bool(true) }
                }
                // Heard by both, and by the second one alone.
                for adapter in [Self.first, Self.second] {
                    try await world.probe.wait(
                        for: "\(world.topic)/devices/c00000000003/advertisement", within: .seconds(20)
                    ) { $0.json["adapter"] == .string(adapter) }
                }
                try await connect(world, Self.annex)
                let link = try await world.probe.wait(
                    for: "\(world.topic)/devices/\(Self.topicForm(Self.annex))/connection"
                ) { $0.json["state"] == .string("connected") }
                XCTAssertEqual(link.json["adapter"], .string(Self.second))
                try await world.radio.send("adapter_remove", ["adapter": .string(Self.first)])
                try await waitForAdapter(world, Self.first) { $0["state"] != .string("poweredOn") }
                let value = try await world.ask("read", Self.at(Self.annex, "180f", "2a19"))
                XCTAssertEqual(value["value"], .string("4b"))
                world.probe.discard()
                let heard = try await world.probe.wait(
                    for: "\(world.topic)/devices/c00000000003/advertisement", within: .seconds(20))
                XCTAssertEqual(heard.json["adapter"], .string(Self.second))
                try await connect(world, Self.tag)
            } catch {
                await restoreAdapters(world)
                throw error
            }
            await restoreAdapters(world)
        }
    }
}
