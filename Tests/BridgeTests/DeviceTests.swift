import Bluetooth
import EventLoop
import JSON
import XCTest

@testable import Bridge

/// What is published of devices, over time and faults.
final class DeviceTests: LoopTestCase {
    private static let topic = "blueferry/gw/devices/c00000000001"

    @EventLoopActor
    private func configured(connects: Bool = false) -> Bench {
        Bench { settings in
            settings.devices = [BridgeSettings.Device(address: Bench.strap, name: "strap", connectsAlways: connects)]
        }
    }

    private func strap(rssi: Int8? = -60) -> FakeAdvertisement {
        FakeAdvertisement(address: Bench.strap, addressType: .random, name: "HR", rssi: rssi)
    }

    private func stranger(_ number: Int) -> FakeAdvertisement {
        FakeAdvertisement(address: Bench.strap.advanced(by: 16 + number), addressType: .random, name: "")
    }

    @EventLoopActor
    func testTheBirthComesFirstAndTheGatewaySpeaksOfItself() async throws {
        let bench = Bench()
        XCTAssertEqual(bench.broker.messages.first?.topic, "blueferry/gw/status")
        XCTAssertEqual(bench.broker.retained["blueferry/gw/status"], "online")
        for topic in ["info", "health", "discovery"] {
            XCTAssertNotNil(bench.broker.retained["blueferry/gw/" + topic], topic)
        }
        XCTAssertEqual(bench.broker.filters.first, "blueferry/gw/request/+")
        bench.bridge.adapterDidChange(
            AdapterReport(
                address: BluetoothAddress(value: 0x001a_7dda_7113), systemName: "hci0", name: "lab", state: .poweredOn,
                isDiscovering: true, method: "monitor", connections: 2))
        let adapter = try XCTUnwrap(bench.broker.retained["blueferry/gw/adapters/001a7dda7113"])
        let expected = #""state":"poweredOn","discovering":true,"method":"monitor","monitor":true"#
        XCTAssertTrue(adapter.contains(expected), adapter)
    }

    @EventLoopActor
    func testAnAdvertisementIsPublishedAtOnceAtQoS0() async throws {
        let bench = Bench()
        bench.bridge.heard(strap(), hits: .configured, first: [])
        let message = try XCTUnwrap(bench.broker.messages.last)
        XCTAssertEqual(message.topic, Self.topic + "/advertisement")
        XCTAssertEqual(message.qos, 0)
        XCTAssertFalse(message.retain)
    }

    @EventLoopActor
    func testRotatingAddressesLeaveNothingRetained() async throws {
        let bench = Bench()
        let before = bench.broker.retained
        for number in 0..<500 {
            let address = BluetoothAddress(value: 0x4000_0000_0000 + UInt64(number) << 36 | UInt64(number))
            let heard = FakeAdvertisement(address: address, addressType: .random, name: "x")
            bench.radio.devices[address] = DeviceReport(address: address, addressType: .random)
            bench.bridge.heard(heard, hits: .configured, first: [])
            bench.bridge.deviceDidChange(address)
        }
        XCTAssertEqual(bench.broker.retained, before)
        // A connection by command makes it known, but still leaves nothing retained.
        let answer = try await bench.request("connect", #"{"device":"400000000000"}"#)
        XCTAssertEqual(answer["status"], .string("ok"))
        bench.bridge.linkDidChange(BluetoothAddress(value: 0x4000_0000_0000))
        await bench.settle()
        XCTAssertEqual(bench.broker.retained.filter { $0.key.contains("devices/") }, [:])
        XCTAssertFalse(bench.broker.all("blueferry/gw/devices/400000000000/connection").isEmpty)
    }

    @EventLoopActor
    func testTheReportIsPublishedOnceAMinuteUnlessMoreThanRSSIChanges() async {
        let bench = configured()
        bench.addDevice()
        bench.bridge.deviceDidChange(Bench.strap)
        for _ in 0..<100 {
            bench.clock.advance(by: .seconds(1))
            bench.bridge.heard(strap(rssi: -60 - Int8.random(in: 0...5)), hits: .configured, first: [])
        }
        let reports = bench.broker.all(Self.topic).count
        // At the start, at the first advertisement (available), and after a minute.
        XCTAssertGreaterThanOrEqual(reports, 2)
        XCTAssertLessThanOrEqual(reports, 4)
        bench.radio.devices[Bench.strap]?.name = "other"
        bench.bridge.deviceDidChange(Bench.strap)
        XCTAssertEqual(bench.broker.all(Self.topic).count, reports + 1)
        XCTAssertTrue(bench.broker.all(Self.topic).last?.contains(#""local_name":"other""#) == true)
    }

    @EventLoopActor
    func testADeviceThatIsSilentGoesOfflineAndComesBack() async {
        let bench = configured()
        bench.addDevice()
        for _ in 0..<10 {
            bench.clock.advance(by: .seconds(1))
            bench.bridge.heard(strap(), hits: .configured, first: [])
        }
        let availability = Self.topic + "/availability"
        XCTAssertEqual(bench.broker.retained[availability], "online")
        bench.clock.advance(by: .seconds(55))
        XCTAssertEqual(bench.broker.retained[availability], "online")
        // BlueZ drops what it has not heard for a while: that alone says nothing.
        bench.radio.devices[Bench.strap] = nil
        bench.bridge.deviceDidDisappear(Bench.strap)
        XCTAssertEqual(bench.broker.retained[availability], "online")
        bench.clock.advance(by: .seconds(15))
        XCTAssertEqual(bench.broker.retained[availability], "offline")
        XCTAssertTrue(bench.broker.retained[Self.topic]?.contains("not heard since 20") == true)
        XCTAssertTrue(bench.broker.retained[Self.topic]?.contains(#""local_name":"strap""#) == true)
        bench.bridge.heard(strap(), hits: .configured, first: [])
        XCTAssertEqual(bench.broker.retained[availability], "online")
        // Removed soon after it was heard: at once.
        bench.bridge.deviceDidDisappear(Bench.strap)
        XCTAssertEqual(bench.broker.retained[availability], "offline")
        bench.bridge.heard(strap(), hits: .configured, first: [])
        XCTAssertEqual(bench.broker.retained[availability], "online")
    }

    @EventLoopActor
    func testASlowBeaconIsNotOfflineBetweenItsAdvertisements() async {
        let bench = configured()
        bench.addDevice()
        for _ in 0..<6 {
            bench.bridge.heard(strap(), hits: .configured, first: [])
            bench.clock.advance(by: .seconds(300))
            await bench.settle()
        }
        XCTAssertEqual(bench.broker.retained[Self.topic + "/availability"], "online")
        bench.clock.advance(by: .seconds(1500))
        XCTAssertEqual(bench.broker.retained[Self.topic + "/availability"], "offline")
    }

    @EventLoopActor
    func testAWantedDeviceIsAvailableWhileItIsConnected() async {
        let bench = configured(connects: true)
        XCTAssertTrue(bench.radio.calls.contains("keep C0:00:00:00:00:01"))
        let availability = Self.topic + "/availability"
        XCTAssertEqual(bench.broker.retained[availability], "offline")
        bench.addDevice()
        bench.bridge.heard(strap(), hits: .configured, first: [])
        XCTAssertEqual(bench.broker.retained[availability], "offline")
        bench.addDevice(state: .connected)
        bench.bridge.linkDidChange(Bench.strap)
        XCTAssertEqual(bench.broker.retained[availability], "online")
        XCTAssertTrue(bench.broker.retained[Self.topic + "/connection"]?.contains(#""state":"connected""#) == true)
        bench.addDevice(state: .disconnected)
        bench.bridge.linkDidChange(Bench.strap)
        XCTAssertEqual(bench.broker.retained[availability], "offline")
    }

    @EventLoopActor
    func testValuesCarryEpochAndSequence() async {
        let bench = configured()
        for (number, value) in [[UInt8(0x64)], [], [1, 2]].enumerated() {
            value.withUnsafeBytes { bytes in
                bench.bridge.didReceive(
                    HeardValue(
                        address: Bench.strap, service: "180f", characteristic: number == 2 ? "2a06_0017" : "2a19",
                        bytes: bytes, isRead: number == 1))
            }
        }
        let head = #"{"time":"2023-11-14T22:13:20.000Z","epoch":"5f3a9c01","sequence""#
        XCTAssertEqual(
            bench.broker.all(Self.topic + "/characteristics/180f/2a19"),
            [
                head + #":0,"value":"64","length":1,"source":"notify"}"#,
                head + #":1,"value":"","length":0,"source":"read"}"#,
            ])
        XCTAssertEqual(
            bench.broker.all(Self.topic + "/characteristics/180f/2a06_0017"),
            [head + #":0,"value":"0102","length":2,"source":"notify"}"#])
    }

    @EventLoopActor
    func testWhileTheBrokerIsAwayValuesWaitAndOfAdvertisementsTheNewestStateComes() async {
        let bench = configured()
        bench.addDevice()
        bench.bridge.heard(strap(), hits: .configured, first: [])
        bench.broker.disconnect()
        bench.broker.messages = []
        let stranger = FakeAdvertisement(address: BluetoothAddress(value: 0x1), name: "stranger")
        for number in 0..<30_000 {
            bench.bridge.heard(number.isMultiple(of: 2) ? strap() : stranger, hits: .configured, first: .configured)
        }
        bench.bridge.heard(strap(rssi: -42), hits: .configured, first: [])
        for number in 0..<100 {
            [UInt8(number)].withUnsafeBytes { bytes in
                bench.bridge.didReceive(
                    HeardValue(
                        address: Bench.strap, service: "180f", characteristic: "2a19", bytes: bytes, isRead: false))
            }
        }
        XCTAssertEqual(bench.broker.messages, [])
        bench.broker.connect()
        for _ in 0..<50 { await bench.settle() }
        XCTAssertEqual(bench.broker.messages.first?.topic, "blueferry/gw/status")
        let advertisements = bench.broker.messages.filter { $0.topic.hasSuffix("/advertisement") }
        XCTAssertEqual(advertisements.map(\.topic), [Self.topic + "/advertisement"])
        XCTAssertTrue(advertisements.first?.payload.contains(#""rssi":-42"#) == true)
        let values = bench.broker.all(Self.topic + "/characteristics/180f/2a19")
        XCTAssertEqual(values.count, 100)
        for (number, value) in values.enumerated() {
            XCTAssertTrue(value.contains(#""sequence":\#(number),"#), value)
        }
        bench.clock.advance(by: .seconds(60))
        XCTAssertTrue(
            bench.broker.retained["blueferry/gw/health"]?.contains(#""advertisements_offline":30000,"#) == true)
    }

    @EventLoopActor
    func testASlowBrokerCostsAdvertisementsWhichAreCounted() async {
        let bench = Bench()
        bench.broker.refuses = true
        for _ in 0..<7 { bench.bridge.heard(strap(), hits: .configured, first: []) }
        bench.broker.refuses = false
        bench.clock.advance(by: .seconds(60))
        XCTAssertTrue(bench.broker.retained["blueferry/gw/health"]?.contains(#""advertisements_slow":7"#) == true)
    }

    @EventLoopActor
    func testWhileTheBrokerIsSlowKnownDevicesComeBeforeStrangersAndTheNewestWins() async {
        let bench = configured()
        let other = FakeAdvertisement(address: BluetoothAddress(value: 0xc000_0000_0002), name: "other")
        bench.bridge.deviceDidChange(other.address)
        bench.radio.devices[other.address] = DeviceReport(
            address: other.address, addressType: .random, isBonded: true)
        bench.bridge.deviceDidChange(other.address)
        let stranger = FakeAdvertisement(address: BluetoothAddress(value: 0x1), name: "stranger")
        bench.broker.messages = []
        bench.broker.refuses = true
        for number in 0..<10 {
            bench.bridge.heard(strap(rssi: Int8(-50 - number)), hits: .configured, first: [])
            bench.bridge.heard(other, hits: .configured, first: [])
            bench.bridge.heard(stranger, hits: .configured, first: [])
        }
        XCTAssertEqual(bench.broker.messages, [])
        // The broker takes one and no more: it is a known device's, whoever is heard.
        bench.broker.refuses = false
        bench.broker.room = 1
        bench.bridge.heard(stranger, hits: .configured, first: [])
        XCTAssertEqual(bench.broker.messages.map(\.topic), [Self.topic + "/advertisement"])
        XCTAssertTrue(bench.broker.messages.first?.payload.contains(#""rssi":-59"#) == true)
        // Without another event the rest comes by itself.
        bench.broker.room = nil
        bench.clock.advance(by: .milliseconds(100))
        XCTAssertEqual(bench.broker.messages.count, 2)
        XCTAssertTrue(bench.broker.messages.last?.payload.contains("other") == true)
        bench.bridge.heard(stranger, hits: .configured, first: [])
        XCTAssertEqual(bench.broker.messages.count, 3)
        bench.clock.advance(by: .seconds(60))
        // 9 of each known device, and 11 of the stranger.
        let health = bench.broker.retained["blueferry/gw/health"] ?? ""
        XCTAssertTrue(health.contains(#""advertisements_slow":29,"#), health)
        XCTAssertTrue(health.contains(#""advertisements":0,"#), health)
    }

    /// Field case: an outage that grows memory, or halts the radio.
    @EventLoopActor
    func testTenMinutesWithoutABroker() async {
        let bench = configured()
        bench.broker.disconnect()
        bench.broker.messages = []
        let before = ProcessUsage.now.residentBytes
        for second in 0..<600 {
            for number in 0..<50 {
                // Known, and strangers who come and go.
                var heard = strap(rssi: Int8(-40 - second % 50))
                if number > 0 { heard.address = BluetoothAddress(value: UInt64(second * 50 + number)) }
                bench.bridge.heard(heard, hits: .configured, first: .configured)
            }
            bench.clock.advance(by: .seconds(1))
        }
        // What a record of a stranger takes, and none of its advertisements.
        XCTAssertLessThan(ProcessUsage.now.residentBytes - before, 16 << 20)
        XCTAssertTrue(bench.radio.scans.contains { $0.command.isConfigured }, "the scan goes on")
        bench.broker.connect()
        await bench.settle()
        let heard = bench.broker.all(Self.topic + "/advertisement")
        XCTAssertEqual(heard.count, 1)
        XCTAssertTrue(heard.first?.contains(#""rssi":-89"#) == true, "\(heard)")
        XCTAssertEqual(bench.broker.messages.filter { $0.topic.hasSuffix("/advertisement") }.count, 1)
        bench.clock.advance(by: .seconds(60))
        let health = bench.broker.retained["blueferry/gw/health"] ?? ""
        XCTAssertTrue(health.contains(#""advertisements_offline":29999,"#), health)
        XCTAssertTrue(health.contains(#""discovery_offline":"#), health)
        bench.bridge.heard(strap(rssi: -1), hits: .configured, first: [])
        XCTAssertEqual(bench.broker.all(Self.topic + "/advertisement").count, 2)
    }

    @EventLoopActor
    func testForgetClearsEveryRetainedTopic() async throws {
        let bench = Bench()
        bench.addDevice(state: .connected)
        _ = try await bench.request("connect", #"{"device":"c00000000001"}"#)
        bench.radio.trees[Bench.strap] = [
            ServiceReport(
                uuid: BluetoothUUID(0x180f), handle: 0x10, key: "180f", includes: [0x20],
                characteristics: [
                    .init(
                        uuid: BluetoothUUID(0x2a19), handle: 0x11, key: "2a19", properties: ["read", "notify"],
                        descriptors: [.init(uuid: BluetoothUUID(0x2902), handle: 0x13)])
                ])
        ]
        bench.bridge.linkDidChange(Bench.strap)
        bench.bridge.servicesDidChange(Bench.strap)
        XCTAssertEqual(
            bench.broker.retained[Self.topic + "/services"],
            #"{"services":[{"uuid":"180f","handle":"0010","key":"180f","primary":true,"includes":["0020"],"#
                + #""characteristics":[{"uuid":"2a19","handle":"0011","key":"2a19","properties":["read","notify"],"#
                + #""descriptors":[{"uuid":"2902","handle":"0013"}]}]}]}"#)
        XCTAssertEqual(bench.broker.retained.keys.filter { $0.hasPrefix(Self.topic) }.count, 4)
        let answer = try await bench.request("forget", #"{"device":"c00000000001"}"#)
        XCTAssertEqual(answer["status"], .string("ok"))
        await bench.settle()
        XCTAssertEqual(bench.broker.retained.keys.filter { $0.hasPrefix(Self.topic) }, [])
        XCTAssertTrue(bench.radio.calls.contains("forget"))
    }

    @EventLoopActor
    func testEachScanTellsOfADeviceOnce() async throws {
        let bench = Bench()
        bench.addDevice()
        bench.broker.messages = []
        bench.bridge.heard(strap(), hits: .configured, first: .configured)
        bench.bridge.heard(strap(), hits: .configured, first: [])
        bench.clock.advance(by: .milliseconds(20))
        var events = bench.broker.all("blueferry/gw/discovery/event")
        XCTAssertEqual(events.count, 1)
        XCTAssertTrue(events.first?.contains(#""event":"device","session":"scan1""#) == true, "\(events)")
        let whole = #","kind":"configured","address":"C0:00:00:00:00:01","device":"c00000000001","name":"#
        XCTAssertTrue(events.first?.contains(whole) == true, "\(events)")
        XCTAssertEqual(bench.broker.messages.first { $0.payload.contains(whole) }?.qos, 1)
        _ = try await bench.request("scan", "{}")
        bench.bridge.heard(strap(), hits: [.configured, .commanded], first: .commanded)
        bench.clock.advance(by: .milliseconds(20))
        events = bench.broker.all("blueferry/gw/discovery/event")
        XCTAssertEqual(events.count, 3)
        XCTAssertTrue(events.last?.contains(#""session":"scan2","kind":"commanded""#) == true, "\(events)")
    }

    /// What thousands of devices bring at once leaves in few writes, and in order with what is sent meanwhile.
    @EventLoopActor
    func testEventsOfDevicesLeaveInGroups() async {
        let bench = Bench()
        await bench.settle()
        bench.broker.messages = []
        for number in 0..<3 { bench.bridge.heard(stranger(number), hits: .configured, first: .configured) }
        XCTAssertEqual(bench.broker.all("blueferry/gw/discovery/event"), [], "they wait for each other")
        bench.bridge.radioDidWarn(level: .warning, code: "test", message: "", device: nil)
        XCTAssertEqual(
            bench.broker.messages.filter { $0.qos == 1 }.map(\.topic),
            Array(repeating: "blueferry/gw/discovery/event", count: 3) + ["blueferry/gw/events"])
        bench.bridge.heard(stranger(3), hits: .configured, first: .configured)
        bench.clock.advance(by: .milliseconds(20))
        XCTAssertEqual(bench.broker.all("blueferry/gw/discovery/event").count, 4)
    }

    /// What waits for company is in the outbox before the bridge is gone, also without a broker.
    @EventLoopActor
    func testAGroupIsKeptWhereTheBridgeStops() async {
        let outbox = MemoryOutbox(limit: 1000, epoch: 1)
        let bench = Bench(outbox: outbox)
        await bench.settle()
        let before = outbox.count
        bench.bridge.heard(stranger(0), hits: .configured, first: .configured)
        bench.broker.isConnected = false
        await bench.bridge.stop()
        XCTAssertEqual(outbox.count, before + 1)
    }

    @EventLoopActor
    func testANameNeverStandsInATopic() async throws {
        let bench = Bench()
        var heard = strap()
        heard.name = "a/b+c#d"
        bench.bridge.heard(heard, hits: .configured, first: [])
        let message = try XCTUnwrap(bench.broker.messages.last)
        XCTAssertEqual(message.topic, Self.topic + "/advertisement")
        XCTAssertTrue(message.payload.contains(#""name":"a/b+c#d""#))
    }

    @EventLoopActor
    func testAMissingAdapterIsToldAfter30Seconds() async {
        let bench = Bench { $0.adapters = ["hci7"] }
        var sentence: String?
        bench.bridge.onMissingAdapter = { sentence = $0 }
        bench.clock.advance(by: .seconds(29))
        XCTAssertNil(sentence)
        bench.clock.advance(by: .seconds(2))
        XCTAssertTrue(sentence?.contains("'hci7'") == true)
        // Where BlueZ is not there yet it is waited for.
        let waiting = Bench { $0.adapters = ["hci7"] }
        waiting.radio.problem = "nobody owns org.bluez"
        waiting.bridge.onMissingAdapter = { _ in XCTFail("BlueZ may still come") }
        waiting.clock.advance(by: .seconds(31))
        XCTAssertTrue(waiting.broker.all("blueferry/gw/events").contains { $0.contains("no_bluetooth") })
    }
}
