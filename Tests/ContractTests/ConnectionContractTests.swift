import CoreBluetooth
import DBus
import EventLoop
import JSON
import Sandbox
import TestKit
import XCTest

/// Each callback of a manager that the radio can provoke, and what a connection outlives.
final class ConnectionContractTests: LibraryCase {
    // Field case 56.
    @EventLoopActor
    func testAScanBeforePoweredOnIsHarmless() async throws {
        let world = try await World.start()
        let user = LibraryUser(world)
        do {
            let manager = try XCTUnwrap(user.manager)
            manager.scanForPeripherals(withServices: nil)
            XCTAssertFalse(manager.isScanning)
            try await user.journal.rest(of: "state poweredOn")
            XCTAssertEqual(manager.state, .poweredOn)
            XCTAssertEqual(CBCentralManager.authorization, .allowedAlways)
            manager.scanForPeripherals(withServices: nil)
            try await user.journal.rest(of: "discover ")
        } catch { XCTFail("\(error)\n\(world.logs)") }
        user.end()
        await world.stop()
    }

    @EventLoopActor
    func testConnectOutlivesFailedTriesAndTheObject() async throws {
        try await inRadio { world, user in
            try await world.advertise("sleeper", true)
            user.manager?.scanForPeripherals(withServices: [CBUUID(string: "181A")])
            try await user.journal.rest(of: "discover ")
            user.manager?.stopScan()
            try await world.advertise("sleeper", false)
            let peripheral = try user.peripheral(Self.sleeper)
            user.manager?.connect(peripheral)
            XCTAssertEqual(peripheral.state, .connecting)
            // BlueZ forgets the device while the connection is waited for.
            let connection = try await DBusConnection.open(world.busAddress)
            defer { connection.close() }
            let removal = DBusMessage(
                call: "org.bluez", path: "/org/bluez/hci0", interface: "org.bluez.Adapter1", member: "RemoveDevice")
            var writer = removal.writer()
            writer.append(objectPath: "/org/bluez/hci0/dev_C0_00_00_00_00_11")
            _ = try await connection.call(removal, timeout: .seconds(20))
            XCTAssertEqual(peripheral.state, .connecting)
            try await world.radio.send("drop_on_connect", ["device": .string("sleeper"), "times": .int(2)])
            try await world.advertise("sleeper", true)
            try await user.journal.rest(of: "connect true", within: 60)
            XCTAssertEqual(user.journal.all.filter { $0.hasPrefix("fail") || $0.hasPrefix("disconnect") }, [])
            let refused = try await world.radio.send("log", ["device": .string("sleeper")]).arrayValue ?? []
            XCTAssertGreaterThanOrEqual(refused.filter { $0["event"] == .string("refused") }.count, 2)
            try await user.cancel(peripheral)
        }
    }

    @EventLoopActor
    func testCancelledBeforeItCame() async throws {
        try await inRadio { world, user in
            let peripheral = try user.peripheral(Self.sleeper)
            user.manager?.connect(peripheral)
            user.journal.clear()
            try await user.cancel(peripheral)
            try await world.advertise("sleeper", true)
            user.manager?.scanForPeripherals(withServices: [CBUUID(string: "181A")])
            try await user.journal.rest(of: "discover ")
            XCTAssertEqual(peripheral.state, .disconnected)
            XCTAssertEqual(user.journal.all.filter { $0.contains("connect") }, ["disconnect disconnected"])
        }
    }

    @EventLoopActor
    func testAConnectionGoesWithItsPeripheral() async throws {
        try await inRadio { world, user in
            user.recorder.keeps = false
            let before = try await connections(world, "sleeper")
            user.manager?.connect(try user.peripheral(Self.sleeper))
            // No reference is left: what was asked for is taken back, and the device comes in vain.
            try await world.advertise("sleeper", true)
            user.manager?.scanForPeripherals(
                withServices: [CBUUID(string: "181A")], options: [CBCentralManagerScanOptionAllowDuplicatesKey: true])
            try await user.journal.rest(of: "discover Sleeper", count: 5)
            XCTAssertEqual(user.journal.all.filter { $0.hasPrefix("connect") }, [])
            let after = try await connections(world, "sleeper")
            XCTAssertEqual(after, before)
        }
    }

    @EventLoopActor
    private func connections(_ world: World, _ id: String) async throws -> Int {
        let log = try await world.radio.send("log", ["device": .string(id)]).arrayValue ?? []
        return log.filter { $0["event"] == .string("connected") }.count
    }

    @EventLoopActor
    func testALinkGoesWithItsManager() async throws {
        try await inRadio { world, user in
            let second = LibraryUser(world)
            try await second.journal.rest(of: "state poweredOn")
            let tree = try await second.connect(Self.strap)
            XCTAssertEqual(tree.peripheral.state, .connected)
            second.end()
            try await waitForPeer(world, "strap", toSee: "disconnected")
            // The last manager of a program takes the engine along, and the link before it.
            _ = try await user.connect(Self.tag)
            user.end()
            try await waitForPeer(world, "tag", toSee: "disconnected")
        }
    }

    @EventLoopActor
    func testThePeerEndsTheLink() async throws {
        try await inRadio { world, user in
            let tree = try await user.connect(Self.strap)
            let level = try tree.characteristic("2A19")
            tree.peripheral.setNotifyValue(true, for: level)
            try await user.journal.rest(of: "notifying 2A19 true")
            user.journal.clear()
            try await world.radio.send("disconnect", ["device": .string("strap")])
            try await user.journal.rest(of: "disconnect disconnected error cb 7")
            XCTAssertFalse(level.isNotifying)
            user.manager?.connect(
                tree.peripheral, options: [CBConnectPeripheralOptionEnableAutoReconnect: true])
            try await user.journal.rest(of: "connect true")
            try await world.radio.send("disconnect", ["device": .string("strap")])
            try await user.journal.rest(of: "disconnect connecting error cb 7")
            try await user.journal.rest(of: "connect true", count: 2)
            try await user.cancel(tree.peripheral)
        }
    }

    @EventLoopActor
    func testBelowPoweredOn() async throws {
        try await inRadio { world, user in
            let tree = try await user.connect(Self.strap)
            let waiting = try user.peripheral(Self.sleeper)
            user.manager?.connect(waiting)
            user.manager?.scanForPeripherals(withServices: nil)
            try await world.radio.send("power", ["adapter": .string("hci0"), "on": .bool(false)])
            try await user.journal.rest(of: "state poweredOff")
            try await user.journal.rest(of: "disconnect disconnected error cb 7")
            try await user.journal.rest(of: "fail error cb 10")
            XCTAssertEqual(user.manager?.isScanning, false)
            XCTAssertEqual(tree.peripheral.state, .disconnected)
            XCTAssertEqual(waiting.state, .disconnected)
            user.manager?.connect(waiting)
            XCTAssertEqual(waiting.state, .disconnected)
            try await world.radio.send("power", ["adapter": .string("hci0"), "on": .bool(true)])
            try await user.journal.rest(of: "state poweredOn")
            user.journal.clear()
            user.manager?.scanForPeripherals(withServices: [CBUUID(string: "180D")])
            try await user.journal.rest(of: "discover HR strap")
        }
    }

    @EventLoopActor
    func testBluetoothdRestarts() async throws {
        try await inRadio { world, user in
            let tree = try await user.connect(Self.strap)
            try await world.radio.send("daemon_kill")
            try await user.journal.rest(of: "state resetting")
            try await user.journal.rest(of: "disconnect disconnected error cb 7")
            try await world.radio.send("daemon_start")
            try await user.journal.rest(of: "state poweredOn", within: 60)
            user.journal.clear()
            user.manager?.connect(tree.peripheral)
            try await user.journal.rest(of: "connect true", within: 60)
            let again = try await user.discover(tree.peripheral)
            again.peripheral.readValue(for: try again.characteristic("2A19"))
            try await user.journal.rest(of: "value 2A19 ")
            try await user.cancel(again.peripheral)
        }
    }

    @EventLoopActor
    func testTwoProgramsShareALink() async throws {
        try await inRadio { world, user in
            let other = LibraryUser(world)
            defer { other.end() }
            try await other.journal.rest(of: "state poweredOn")
            other.manager?.registerForConnectionEvents(options: [.serviceUUIDs: [CBUUID(string: "180F")]])
            let one = try await user.connect(Self.tag)
            try await other.journal.rest(of: "event peerConnected")
            let found = other.manager?.retrieveConnectedPeripherals(withServices: [CBUUID(string: "180F")])
            XCTAssertTrue(found?.contains { $0.identifier == one.peripheral.identifier } == true, "\(found ?? [])")
            let two = try await other.connect(Self.tag)
            XCTAssertFalse(one.peripheral === two.peripheral)
            for (program, tree) in [(user, one), (other, two)] {
                tree.peripheral.setNotifyValue(true, for: try tree.characteristic("2A19"))
                try await program.journal.rest(of: "notifying 2A19 true")
            }
            try await world.notify("tag", "180f/2a19", "21")
            try await user.journal.rest(of: "value 2A19 33")
            try await other.journal.rest(of: "value 2A19 33")
            // Many writes of the one hold up none of the other's.
            for number in 0..<20 {
                let value = Data([UInt8(number)])
                one.peripheral.writeValue(value, for: try one.characteristic("2A06"), type: .withoutResponse)
                two.peripheral.writeValue(value, for: try two.characteristic("2A06"), type: .withoutResponse)
            }
            // The one that made the link leaves, and the other goes on; as the last one it ends the link.
            try await user.cancel(one.peripheral)
            other.journal.clear()
            try await world.notify("tag", "180f/2a19", "22")
            try await other.journal.rest(of: "value 2A19 34")
            XCTAssertEqual(two.peripheral.state, .connected)
            // The same the other way about: who found it up leaves it so.
            let again = try await user.connect(Self.tag)
            try await user.cancel(again.peripheral)
            other.journal.clear()
            two.peripheral.readValue(for: try two.characteristic("2A19"))
            try await other.journal.rest(of: "value 2A19 ")
            try await other.cancel(two.peripheral)
            try await other.journal.rest(of: "event peerDisconnected")
            try await waitForPeer(world, "tag", toSee: "disconnected")
        }
    }

    @EventLoopActor
    func testTwoManagersOfAProgram() async throws {
        try await inRadio { world, user in
            user.manager?.scanForPeripherals(withServices: [CBUUID(string: "1802")])
            try await user.journal.rest(of: "discover Tag")
            // A new manager reports what is known, and its scan is its own.
            let second = Recorder()
            let manager = try XCTUnwrap(user.manager?.beside(delegate: second, queue: user.queue))
            try await second.journal.rest(of: "state poweredOn")
            manager.scanForPeripherals(withServices: [CBUUID(string: "1802")])
            try await second.journal.rest(of: "discover Tag")
            manager.stopScan()
            XCTAssertEqual(user.manager?.isScanning, true)
            let one = try await user.connect(Self.tag)
            let two = try XCTUnwrap(
                manager.retrievePeripherals(withIdentifiers: [one.peripheral.identifier]).first)
            manager.connect(two)
            try await second.journal.rest(of: "connect true")
            try await user.cancel(one.peripheral)
            XCTAssertEqual(two.state, .connected)
            manager.cancelPeripheralConnection(two)
            try await second.journal.rest(of: "disconnect disconnected")
            try await waitForPeer(world, "tag", toSee: "disconnected")
            second.found = [:]
        }
    }

    @EventLoopActor
    func testStateIsRestored() async throws {
        try await inRadio { world, _ in
            setenv("XDG_STATE_HOME", world.directory.file("state"), 1)
            defer { unsetenv("XDG_STATE_HOME") }
            let options = [CBCentralManagerOptionRestoreIdentifierKey: "contract"]
            let first = LibraryUser(world, options: options)
            try await first.journal.rest(of: "state poweredOn")
            let tree = try await first.connect(Self.strap)
            first.manager?.scanForPeripherals(withServices: [CBUUID(string: "1802")])
            first.manager?.flushRestoration()
            // Another process with the same identifier, while the first one's file stands as after its sudden end.
            let second = LibraryUser(world, options: options)
            let restored = try await second.journal.rest(of: "restore ")
            XCTAssertEqual(restored, "[CoreBluetooth.CBPeripheralState.connecting] [\"1802\"]")
            XCTAssertEqual(second.journal.all.first, "restore " + restored, "before the first state")
            try await second.journal.rest(of: "connect true")
            try await second.journal.rest(of: "discover Tag")
            second.end()
            try await first.cancel(tree.peripheral)
            first.end()
        }
    }

    @EventLoopActor
    @available(*, deprecated)
    func testTheFirstReleasesRetrievals() async throws {
        try await inRadio { world, user in
            let tree = try await user.connect(Self.strap)
            user.manager?.retrieveConnectedPeripherals()
            try await user.journal.rest(of: "retrieved connected ")
            user.manager?.retrievePeripherals([tree.peripheral.identifier])
            try await user.journal.rest(of: "retrieved 1")
            XCTAssertTrue(tree.peripheral.isConnected)
            tree.peripheral.readRSSI()
            try await user.journal.rest(of: "rssi ")
            try await user.cancel(tree.peripheral)
        }
    }

    /// The newer form of the end, and the first release's form of the signal strength: of each pair the program has one.
    @EventLoopActor
    func testTheOtherForms() async throws {
        try await inRadio { world, user in
            let tree = try await user.connect(Self.strap)
            let other = OtherForms(user.journal)
            user.manager?.delegate = other
            tree.peripheral.delegate = other
            tree.peripheral.readRSSI()
            try await user.journal.rest(of: "first release's rssi")
            let before = CFAbsoluteTimeGetCurrent()
            try await world.radio.send("disconnect", ["device": .string("strap")])
            let told = try await user.journal.rest(of: "ended ")
            let words = told.split(separator: " ")
            XCTAssertEqual(words.last, "false")
            let time = try XCTUnwrap(words.first.flatMap { Double($0) })
            XCTAssertGreaterThan(time, before - 1)
            XCTAssertLessThanOrEqual(time, CFAbsoluteTimeGetCurrent())
        }
    }

    @EventLoopActor
    func testWhatLinuxLacksFailsWithAnError() async throws {
        try await inRadio { _, user in
            user.manager?.connect(
                try user.peripheral(Self.strap), options: [CBConnectPeripheralOptionRequiresANCS: true])
            try await user.journal.rest(of: "fail error cb 13")
        }
    }
}

private final class OtherForms: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate, Sendable {
    private let journal: Journal

    init(_ journal: Journal) { self.journal = journal }

    func centralManagerDidUpdateState(_ central: CBCentralManager) {}

    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?
    ) { journal.add("ended \(timestamp) \(isReconnecting)") }

    func peripheralDidUpdateRSSI(_ peripheral: CBPeripheral, error: (any Error)?) {
        journal.add("first release's rssi")
    }
}
