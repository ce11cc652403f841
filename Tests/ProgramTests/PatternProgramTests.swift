import EventLoop
import JSON
import MQTT
import Sandbox
import TestKit
import XCTest

/// A pattern that would take longer than the world stands, in the settings, in a command, and at the terminal.
final class PatternProgramTests: ProgramCase {
    private static let pattern = "(a+)+|Scale"
    private static let name = String(repeating: "a", count: 27) + "!"
    private static let fleet = """
        devices:
          - { id: long, name: "\(name)", address: "C0:00:00:00:09:01", interval: 50 }
          - { id: scale, name: Scale, address: "C0:00:00:00:09:02", interval: 50 }
        """

    @EventLoopActor
    func testNoPatternHoldsTheBridge() async throws {
        let directory = try TemporaryDirectory()
        let broker = try await PrivateBroker.start()
        let bus = try await PrivateBus.start()
        let environment = ["DBUS_SYSTEM_BUS_ADDRESS": bus.address]
        let fleet = try directory.write(Self.fleet, to: "fleet.yaml")
        let simulator = try start(["simulate", "--fleet", fleet], environment: environment)
        let probe = try await MQTTProbe.connect(port: broker.port)
        let file = try directory.write(
            """
            gateway: { id: gw }
            mqtt: { url: "\(broker.url)" }
            bluetooth: { scan: { name: '\(Self.pattern)' } }
            outbox: { path: \(directory.file("outbox.db")) }
            """, to: "blueferry.yaml")
        let bridge = try start(["run", "--config", file], environment: environment)
        // By the settings: the device whose name suits is heard, the other never, and a person is told.
        let suits = "blueferry/gw/devices/c00000000902/advertisement"
        try await probe.wait(for: suits, within: .seconds(20))
        try await probe.wait(for: "blueferry/gw/events") { $0.json["code"] == .string("pattern_limit") }
        // By command, with the same pattern.
        let request = JSONValue.object([("id", .string("1")), ("name", .string(Self.pattern))])
        try await probe.publish("blueferry/gw/request/scan", request.serialised())
        let answer = try await probe.wait(for: "blueferry/gw/response/scan")
        XCTAssertEqual(answer.json["status"], .string("ok"), answer.text)
        try await probe.wait(for: "blueferry/gw/events") { $0.json["code"] == .string("pattern_limit") }
        try await probe.wait(for: suits)
        // One that is no pattern, or too long, is refused with its place.
        let long = JSONValue.string(String(repeating: "a", count: 1025))
        for (index, wrong) in [JSONValue.string("a(b"), long, .string("\\C"), .string("(?<n")].enumerated() {
            let id = JSONValue.string("wrong-\(index)")
            try await probe.publish(
                "blueferry/gw/request/scan", JSONValue.object([("id", id), ("name", wrong)]).serialised())
            let refused = try await probe.wait(for: "blueferry/gw/response/scan") { $0.json["id"] == id }
            XCTAssertEqual(refused.json["error"]?["code"], .string("bad_request"), refused.text)
            XCTAssertTrue(refused.text.contains("'name' is not a pattern: at character"), refused.text)
        }
        try await probe.settle()
        XCTAssertFalse(probe.messages.contains { $0.topic.contains("c00000000901/advertisement") })
        try await end(bridge)
        // At the terminal.
        let table = try await run(["scan", "--name", Self.pattern, "--for", "2"], environment: environment)
        XCTAssertTrue(table.text.contains("Scale"), table.text)
        XCTAssertFalse(table.text.contains(Self.name), table.text)
        _ = await simulator.process.stop()
        await probe.stop()
        await broker.stop()
        await bus.stop()
        directory.remove()
    }
}
