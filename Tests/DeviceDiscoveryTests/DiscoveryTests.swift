import EventLoop
import TestKit
import XCTest

@testable import DeviceDiscovery

final class DiscoveryTests: XCTestCase {
    private var radio: SimulatedRadio?
    private let recorder = DiscoveryRecorder()
    private var listener: Journal { recorder.journal }
    private var manager: BluetoothDeviceManager?

    private static let fleet = """
        devices:
          - { id: one, name: Tracker 1, address: "C0:00:00:00:02:01", interval: 50, services: ["1802"], manufacturer_data: { "ffff": "01" } }
          - { id: two, name: My Tracker, address: "C0:00:00:00:02:02", interval: 50, services: ["1802"] }
          - { id: three, name: Tracker 3, address: "C0:00:00:00:02:03", interval: 50, services: ["180f"] }
          - { id: five, name: "aaaaaaaaaaaaaaaaaaaaaaaaaaa!", address: "C0:00:00:00:02:05", interval: 50, services: ["1803"] }
          - { id: four, address: "C0:00:00:00:02:04", interval: 50, services: ["1802"] }
        """

    override func setUp() async throws {
        radio = try await SimulatedRadio.start(Self.fleet)
    }

    override func tearDown() async throws {
        manager = nil
        await radio?.stop()
    }

    private func start(registryFile: URL? = nil) throws -> BluetoothDeviceManager {
        let manager = BluetoothDeviceManager(
            queue: DispatchQueue(label: "test"), registryFile: registryFile,
            busAddress: try XCTUnwrap(radio).address)
        manager.delegate = recorder
        manager.discoverer.delegate = recorder
        manager.connectionManager.delegate = recorder
        self.manager = manager
        listener.wait(for: "state poweredOn")
        return manager
    }

    private func find(_ name: String, _ manager: BluetoothDeviceManager) throws -> CBPeripheral {
        XCTAssertTrue(try manager.discoverer.discoverDevices(named: name, timeout: 20_000))
        listener.wait(for: "found \(name)")
        manager.discoverer.stopDiscoveringDevices()
        return try XCTUnwrap(manager.discoverer.discoveredDevices.first).peripheral
    }

    func testNoPatternHoldsTheLibrary() throws {
        let discoverer = try start().discoverer
        XCTAssertTrue(try discoverer.discoverDevices(named: "(a+)+|Tracker 3", timeout: 1500))
        listener.wait(for: "stopped timeout")
        XCTAssertEqual(discoverer.discoveredDevices.map(\.name), ["Tracker 3"])
        XCTAssertThrowsError(try discoverer.discoverDevices(named: "(a", timeout: 1000)) {
            XCTAssertTrue("\($0)".contains("at character"), "\($0)")
        }
    }

    func testPatternAndServices() throws {
        let discoverer = try start().discoverer
        let told = expectation(forNotification: .bluetoothDeviceDiscovered, object: discoverer) { note in
            (note.userInfo?[BluetoothDeviceDiscoverer.discoveryDataKey] as? BluetoothDeviceDiscoveryData)?.name
                == "Tracker 1"
        }
        let ended = expectation(forNotification: .bluetoothDeviceDiscoveryStopped, object: discoverer)
        XCTAssertTrue(
            try discoverer.discoverDevices(
                named: "Tracker.*", withServices: [CBUUID(string: "1802")], timeout: 1500))
        XCTAssertTrue(discoverer.isDiscovering)
        XCTAssertFalse(try discoverer.discoverDevices(timeout: 1000), "one runs already")
        listener.wait(for: "stopped timeout")
        wait(for: [told, ended], timeout: 10)
        XCTAssertEqual(
            listener.all.filter { !$0.hasPrefix("state") }, ["started", "found Tracker 1", "stopped timeout"])
        XCTAssertEqual(discoverer.discoveredDevices.map(\.rssi), [-60])
        XCTAssertFalse(discoverer.isDiscovering)
        XCTAssertFalse(discoverer.stopDiscoveringDevices())
    }

    func testWrongRequests() throws {
        let discoverer = try start().discoverer
        for timeout in [0, -5, Int.max] {
            XCTAssertThrowsError(try discoverer.discoverDevices(timeout: timeout)) {
                XCTAssertEqual($0 as? BluetoothDeviceDiscoveryError, .invalidTimeout(timeout))
            }
        }
        XCTAssertThrowsError(try discoverer.discoverDevices(named: "(", timeout: 1000)) {
            guard case .invalidPattern(let text)? = $0 as? BluetoothDeviceDiscoveryError else {
                return XCTFail("\($0)")
            }
            XCTAssertTrue(text.contains("pattern"), text)
        }
        XCTAssertTrue(try discoverer.discoverDevices(timeout: 60_000), "a wrong request leaves nothing behind")
        listener.wait(for: "found My Tracker")
        XCTAssertTrue(discoverer.stopDiscoveringDevices())
        listener.wait(for: "stopped stopped")
    }

    func testOff() throws {
        let discoverer = try start().discoverer
        XCTAssertTrue(try discoverer.discoverDevices(timeout: 60_000))
        listener.wait(for: "found -")
        try radio?.order("{\"op\":\"power\",\"adapter\":\"hci0\",\"on\":false}")
        listener.wait(for: "stopped bluetoothOff")
        XCTAssertFalse(try discoverer.discoverDevices(timeout: 1000))
    }

    func testDuplicates() throws {
        let discoverer = try start().discoverer
        discoverer.scanOptions = [CBCentralManagerScanOptionAllowDuplicatesKey: true]
        XCTAssertTrue(try discoverer.discoverDevices(named: "Tracker 1", timeout: 60_000))
        listener.wait(for: "found Tracker 1", count: 3)
        discoverer.stopDiscoveringDevices()
        listener.wait(for: "stopped stopped")
        let device = try XCTUnwrap(discoverer.discoveredDevices.first)
        XCTAssertGreaterThan(device.lastSeen, device.firstSeen)
        XCTAssertEqual(discoverer.discoveredDevices.count, 1)
    }

    func testSequence() async throws {
        let manager = BluetoothDeviceManager(
            queue: DispatchQueue(label: "test"), busAddress: try XCTUnwrap(radio).address)
        self.manager = manager
        let discoverer = manager.discoverer
        discoverer.delegate = recorder
        XCTAssertThrowsError(try discoverer.events(timeout: 1000)) {
            XCTAssertEqual($0 as? BluetoothDeviceDiscoveryError, .notStarted)
        }
        for await state in manager.states where state == .poweredOn { break }
        var lines: [String] = []
        for await event in try discoverer.events(named: "Tracker 3", timeout: 800) {
            switch event {
            case .started: lines.append("started")
            case .discovered(let device): lines.append("found \(device.name ?? "-")")
            case .stopped(let reason): lines.append("stopped \(reason.rawValue)")
            }
        }
        XCTAssertEqual(lines, ["started", "found Tracker 3", "stopped timeout"])
        for await event in try discoverer.events(timeout: 60_000) {
            if case .discovered = event { break }
        }
        listener.wait(for: "stopped stopped")
    }

    func testReconnection() throws {
        let manager = try start()
        let peripheral = try find("Tracker 1", manager)
        XCTAssertTrue(manager.connectionManager.connect(peripheral, strategy: .linear(interval: 0.05, limit: 2)))
        listener.wait(for: "connected")
        try radio?.order("{\"op\":\"disconnect\",\"device\":\"one\"}")
        listener.wait(for: "disconnected true")
        listener.wait(for: "connected", count: 2)
        manager.connectionManager.disconnect(peripheral)
        listener.wait(for: "disconnected false")
        XCTAssertEqual(manager.connectionManager.peripherals, [])
    }

    func testTheLimitHolds() throws {
        let manager = try start()
        let peripheral = try find("Tracker 1", manager)
        try radio?.order("{\"op\":\"advertise\",\"device\":\"one\",\"on\":false}")
        manager.connectionManager.connect(
            peripheral, strategy: .exponential(initial: 0.01, maximum: 0.1, limit: 2), attemptTimeout: 0.1)
        listener.wait(for: "gave up 2")
        XCTAssertEqual(listener.all.filter { $0 == "disconnected true" }.count, 2)
        XCTAssertEqual(manager.connectionManager.peripherals, [])
    }

    func testRegistryConnectsTheLastDevice() throws {
        let file = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
        defer { try? FileManager.default.removeItem(at: file) }
        let manager = try start(registryFile: file)
        XCTAssertFalse(manager.connectionManager.connectLastDevice())
        let peripheral = try find("Tracker 1", manager)
        manager.connectionManager.connect(peripheral)
        listener.wait(for: "connected")
        manager.connectionManager.disconnect(peripheral)
        listener.wait(for: "disconnected false")
        manager.registry.flush()
        let again = BluetoothDeviceRegistry(file: file)
        XCTAssertEqual(again.lastConnected?.identifier, peripheral.identifier)
        XCTAssertEqual(again.lastConnected?.name, "Tracker 1")
        XCTAssertTrue(manager.connectionManager.connectLastDevice())
        listener.wait(for: "connected", count: 2)
        XCTAssertTrue(manager.registry.forget(peripheral.identifier))
        XCTAssertFalse(manager.registry.forget(peripheral.identifier))
        XCTAssertEqual(manager.registry.knownDevices, [])
    }
}
