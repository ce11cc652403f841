import Bluetooth
import EventLoop
import TestKit
import XCTest

@testable import CoreBluetooth

final class ManagerTests: FakeRadioTestCase {
    private func sight(_ name: String? = nil, rssi: Int8? = -60) -> @EventLoopActor (FakeRadio) -> Void {
        { radio in
            var advertisement = Advertisement()
            advertisement.name = name
            advertisement.rssi = rssi
            let sighting = Sighting(key: FakeRadioTestCase.key, advertisement: advertisement)
            for scan in radio.scans where !scan.isStopped { scan.heard(sighting) }
        }
    }

    func testFirstStateComesToTheDelegateSetByThen() {
        onLoop { $0.state = .poweredOn }
        queue.suspend()
        let manager = CBCentralManager(delegate: nil, queue: queue, options: nil, radio: radio)
        settleLoop()
        XCTAssertEqual(manager.state, .unknown)
        manager.delegate = recorder
        queue.resume()
        journal.wait(for: "state poweredOn")
        XCTAssertEqual(manager.state, .poweredOn)
    }

    private func settleLoop() { for _ in 0..<4 { onLoop { _ in } } }

    // Field case 56.
    func testEarlyScanIsHarmlessAndWorksWhenAskedAgain() {
        let manager = makeManager()
        manager.scanForPeripherals(withServices: nil)
        XCTAssertFalse(manager.isScanning)
        settle()
        XCTAssertEqual(onLoop { $0.log }, [])
        onLoop { $0.change(.poweredOn) }
        journal.wait(for: "state poweredOn")
        manager.scanForPeripherals(withServices: nil)
        XCTAssertTrue(manager.isScanning)
        settle()
        XCTAssertEqual(onLoop { $0.log }, ["scan"])
    }

    func testScanOptionsReachTheEngineAndANewScanReplacesTheFormer() {
        let manager = makePoweredOn()
        manager.scanForPeripherals(withServices: nil)
        manager.scanForPeripherals(
            withServices: [CBUUID(string: "180F")],
            options: [
                CBCentralManagerScanOptionAllowDuplicatesKey: true,
                CBCentralManagerScanOptionSolicitedServiceUUIDsKey: [CBUUID(string: "1805")],
            ])
        settle()
        XCTAssertEqual(onLoop { $0.scans.map(\.isStopped) }, [true, false])
        XCTAssertEqual(
            onLoop { $0.scans.last?.request },
            RadioScanRequest(
                services: [BluetoothUUID(0x180f)], solicited: [BluetoothUUID(0x1805)], allowsDuplicates: true))
    }

    func testDiscoveriesOfAFormerScanAreDropped() {
        let manager = makePoweredOn()
        manager.scanForPeripherals(withServices: nil)
        settle()
        queue.suspend()
        onLoop(sight("a"))
        manager.stopScan()
        queue.resume()
        settle()
        XCTAssertEqual(journal.count("discover a"), 0)
        XCTAssertFalse(manager.isScanning)
        XCTAssertEqual(onLoop { $0.scans.map(\.isStopped) }, [true])
    }

    func testOnePeripheralObjectAndTheNameWhenItIsKnown() throws {
        let manager = makePoweredOn()
        manager.scanForPeripherals(withServices: nil)
        settle()
        onLoop(sight(nil, rssi: nil))
        journal.wait(for: "discover -")
        let peripheral = try XCTUnwrap(queue.sync { recorder.found[Self.key.identifier] })
        XCTAssertNil(peripheral.name)
        XCTAssertEqual(queue.sync { recorder.strengths }, [127])
        onLoop(sight("Tag"))
        journal.wait(for: "discover Tag")
        XCTAssertEqual(peripheral.name, "Tag")
        XCTAssertTrue(queue.sync { recorder.found[Self.key.identifier] } === peripheral)
        XCTAssertEqual(journal.count("name Tag"), 1)
        XCTAssertTrue(manager.retrievePeripherals(withIdentifiers: [peripheral.identifier, UUID()]) == [peripheral])
    }

    func testConnectAndCancel() throws {
        let (manager, peripheral) = try makeConnected()
        XCTAssertEqual(peripheral.state, .connected)
        XCTAssertEqual(peripheral.maximumWriteValueLength(for: .withoutResponse), 244)
        XCTAssertEqual(peripheral.maximumWriteValueLength(for: .withResponse), 512)
        queue.suspend()
        manager.cancelPeripheralConnection(peripheral)
        // It is disconnecting, or the link has ended already; a program never sees it connected after it let go.
        XCTAssertNotEqual(peripheral.state, .connected)
        queue.resume()
        journal.wait(for: "disconnect disconnected")
        manager.cancelPeripheralConnection(peripheral)
        settle()
        XCTAssertEqual(journal.all, ["state poweredOn", "connect true", "disconnect disconnected"])
        XCTAssertEqual(onLoop { $0.log }, ["connect", "release"])
    }

    func testPendingConnectIsCancelled() throws {
        onLoop { $0.connectsAtOnce = false }
        let manager = makePoweredOn()
        let peripheral = try XCTUnwrap(
            manager.retrievePeripherals(withIdentifiers: [Self.key.identifier]).first)
        manager.connect(peripheral)
        XCTAssertEqual(peripheral.state, .connecting)
        settle()
        manager.cancelPeripheralConnection(peripheral)
        journal.wait(for: "disconnect disconnected")
        settle()
        XCTAssertEqual(journal.all, ["state poweredOn", "disconnect disconnected"])
    }

    func testReconnectRightAfterCancel() throws {
        let (manager, peripheral) = try makeConnected()
        manager.cancelPeripheralConnection(peripheral)
        manager.connect(peripheral)
        XCTAssertEqual(peripheral.state, .connecting)
        journal.wait(for: "connect true", count: 2)
        settle()
        XCTAssertEqual(peripheral.state, .connected)
        XCTAssertEqual(onLoop { $0.linked.count }, 1)
    }

    func testLossTellsWhyAfterTheOpenOperations() throws {
        let (_, peripheral) = try makeConnected()
        let found = try discover(peripheral)
        let level = try XCTUnwrap(found[CBUUID(string: "2A19")])
        onLoop { $0.gate = Pending<Void>() }
        journal.clear()
        peripheral.readValue(for: level)
        peripheral.readValue(for: level)
        settle()
        onLoop { $0.drop(FakeRadioTestCase.key, .silence) }
        journal.wait(for: "disconnect disconnected error cb 6")
        XCTAssertEqual(
            journal.all,
            ["value 2A19 - error cb 6", "value 2A19 - error cb 6", "disconnect disconnected error cb 6"])
        XCTAssertEqual(onLoop { $0.holders.count }, 0)
    }

    func testCancelLeavesOpenOperationsInSilence() throws {
        let (manager, peripheral) = try makeConnected()
        let level = try XCTUnwrap(try discover(peripheral)[CBUUID(string: "2A19")])
        let gate = Pending<Void>()
        onLoop { $0.gate = gate }
        journal.clear()
        peripheral.readValue(for: level)
        settle()
        manager.cancelPeripheralConnection(peripheral)
        journal.wait(for: "disconnect disconnected")
        onLoop { radio in
            gate.succeed(())
            radio.notify([1], 0x11, FakeRadioTestCase.key)
        }
        settle()
        XCTAssertEqual(journal.all, ["disconnect disconnected"])
    }

    func testAutoReconnect() throws {
        let manager = makePoweredOn()
        let peripheral = try XCTUnwrap(
            manager.retrievePeripherals(withIdentifiers: [Self.key.identifier]).first)
        manager.connect(peripheral, options: [CBConnectPeripheralOptionEnableAutoReconnect: true])
        journal.wait(for: "connect true")
        onLoop { $0.drop(FakeRadioTestCase.key, .byPeer) }
        journal.wait(for: "disconnect connecting error cb 7")
        journal.wait(for: "connect true", count: 2)
    }

    func testFailureToConnect() throws {
        let manager = makePoweredOn()
        onLoop { $0.failure = RadioFailure(kind: .notSupported, message: "no") }
        let peripheral = try XCTUnwrap(
            manager.retrievePeripherals(withIdentifiers: [Self.key.identifier]).first)
        manager.connect(peripheral)
        journal.wait(for: "fail error cb 13")
        XCTAssertEqual(peripheral.state, .disconnected)
        manager.connect(peripheral, options: [CBConnectPeripheralOptionRequiresANCS: true])
        journal.wait(for: "fail error cb 13", count: 2)
    }

    func testBelowPoweredOnScansStopAndPeripheralsDisconnect() throws {
        let (manager, peripheral) = try makeConnected()
        manager.scanForPeripherals(withServices: nil)
        settle()
        onLoop { $0.change(.poweredOff) }
        journal.wait(for: "disconnect disconnected error cb 7")
        XCTAssertFalse(manager.isScanning)
        XCTAssertEqual(peripheral.state, .disconnected)
        XCTAssertEqual(onLoop { $0.scans.map(\.isStopped) }, [true])
        XCTAssertEqual(
            journal.all.suffix(2), ["state poweredOff", "disconnect disconnected error cb 7"])
        journal.clear()
        manager.connect(peripheral)
        manager.stopScan()
        settle()
        XCTAssertEqual(journal.all, [])
    }

    func testConnectionGoesWithTheLastReference() throws {
        let manager = makePoweredOn()
        onLoop { $0.connectsAtOnce = false }
        do {
            let peripheral = try XCTUnwrap(
                manager.retrievePeripherals(withIdentifiers: [Self.key.identifier]).first)
            manager.connect(peripheral)
            settle()
            XCTAssertEqual(onLoop { $0.holders.count }, 1)
        }
        settle()
        XCTAssertEqual(onLoop { $0.holders.count }, 0)
        XCTAssertEqual(journal.all, ["state poweredOn"])
    }

    func testConnectionAndScanGoWithTheManager() throws {
        do {
            let (manager, _) = try makeConnected()
            manager.scanForPeripherals(withServices: nil)
            settle()
            kept = nil
        }
        settle()
        XCTAssertEqual(onLoop { $0.holders.count }, 0)
        XCTAssertEqual(onLoop { $0.scans.map(\.isStopped) }, [true])
        XCTAssertEqual(onLoop { $0.observers.count }, 0)
    }

    func testTwoManagersDoNotDisturbEachOther() throws {
        let (manager, peripheral) = try makeConnected()
        let second = Recorder()
        let other = makeManager(second)
        second.journal.wait(for: "state poweredOn")
        let same = try XCTUnwrap(other.retrievePeripherals(withIdentifiers: [peripheral.identifier]).first)
        XCTAssertFalse(same === peripheral)
        XCTAssertEqual(same.state, .disconnected)
        other.connect(same)
        second.journal.wait(for: "connect true")
        manager.cancelPeripheralConnection(peripheral)
        journal.wait(for: "disconnect disconnected")
        XCTAssertEqual(onLoop { $0.linked.count }, 1)
        XCTAssertEqual(same.state, .connected)
        other.cancelPeripheralConnection(peripheral)
        settle()
        XCTAssertEqual(second.journal.all, ["state poweredOn", "connect true"])
    }

    func testRetrieveConnectedAndConnectionEvents() throws {
        let manager = makePoweredOn()
        let battery = BluetoothUUID(0x180f)
        radio.connected.set(.init(services: [battery], name: "Tag"), for: Self.key)
        XCTAssertEqual(
            manager.retrieveConnectedPeripherals(withServices: [CBUUID(string: "180F")]).map(\.name), ["Tag"])
        XCTAssertEqual(manager.retrieveConnectedPeripherals(withServices: [CBUUID(string: "1802")]), [])
        XCTAssertEqual(manager.retrieveConnectedPeripherals(withServices: []), [])
        radio.connected.set(nil, for: Self.key)
        manager.registerForConnectionEvents(options: [.serviceUUIDs: [CBUUID(string: "180F")]])
        settle()
        onLoop { radio in
            for observer in radio.observers {
                observer.radio(linkDidComeUp: FakeRadioTestCase.key, services: [BluetoothUUID(0x1802)])
                observer.radio(linkDidComeUp: FakeRadioTestCase.key, services: [BluetoothUUID(0x180f)])
                let more = [BluetoothUUID(0x180f), BluetoothUUID(0x1805)]
                observer.radio(linkDidComeUp: FakeRadioTestCase.key, services: more)
                observer.radio(linkDidGoDown: FakeRadioTestCase.key, reason: .byPeer)
            }
        }
        journal.wait(for: "event peerDisconnected")
        XCTAssertEqual(journal.all, ["state poweredOn", "event peerConnected", "event peerDisconnected"])
    }

    func testALinkThatWasUpBeforeIsNoNewsButItsEndIs() {
        let manager = makePoweredOn()
        radio.connected.set(.init(services: [BluetoothUUID(0x180f)], name: nil), for: Self.key)
        manager.registerForConnectionEvents(options: [.peripheralUUIDs: [Self.key.identifier]])
        settle()
        onLoop { radio in
            for observer in radio.observers {
                observer.radio(linkDidComeUp: FakeRadioTestCase.key, services: [BluetoothUUID(0x180f)])
                observer.radio(linkDidGoDown: FakeRadioTestCase.key, reason: .byPeer)
            }
        }
        journal.wait(for: "event peerDisconnected")
        XCTAssertEqual(journal.all, ["state poweredOn", "event peerDisconnected"])
    }

    @available(*, deprecated)
    func testFirstReleaseRetrievals() throws {
        let manager = makePoweredOn()
        radio.connected.set(.init(services: [], name: nil), for: Self.key)
        manager.retrieveConnectedPeripherals()
        journal.wait(for: "retrieved connected 1")
        manager.retrievePeripherals([Self.key.identifier, UUID()])
        journal.wait(for: "retrieved 1")
    }

    func testStateIsRestored() throws {
        let directory = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
        defer { try? FileManager.default.removeItem(at: directory) }
        let options = [CBCentralManagerOptionRestoreIdentifierKey: "home/1"]
        let kept = RestoredState(
            peripherals: [Self.key], scan: RadioScanRequest(services: [BluetoothUUID(0x180f)]))
        let first = makeManager(options: options, directory: directory)
        onLoop { $0.change(.poweredOn) }
        journal.wait(for: "state poweredOn")
        let peripheral = try XCTUnwrap(
            first.retrievePeripherals(withIdentifiers: [Self.key.identifier]).first)
        first.connect(peripheral)
        first.scanForPeripherals(withServices: [CBUUID(string: "180F")])
        first.restoration?.flush()
        // As after the end of the process: the file is there, and the first manager has nothing to do with it.
        XCTAssertEqual(Restoration(identifier: "home/1", directory: directory)?.load(), kept)

        let again = Recorder()
        let second = makeManager(again, options: options, directory: directory)
        again.journal.wait(for: "connect true")
        XCTAssertEqual(again.journal.all.first, "restore [CoreBluetooth.CBPeripheralState.connecting] [\"180F\"]")
        XCTAssertTrue(second.isScanning)
    }
}
