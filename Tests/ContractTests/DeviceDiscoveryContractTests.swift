import DeviceDiscovery
import EventLoop
import JSON
import TestKit
import XCTest

/// The simpler API, on both radios.
final class DeviceDiscoveryContractTests: ContractCase {
    @EventLoopActor
    private func inDiscovery(
        _ body: @EventLoopActor (World, BluetoothDeviceManager, DiscoveryRecorder) async throws -> Void
    ) async throws {
        let world = try await World.start()
        let recorder = DiscoveryRecorder()
        let manager = BluetoothDeviceManager(queue: DispatchQueue(label: "test"), busAddress: world.busText)
        manager.delegate = recorder
        manager.discoverer.delegate = recorder
        manager.connectionManager.delegate = recorder
        do {
            try await recorder.journal.rest(of: "state poweredOn")
            try await body(world, manager, recorder)
        } catch {
            XCTFail("\(error)\n\(recorder.journal.all)\n\(world.logs)")
        }
        await world.stop()
    }

    @EventLoopActor
    func testAPatternMatchesTheWholeName() async throws {
        try await inDiscovery { _, manager, recorder in
            XCTAssertTrue(
                try manager.discoverer.discoverDevices(
                    named: "node-[12]", withServices: [CBUUID(string: "FFF0")], timeout: 60_000))
            XCTAssertFalse(try manager.discoverer.discoverDevices(timeout: 1000), "one runs already")
            try await recorder.journal.rest(of: "found node-1")
            try await recorder.journal.rest(of: "found node-2")
            manager.discoverer.stopDiscoveringDevices()
            let first = try await recorder.journal.rest(of: "stopped ")
            XCTAssertEqual(first, "stopped")
            XCTAssertEqual(
                Set(recorder.journal.all.filter { !$0.hasPrefix("state") }),
                ["started", "found node-1", "found node-2", "stopped stopped"])
            XCTAssertEqual(manager.discoverer.discoveredDevices.count, 2)
            recorder.journal.clear()
            XCTAssertTrue(try manager.discoverer.discoverDevices(named: "node", timeout: 1500))
            let second = try await recorder.journal.rest(of: "stopped ")
            XCTAssertEqual(second, "timeout")
            XCTAssertEqual(recorder.journal.all, ["started", "stopped timeout"])
        }
    }

    @EventLoopActor
    func testReconnectionAndTheLastDevice() async throws {
        try await inDiscovery { world, manager, recorder in
            XCTAssertTrue(try manager.discoverer.discoverDevices(named: "HR strap", timeout: 30_000))
            try await recorder.journal.rest(of: "found HR strap")
            manager.discoverer.stopDiscoveringDevices()
            let strap = try XCTUnwrap(manager.discoverer.discoveredDevices.first?.peripheral)
            manager.connectionManager.connect(strap, strategy: .linear(interval: 0.1, limit: 3))
            try await recorder.journal.rest(of: "connected", within: 40)
            try await world.radio.send("disconnect", ["device": .string("strap")])
            try await recorder.journal.rest(of: "disconnected true")
            try await recorder.journal.rest(of: "connected", count: 2, within: 40)
            manager.connectionManager.disconnect(strap)
            try await recorder.journal.rest(of: "disconnected false")
            XCTAssertEqual(manager.registry.lastConnected?.name, "HR strap")
            XCTAssertTrue(manager.connectionManager.connectLastDevice())
            try await recorder.journal.rest(of: "connected", count: 3, within: 40)
            manager.connectionManager.disconnect(strap)
            try await recorder.journal.rest(of: "disconnected false", count: 2)
        }
    }
}
