import EventLoop
import JSON
import MQTT
import Sandbox
import TestKit
import XCTest

/// The program through faults that only a private bus or broker can have.
final class RecoveryProgramTests: XCTestCase {
    override class func setUp() {
        EventLoop.shared.startThread()
    }

    /// Lines of a program or a server, for a test to wait for.
    @EventLoopActor
    private final class Lines {
        private(set) var all: [String] = []
        let monitor = Monitor()
        nonisolated init() {}

        func add(_ line: String) {
            all.append(line)
            monitor.changed()
        }

        func wait(_ what: String, within timeout: Duration = .seconds(20), _ holds: @escaping (String) -> Bool)
            async throws
        {
            try await monitor.wait(what, within: timeout) { self.all.contains(where: holds) }
        }
    }

    /// A bridge without a bus, its lines gathered.
    @EventLoopActor
    private func bridge(_ directory: TemporaryDirectory, _ more: [String]) throws -> (ChildProcess, Lines) {
        var environment = ChildProcess.ownEnvironment()
        environment["DBUS_SYSTEM_BUS_ADDRESS"] = "unix:path=/nonexistent/bus"
        let settings = ["gateway.id=gw", "outbox.path=\(directory.file("outbox.db"))"] + more
        let lines = Lines()
        let process = try ChildProcess(
            World.program, ["run"] + settings.flatMap { ["--set", $0] }, environment: environment,
            output: .lines { lines.add($0) }, errors: .lines { lines.add($0) })
        return (process, lines)
    }

    @EventLoopActor
    func testTheBusDiesAndComesBackAndEverythingWithIt() async throws {
        guard !World.isLab else { return }
        let world = try await World.start()
        do {
            try await world.startBridge(
                "devices: [{ address: \"C0:00:00:00:00:01\", connect: always, subscribe: [180d/2a37] }]")
            let values = "\(world.topic)/devices/c00000000001/characteristics/180d/2a37"
            try await world.probe.wait(for: values, within: .seconds(40))
            world.probe.discard()
            try await world.restartBus()
            try await world.probe.wait(for: "\(world.topic)/events") { $0.json["code"] == .string("no_bluetooth") }
            try await world.probe.wait(for: "\(world.topic)/devices/c00000000001/connection") {
                $0.json["state"] != .string("connected")
            }
            try await world.probe.wait(for: "\(world.topic)/events") { $0.json["code"] == .string("bluetooth") }
            try await world.waitForAdapter { $0["state"] == .string("poweredOn") }
            world.probe.discard()
            try await world.probe.wait(for: "\(world.topic)/devices/+/advertisement", within: .seconds(20))
            try await world.probe.wait(for: values, within: .seconds(40))
            let log = try await world.radio.send("log", ["device": .string("strap")]).arrayValue ?? []
            // Of ours: bluetoothd itself subscribes to the battery.
            let ours = log.filter {
                $0["event"] == .string("subscribe") && $0["characteristic"] == .string("180d/2a37")
            }
            XCTAssertEqual(ours.count, 1, "\(log)")
            XCTAssertEqual(world.bridge?.isRunning, true)
        } catch {
            XCTFail("\(error)\n\(world.logs)")
        }
        await world.stop()
    }

    @EventLoopActor
    func testTwoInstancesWithoutSettingsOfTheirOwnAreTwoClients() async throws {
        let broker = try await PrivateBroker.start()
        let seen = Lines()
        broker.onLog = { seen.add($0) }
        let directories = [try TemporaryDirectory(), try TemporaryDirectory()]
        var processes: [ChildProcess] = []
        for directory in directories {
            let (process, lines) = try bridge(directory, ["mqtt.url=\(broker.url)"])
            processes.append(process)
            try await lines.wait("the broker") { $0.contains("connected to the broker") }
        }
        let clients = Set(
            seen.all.filter { $0.contains("New client connected") }.compactMap { line in
                line.split(separator: " ").first { $0.hasPrefix("blueferry-gw-") }
            })
        XCTAssertEqual(clients.count, 2, "\(clients)")
        for process in processes { _ = await process.stop() }
        await broker.stop()
        for directory in directories { directory.remove() }
    }

    @EventLoopActor
    func testABrokerThatRefusesTheCredentialsIsNamedAndWaitedFor() async throws {
        var options = PrivateBroker.Options()
        options.listener = ["listener {port} 127.0.0.1", "password_file {directory}/passwords"]
        options.files = ["passwords": ""]
        let broker = try await PrivateBroker.start(options)
        for version in ["5", "3.1.1"] {
            let directory = try TemporaryDirectory()
            let (process, lines) = try bridge(
                directory,
                ["mqtt.url=\(broker.url)", "mqtt.version=\(version)", "mqtt.username=u", "mqtt.password=s3cr3t"])
            try await lines.wait("the refusal") { $0.contains("not authorised") }
            XCTAssertTrue(process.isRunning)
            XCTAssertFalse(lines.all.contains { $0.contains("s3cr3t") })
            process.terminate()
            let exit = try await process.waitForExit(within: .seconds(5))
            XCTAssertEqual(exit, .code(0))
            directory.remove()
        }
        await broker.stop()
    }

    @EventLoopActor
    func testOfflineIsSentBeforeTheConnectionIsClosedInOrder() async throws {
        let broker = try await PrivateBroker.start()
        let seen = Lines()
        broker.onLog = { seen.add($0) }
        let directory = try TemporaryDirectory()
        let (process, lines) = try bridge(directory, ["mqtt.url=\(broker.url)"])
        try await lines.wait("the broker") { $0.contains("connected to the broker") }
        process.terminate()
        let exit = try await process.waitForExit(within: .seconds(5))
        XCTAssertEqual(exit, .code(0))
        try await seen.wait("the farewell") { $0.contains("Received DISCONNECT from blueferry-gw-") }
        let farewell = seen.all.firstIndex { $0.contains("Received DISCONNECT from blueferry-gw-") }
        let offline = seen.all.lastIndex {
            $0.contains("Received PUBLISH from blueferry-gw-") && $0.contains("'blueferry/gw/status'")
                && $0.contains("r1") && $0.contains("(7 bytes)")
        }
        XCTAssertLessThan(try XCTUnwrap(offline), try XCTUnwrap(farewell))
        await broker.stop()
        directory.remove()
    }
}
