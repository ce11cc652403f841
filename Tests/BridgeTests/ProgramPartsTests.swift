import Bluetooth
import Configuration
import EventLoop
import Glibc
import JSON
import Sandbox
import XCTest

@testable import Bridge
@testable import blueferry

/// What the program is put together from.
final class ProgramPartsTests: LoopTestCase {
    func testTheClientIDIsKept() throws {
        let directory = try TemporaryDirectory(prefix: "blueferry-test")
        defer { directory.remove() }
        let first = ClientIdentifier.load(gateway: "attic", directory: directory.path)
        XCTAssertEqual(ClientIdentifier.load(gateway: "attic", directory: directory.path), first)
        XCTAssertTrue(first.hasPrefix("blueferry-attic-"))
        XCTAssertEqual(first.count, "blueferry-attic-".count + 6)
        try directory.write("not six hex digits\n", to: "client-id")
        XCTAssertNotEqual(ClientIdentifier.load(gateway: "attic", directory: directory.path), first)
        let elsewhere = ClientIdentifier.load(gateway: "attic", directory: directory.path + "/missing")
        XCTAssertNotEqual(ClientIdentifier.load(gateway: "attic", directory: directory.path + "/missing"), elsewhere)
    }

    func testSettingsBecomeTheBridges() throws {
        let settings = try Settings.parse(
            """
            gateway: { id: attic }
            mqtt: { url: "mqtts://u:s3cr3t@broker:8884", base_topic: home/ble, version: 3.1.1 }
            bluetooth: { adapters: [hci7], scan: { rssi: -80, services: [180f] } }
            devices:
              - { address: "A4:C1:38:5E:07:D3", name: living_room, connect: always, subscribe: ["180f/2a19"] }
            publish: { unknown_devices: false }
            """, file: "test.yaml")
        let bridge = BridgeSettings(settings, version: "1.2.3")
        XCTAssertEqual(bridge.base, "home/ble")
        XCTAssertEqual(bridge.gateway, "attic")
        XCTAssertEqual(bridge.adapters, ["hci7"])
        XCTAssertEqual(bridge.scan?.rssi, -80)
        XCTAssertFalse(bridge.publishesUnknownDevices)
        XCTAssertEqual(
            bridge.devices,
            [
                BridgeSettings.Device(
                    address: BluetoothAddress(value: 0xa4c1_385e_07d3), name: "living_room", connectsAlways: true,
                    subscriptions: [
                        AttributePath(
                            service: AttributeName(uuid: .batteryService),
                            characteristic: AttributeName(uuid: .batteryLevel))
                    ])
            ])
        XCTAssertEqual(bridge.dump["bluetooth"]?["scan"]?["rssi"]?.intValue, -80)
        XCTAssertEqual(bridge.dump["devices"]?.arrayValue?.first?["name"]?.stringValue, "living_room")
        XCTAssertFalse(String(decoding: bridge.dump.serialised(), as: UTF8.self).contains("s3cr3t"))
    }

    func testHostNamesAreMadeSafe() {
        XCTAssertEqual(BridgeSettings.safe("my host.local"), "my-host-local")
        XCTAssertEqual(BridgeSettings.safe(""), "gateway")
        XCTAssertEqual(BridgeSettings.safe("gw_1-A"), "gw_1-A")
    }

    func testLogLinesAreLines() {
        let time = WallTime(milliseconds: 0)
        XCTAssertEqual(
            LineLogger.line(.warning, "code", "a\nb\u{1b}[2J", "C0:00:00:00:00:01", at: time, isJSON: false),
            "1970-01-01T00:00:00.000Z warning code [C0:00:00:00:00:01]: a b [2J")
        XCTAssertEqual(
            LineLogger.line(.error, "code", "a\"\n", nil, at: time, isJSON: true),
            #"{"time":"1970-01-01T00:00:00.000Z","level":"error","code":"code","message":"a\"\n","device":null}"#)
    }

    func testArguments() throws {
        let options = Command.run.options
        let arguments = try Arguments(["--config=a.yaml", "--set", "a.b=c=d", "--set=e.f="], options: options)
        XCTAssertEqual(arguments.value("--config"), "a.yaml")
        let overrides = try arguments.overrides()
        XCTAssertEqual(overrides.map(\.key), ["a.b", "e.f"])
        XCTAssertEqual(overrides.map(\.value), ["c=d", ""])
        for words in [["--confg", "x"], ["--config"], ["--config", "a", "--config", "b"], ["--help=1"], ["x"]] {
            XCTAssertThrowsError(try Arguments(words, options: options), "\(words)")
        }
        XCTAssertThrowsError(try Arguments(["--set", "a"], options: options).overrides())
        XCTAssertThrowsError(try Arguments(["--for", "0"], options: Command.demo.options).number("--for", in: 1...9))
    }
}
