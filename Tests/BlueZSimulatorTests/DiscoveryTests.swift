import BlueZSimulator
import DBus
import EventLoop
import JSON
import TestKit
import XCTest

final class DiscoveryTests: XCTestCase {
    override class func setUp() { EventLoop.shared.startThread() }

    private static let fleet = """
        devices:
          - id: beacon
            address: "C0:00:00:00:00:01"
            connectable: false
            interval: 20
            manufacturer_data: { 0499: 05aabb }
          - id: strap
            name: HR strap
            address: "C0:00:00:00:00:02"
            interval: 20
            tx_power: 4
            appearance: "0341"
            services: [180d]
            service_data: { fcd2: 40024e0c }
            solicited: [1812]
          - { id: quiet, address: "C0:00:00:00:00:03", interval: 20, advertise: false }
        """

    @EventLoopActor
    func testAnAdapterIsThereAndHasItsProperties() async throws {
        let bench = try await Bench.start(Self.fleet)
        let objects = try await bench.objects()
        XCTAssertNotNil(objects["/org/bluez"]?.member("org.bluez.AgentManager1"))
        let adapter = try XCTUnwrap(objects[Bench.adapter])
        let properties = adapter.member("org.bluez.Adapter1")
        XCTAssertEqual(properties?.member("Address"), .string("00:1A:7D:DA:71:13"))
        XCTAssertEqual(properties?.member("Powered"), .bool(true))
        XCTAssertEqual(properties?.member("Discovering"), .bool(false))
        XCTAssertEqual(
            adapter.member("org.bluez.AdvertisementMonitorManager1")?.member("SupportedMonitorTypes")?.texts,
            ["or_patterns"])
        XCTAssertEqual(objects.count, 2, "nothing is heard before someone discovers")
        await bench.stop()
    }

    @EventLoopActor
    func testDevicesAreShownWhileSomeoneDiscovers() async throws {
        let bench = try await Bench.start(Self.fleet)
        try await bench.discover()
        try await bench.waitChange(Bench.adapter, "Discovering", .bool(true))
        let strap = try await bench.waitAdded(Bench.device("C0:00:00:00:00:02"))
        let properties = strap[("org.bluez.Device1")]
        XCTAssertEqual(properties?.member("Name"), .string("HR strap"))
        XCTAssertEqual(properties?.member("Alias"), .string("HR strap"))
        XCTAssertEqual(properties?.member("AddressType"), .string("random"))
        XCTAssertEqual(properties?.member("RSSI"), .int16(-60))
        XCTAssertEqual(properties?.member("TxPower"), .int16(4))
        XCTAssertEqual(properties?.member("Appearance"), .uint16(0x0341))
        XCTAssertEqual(
            properties?.member("UUIDs")?.texts,
            ["0000180d-0000-1000-8000-00805f9b34fb", "0000fcd2-0000-1000-8000-00805f9b34fb"])
        XCTAssertEqual(
            properties?.member("ServiceData")?.member("0000fcd2-0000-1000-8000-00805f9b34fb"),
            .bytes([0x40, 2, 0x4e, 0x0c]))
        XCTAssertEqual(properties?.member("AdvertisingFlags"), .bytes([6]))
        let beacon = try await bench.waitAdded(Bench.device("C0:00:00:00:00:01"))
        XCTAssertNil(beacon["org.bluez.Device1"]?.member("Name"))
        XCTAssertEqual(beacon["org.bluez.Device1"]?.member("Alias"), .string("C0-00-00-00-00-01"))
        // With DuplicateData each advertisement is told, even the same one.
        let start = bench.signals.count
        try await bench.monitor.wait("five equal advertisements") {
            bench.signals.dropFirst(start).filter { $0["ManufacturerData"] != nil }.count >= 5
        }
        await bench.stop()
    }

    @EventLoopActor
    func testTheEndOfDiscoveryTakesSignalsAndBeaconsAway() async throws {
        let bench = try await Bench.start(Self.fleet)
        try await bench.discover()
        let (beacon, strap) = (Bench.device("C0:00:00:00:00:01"), Bench.device("C0:00:00:00:00:02"))
        try await bench.waitAdded(beacon)
        try await bench.waitAdded(strap)
        let start = bench.signals.count
        try await bench.adapterCall("StopDiscovery")
        try await bench.wait("RSSI to go", from: start) {
            $0.path == strap && $0.invalidated == ["RSSI", "TxPower"]
        }
        try await bench.waitRemoved(beacon, from: start)
        try await bench.waitChange(Bench.adapter, "Discovering", .bool(false), from: start)
        let end = bench.signals.count
        let failure = await bench.failure(Bench.adapter, "org.bluez.Adapter1", "StopDiscovery")
        XCTAssertEqual(failure?.name, "org.bluez.Error.Failed")
        XCTAssertEqual(failure?.message, "No discovery started")
        XCTAssertEqual(bench.signals.count, end, "nothing is told after the end")
        await bench.stop()
    }

    @EventLoopActor
    func testAClientThatLeavesEndsItsDiscovery() async throws {
        let bench = try await Bench.start(Self.fleet)
        try await bench.discover()
        let failure = await bench.failure(Bench.adapter, "org.bluez.Adapter1", "StartDiscovery")
        XCTAssertEqual(failure?.name, "org.bluez.Error.InProgress")
        try await bench.reconnect()
        let discovering = try await bench.property(Bench.adapter, "org.bluez.Adapter1", "Discovering")
        if discovering == .bool(true) {
            let start = bench.signals.count
            try await bench.waitChange(Bench.adapter, "Discovering", .bool(false), from: start)
        }
        await bench.stop()
    }

    @EventLoopActor
    func testFiltersAreCheckedAndApplied() async throws {
        let bench = try await Bench.start(Self.fleet)
        for (name, value) in [
            ("RSSI", .string("x")), ("RSSI", .int16(21)), ("Transport", .string("air")), ("Nonsense", .bool(true)),
            ("UUIDs", .array(of: "s", [.string("no")])),
        ] as [(String, DBusValue)] {
            let failure = await bench.failure(
                Bench.adapter, "org.bluez.Adapter1", "SetDiscoveryFilter", [.properties([(name, value)])])
            XCTAssertEqual(failure?.name, "org.bluez.Error.InvalidArguments", name)
        }
        try await bench.discover([("UUIDs", .array(of: "s", [.string("180d")]))])
        try await bench.waitAdded(Bench.device("C0:00:00:00:00:02"))
        XCTAssertFalse(bench.signals.contains { $0.subject == Bench.device("C0:00:00:00:00:01") })
        await bench.stop()
    }

    @EventLoopActor
    func testWithoutPowerNothingStarts() async throws {
        let bench = try await Bench.start(Self.fleet)
        try await bench.discover()
        try await bench.waitAdded(Bench.device("C0:00:00:00:00:02"))
        let start = bench.signals.count
        try await bench.call(
            Bench.adapter, "org.freedesktop.DBus.Properties", "Set",
            [.string("org.bluez.Adapter1"), .string("Powered"), .variant(.bool(false))])
        let change = try await bench.waitChange(Bench.adapter, "Powered", .bool(false), from: start)
        XCTAssertEqual(change["Discovering"], .bool(false))
        let failure = await bench.failure(Bench.adapter, "org.bluez.Adapter1", "StartDiscovery")
        XCTAssertEqual(failure?.name, "org.bluez.Error.NotReady")
        await bench.stop()
    }

    @EventLoopActor
    func testARemovedDeviceGoesAndComesAgain() async throws {
        let bench = try await Bench.start(Self.fleet)
        try await bench.discover()
        let path = Bench.device("C0:00:00:00:00:02")
        try await bench.waitAdded(path)
        let start = bench.signals.count
        try await bench.adapterCall("RemoveDevice", [.objectPath(path)])
        try await bench.waitRemoved(path, from: start)
        try await bench.waitAdded(path, from: start)
        let failure = await bench.failure(
            Bench.adapter, "org.bluez.Adapter1", "RemoveDevice", [.objectPath("/org/bluez/hci0/dev_no")])
        XCTAssertEqual(failure?.name, "org.bluez.Error.DoesNotExist")
        await bench.stop()
    }

    @EventLoopActor
    func testTheDuplicateFilterLetsEachOnceAndAMonitorLetsAll() async throws {
        let bench = try await Bench.start("duplicate_filter: data\n" + Self.fleet)
        let beacon = Bench.device("C0:00:00:00:00:01")
        try await bench.discover()
        try await bench.waitAdded(beacon)
        // A change of data passes the filter: whatever was heard of the same data before would have come by then.
        let start = bench.signals.count
        let before = bench.simulator.advertisementCount
        try await bench.waitAdded(Bench.device("C0:00:00:00:00:02"))
        XCTAssertLessThanOrEqual(before, 4)
        XCTAssertFalse(
            bench.signals.dropFirst(start).contains { $0.path == beacon && $0.member == "PropertiesChanged" })

        bench.client.export(path: "/monitors", subtree: true) { message in
            guard message.member == "GetManagedObjects" else { return message.wantsReply ? message.reply() : nil }
            let reply = message.reply()
            var writer = reply.writer()
            let patterns = DBusValue.array(of: "(yyay)", [.structure([.byte(0), .byte(1), .bytes([6])])])
            writer.append(
                .dictionary(
                    "oa{sa{sv}}",
                    [
                        (
                            .objectPath("/monitors/all"),
                            .dictionary(
                                "sa{sv}",
                                [
                                    (
                                        .string("org.bluez.AdvertisementMonitor1"),
                                        .properties([("Type", .string("or_patterns")), ("Patterns", patterns)])
                                    )
                                ])
                        )
                    ]))
            return reply
        }
        try await bench.call(
            Bench.adapter, "org.bluez.AdvertisementMonitorManager1", "RegisterMonitor", [.objectPath("/monitors")])
        try await bench.monitor.wait("every advertisement") {
            bench.signals.dropFirst(start).filter { $0.path == beacon && $0["ManufacturerData"] != nil }.count >= 5
        }
        await bench.stop()
    }

    @EventLoopActor
    func testManyAdvertisementsAreCountedExactly() async throws {
        let bench = try await Bench.start("devices: []")
        try await bench.discover()
        let start = bench.signals.count
        try await bench.order(#"{"op":"flood","rate":2000,"seconds":1,"addresses":500}"#)
        func flood() -> [Bench.Signal] {
            bench.signals.dropFirst(start).filter { $0.member == "InterfacesAdded" || $0["ManufacturerData"] != nil }
        }
        try await bench.monitor.wait("all of the flood") { flood().count >= 2000 }
        let sent = try await bench.order(#"{"op":"sent"}"#)
        XCTAssertEqual(sent["flood"], .int(2000))
        XCTAssertEqual(sent["flood_done"], .bool(true))
        _ = try await bench.objects()  // whatever else was sent has come by then
        XCTAssertEqual(flood().count, 2000)
        let added = flood().filter { $0.member == "InterfacesAdded" }.count
        XCTAssertEqual(added, 500)
        await bench.stop()
    }

    @EventLoopActor
    func testADeviceThatIsHeardNoMoreIsRemovedUnlessItWasConnectedTo() async throws {
        var timing = Bench.quick
        timing.temporary = .milliseconds(500)
        let bench = try await Bench.start(Self.fleet, timing: timing)
        let (beacon, strap) = (Bench.device("C0:00:00:00:00:01"), Bench.device("C0:00:00:00:00:02"))
        try await bench.connect("C0:00:00:00:00:02")
        try await bench.waitAdded(beacon)
        let start = bench.signals.count
        try await bench.deviceCall("C0:00:00:00:00:02", "Disconnect")
        for id in ["strap", "beacon"] { try await bench.order(#"{"op":"advertise","device":"\#(id)","on":false}"#) }
        try await bench.waitRemoved(beacon, from: start)
        let objects = try await bench.objects()
        XCTAssertNotNil(objects[strap], "a device that was connected to stays")
        await bench.stop()
    }

    @EventLoopActor
    func testAPrivateAddressChangesAndComesFromTheSeed() async throws {
        let fleet = "devices: [{ id: phone, rotate: 100, interval: 10, manufacturer_data: { 004c: 10 } }]"
        var seen: [[String]] = []
        for _ in 0..<2 {
            let bench = try await Bench.start(fleet)
            try await bench.discover()
            func addresses() -> [String] { bench.signals.filter { $0.member == "InterfacesAdded" }.map(\.subject) }
            try await bench.monitor.wait("three addresses") { addresses().filter { $0.contains("dev_") }.count >= 3 }
            let found = addresses().filter { $0.contains("dev_") }.prefix(3)
            for path in found {
                let digit = try XCTUnwrap(path.split(separator: "_").dropFirst().first?.first)
                XCTAssertTrue("4567".contains(digit), path)
            }
            seen.append(Array(found))
            await bench.stop()
        }
        XCTAssertEqual(seen[0], seen[1])
        XCTAssertEqual(Set(seen[0]).count, 3)
    }

    @EventLoopActor
    func testAnAdapterHearsOnlyItsDevices() async throws {
        let bench = try await Bench.start(
            """
            adapters:
              - { name: hci0, address: "00:1A:7D:DA:71:13" }
              - { name: hci1, address: "00:1A:7D:DA:71:14" }
            devices:
              - { id: both, address: "C0:00:00:00:00:01", interval: 10 }
              - { id: second, address: "C0:00:00:00:00:02", interval: 10, adapters: [hci1] }
            """)
        for adapter in [Bench.adapter, "/org/bluez/hci1"] {
            try await bench.call(adapter, "org.bluez.Adapter1", "StartDiscovery")
        }
        try await bench.waitAdded(Bench.device("C0:00:00:00:00:01"))
        try await bench.waitAdded(Bench.device("C0:00:00:00:00:01", adapter: "/org/bluez/hci1"))
        try await bench.waitAdded(Bench.device("C0:00:00:00:00:02", adapter: "/org/bluez/hci1"))
        let objects = try await bench.objects()
        XCTAssertNil(objects[Bench.device("C0:00:00:00:00:02")])
        await bench.stop()
    }

    @EventLoopActor
    func testWithoutExperimentalInterfacesThereAreNoMonitors() async throws {
        let bench = try await Bench.start("experimental: false\n" + Self.fleet)
        let adapter = try await bench.objects()[Bench.adapter]
        XCTAssertNil(adapter?.member("org.bluez.AdvertisementMonitorManager1"))
        XCTAssertNil(adapter?.member("org.bluez.Adapter1")?.member("PowerState"))
        let failure = await bench.failure(
            Bench.adapter, "org.bluez.AdvertisementMonitorManager1", "RegisterMonitor", [.objectPath("/monitors")])
        XCTAssertEqual(failure?.name, "org.freedesktop.DBus.Error.UnknownMethod")
        await bench.stop()
    }
}
