import DBus
import EventLoop
import JSON
import TestKit
import XCTest

@testable import BlueZSimulator

final class LinkTests: XCTestCase {
    override class func setUp() { EventLoop.shared.startThread() }

    private static let fleet = """
        devices:
          - id: plain
            address: "C0:00:00:00:00:01"
            interval: 10
            gatt: [{ uuid: 180f, characteristics: [{ uuid: 2a19, properties: [read], value: "64" }] }]
          - { id: refuser, address: "C0:00:00:00:00:02", interval: 10, refuses: true }
          - { id: silent, address: "C0:00:00:00:00:03", interval: 10 }
          - { id: dropper, address: "C0:00:00:00:00:04", interval: 10, drops_after: 50 }
          - { id: mute, address: "C0:00:00:00:00:05", interval: 10, answers: false }
          - id: lock
            address: "C0:00:00:00:00:06"
            interval: 10
            pairing: just_works
            gatt: [{ uuid: fff5, characteristics: [{ uuid: fff6, properties: [read, write], value: "01", encrypted: true }] }]
          - id: safe
            address: "C0:00:00:00:00:07"
            interval: 10
            pairing: passkey
            passkey: 4711
            gatt: [{ uuid: fff5, characteristics: [{ uuid: fff6, properties: [read], value: "02", encrypted: true }] }]
          - { id: many, count: 60, address: "C0:00:00:00:01:00", interval: 10 }
        """
    private static let none = DBusValue.properties([])

    @EventLoopActor
    private func heard(_ address: String, timing: SimulatorTiming = Bench.quick) async throws -> Bench {
        let bench = try await Bench.start(Self.fleet, timing: timing)
        try await bench.discover()
        try await bench.waitAdded(Bench.device(address))
        return bench
    }

    @EventLoopActor
    func testDisconnectTellsInTheOrderOfBlueZ() async throws {
        let bench = try await Bench.start(Self.fleet)
        let path = Bench.device("C0:00:00:00:00:01")
        try await bench.connect("C0:00:00:00:00:01")
        try await bench.deviceCall("C0:00:00:00:00:01", "Connect")  // a link that is there
        let start = bench.signals.count
        try await bench.deviceCall("C0:00:00:00:00:01", "Disconnect")
        try await bench.waitChange(path, "ServicesResolved", .bool(false), from: start)
        let change = try await bench.waitChange(path, "Connected", .bool(false), from: start)
        XCTAssertNil(change["ServicesResolved"])
        let log = try await bench.order(#"{"op":"log","device":"plain"}"#).arrayValue ?? []
        XCTAssertEqual(
            log.compactMap { $0["event"]?.stringValue }.filter { $0.hasSuffix("connected") },
            ["connected", "disconnected"])
        await bench.stop()
    }

    @EventLoopActor
    func testAttemptsFailAsInBlueZ() async throws {
        let bench = try await heard("C0:00:00:00:00:02")
        let refused = await bench.failure(Bench.device("C0:00:00:00:00:02"), "org.bluez.Device1", "Connect")
        XCTAssertEqual(refused?.message, "le-connection-abort-by-local")
        try await bench.waitAdded(Bench.device("C0:00:00:00:00:03"))
        try await bench.order(#"{"op":"advertise","device":"silent","on":false}"#)
        let silent = await bench.failure(Bench.device("C0:00:00:00:00:03"), "org.bluez.Device1", "Connect")
        XCTAssertEqual(silent?.message, "le-connection-abort-by-local")
        try await bench.order(#"{"op":"drop_on_connect","device":"plain","times":1}"#)
        let dropped = await bench.failure(Bench.device("C0:00:00:00:00:01"), "org.bluez.Device1", "Connect")
        XCTAssertEqual(dropped?.message, "le-connection-abort-by-local")
        try await bench.deviceCall("C0:00:00:00:00:01", "Connect")
        await bench.stop()
    }

    @EventLoopActor
    func testDisconnectCancelsAnAttempt() async throws {
        let bench = try await heard("C0:00:00:00:00:03")
        try await bench.order(#"{"op":"advertise","device":"silent","on":false}"#)
        let path = Bench.device("C0:00:00:00:00:03")
        let result = Pending<DBusError?>()
        bench.client.call(bench.message(path, "org.bluez.Device1", "Connect", []), timeout: .seconds(5)) { answer in
            if case .failure(let error) = answer { result.succeed(error) } else { result.succeed(nil) }
        }
        // A second call tells that the first is under way.
        let busy = await bench.failure(path, "org.bluez.Device1", "Connect")
        XCTAssertEqual(busy?.message, "Operation already in progress")
        try await bench.deviceCall("C0:00:00:00:00:03", "Disconnect")
        let failure = try await result.value(timeout: .seconds(5))
        XCTAssertEqual(failure?.message, "br-connection-canceled")
        await bench.stop()
    }

    @EventLoopActor
    func testADeviceDropsItsLinkAndAMuteOneNeverResolves() async throws {
        let bench = try await heard("C0:00:00:00:00:04")
        var path = Bench.device("C0:00:00:00:00:04")
        var start = bench.signals.count
        try await bench.deviceCall("C0:00:00:00:00:04", "Connect")
        try await bench.waitChange(path, "Connected", .bool(false), from: start)
        path = Bench.device("C0:00:00:00:00:05")
        try await bench.waitAdded(path)
        start = bench.signals.count
        try await bench.deviceCall("C0:00:00:00:00:05", "Connect")
        let end = try await bench.waitChange(path, "Connected", .bool(false), from: start)
        XCTAssertNil(end["ServicesResolved"])
        XCTAssertFalse(bench.signals.dropFirst(start).contains { $0.path == path && $0["ServicesResolved"] != nil })
        await bench.stop()
    }

    @EventLoopActor
    func testTooManyAttemptsAtOnceFail() async throws {
        let bench = try await heard("C0:00:00:00:01:3B")
        try await bench.monitor.wait("all sixty") {
            Set(
                bench.signals.filter { $0.member == "InterfacesAdded" && $0.subject.contains("dev_C0_00_00_00_01") }
                    .map(\.subject)
            ).count == 60
        }
        let done = Pending<Void>()
        var results: [String?] = []
        for number in 0..<60 {
            let address = "C0:00:00:00:01:" + (number < 16 ? "0" : "") + String(number, radix: 16).uppercased()
            let message = bench.message(Bench.device(address), "org.bluez.Device1", "Connect", [])
            bench.client.call(message, timeout: .seconds(10)) { result in
                if case .failure(let error) = result { results.append(error.message) } else { results.append(nil) }
                if results.count == 60 { done.succeed(()) }
            }
        }
        try await done.value(timeout: .seconds(20))
        XCTAssertEqual(results.filter { $0 == "le-connection-abort-by-local" }.count, 22)
        XCTAssertEqual(results.filter { $0 == nil }.count, 38)
        await bench.stop()
    }

    @EventLoopActor
    func testPairingWithoutAskingOpensEncryptedAttributes() async throws {
        let bench = try await heard("C0:00:00:00:00:06")
        let path = Bench.device("C0:00:00:00:00:06")
        let start = bench.signals.count
        try await bench.deviceCall("C0:00:00:00:00:06", "Pair")
        let change = try await bench.waitChange(path, "Paired", .bool(true), from: start)
        XCTAssertEqual(change["Bonded"], .bool(true))
        let characteristic = try await bench.characteristic("C0:00:00:00:00:06", "0000fff6")
        let values = try await bench.call(characteristic, "org.bluez.GattCharacteristic1", "ReadValue", [Self.none])
        XCTAssertEqual(values, [.bytes([1])])
        let again = await bench.failure(path, "org.bluez.Device1", "Pair")
        XCTAssertEqual(again?.name, "org.bluez.Error.AlreadyExists")
        let cancel = await bench.failure(path, "org.bluez.Device1", "CancelPairing")
        XCTAssertEqual(cancel?.name, "org.bluez.Error.DoesNotExist")
        await bench.stop()
    }

    @EventLoopActor
    func testADeviceThatDoesNotPairKeepsItsValues() async throws {
        let bench = try await Bench.start(Self.fleet)
        try await bench.connect("C0:00:00:00:00:07")
        let characteristic = try await bench.characteristic("C0:00:00:00:00:07", "0000fff6")
        let failure = await bench.failure(characteristic, "org.bluez.GattCharacteristic1", "ReadValue", [Self.none])
        XCTAssertEqual(failure?.name, "org.bluez.Error.NotPermitted")
        XCTAssertEqual(failure?.message, "Not paired")
        let pair = await bench.failure(Bench.device("C0:00:00:00:00:01"), "org.bluez.Device1", "Pair")
        XCTAssertEqual(pair?.name, "org.bluez.Error.AuthenticationFailed")
        await bench.stop()
    }

    @EventLoopActor
    func testAnAgentGivesThePasskey() async throws {
        let bench = try await heard("C0:00:00:00:00:07")
        var passkeys: [UInt32] = [1, 4711]
        var asked: [String] = []
        bench.client.export(path: "/agent", subtree: false) { message in
            asked.append("\(message.member ?? "") \(message.reader().string() ?? "")")
            let reply = message.reply()
            var writer = reply.writer()
            writer.append(uint32: passkeys.removeFirst())
            return reply
        }
        let manager = "org.bluez.AgentManager1"
        try await bench.call(
            "/org/bluez", manager, "RegisterAgent", [.objectPath("/agent"), .string("KeyboardDisplay")])
        let twice = await bench.failure(
            "/org/bluez", manager, "RegisterAgent", [.objectPath("/agent"), .string("KeyboardDisplay")])
        XCTAssertEqual(twice?.name, "org.bluez.Error.AlreadyExists")
        try await bench.call("/org/bluez", manager, "RequestDefaultAgent", [.objectPath("/agent")])
        let path = Bench.device("C0:00:00:00:00:07")
        let start = bench.signals.count
        let wrong = await bench.failure(path, "org.bluez.Device1", "Pair")
        XCTAssertEqual(wrong?.name, "org.bluez.Error.AuthenticationFailed")
        try await bench.waitChange(path, "Connected", .bool(false), from: start)
        try await bench.deviceCall("C0:00:00:00:00:07", "Pair")
        let paired = try await bench.property(path, "org.bluez.Device1", "Paired")
        XCTAssertEqual(paired, .bool(true))
        XCTAssertEqual(asked, ["RequestPasskey \(path)", "RequestPasskey \(path)"])
        await bench.stop()
    }

    @EventLoopActor
    func testRemovingADeviceEndsItsLinkAndForgetsItsBond() async throws {
        let bench = try await heard("C0:00:00:00:00:06")
        let path = Bench.device("C0:00:00:00:00:06")
        try await bench.deviceCall("C0:00:00:00:00:06", "Pair")
        let start = bench.signals.count
        try await bench.adapterCall("RemoveDevice", [.objectPath(path)])
        try await bench.waitChange(path, "Connected", .bool(false), from: start)
        try await bench.waitRemoved(path, from: start)
        let again = try await bench.waitAdded(path, from: start)
        XCTAssertEqual(again["org.bluez.Device1"]?.member("Paired"), .bool(false))
        await bench.stop()
    }

    @EventLoopActor
    func testABondOutlivesTheDaemon() async throws {
        let bench = try await heard("C0:00:00:00:00:06")
        let path = Bench.device("C0:00:00:00:00:06")
        try await bench.deviceCall("C0:00:00:00:00:06", "Pair")
        try await bench.order(#"{"op":"daemon_stop"}"#)
        try await bench.order(#"{"op":"daemon_start"}"#)
        try await bench.waitPowered()
        let paired = try await bench.property(path, "org.bluez.Device1", "Paired")
        XCTAssertEqual(paired, .bool(true))
        let start = bench.signals.count
        try await bench.deviceCall("C0:00:00:00:00:06", "Connect")
        try await bench.waitChange(path, "ServicesResolved", .bool(true), from: start)
        let characteristic = try await bench.characteristic("C0:00:00:00:00:06", "0000fff6")
        let values = try await bench.call(characteristic, "org.bluez.GattCharacteristic1", "ReadValue", [Self.none])
        XCTAssertEqual(values, [.bytes([1])])
        await bench.stop()
    }
}
