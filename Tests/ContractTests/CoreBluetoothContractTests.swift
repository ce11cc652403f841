import EventLoop
import JSON
import Sandbox
import TestKit
import XCTest

/// A program in Apple's style, on the simulator's radio and on the lab's: it scans for 1802 and 180F, connects, discovers,
/// writes, reads and is notified.
final class CoreBluetoothContractTests: ContractCase {
    @EventLoopActor
    func testAProgramInApplesStyle() async throws {
        let world = try await World.start()
        // The only device that answers to the scan: its address comes first to the test, whatever else is on the air.
        let others: [JSONValue] = ["strap", "twins"].map { .string($0) }
        for device in others { try await world.radio.send("advertise", ["device": device, "on": .bool(false)]) }
        do {
            var lines: [String] = []
            let program = try world.start(World.root + "/.build/debug/AlertAndBattery", []) { lines.append($0) }
            try await waitForPeer(world, "tag", toSee: "subscribe")
            // bluetoothd subscribes to the battery too, so that the peer cannot tell when the program has: it goes on.
            let telling = Task { @EventLoopActor in
                let order: [String: JSONValue] = [
                    "device": .string("tag"), "characteristic": .string("180f/2a19"), "value": .string("2f"),
                    "count": .int(50), "gap": .int(100),
                ]
                for _ in 0..<10 where program.isRunning { _ = try? await world.radio.send("notify", order) }
            }
            let exit = try await program.waitForExit(within: .seconds(30))
            await telling.value
            XCTAssertEqual(exit, .code(0), lines.joined(separator: "\n"))
            XCTAssertTrue(lines.contains("battery: 50 %"), "\(lines)")
            XCTAssertTrue(lines.contains("battery: 47 %"), "\(lines)")
            XCTAssertEqual(lines.last, "disconnected")
            let written = try await writes(world, "tag")
            XCTAssertEqual(written.last?["value"], .string("01"))
        } catch {
            XCTFail("\(error)\n\(world.logs)")
        }
        for device in others { _ = try? await world.radio.send("advertise", ["device": device, "on": .bool(true)]) }
        await world.stop()
    }
}
