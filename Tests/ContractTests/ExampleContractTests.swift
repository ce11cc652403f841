import EventLoop
import JSON
import Sandbox
import TestKit
import XCTest

/// The programs of Examples/, each a process of its own.
final class ExampleContractTests: LibraryCase {
    /// Runs an example to its end, which has to be a good one, and gives its lines.
    @EventLoopActor
    private func run(
        _ example: String, _ arguments: [String] = [], _ world: World, _ body: () async throws -> Void = {}
    ) async throws -> [String] {
        var lines: [String] = []
        let program = try world.start(World.root + "/.build/debug/" + example, arguments) { lines.append($0) }
        do {
            try await body()
            let exit = try await program.waitForExit(within: .seconds(60))
            XCTAssertEqual(exit, .code(0), lines.joined(separator: "\n"))
        } catch {
            _ = await program.stop()
            throw Expired(message: "\(error); it printed \(lines)")
        }
        return lines
    }

    @EventLoopActor
    private func inWorldAlone(_ body: @EventLoopActor (World) async throws -> Void) async throws {
        let world = try await World.start()
        do { try await body(world) } catch { XCTFail("\(error)\n\(world.logs)") }
        await world.stop()
    }

    @EventLoopActor
    func testAlertAndBattery() async throws {
        try await inWorldAlone { world in
            // The only device that answers to the scan: its address comes first to the test, whatever is on the air.
            for id in ["strap", "twins"] { try await world.advertise(id, false) }
            let lines = try await run("AlertAndBattery", [], world) {
                try await waitForPeer(world, "tag", toSee: "subscribe")
                let order: [String: JSONValue] = [
                    "device": .string("tag"), "characteristic": .string("180f/2a19"), "value": .string("2f"),
                    "count": .int(50), "gap": .int(100),
                ]
                // BlueZ itself subscribes to battery levels, so the peer cannot tell when the program has: it sends for
                // long enough, and the program leaves meanwhile.
                _ = try? await world.radio.send("notify", order)
            }
            XCTAssertTrue(lines.contains("battery: 50 %"), "\(lines)")
            XCTAssertTrue(lines.contains("battery: 47 %"), "\(lines)")
            XCTAssertEqual(lines.last, "disconnected")
            let written = try await writes(world, "tag")
            XCTAssertEqual(written.last?["value"], .string("01"))
            for id in ["strap", "twins"] { try await world.advertise(id, true) }
        }
    }

    @EventLoopActor
    func testThermometer() async throws {
        try await inWorldAlone { world in
            try await world.advertise("sleeper", true)
            let lines = try await run("Thermometer", ["Sleep"], world) {
                try await waitForPeer(world, "sleeper", toSee: "subscribe")
                for value in ["2cfb", "0000", "0a08"] { try await world.notify("sleeper", "181a/2a6e", value) }
            }
            XCTAssertEqual(
                lines, ["temperature: -12.36 °C", "temperature: 0.0 °C", "temperature: 20.58 °C", "done"])
            try await world.advertise("sleeper", false)
        }
    }

    @EventLoopActor
    func testLongTransfer() async throws {
        try await inWorldAlone { world in
            try await world.advertise("courier", true)
            let text = (0..<300).map { "line \($0)\n" }.joined()
            let lines = try await run("LongTransfer", [], world) {
                try await waitForPeer(world, "courier", toSee: "subscribe")
                let bytes = Array(text.utf8)
                for start in stride(from: 0, to: bytes.count, by: 200) {
                    try await send(Array(bytes[start..<min(start + 200, bytes.count)]), world)
                }
                try await send(Array("EOM".utf8), world)
            }
            let printed = lines.joined(separator: "\n")
            XCTAssertTrue(printed.contains("received \(text.utf8.count) bytes: \(text)"), printed)
            try await world.advertise("courier", false)
        }
    }

    @EventLoopActor
    private func send(_ chunk: [UInt8], _ world: World) async throws {
        let hex = chunk.map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
        let characteristic = "e20a39f4-73f5-4bc4-a12f-17d1ad07a961/08590f7e-db05-467e-8757-72f6faeb13d4"
        try await world.notify("courier", characteristic, hex)
    }
}
