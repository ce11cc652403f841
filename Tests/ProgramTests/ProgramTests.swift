import EventLoop
import Foundation
import MQTT
import Sandbox
import TestKit
import XCTest

/// The program as a person or a service manager meets it: arguments, sentences, exit codes.
final class ProgramTests: ProgramCase {
    @EventLoopActor
    func testUsageAndVersion() async throws {
        let version = try await run(["version"])
        XCTAssertEqual(version.exit, .code(0))
        XCTAssertTrue(version.text.contains("blueferry"), version.text)
        for arguments in [["nonsense"], ["run", "--nonsense"], ["run", "--config"], ["demo", "--for", "soon"]] {
            let outcome = try await run(arguments)
            XCTAssertEqual(outcome.exit, .code(64), "\(arguments): \(outcome.text)")
            XCTAssertFalse(outcome.text.isEmpty)
        }
    }

    @EventLoopActor
    func testBadSettingsAreOneSentenceAndExit78() async throws {
        let directory = try TemporaryDirectory()
        defer { directory.remove() }
        let missing = try await run(["run", "--config", directory.file("absent.yaml")])
        XCTAssertEqual(missing.exit, .code(78))
        XCTAssertTrue(missing.text.contains("absent.yaml"), missing.text)
        let bad = try await run(["run", "--set", "mqtt.version=4"])
        XCTAssertEqual(bad.exit, .code(78))
        XCTAssertTrue(bad.text.contains("mqtt.version"), bad.text)
        let level = try await run(["run"], environment: ["BLUEFERRY_LOGGING_LEVEL": "loud"])
        XCTAssertEqual(level.exit, .code(78))
        XCTAssertTrue(level.text.contains("BLUEFERRY_LOGGING_LEVEL"), level.text)
    }

    @EventLoopActor
    func testCheckNamesWhatIsMissing() async throws {
        let bus = try await PrivateBus.start()
        let noBus = try await run(["check", "--set", "mqtt.url=mqtt://127.0.0.1:9"])
        XCTAssertEqual(noBus.exit, .code(69), noBus.text)
        XCTAssertTrue(noBus.text.lowercased().contains("d-bus"), noBus.text)
        let environment = ["DBUS_SYSTEM_BUS_ADDRESS": bus.address]
        let noBlueZ = try await run(["check", "--set", "mqtt.url=mqtt://127.0.0.1:9"], environment: environment)
        XCTAssertEqual(noBlueZ.exit, .code(69), noBlueZ.text)
        XCTAssertTrue(noBlueZ.text.contains("bluetoothd"), noBlueZ.text)
        XCTAssertTrue(noBlueZ.text.contains("127.0.0.1:9"), noBlueZ.text)
        await bus.stop()
    }

    @EventLoopActor
    func testAnAdapterThatIsNotThereIsNamedAndExit69() async throws {
        let bus = try await PrivateBus.start()
        let broker = try await PrivateBroker.start()
        let environment = ["DBUS_SYSTEM_BUS_ADDRESS": bus.address]
        let simulator = try start(["simulate", "--fleet", World.root + "/config/fleet.yaml"], environment: environment)
        let directory = try TemporaryDirectory()
        let outcome = try await run(
            [
                "run", "--set", "bluetooth.adapters=hci7", "--set", "mqtt.url=\(broker.url)", "--set",
                "outbox.path=\(directory.file("outbox.db"))",
            ], environment: environment, within: .seconds(60))
        XCTAssertEqual(outcome.exit, .code(69), outcome.text)
        XCTAssertTrue(outcome.text.contains("hci7"), outcome.text)
        XCTAssertTrue(outcome.text.contains("hci0"), outcome.text)
        _ = await simulator.process.stop()
        await broker.stop()
        await bus.stop()
        directory.remove()
    }

    @EventLoopActor
    func testItWaitsForBlueZAndTheBrokerAtBoot() async throws {
        let bus = try await PrivateBus.start()
        let broker = try await PrivateBroker.start()
        await broker.stopBroker()
        let environment = ["DBUS_SYSTEM_BUS_ADDRESS": bus.address]
        let directory = try TemporaryDirectory()
        let bridge = try start(
            [
                "run", "--set", "gateway.id=gw", "--set", "mqtt.url=\(broker.url)", "--set",
                "outbox.path=\(directory.file("outbox.db"))",
            ], environment: environment)
        try await bridge.lines.monitor.wait("a word about BlueZ") { bridge.lines.text.contains("no_bluetooth") }
        try await broker.startBroker()
        let probe = try await MQTTProbe.connect(port: broker.port)
        try await probe.wait(for: "blueferry/gw/status", within: .seconds(5)) { $0.text == "online" }
        let simulator = try start(["simulate", "--fleet", World.root + "/config/fleet.yaml"], environment: environment)
        try await probe.wait(for: "blueferry/gw/devices/+/advertisement", within: .seconds(10))
        bridge.process.terminate()
        let exit = try await bridge.process.waitForExit(within: .seconds(5))
        XCTAssertEqual(exit, .code(0))
        _ = await simulator.process.stop()
        await probe.stop()
        await broker.stop()
        await bus.stop()
        directory.remove()
    }

    /// A pool of threads wakes up once a second for as long as the process lives.
    @EventLoopActor
    func testNoThreadIsLeftToAPool() async throws {
        let bus = try await PrivateBus.start()
        let broker = try await PrivateBroker.start()
        let environment = ["DBUS_SYSTEM_BUS_ADDRESS": bus.address]
        let directory = try TemporaryDirectory()
        let simulator = try start(["simulate", "--fleet", World.root + "/config/fleet.yaml"], environment: environment)
        let bridge = try start(
            [
                "run", "--set", "gateway.id=gw", "--set", "mqtt.url=\(broker.url)", "--set",
                "outbox.path=\(directory.file("outbox.db"))",
            ], environment: environment)
        let probe = try await MQTTProbe.connect(port: broker.port)
        try await probe.wait(for: "blueferry/gw/devices/+/advertisement", within: .seconds(20))
        try await probe.publish("blueferry/gw/request/services", "{\"id\":\"1\",\"device\":\"C0:00:00:00:00:01\"}")
        try await probe.wait(for: "blueferry/gw/response/services", within: .seconds(20))
        for process in [bridge.process.pid, simulator.process.pid] {
            let tasks = "/proc/\(process)/task"
            let names = try FileManager.default.contentsOfDirectory(atPath: tasks).map { task in
                try String(contentsOfFile: "\(tasks)/\(task)/comm", encoding: .utf8)
                    .trimmingCharacters(in: .whitespacesAndNewlines)
            }
            XCTAssertTrue(Set(names).isSubset(of: ["blueferry", "store", "mqtt-connect"]), "\(names)")
        }
        try await end(bridge)
        _ = await simulator.process.stop()
        await probe.stop()
        await broker.stop()
        await bus.stop()
        directory.remove()
    }

    @EventLoopActor
    func testSIGTERMWithoutABrokerEndsInTime() async throws {
        let directory = try TemporaryDirectory()
        let bridge = try start([
            "run", "--set", "mqtt.url=mqtt://127.0.0.1:9", "--set", "outbox.path=\(directory.file("outbox.db"))",
        ])
        try await bridge.lines.monitor.wait("its start") { bridge.lines.text.contains("start") }
        bridge.process.terminate()
        let exit = try await bridge.process.waitForExit(within: .seconds(5))
        XCTAssertEqual(exit, .code(0))
        directory.remove()
    }

    @EventLoopActor
    func testAPasswordIsNeverShown() async throws {
        let broker = try await PrivateBroker.start()
        let directory = try TemporaryDirectory()
        let url = broker.url.split(separator: "/").last.map { "mqtt://joe:s3cr3t@\($0)" } ?? ""
        let bridge = try start(
            ["run", "--set", "gateway.id=gw", "--set", "outbox.path=\(directory.file("outbox.db"))"],
            environment: ["BLUEFERRY_MQTT_URL": url, "BLUEFERRY_LOGGING_LEVEL": "debug"])
        let probe = try await MQTTProbe.connect(port: broker.port)
        try await probe.wait(for: "blueferry/gw/info")
        try await probe.publish("blueferry/gw/request/config", "{\"id\":\"1\",\"get\":true}")
        try await probe.wait(for: "blueferry/gw/response/config")
        await broker.stopBroker()
        try await broker.startBroker()
        try await probe.wait(for: "blueferry/gw/status", within: .seconds(10)) { $0.text == "online" }
        bridge.process.terminate()
        _ = try await bridge.process.waitForExit(within: .seconds(5))
        XCTAssertFalse(bridge.lines.text.isEmpty)
        XCTAssertFalse(bridge.lines.text.contains("s3cr3t"), bridge.lines.text)
        for message in probe.messages { XCTAssertFalse(message.text.contains("s3cr3t"), message.topic) }
        await probe.stop()
        await broker.stop()
        directory.remove()
    }

    @EventLoopActor
    func testTheDemoShowsAFleetAndEndsByItself() async throws {
        let demo = try start(["demo", "--for", "8"])
        try await demo.lines.monitor.wait("its address") { demo.lines.text.contains("mqtt://127.0.0.1:") }
        let digits = demo.lines.text.split(separator: "mqtt://127.0.0.1:", maxSplits: 1).last?.prefix { $0.isNumber }
        let port = try XCTUnwrap(digits.flatMap { UInt16($0) })
        let probe = try await MQTTProbe.connect(port: port)
        var devices: Set<Substring> = []
        while devices.count < 12 {
            let message = try await probe.wait(for: "blueferry/+/devices/+/advertisement")
            devices.insert(message.topic.split(separator: "/")[3])
        }
        try await probe.wait(for: "blueferry/+/status") { $0.text == "online" }
        try await probe.wait(for: "blueferry/+/adapters/+")
        let exit = try await demo.process.waitForExit(within: .seconds(20))
        XCTAssertEqual(exit, .code(0), demo.lines.text)
        await probe.stop()
    }
}
