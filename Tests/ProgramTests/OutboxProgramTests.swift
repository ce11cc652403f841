import EventLoop
import JSON
import MQTT
import Sandbox
import Store
import TestKit
import XCTest

/// What the program keeps over its own end, and over a disk that fails: the real program, a real broker, a real file.
final class OutboxProgramTests: XCTestCase {
    override class func setUp() {
        EventLoop.shared.startThread()
    }

    private static let settings =
        "devices: [{ address: \"C0:00:00:00:00:01\", name: strap, connect: always, subscribe: [180f/2a19] }]"
    private static let topic = "blueferry/gw/devices/c00000000001/characteristics/180f/2a19"

    private struct Numbered: Hashable {
        var epoch: String
        var sequence: Int64
        var value: String
    }

    @EventLoopActor
    private func inWorld(_ body: @EventLoopActor (World, MQTTProbe) async throws -> Void) async throws {
        let world = try await World.start()
        let listener = try await MQTTProbe.connect(port: world.broker.port, subscribing: [Self.topic])
        do {
            try await body(world, listener)
        } catch {
            XCTFail("\(error)\n\(world.logs)")
        }
        world.broker.thaw()
        await listener.stop()
        await world.stop()
    }

    @EventLoopActor
    private func notify(_ world: World, _ count: Int, gap: Int = 1, size: Int = 20) async throws {
        let sent = try await world.radio.send(
            "notify",
            [
                "device": .string("strap"), "characteristic": .string("180f/2a19"), "count": .int(Int64(count)),
                "gap": .int(Int64(gap)), "size": .int(Int64(size)),
            ])
        XCTAssertEqual(sent["sent"], .int(Int64(count)))
    }

    /// The bridge is connected to the device and subscribed.
    @EventLoopActor
    private func waitForSubscription(_ world: World, within timeout: Duration = .seconds(30)) async throws {
        let deadline = MonotonicTime.now + timeout
        while true {
            let log = try await world.radio.send("log", ["device": .string("strap")]).arrayValue ?? []
            let events = ["subscribe", "unsubscribe", "disconnected"]
            if log.compactMap({ $0["event"]?.stringValue }).last(where: events.contains) == "subscribe" { return }
            guard MonotonicTime.now < deadline else { throw Expired(message: "no subscription") }
        }
    }

    /// So many messages are committed, as another process sees the file.
    @EventLoopActor
    private func waitForRows(_ world: World, _ count: Int64) async throws {
        let file = try Database(path: world.directory.file("outbox.db"))
        defer { file.close() }
        let deadline = MonotonicTime.now + .seconds(20)
        while true {
            let rows = try file.perform {
                try $0.rows("SELECT count(*) FROM messages WHERE instr(topic, CAST('/2a19' AS BLOB)) > 0")
            }
            if case .int(let there)? = rows.first?.first, there >= count { return }
            guard MonotonicTime.now < deadline else { throw Expired(message: "\(rows) of \(count) messages committed") }
            try await SystemClock.shared.sleep(for: .milliseconds(20))
        }
    }

    /// Values as they come, without repeats, until there are so many.
    @EventLoopActor
    private func take(
        _ listener: MQTTProbe, _ count: Int, knowing known: [Numbered] = [], within timeout: Duration = .seconds(20)
    ) async throws -> [Numbered] {
        var values: [Numbered] = []
        var seen = Set(known)
        while values.count < count {
            let json: JSONValue
            do {
                json = try await listener.wait(for: Self.topic, within: timeout).json
            } catch {
                let numbers = (known + values).map(\.sequence).sorted()
                let gaps = zip(numbers, numbers.dropFirst()).filter { $1 != $0 + 1 }.map { "\($0)…\($1)" }
                throw Expired(
                    message: "\(values.count) of \(count) values, up to \(numbers.last ?? -1), gaps \(gaps): \(error)")
            }
            let value = Numbered(
                epoch: json["epoch"]?.stringValue ?? "", sequence: json["sequence"]?.intValue ?? -1,
                value: json["value"]?.stringValue ?? "")
            if seen.insert(value).inserted { values.append(value) }
        }
        return values
    }

    /// Notifications until one comes through: those before the subscription is complete go nowhere.
    @EventLoopActor
    private func begin(
        _ world: World, _ listener: MQTTProbe, knowing known: [Numbered] = []
    ) async throws -> [Numbered] {
        try await waitForSubscription(world)
        for _ in 0..<20 {
            try await notify(world, 1)
            if let values = try? await take(listener, 1, knowing: known, within: .seconds(1)) { return values }
        }
        throw Expired(message: "no notification came through")
    }

    private func check(_ values: [Numbered], file: StaticString = #filePath, line: UInt = #line) {
        XCTAssertEqual(Set(values.map(\.epoch)).count, 1, "one epoch", file: file, line: line)
        let sequences = values.map(\.sequence)
        XCTAssertEqual(sequences, Array(0..<Int64(values.count)), "in order, without a gap", file: file, line: line)
        XCTAssertEqual(Set(values.map(\.value)).count, values.count, "each its own value", file: file, line: line)
    }

    @EventLoopActor
    func testAKilledBridgeCarriesOn() async throws {
        try await inWorld { world, listener in
            try await world.startBridge(Self.settings)
            var values = try await begin(world, listener)
            let write: [(String, JSONValue)] = [
                ("id", .string("once")), ("device", .string("strap")), ("service", .string("180d")),
                ("characteristic", .string("2a39")), ("value", .string("07")),
            ]
            let request = JSONValue.object(write).serialised()
            try await world.probe.publish("\(world.topic)/request/write", request)
            let answer = try await world.probe.wait(for: "\(world.topic)/response/write")
            XCTAssertEqual(answer.json["status"], .string("ok"), answer.text)
            // The broker takes nothing more; what was received goes to the disk, and the bridge is killed.
            world.broker.freeze()
            try await notify(world, 300)
            try await waitForRows(world, 300)
            try await world.killBridge()
            world.broker.thaw()
            try await world.startBridge(Self.settings)
            values += try await take(listener, 300, knowing: values)
            values += try await begin(world, listener, knowing: values)
            check(values)
            // The command is known, and acted once.
            try await world.probe.publish("\(world.topic)/request/write", request)
            let repeated = try await world.probe.wait(for: "\(world.topic)/response/write")
            XCTAssertEqual(repeated.payload, answer.payload)
            let log = try await world.radio.send("log", ["device": .string("strap")]).arrayValue ?? []
            XCTAssertEqual(log.filter { $0["event"] == .string("write") }.count, 1)
        }
    }

    @EventLoopActor
    func testWhatTheBrokerDidNotTakeIsKeptBySIGTERM() async throws {
        try await inWorld { world, listener in
            try await world.startBridge(Self.settings)
            var values = try await begin(world, listener)
            world.broker.freeze()
            try await notify(world, 200)
            let exit = try await world.stopBridge()
            XCTAssertEqual(exit, .code(0))
            world.broker.thaw()
            try await world.startBridge(Self.settings)
            values += try await take(listener, 200, knowing: values)
            check(values)
        }
    }

    @EventLoopActor
    func testAFullDiskIsToldAndNothingIsLost() async throws {
        try await inWorld { world, listener in
            let file = try world.directory.write(
                """
                gateway: { id: gw }
                mqtt: { url: "\(world.broker.url)" }
                outbox: { path: "\(world.directory.file("outbox.db"))" }
                \(Self.settings)
                """, to: "full.yaml")
            // No file may grow beyond 128 KiB or so, and the signal that says so is ignored: writing fails.
            let monitor = Monitor()
            var lines: [String] = []
            let bridge = try world.start(
                "/bin/sh",
                ["-c", "trap '' XFSZ; ulimit -f 256; exec \"$0\" run --config \"$1\" 2>&1", World.program, file]
            ) { line in
                lines.append(line)
                monitor.changed()
            }
            var values = try await begin(world, listener)
            world.broker.freeze()
            try await notify(world, 2000, size: 200)
            try await monitor.wait("the warning") { lines.contains { $0.contains("warning outbox") } }
            world.broker.thaw()
            do {
                values += try await take(listener, 2000, knowing: values)
            } catch {
                throw Expired(message: "\(error)\n\(lines.suffix(20).joined(separator: "\n"))")
            }
            check(values)
            let event = try await world.probe.wait(for: "\(world.topic)/events") {
                $0.json["code"] == .string("outbox")
            }
            XCTAssertTrue(event.text.contains("outbox.db"), event.text)
            XCTAssertEqual(lines.filter { $0.contains("warning outbox") }.count, 1, "\(lines)")
            bridge.terminate()
            let exit = try await bridge.waitForExit(within: .seconds(5))
            XCTAssertEqual(exit, .code(0))
        }
    }

    @EventLoopActor
    func testTwoBridgesOnOneFileAreToldApart() async throws {
        try await inWorld { world, _ in
            try await world.startBridge(Self.settings)
            let monitor = Monitor()
            var lines: [String] = []
            let second = try world.start(
                "/bin/sh",
                [
                    "-c", "exec \"$0\" run --config \"$1\" --set gateway.id=other 2>&1", World.program,
                    world.directory.file("blueferry.yaml"),
                ]
            ) { line in
                lines.append(line)
                monitor.changed()
            }
            try await monitor.wait("the warning") { lines.contains { $0.contains("another process") } }
            try await world.probe.wait(for: "blueferry/other/status") { $0.text == "online" }
            second.terminate()
            _ = try await second.waitForExit(within: .seconds(5))
            XCTAssertTrue(lines.contains { $0.contains("outbox.path") }, "\(lines)")
        }
    }
}
