import Bluetooth
import DBus
import EventLoop
import Sandbox
import XCTest

@testable import Central

final class ScanTests: EngineTestCase {
    private let device1 = "org.bluez.Device1"

    @EventLoopActor
    func testTheFilterPrecedesTheStartAndRepetitionsAdvanceLastSeen() async throws {
        try await withStage { stage in
            try await stage.start()
            _ = try stage.scan()
            await stage.scanning()
            XCTAssertEqual(stage.fake.calls, ["bluez RegisterAgent", "hci0 SetDiscoveryFilter", "hci0 StartDiscovery"])
            let filter = stage.fake.messages[1].reader().value()
            XCTAssertEqual(
                filter,
                .dictionary(
                    "sv",
                    [
                        (.string("Transport"), .variant(.string("le"))),
                        (.string("DuplicateData"), .variant(.bool(true))),
                    ]))

            let data = DBusValue.dictionary("qv", [(.uint16(0x0499), .variant(.bytes([5, 1, 2])))])
            stage.fake.addDevice(FakeBlueZ.device, [("RSSI", .int16(-60)), ("ManufacturerData", data)])
            await stage.recorder.wait("the first") { stage.recorder.advertisements.count == 1 }
            let first = stage.central.device(Stage.address)?.lastSeen
            stage.fake.change(FakeBlueZ.device, self.device1, [("ManufacturerData", data)])
            await stage.recorder.wait("the second") { stage.recorder.advertisements.count == 2 }
            XCTAssertEqual(stage.recorder.advertisements[1].manufacturerData, [0x0499: [5, 1, 2]])
            XCTAssertEqual(stage.recorder.advertisements[1].rssi, -60)
            let second = stage.central.device(Stage.address)?.lastSeen
            XCTAssertGreaterThan(try XCTUnwrap(second), try XCTUnwrap(first))
        }
    }

    @EventLoopActor
    func testAMonitorIsRegisteredBesideTheDiscovery() async throws {
        try await withStage { stage in
            stage.fake.addAdapter(monitor: true, isTold: false)
            stage.fake.handlers["RegisterMonitor"] = { message in
                let root = message.reader().string() ?? ""
                // As BlueZ does: it reads the objects below the root before it answers.
                let call = DBusMessage(
                    call: message.sender ?? "", path: root, interface: "org.freedesktop.DBus.ObjectManager",
                    member: "GetManagedObjects")
                stage.fake.connection.call(call, timeout: .seconds(5)) { result in
                    guard case .success(let reply) = result else { return XCTFail("\(result)") }
                    let objects = reply.reader().value()
                    XCTAssertTrue("\(String(describing: objects))".contains("or_patterns"))
                    stage.fake.connection.send(message.reply())
                }
                return nil
            }
            try await stage.fake.takeName()
            stage.central.start()
            _ = try stage.scan()
            await stage.scanning()
            XCTAssertEqual(stage.central.adapters.first?.method, .monitor)
            XCTAssertEqual(
                stage.fake.calls,
                ["bluez RegisterAgent", "hci0 RegisterMonitor", "hci0 SetDiscoveryFilter", "hci0 StartDiscovery"])
            for session in stage.central.scans { session.stop() }
            await stage.recorder.wait("the end") { stage.fake.calls.last == "hci0 UnregisterMonitor" }
            XCTAssertEqual(stage.fake.count(of: "hci0 StopDiscovery"), 1)
        }
    }

    @EventLoopActor
    func testARSSIThatIsWithdrawnOrUnknownIsNil() async throws {
        try await withStage { stage in
            try await stage.start()
            _ = try stage.scan()
            await stage.scanning()
            stage.fake.addDevice(FakeBlueZ.device, [("RSSI", .int16(-60)), ("TxPower", .int16(4))])
            await stage.recorder.wait("the device") { stage.recorder.advertisements.count == 1 }
            XCTAssertEqual(stage.central.device(Stage.address)?.txPower, 4)
            stage.fake.change(FakeBlueZ.device, self.device1, [], invalidated: ["RSSI", "TxPower"])
            await stage.recorder.wait("the withdrawal") { stage.central.device(Stage.address)?.rssi == nil }
            XCTAssertNil(stage.central.device(Stage.address)?.txPower)
            XCTAssertEqual(stage.recorder.advertisements.count, 1)
            stage.fake.change(FakeBlueZ.device, self.device1, [("RSSI", .int16(127))])
            await stage.recorder.wait("127") { stage.recorder.advertisements.count == 2 }
            XCTAssertNil(stage.recorder.advertisements[1].rssi)
            XCTAssertEqual(stage.central.device(Stage.address)?.isPresent, true)
            XCTAssertEqual(stage.recorder.disappeared, [])
        }
    }

    @EventLoopActor
    func testAnAliasIsNoNameAndANameThatComesLaterMatchesLater() async throws {
        try await withStage { stage in
            try await stage.start()
            let all = try stage.scan()
            let named = try stage.scan { $0.name = "Sensor" }
            await stage.scanning()
            stage.fake.addDevice(FakeBlueZ.device, [("RSSI", .int16(-60))])
            await stage.recorder.wait("the device") { stage.recorder.advertisements.count == 1 }
            XCTAssertNil(stage.recorder.advertisements[0].name)
            XCTAssertEqual(stage.recorder.advertisements[0].sessions, all.set)
            stage.fake.change(FakeBlueZ.device, self.device1, [("Name", .string("Sensor")), ("RSSI", .int16(-61))])
            await stage.recorder.wait("the name") { stage.recorder.advertisements.count == 2 }
            XCTAssertEqual(stage.recorder.advertisements[1].name, "Sensor")
            XCTAssertEqual(stage.recorder.advertisements[1].sessions, [all.set, named.set])
            XCTAssertEqual(stage.recorder.advertisements[1].firstFor, named.set)
            XCTAssertEqual(stage.central.device(named: "Sensor")?.address, Stage.address)
        }
    }

    @EventLoopActor
    func testARemovedDeviceComesBackAsTheSame() async throws {
        try await withStage { stage in
            try await stage.start()
            _ = try stage.scan()
            await stage.scanning()
            stage.fake.addDevice(FakeBlueZ.device, [("RSSI", .int16(-60))])
            await stage.recorder.wait("the device") { stage.recorder.appeared.count == 1 }
            stage.fake.remove(FakeBlueZ.device, ["org.bluez.Device1"])
            stage.fake.remove(FakeBlueZ.device, ["org.bluez.Device1"])
            await stage.recorder.wait("its removal") { stage.recorder.disappeared == [Stage.address] }
            XCTAssertNil(stage.central.device(Stage.address))
            stage.fake.addDevice(FakeBlueZ.device, [("RSSI", .int16(-50))])
            await stage.recorder.wait("its return") { stage.recorder.advertisements.count == 2 }
            XCTAssertEqual(stage.recorder.appeared, [Stage.address, Stage.address])
            XCTAssertEqual(stage.fake.calls.filter { $0.hasPrefix("dev_") }, [])
        }
    }

    @EventLoopActor
    func testADiscoveryThatIsInProgressIsTriedAgain() async throws {
        try await withStage { stage in
            stage.fake.refuse("StartDiscovery", "InProgress", "Operation already in progress", times: 2)
            try await stage.start()
            _ = try stage.scan()
            await stage.scanning()
            XCTAssertEqual(stage.fake.count(of: "hci0 StartDiscovery"), 3)
            XCTAssertEqual(stage.fake.count(of: "hci0 SetDiscoveryFilter"), 3)
        }
    }

    @EventLoopActor
    func testOnlyWhatMatchesIsTold() async throws {
        try await withStage { stage in
            try await stage.start()
            let session = try stage.scan { $0.services = [BluetoothUUID(0x180f)] }
            await stage.scanning()
            let uuid = { (short: String) in
                DBusValue.array(of: "s", [.string("0000\(short)-0000-1000-8000-00805f9b34fb")])
            }
            stage.fake.addDevice(FakeBlueZ.device, [("RSSI", .int16(-60)), ("UUIDs", uuid("1802"))])
            stage.fake.addDevice(
                "/org/bluez/hci0/dev_AA_BB_CC_00_00_02", [("RSSI", .int16(-60)), ("UUIDs", uuid("180f"))])
            await stage.recorder.wait("both") { stage.recorder.appeared.count == 2 }
            await stage.recorder.wait("the one") { stage.recorder.advertisements.count == 1 }
            XCTAssertEqual(stage.recorder.advertisements[0].address, BluetoothAddress(value: 0xaabb_cc00_0002))
            XCTAssertEqual(session.deviceCount, 1)
        }
    }

    @EventLoopActor
    func testOnceAndRSSI() async throws {
        try await withStage { stage in
            try await stage.start()
            let once = try stage.scan { $0.allowDuplicates = false }
            let near = try stage.scan { $0.rssi = -70 }
            await stage.scanning()
            stage.fake.addDevice(FakeBlueZ.device, [("RSSI", .int16(-60))])
            for rssi: Int16 in [-80, 127, -70] {
                stage.fake.change(FakeBlueZ.device, self.device1, [("RSSI", .int16(rssi))])
            }
            await stage.recorder.wait("three") { stage.recorder.advertisements.count == 3 }
            XCTAssertEqual(stage.recorder.advertisements.map(\.rssi), [-60, nil, -70])
            XCTAssertEqual(stage.recorder.advertisements.map(\.sessions), [[once.set, near.set], near.set, near.set])
        }
    }

    @EventLoopActor
    func testScansOfOneKindReplaceEachOtherAndEndInTime() async throws {
        try await withStage { stage in
            try await stage.start()
            _ = try stage.central.startScan(ScanRequest(kind: .configured))
            _ = try stage.central.startScan(ScanRequest(kind: .commanded))
            var request = ScanRequest(kind: .commanded)
            request.timeout = .milliseconds(50)
            let last = try stage.central.startScan(request)
            XCTAssertEqual(stage.recorder.ended, [.replaced])
            XCTAssertEqual(stage.central.scans.count, 2)
            await stage.recorder.wait("the timeout") { stage.recorder.ended == [.replaced, .timeout] }
            XCTAssertFalse(last.isActive)
            XCTAssertEqual(stage.central.scans.map(\.request.kind), [.configured])
            XCTAssertEqual(stage.fake.count(of: "hci0 StopDiscovery"), 0)
        }
    }

    @EventLoopActor
    func testAnAdapterThatIsOffStartsWhenItComesOn() async throws {
        try await withStage { stage in
            stage.fake.addAdapter(powered: false, isTold: false)
            try await stage.fake.takeName()
            stage.central.start()
            await stage.recorder.wait("the controller") { stage.central.adapters.first?.state == .poweredOff }
            _ = try stage.scan()
            XCTAssertEqual(stage.fake.count(of: "hci0 StartDiscovery"), 0)
            stage.fake.change(FakeBlueZ.adapter, "org.bluez.Adapter1", [("Powered", .bool(true))])
            await stage.scanning()
            stage.fake.change(FakeBlueZ.adapter, "org.bluez.Adapter1", [("Powered", .bool(false))])
            await stage.recorder.wait("off") { stage.central.adapters.first?.method == DiscoveryMethod.none }
            stage.fake.change(FakeBlueZ.adapter, "org.bluez.Adapter1", [("Powered", .bool(true))])
            await stage.scanning()
            XCTAssertEqual(stage.fake.count(of: "hci0 StartDiscovery"), 2)
        }
    }

    @EventLoopActor
    func testTheEndOfTheEngineEndsItsDiscovery() async throws {
        try await withStage { stage in
            try await stage.start()
            _ = try stage.scan()
            await stage.scanning()
            await stage.central.stop()
            XCTAssertEqual(stage.fake.count(of: "hci0 StopDiscovery"), 1)
            XCTAssertEqual(stage.recorder.ended, [.shutdown])
        }
    }

    @EventLoopActor
    func testBluetoothdComesBackAndWithItTheScan() async throws {
        try await withStage { stage in
            try await stage.start()
            _ = try stage.scan()
            await stage.scanning()
            stage.fake.addDevice(FakeBlueZ.device, [("RSSI", .int16(-60))])
            await stage.recorder.wait("the device") { stage.recorder.appeared.count == 1 }
            // As after a kill: the name alone goes.
            stage.fake.connection.close()
            await stage.recorder.wait("the loss") { stage.central.state == .noBlueZ }
            XCTAssertEqual(stage.central.adapters.first?.state, .resetting)
            XCTAssertEqual(stage.recorder.disappeared, [Stage.address])
            stage.fake = try await FakeBlueZ(address: stage.bus.address)
            stage.watch()
            stage.fake.addAdapter(isTold: false)
            try await stage.fake.takeName()
            await stage.scanning()
            XCTAssertEqual(stage.central.adapters.map(\.state), [.poweredOn])
            XCTAssertEqual(stage.fake.count(of: "hci0 StartDiscovery"), 1)
        }
    }

    @EventLoopActor
    func testTheBusComesBackAndWithItTheScan() async throws {
        try await withStage { stage in
            try await stage.start()
            _ = try stage.scan()
            await stage.scanning()
            await stage.bus.killDaemon()
            await stage.recorder.wait("the loss") {
                if case .noBus = stage.central.state { return true }
                return false
            }
            try await stage.bus.startDaemon()
            stage.fake = try await FakeBlueZ(address: stage.bus.address)
            stage.watch()
            stage.fake.addAdapter(isTold: false)
            try await stage.fake.takeName()
            await stage.scanning()
            XCTAssertEqual(stage.fake.count(of: "hci0 StartDiscovery"), 1)
        }
    }

    @EventLoopActor
    func testARenewalIsNoChangeOfTheController() async throws {
        var options = CentralOptions()
        options.renewInterval = .milliseconds(50)
        try await withStage(options: options) { stage in
            for (member, isDiscovering) in [("StartDiscovery", true), ("StopDiscovery", false)] {
                stage.fake.handlers[member] = { [weak fake = stage.fake] message in
                    fake?.change(FakeBlueZ.adapter, "org.bluez.Adapter1", [("Discovering", .bool(isDiscovering))])
                    return message.reply()
                }
            }
            try await stage.start()
            _ = try stage.scan()
            await stage.recorder.wait("discovery") {
                guard let adapter = stage.central.adapters.first else { return false }
                return adapter.isDiscovering && adapter.method == .discovery
            }
            let told = stage.recorder.adapterChanges
            await stage.recorder.wait("renewals") { stage.fake.count(of: "hci0 StartDiscovery") >= 4 }
            XCTAssertEqual(stage.recorder.adapterChanges, told)
            XCTAssertEqual(stage.central.adapters.first?.isDiscovering, true)
        }
    }
}
