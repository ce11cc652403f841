import Bluetooth
import EventLoop
import JSON
import XCTest

@testable import Bridge

/// What a person is told of adapters that come and go, and of devices that cannot be reached.
final class RecoveryTests: LoopTestCase {
    private static let device = "blueferry/gw/devices/c00000000001"
    private static let events = "blueferry/gw/events"

    private func adapter(_ state: AdapterReport.State, _ systemName: String = "hci0") -> AdapterReport {
        AdapterReport(
            address: BluetoothAddress(value: 0x001a_7dda_7113), systemName: systemName, name: "lab", state: state,
            isPresent: state != .unsupported)
    }

    // MARK: Adapters

    func testEachChangeOfAnAdapterIsToldOnce() {
        var history = AdapterHistory()
        XCTAssertEqual(history.note(adapter(.poweredOn))?.level, .info)
        XCTAssertNil(history.note(adapter(.poweredOn)))
        let off = history.note(adapter(.poweredOff))
        XCTAssertEqual(off?.code, "adapter_off")
        XCTAssertTrue(off?.message.contains("hci0 (00:1A:7D:DA:71:13)") == true)
        history.didTell(of: adapter(.poweredOff).address)
        XCTAssertEqual(history.note(adapter(.poweredOn))?.isEnd, true)
        XCTAssertEqual(history.note(adapter(.unsupported))?.code, "adapter_gone")
        let renamed = history.note(adapter(.poweredOff, "hci1"))
        XCTAssertTrue(
            renamed?.message.contains("hci1 (00:1A:7D:DA:71:13), which was hci0") == true, "\(renamed as Any)")
        XCTAssertNil(history.note(adapter(.resetting, "hci1")))
        // What was not told so far is told with its return; what was never told as off needs no word that it is back.
        let back = history.note(adapter(.poweredOn, "hci1"))
        XCTAssertEqual(back?.message, "the adapter hci1 (00:1A:7D:DA:71:13), which was hci0, is on")
        XCTAssertEqual(back?.isEnd, true)
        XCTAssertNotNil(history.note(adapter(.poweredOff, "hci1")))
        XCTAssertEqual(history.note(adapter(.poweredOn, "hci1"))?.isEnd, false)
    }

    @EventLoopActor
    func testWhatIsOverInAMomentIsNotTold() async {
        let bench = Bench()
        let tell = { (report: AdapterReport) in
            bench.radio.adapters = [report]
            bench.bridge.adapterDidChange(report)
        }
        let codes = { bench.broker.all(Self.events).compactMap { $0.contains("adapter") ? $0 : nil } }
        tell(adapter(.poweredOff))
        bench.clock.advance(by: .seconds(1))
        tell(adapter(.poweredOn))
        bench.clock.advance(by: .seconds(10))
        XCTAssertEqual(codes(), [])
        tell(adapter(.poweredOff))
        bench.clock.advance(by: .seconds(3))
        XCTAssertEqual(codes().count, 1)
        XCTAssertTrue(codes().last?.contains(#""level":"warning","code":"adapter_off""#) == true, "\(codes())")
        tell(adapter(.poweredOn))
        XCTAssertTrue(codes().last?.contains(#""level":"info","code":"adapter""#) == true, "\(codes())")
        // Away with bluetoothd: that is told by itself.
        tell(adapter(.unsupported))
        bench.radio.problem = "bluetoothd does not run"
        bench.clock.advance(by: .seconds(3))
        XCTAssertEqual(codes().count, 2)
    }

    @EventLoopActor
    func testTheEndOfAFaultIsTold() async {
        let bench = Bench()
        bench.bridge.radioDidChange()
        XCTAssertEqual(bench.broker.all(Self.events), [])
        bench.radio.problem = "bluetoothd does not run"
        bench.bridge.radioDidChange()
        bench.radio.problem = nil
        bench.bridge.radioDidChange()
        XCTAssertEqual(bench.broker.all(Self.events).count, 2)
        XCTAssertTrue(bench.broker.all(Self.events).last?.contains(#""level":"info","code":"bluetooth""#) == true)
        bench.bridge.radioDidWarn(level: .info, code: "scan_heard", message: "heard", device: nil)
        XCTAssertEqual(bench.broker.all(Self.events).count, 3)
        // A passkey is for the log alone.
        bench.bridge.radioDidWarn(level: .info, code: "passkey", message: "enter 123456", device: nil)
        XCTAssertEqual(bench.broker.all(Self.events).count, 3)
    }

    // MARK: Why

    @EventLoopActor
    private func why(_ bench: Bench) -> String? {
        let payload = bench.broker.retained[Self.device] ?? ""
        return (try? Array(payload.utf8).withUnsafeBytes { try JSONValue.parse($0) })?["why"]?.string
    }

    @EventLoopActor
    private func wanted() -> Bench {
        Bench { settings in
            settings.devices = [BridgeSettings.Device(address: Bench.strap, name: "strap", connectsAlways: true)]
        }
    }

    @EventLoopActor
    func testWhyFollowsWhatIsInTheWayAndIsNullWhenNothingIs() async {
        let bench = wanted()
        bench.radio.obstacles[Bench.strap] = .unheard
        bench.clock.advance(by: .seconds(5))
        XCTAssertEqual(why(bench), "not heard since the start")
        bench.radio.obstacles[Bench.strap] = .radio("the adapter hci0 is off; switch it on")
        bench.bridge.radioDidChange()
        XCTAssertEqual(why(bench), "the adapter hci0 is off; switch it on")
        bench.radio.obstacles[Bench.strap] = .link("it waits in the queue behind 3 others")
        bench.clock.advance(by: .seconds(5))
        XCTAssertEqual(why(bench), "it waits in the queue behind 3 others")
        bench.radio.obstacles[Bench.strap] = nil
        bench.addDevice(state: .connected)
        bench.bridge.linkDidChange(Bench.strap)
        XCTAssertNil(why(bench))
        XCTAssertTrue(bench.broker.retained[Self.device]?.contains(#""available":true,"why":null"#) == true)
    }

    @EventLoopActor
    func testWhyOfADeviceThatFellSilentSaysSinceWhen() async {
        let bench = wanted()
        bench.addDevice()
        bench.bridge.heard(
            FakeAdvertisement(address: Bench.strap, addressType: .random, name: "HR"), hits: .configured, first: [])
        bench.radio.obstacles[Bench.strap] = .unheard
        bench.clock.advance(by: .seconds(10))
        XCTAssertEqual(why(bench), "not heard since 2023-11-14T22:13:20.000Z")
    }

    @EventLoopActor
    func testADeviceThatOnlyAdvertisesIsNotBlamedForALink() async {
        let bench = Bench { settings in settings.devices = [BridgeSettings.Device(address: Bench.strap, name: "strap")]
        }
        bench.radio.obstacles[Bench.strap] = .link("it is tried again within 4 s")
        bench.clock.advance(by: .seconds(70))
        XCTAssertEqual(why(bench), "not heard since the start")
        bench.radio.obstacles[Bench.strap] = .radio("the adapter hci0 is off; switch it on")
        bench.clock.advance(by: .seconds(5))
        XCTAssertEqual(why(bench), "the adapter hci0 is off; switch it on")
    }

    @EventLoopActor
    func testHealthCountsLossesOfTheBusAndOfBluetoothdApart() async throws {
        let bench = Bench()
        bench.radio.counts.busLosses = 1
        bench.radio.counts.blueZLosses = 4
        bench.radio.counts.silences = 2
        bench.clock.advance(by: .seconds(60))
        let health = try XCTUnwrap(bench.broker.retained["blueferry/gw/health"])
        XCTAssertTrue(health.contains(#""bus":1,"bluez":4,"silences":2"#), health)
    }
}
