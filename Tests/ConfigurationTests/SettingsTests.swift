import Bluetooth
import Configuration
import Foundation
import XCTest

final class SettingsTests: XCTestCase {
    private var shippedFile: String {
        URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appendingPathComponent("config/blueferry.yaml").path
    }

    private func error(_ text: String) -> String {
        do {
            _ = try Settings.parse(text, file: "b.yaml")
            return "no error"
        } catch {
            return "\(error)"
        }
    }

    func testShippedFileHoldsEveryKeyWithItsDefault() throws {
        XCTAssertEqual(try Settings.load(path: shippedFile), Settings())
        let text = try String(contentsOfFile: shippedFile, encoding: .utf8)
        let keys = Set(paths(in: text))
        let settings = Settings()
        for entry in settings.scalarEntries + settings.listEntries {
            XCTAssertTrue(keys.contains(entry.key), "\(entry.key) is missing in config/blueferry.yaml")
        }
        for key in ["name", "connect", "subscribe", "adapter", "passkey"] {
            XCTAssertTrue(text.contains("#     \(key): "), "the example of a device lacks \(key)")
        }
        XCTAssertEqual(settings.scalarEntries.map(\.key), SettingKey.scalars.map(\.path))
    }

    /// The key paths of a file whose mappings are written in blocks of two spaces.
    private func paths(in text: String) -> [String] {
        var stack: [String] = []
        return text.split(separator: "\n").compactMap { line in
            guard let colon = line.firstIndex(of: ":"), !line.trimmingCharacters(in: .whitespaces).hasPrefix("#") else {
                return nil
            }
            let depth = line.prefix { $0 == " " }.count / 2
            stack = stack.prefix(depth) + [line[..<colon].trimmingCharacters(in: .whitespaces)]
            return stack.joined(separator: ".")
        }
    }

    func testWholeFileIsRead() throws {
        let settings = try Settings.parse(
            """
            gateway: { id: attic }
            mqtt:
              url: mqtts://joe:s3cr%3At@[::1]:8884
              base_topic: home/ble/b1
              version: 3.1.1
              tls: { ca_file: /etc/ca.pem }
            bluetooth:
              adapters: ["00:1A:7D:DA:71:13", hci1]
              scan: { mode: passive, name: "Tracker.*", services: [180f, 0x181A], rssi: -80, allow_duplicates: no }
            devices:
              - { address: a4:c1:38:5e:07:d3, name: living_room, connect: always, subscribe: [180F/2A19, 1802/2a06_17] }
            publish: { unknown_devices: false }
            """, file: "b.yaml")
        XCTAssertEqual(settings.gateway.id, "attic")
        XCTAssertEqual(settings.mqtt.url.host, "::1")
        XCTAssertEqual(settings.mqtt.url.port, 8884)
        XCTAssertTrue(settings.mqtt.url.isTLS)
        XCTAssertEqual(settings.mqtt.username, "joe")
        XCTAssertEqual(settings.mqtt.password?.reveal(), "s3cr:t")
        XCTAssertEqual(settings.mqtt.version, .v311)
        XCTAssertEqual(settings.bluetooth.scan.services, [BluetoothUUID(0x180f), BluetoothUUID(0x181a)])
        XCTAssertFalse(settings.bluetooth.scan.allowDuplicates)
        XCTAssertEqual(settings.devices.first?.subscribe.map(\.description), ["180f/2a19", "1802/2a06_0017"])
        XCTAssertEqual(settings.devices.first?.connect, .always)
        XCTAssertFalse(settings.publish.unknownDevices)
        XCTAssertTrue(settings.publish.advertisements)
    }

    func testFaultsNameTheKeyAndWhatToWrite() {
        let faults = [
            "gateway: { id: 'a/b' }":
                "b.yaml:1:16: gateway.id: expected 1 to 64 characters of A-Z a-z 0-9 _ -, found 'a/b'",
            "mqtt: { base_topic: 'a//b' }":
                "b.yaml:1:21: mqtt.base_topic: expected levels of A-Z a-z 0-9 _ - with / between them, found 'a//b'",
            "mqtt: { url: 'http://x' }":
                "b.yaml:1:14: mqtt.url: expected mqtt://, mqtts:// or unix://, found another scheme",
            "mqtt: { version: 4 }": "b.yaml:1:18: mqtt.version: expected one of 5, 3.1.1, found '4'",
            "mqt: {}": "b.yaml:1:1: unknown key 'mqt'; did you mean 'mqtt'?",
            "devices: [{ name: x }]": "b.yaml:1:11: devices[0]: 'address' is missing; give it as AA:BB:CC:DD:EE:FF",
            "devices: [{ address: 'C0:00:00:00:00:01', name: aabbccddeeff }]":
                "b.yaml:1:49: devices[0].name: 'aabbccddeeff' reads as an address; choose another name",
            "devices: [{ address: 'C0:00:00:00:00:01' }, { address: c00000000001 }]":
                "b.yaml:1:45: devices[1]: the address C0:00:00:00:00:01 stands twice",
            "devices: [{ address: 'C0:00:00:00:00:01', subscribe: [2a19] }]":
                "b.yaml:1:55: devices[0].subscribe[0]: expected service/characteristic such as 180f/2a19, found '2a19'",
            "bluetooth: { scan: { rssi: loud } }":
                "b.yaml:1:28: bluetooth.scan.rssi: expected a whole number from -127 to 20, found 'loud'",
            "mqtt: { tls: { key_file: x } }": "b.yaml:1:14: mqtt.tls: certificate_file and key_file go together",
            "- a": "b.yaml:1:1: expected a mapping, found a list",
        ]
        for (text, expected) in faults { XCTAssertEqual(error(text), expected, text) }
    }

    func testSecretsAreNeverShown() throws {
        let fault = error("mqtt: { url: 'mqtt://u:s3cr3t@host:99999' }")
        XCTAssertEqual(fault, "b.yaml:1:14: mqtt.url: the URL's port must be a number from 1 to 65535")
        let settings = try Settings.parse("mqtt: { url: 'mqtt://u:s3cr3t@host' }", file: "b.yaml")
        var dumped = ""
        dump(settings, to: &dumped)
        for text in ["\(settings)", dumped, String(reflecting: settings), "\(settings.scalarEntries)"] {
            XCTAssertFalse(text.contains("s3cr3t"))
        }
        XCTAssertEqual(settings.mqtt.password?.reveal(), "s3cr3t")
    }

    func testEnvironmentOverridesTheFileAndArgumentsOverrideBoth() throws {
        let environment = [
            "BLUEFERRY_MQTT_URL": "mqtt://env:1884", "BLUEFERRY_LOGGING_LEVEL": "debug",
            "BLUEFERRY_BLUETOOTH_SCAN_ENABLED": "false", "BLUEFERRY_MQTT_PASSWORD": "it's: #1",
        ]
        let settings = try Settings.load(
            path: shippedFile, environment: environment, overrides: [("mqtt.url", "mqtt://argument:1885")])
        XCTAssertEqual(settings.mqtt.url.description, "mqtt://argument:1885")
        XCTAssertEqual(settings.logging.level, .debug)
        XCTAssertFalse(settings.bluetooth.scan.enabled)
        XCTAssertEqual(settings.mqtt.password?.reveal(), "it's: #1")
        XCTAssertThrowsError(try Settings.load(path: nil, environment: ["BLUEFERRY_LOGGING_LEVEL": "loud"])) {
            XCTAssertEqual(
                "\($0)",
                "BLUEFERRY_LOGGING_LEVEL: logging.level: expected one of error, warning, info, debug, found 'loud'")
        }
        XCTAssertThrowsError(try Settings.load(path: nil, overrides: [("mqtt.ulr", "x")])) {
            XCTAssertEqual("\($0)", "argument: mqtt.ulr: is no setting that holds one value; did you mean 'mqtt.url'?")
        }
    }

    func testPasswordFileGivesItsFirstLine() throws {
        let path = NSTemporaryDirectory() + "blueferry-password-\(UUID().uuidString)"
        try Data("s3cr3t\nrest".utf8).write(to: URL(fileURLWithPath: path))
        defer { try? FileManager.default.removeItem(atPath: path) }
        let settings = try Settings.load(path: nil, overrides: [("mqtt.password_file", path)])
        XCTAssertEqual(settings.mqtt.password?.reveal(), "s3cr3t")
        XCTAssertThrowsError(try Settings.load(path: nil, overrides: [("mqtt.password_file", "/nowhere/p")])) {
            XCTAssertEqual("\($0)", "/nowhere/p: mqtt.password_file: cannot be opened: No such file or directory")
        }
    }
}
