import Bluetooth
import EventLoop
import TestKit
import XCTest

@testable import CoreBluetooth

/// The whole stack: managers, the engine, a bus, and a simulated radio.
final class SimulatorTests: XCTestCase {
    private var world: SimulatedRadio?
    private let recorder = Recorder()
    private var journal: Journal { recorder.journal }
    private let queue = DispatchQueue(label: "test")
    private var manager: CBCentralManager?

    override func setUp() async throws {
        world = try await SimulatedRadio.start(Radios.fleet)
    }

    override func tearDown() async throws {
        manager = nil
        queue.sync { recorder.found = [:] }
        await world?.stop()
    }

    private func makeRadio() throws -> CentralRadio { CentralRadio(busAddress: try XCTUnwrap(world).address) }

    private func start(_ delegate: Recorder? = nil, radio: CentralRadio? = nil) throws -> CBCentralManager {
        let delegate = delegate ?? recorder
        let manager = CBCentralManager(
            delegate: delegate, queue: queue, options: nil, radio: try radio ?? makeRadio())
        delegate.journal.wait(for: "state poweredOn")
        return manager
    }

    private func identifier(_ address: UInt64) -> UUID {
        DeviceKey(BluetoothAddress(value: address), .random).identifier
    }

    /// Scans for the strap and connects to it.
    private func connectStrap() throws -> CBPeripheral {
        let manager = try start()
        self.manager = manager
        manager.scanForPeripherals(withServices: [CBUUID(string: "180D")])
        journal.wait(for: "discover HR strap")
        manager.stopScan()
        let peripheral = try XCTUnwrap(queue.sync { recorder.found[identifier(0xc000_0000_0001)] })
        manager.connect(peripheral)
        journal.wait(for: "connect true")
        return peripheral
    }

    private func discoverAll(_ peripheral: CBPeripheral) throws -> [String: CBCharacteristic] {
        peripheral.discoverServices(nil)
        journal.wait(for: "services [\"1801\", \"180F\", \"1802\", \"FF00\", \"180D\"]")
        var found: [String: CBCharacteristic] = [:]
        for service in try XCTUnwrap(peripheral.services) { peripheral.discoverCharacteristics(nil, for: service) }
        journal.wait(for: "characteristics [\"2A37\", \"2A39\"]")
        for characteristic in peripheral.services?.compactMap(\.characteristics).flatMap({ $0 }) ?? [] {
            found[characteristic.uuid.uuidString] = characteristic
        }
        return found
    }

    func testDiscoveryTellsWhatIsAdvertised() throws {
        let manager = try start()
        manager.scanForPeripherals(withServices: [CBUUID(string: "180D")])
        journal.wait(for: "discover HR strap")
        manager.stopScan()
        XCTAssertFalse(manager.isScanning)
        let (data, rssi) = try queue.sync { (try XCTUnwrap(recorder.advertisements.first), recorder.strengths.first) }
        XCTAssertEqual(data[CBAdvertisementDataLocalNameKey] as? String, "HR strap")
        XCTAssertEqual(data[CBAdvertisementDataManufacturerDataKey] as? Data, Data([0x99, 0x04, 0x05, 0x12, 0xfc]))
        XCTAssertTrue(
            (data[CBAdvertisementDataServiceUUIDsKey] as? [CBUUID])?.contains(CBUUID(string: "180D")) == true)
        XCTAssertEqual(rssi, -58)
        XCTAssertEqual(journal.count("discover HR strap"), 1, "one discovery without duplicates")
        XCTAssertEqual(journal.count("discover Tag"), 0, "another service than asked for")
    }

    func testDuplicatesAreToldWhenAskedFor() throws {
        let manager = try start()
        manager.scanForPeripherals(
            withServices: [CBUUID(string: "180D")],
            options: [CBCentralManagerScanOptionAllowDuplicatesKey: true])
        journal.wait(for: "discover HR strap", count: 5)
    }

    func testASecondManagerReportsKnownDevices() throws {
        let radio = try makeRadio()
        let manager = try start(radio: radio)
        manager.scanForPeripherals(withServices: nil)
        journal.wait(for: "discover Tag")
        let second = Recorder()
        let other = try start(second, radio: radio)
        other.scanForPeripherals(withServices: [CBUUID(string: "1802")])
        second.journal.wait(for: "discover Tag")
    }

    func testWholeSession() throws {
        let peripheral = try connectStrap()
        XCTAssertEqual(peripheral.name, "HR strap")
        XCTAssertEqual(peripheral.maximumWriteValueLength(for: .withoutResponse), 244)
        let found = try discoverAll(peripheral)
        let level = try XCTUnwrap(found["2A19"])
        peripheral.readValue(for: level)
        journal.wait(for: "value 2A19 100")
        peripheral.writeValue(Data([1]), for: try XCTUnwrap(found["2A39"]), type: .withResponse)
        journal.wait(for: "wrote 2A39")
        peripheral.writeValue(Data([2]), for: try XCTUnwrap(found["2A06"]), type: .withoutResponse)
        let rate = try XCTUnwrap(found["2A37"])
        peripheral.setNotifyValue(true, for: rate)
        journal.wait(for: "notifying 2A37 true")
        for value in ["0648", "0649", "064a"] {
            try world?.order(
                "{\"op\":\"notify\",\"device\":\"strap\",\"characteristic\":\"180d/2a37\",\"value\":\"\(value)\"}")
        }
        journal.wait(for: "value 2A37 6,74")
        XCTAssertEqual(
            journal.all.filter { $0.hasPrefix("value 2A37") },
            ["value 2A37 6,72", "value 2A37 6,73", "value 2A37 6,74"])
        peripheral.setNotifyValue(false, for: rate)
        journal.wait(for: "notifying 2A37 false")
        manager?.cancelPeripheralConnection(peripheral)
        journal.wait(for: "disconnect disconnected")
        let log = try world?.order("{\"op\":\"log\",\"device\":\"strap\"}") ?? ""
        XCTAssertTrue(log.contains("\"value\":\"02\""), log)
        XCTAssertTrue(log.contains("command"), log)
        XCTAssertTrue(log.contains("disconnected"), log)
    }

    func testDescriptorsIncludedServicesAndLongValues() throws {
        let peripheral = try connectStrap()
        let found = try discoverAll(peripheral)
        let level = try XCTUnwrap(found["2A19"])
        peripheral.discoverDescriptors(for: level)
        journal.wait(for: "descriptors [\"2902\", \"2901\"]")
        let note = try XCTUnwrap(level.descriptors?.first { $0.uuid == CBUUID(string: "2901") })
        peripheral.readValue(for: note)
        journal.wait(for: "descriptor 2901 Level")
        peripheral.writeValue(Data("Charge".utf8), for: note)
        journal.wait(for: "wrote descriptor 2901")
        peripheral.readValue(for: note)
        journal.wait(for: "descriptor 2901 Charge")
        let heart = try XCTUnwrap(peripheral.services?.first { $0.uuid == CBUUID(string: "180D") })
        peripheral.discoverIncludedServices(nil, for: heart)
        journal.wait(for: "included [\"180F\"]")
        let long = try XCTUnwrap(found["FF02"])
        peripheral.writeValue(Data(repeating: 7, count: 512), for: long, type: .withResponse)
        journal.wait(for: "wrote FF02")
        peripheral.readValue(for: long)
        journal.wait(for: "value FF02 " + [String](repeating: "7", count: 512).joined(separator: ","))
    }

    func testErrorsOfThePeer() throws {
        let peripheral = try connectStrap()
        let bad = try XCTUnwrap(try discoverAll(peripheral)["FF01"])
        peripheral.readValue(for: bad)
        journal.wait(for: "value FF01 - error att 128")
        peripheral.writeValue(Data([1]), for: bad, type: .withResponse)
        journal.wait(for: "wrote FF01 error att 128")
    }

    func testRSSIOfTheLinkIsAnErrorWithoutAController() throws {
        let peripheral = try connectStrap()
        peripheral.readRSSI()
        journal.wait(for: "rssi 127 error cb 13")
    }

    func testPeerDisconnects() throws {
        let peripheral = try connectStrap()
        let level = try XCTUnwrap(try discoverAll(peripheral)["2A19"])
        peripheral.setNotifyValue(true, for: level)
        journal.wait(for: "notifying 2A19 true")
        try world?.order("{\"op\":\"disconnect\",\"device\":\"strap\"}")
        journal.wait(for: "disconnect disconnected error cb 7")
        XCTAssertFalse(level.isNotifying)
        manager?.connect(peripheral)
        journal.wait(for: "connect true", count: 2)
    }

    func testConnectWaitsForADeviceThatIsNotThere() throws {
        let manager = try start()
        self.manager = manager
        let peripheral = try XCTUnwrap(
            manager.retrievePeripherals(withIdentifiers: [identifier(0xc000_0000_0003)]).first)
        peripheral.delegate = recorder
        manager.connect(peripheral)
        XCTAssertEqual(peripheral.state, .connecting)
        try world?.order("{\"op\":\"advertise\",\"device\":\"silent\",\"on\":true}")
        journal.wait(for: "connect true")
        XCTAssertEqual(
            manager.retrieveConnectedPeripherals(withServices: [CBUUID(string: "180F")]), [])
    }

    func testPowerAndTheLossOfBluetoothd() throws {
        let peripheral = try connectStrap()
        let manager = try XCTUnwrap(manager)
        manager.scanForPeripherals(withServices: nil)
        journal.clear()
        try world?.order("{\"op\":\"power\",\"adapter\":\"hci0\",\"on\":false}")
        journal.wait(for: "state poweredOff")
        journal.wait(for: "disconnect disconnected error cb 7")
        XCTAssertFalse(manager.isScanning)
        XCTAssertEqual(peripheral.state, .disconnected)
        try world?.order("{\"op\":\"power\",\"adapter\":\"hci0\",\"on\":true}")
        journal.wait(for: "state poweredOn")
        try world?.order("{\"op\":\"daemon_kill\"}")
        journal.wait(for: "state resetting")
        try world?.order("{\"op\":\"daemon_start\"}")
        journal.wait(for: "state poweredOn", count: 2, within: 20)
        manager.scanForPeripherals(withServices: [CBUUID(string: "1802")])
        journal.wait(for: "discover Tag", within: 20)
    }

    func testServicesChange() throws {
        let peripheral = try connectStrap()
        _ = try discoverAll(peripheral)
        try world?.order("{\"op\":\"services_changed\",\"device\":\"strap\"}")
        let deadline = Date(timeIntervalSinceNow: 10)
        while !journal.all.contains(where: { $0.hasPrefix("modified") }), Date() < deadline { sched_yield() }
        XCTAssertTrue(journal.all.contains { $0.hasPrefix("modified") }, "\(journal.all)")
    }

    func testTwoManagersShareALink() throws {
        let radio = try makeRadio()
        let manager = try start(radio: radio)
        let second = Recorder()
        let other = try start(second, radio: radio)
        let id = identifier(0xc000_0000_0001)
        let one = try XCTUnwrap(manager.retrievePeripherals(withIdentifiers: [id]).first)
        let two = try XCTUnwrap(other.retrievePeripherals(withIdentifiers: [id]).first)
        other.registerForConnectionEvents()
        manager.connect(one)
        journal.wait(for: "connect true")
        second.journal.wait(for: "event peerConnected")
        XCTAssertEqual(
            other.retrieveConnectedPeripherals(withServices: [CBUUID(string: "180F")]).map(\.identifier), [id])
        other.connect(two)
        second.journal.wait(for: "connect true")
        manager.cancelPeripheralConnection(one)
        journal.wait(for: "disconnect disconnected")
        XCTAssertEqual(two.state, .connected)
        other.cancelPeripheralConnection(two)
        second.journal.wait(for: "disconnect disconnected")
        second.journal.wait(for: "event peerDisconnected")
    }
}
