import Bluetooth
import DBus
import EventLoop
import JSON
import Sandbox
import XCTest

@testable import BlueZSimulator
@testable import Central

/// The engine over a radio full of devices.
final class RadioTests: XCTestCase {
    override class func setUp() { EventLoop.shared.startThread() }

    @EventLoopActor
    private final class Radio {
        let bus: PrivateBus
        let simulator: Simulator
        let control: Control
        let central: Central
        let recorder = Recorder()
        let holder = HolderID("radio test")

        init(_ fleet: String, _ options: CentralOptions = CentralOptions()) async throws {
            bus = try await PrivateBus.start()
            simulator = Simulator(fleet: try FleetFile.parse(fleet))
            control = Control(simulator)
            try await simulator.start(on: .address(bus.address))
            var options = options
            options.busAddress = bus.address
            central = Central(options: options)
            central.addObserver(recorder)
            central.start()
            await recorder.wait("a controller") { self.central.adapters.contains { $0.state == .poweredOn } }
        }

        @discardableResult
        func ask(_ line: String) async throws -> JSONValue {
            let answer = await control.answer(Array(line.utf8))
            guard case .object(let members) = answer, members.first?.0 == "ok" else {
                throw RadioRefusal(text: "\(line): \(answer)")
            }
            return members[0].1
        }

        func end() async {
            await central.stop()
            await simulator.stop()
            await bus.stop()
        }
    }

    private struct RadioRefusal: Error { let text: String }

    @EventLoopActor
    private func withRadio(
        _ fleet: String, _ options: CentralOptions = CentralOptions(),
        _ body: @EventLoopActor (Radio) async throws -> Void
    ) async throws {
        let radio = try await Radio(fleet, options)
        do { try await body(radio) } catch {
            await radio.end()
            throw error
        }
        await radio.end()
    }

    private let strap = BluetoothAddress(value: 0xc000_0000_0001)
    private static let strapFleet = """
        devices:
          - id: strap
            name: "HR strap"
            address: "C0:00:00:00:00:01"
            interval: 50
            services: ["180d"]
            manufacturer_data: { "0499": "0102" }
            mtu: 247
            gatt:
              - uuid: "180d"
                characteristics:
                  - { uuid: "2a37", properties: [notify], value: "0048" }
                  - { uuid: "2a38", properties: [read], value: "01" }
                  - { uuid: "2a39", properties: [write], value: "00" }
        """

    @EventLoopActor
    func testItHearsConnectsAndIsNotifiedOfEverything() async throws {
        try await withRadio(Self.strapFleet) { radio in
            _ = try radio.central.startScan(ScanRequest(kind: .configured))
            await radio.recorder.wait("adverts") { radio.recorder.advertisements.count >= 3 }
            XCTAssertEqual(radio.central.device(self.strap)?.name, "HR strap")
            XCTAssertEqual(radio.central.adapters.first?.method, .monitor)
            let device = try await radio.central.connect(
                self.strap, timeout: .seconds(10), policy: .keep, holder: radio.holder)
            XCTAssertEqual(device.mtu, 247)
            let rate = try radio.central.characteristic(
                self.strap, service: AttributeSelector(uuid: BluetoothUUID(0x180d)),
                characteristic: AttributeSelector(uuid: BluetoothUUID(0x2a37)))
            try await radio.central.subscribe(rate, holder: radio.holder)
            try await radio.ask(#"{"op":"notify","device":"strap","characteristic":"180d/2a37","count":200,"size":4}"#)
            await radio.recorder.wait("all") { radio.recorder.values.count >= 200 }
            let sequence = radio.recorder.values.map { Int($0.bytes[0]) | Int($0.bytes[1]) << 8 }
            XCTAssertEqual(sequence, Array(0..<200))

            try await radio.ask(#"{"op":"disconnect","device":"strap"}"#)
            await radio.recorder.wait("the loss") { radio.recorder.connections.contains(.disconnected) }
            await radio.recorder.wait("the link and the subscription") {
                device.services.flatMap(\.characteristics).contains { $0.isNotifying }
            }
            try await radio.ask(#"{"op":"notify","device":"strap","characteristic":"180d/2a37","count":3}"#)
            await radio.recorder.wait("three more") { radio.recorder.values.count == 203 }
        }
    }

    @EventLoopActor
    func testBluetoothdIsKilledAndComesBack() async throws {
        try await withRadio(Self.strapFleet) { radio in
            _ = try radio.central.startScan(ScanRequest(kind: .configured))
            radio.central.keepConnected(self.strap, holder: radio.holder)
            radio.central.wantSubscription(
                self.strap, service: AttributeSelector(uuid: BluetoothUUID(0x180d)),
                characteristic: AttributeSelector(uuid: BluetoothUUID(0x2a37)), holder: radio.holder)
            let isNotifying: @EventLoopActor () -> Bool = {
                radio.central.device(self.strap)?.services.flatMap(\.characteristics).contains { $0.isNotifying }
                    == true
            }
            await radio.recorder.wait("the subscription", until: isNotifying)
            try await radio.ask(#"{"op":"daemon_kill"}"#)
            await radio.recorder.wait("the loss") { radio.central.state == .noBlueZ }
            XCTAssertEqual(radio.central.adapters.first?.state, .resetting)
            try await radio.ask(#"{"op":"daemon_start"}"#)
            await radio.recorder.wait("the subscription again", within: .seconds(30), until: isNotifying)
            await radio.recorder.wait("the scan", within: .seconds(20)) {
                radio.central.adapters.first?.method == .monitor
            }
        }
    }

    @EventLoopActor
    func testTwentyAtOnce() async throws {
        let fleet = """
            devices:
              - id: node
                name: "node {n}"
                count: 20
                address: "C0:00:00:00:01:00"
                interval: 100
                gatt:
                  - uuid: "180f"
                    characteristics: [ { uuid: "2a19", properties: [read, notify], value: "64" } ]
            """
        try await withRadio(fleet) { radio in
            let start = MonotonicTime.now
            for index in 0..<20 {
                radio.central.keepConnected(
                    BluetoothAddress(value: 0xc000_0000_0100).advanced(by: index), holder: radio.holder)
            }
            await radio.recorder.wait("all twenty", within: .seconds(30)) {
                radio.central.devices.filter(\.isConnected).count == 20
            }
            XCTAssertLessThan(MonotonicTime.now - start, .seconds(30))
            XCTAssertEqual(radio.central.adapters.first?.connectionCount, 20)
        }
    }

    @EventLoopActor
    func testAPasskeyFromTheOptions() async throws {
        let fleet = """
            devices:
              - id: safe
                name: "Safe"
                address: "C0:00:00:00:00:06"
                interval: 100
                pairing: passkey
                passkey: 123456
                gatt:
                  - uuid: "fff5"
                    characteristics: [ { uuid: "fff6", properties: [read, write], value: "0badcafe", encrypted: true } ]
            """
        let safe = BluetoothAddress(value: 0xc000_0000_0006)
        var options = CentralOptions()
        options.passkeys = [safe: 123456]
        try await withRadio(fleet, options) { radio in
            _ = try await radio.central.connect(safe, timeout: .seconds(10), holder: radio.holder)
            try await radio.central.pair(safe, timeout: .seconds(10))
            await radio.recorder.wait("the bond") { radio.central.device(safe)?.isPaired == true }
            let secret = try radio.central.characteristic(
                safe, service: AttributeSelector(uuid: BluetoothUUID(0xfff5)),
                characteristic: AttributeSelector(uuid: BluetoothUUID(0xfff6)))
            let value = try await radio.central.read(secret)
            XCTAssertEqual(value, [0x0b, 0xad, 0xca, 0xfe])
            try await radio.central.unpair(safe)
            XCTAssertNotEqual(radio.central.device(safe)?.isPaired, true)
        }
    }

    @EventLoopActor
    func testAWrongPasskeyIsAPairingFailure() async throws {
        let fleet = """
            devices:
              - { id: safe, address: "C0:00:00:00:00:06", interval: 100, pairing: passkey, passkey: 123456 }
            """
        let safe = BluetoothAddress(value: 0xc000_0000_0006)
        try await withRadio(fleet) { radio in
            _ = try await radio.central.connect(safe, timeout: .seconds(10), holder: radio.holder)
            do {
                try await radio.central.pair(safe, timeout: .seconds(10))
                XCTFail("paired without a passkey")
            } catch let error as CentralError {
                XCTAssertEqual(error.code, .pairingFailed, error.message)
            }
        }
    }

    @EventLoopActor
    func testAnUnpluggedControllerComesBackUnderAnotherName() async throws {
        try await withRadio(Self.strapFleet) { radio in
            _ = try radio.central.startScan(ScanRequest(kind: .configured))
            await radio.recorder.wait("an advert") { !radio.recorder.advertisements.isEmpty }
            try await radio.ask(#"{"op":"adapter_remove","adapter":"hci0"}"#)
            await radio.recorder.wait("the loss") { radio.central.adapters.first?.state == .unsupported }
            try await radio.ask(#"{"op":"adapter_add","adapter":"hci0","name":"hci3"}"#)
            await radio.recorder.wait("the return") { radio.central.adapters.first?.state == .poweredOn }
            XCTAssertEqual(radio.central.adapters.map(\.systemName), ["hci3"])
            radio.recorder.forget()
            await radio.recorder.wait("an advert again") { !radio.recorder.advertisements.isEmpty }
        }
    }

    @EventLoopActor
    func testRepeatedAndLateSignalsChangeNothing() async throws {
        try await withRadio(Self.strapFleet) { radio in
            try await radio.ask(#"{"op":"duplicate_signals","on":true}"#)
            try await radio.ask(#"{"op":"late_signals","ms":100}"#)
            let device = try await radio.central.connect(self.strap, timeout: .seconds(15), holder: radio.holder)
            XCTAssertEqual(
                device.services.filter { $0.key == "180d" }.flatMap(\.characteristics).map(\.key),
                ["2a37", "2a38", "2a39"])
            let isDown = try await radio.central.disconnect(self.strap, holder: radio.holder)
            XCTAssertTrue(isDown)
        }
    }

    @EventLoopActor
    func testServicesThatChangeAreTold() async throws {
        try await withRadio(Self.strapFleet) { radio in
            let device = try await radio.central.connect(self.strap, timeout: .seconds(10), holder: radio.holder)
            let before = device.services.map(\.key)
            try await radio.ask(#"{"op":"services_changed","device":"strap"}"#)
            await radio.recorder.wait("another tree") { device.services.map(\.key) != before }
            XCTAssertTrue(device.isConnected)
        }
    }
}
