import Bluetooth
import Configuration
import Foundation
import XCTest

final class SettingsTests: XCTestCase {
    private var root: URL {
        URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
    }

    private var shippedFile: String { root.appendingPathComponent("config/blueferry.yaml").path }

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
        XCTAssertEqual(leaves(of: settings).sorted(), SettingKey.all.map(\.path).sorted())
    }

    func testDocumentationListsEveryKeyWithItsDefault() throws {
        let text = try String(contentsOf: root.appendingPathComponent("docs/configuration.md"), encoding: .utf8)
        let settings = Settings()
        for (key, value) in settings.scalarEntries + settings.listEntries {
            let start =
                switch value {
                case .none: "| `\(key)` | "
                case .flag(let flag): "| `\(key)` | `\(flag)` | "
                case .number(let number): "| `\(key)` | `\(number)` | "
                case .text(let text): "| `\(key)` | `\(text)` | "
                case .list(let items): "| `\(key)` | `\(items)`"
                }
            XCTAssertTrue(text.contains("\n" + start), start)
        }
    }

    /// The key paths that the structures hold, by reflection, so that no key is forgotten in the dump, the file and
    /// the variables. Devices have a list of their own.
    private func leaves(of value: Any, path: String = "") -> [String] {
        Mirror(reflecting: value).children.flatMap { child -> [String] in
            let label = child.label ?? ""
            let key = label.replacing(/([a-z])([A-Z]+)/) { "\($0.1)_\($0.2)" }.lowercased()
            let childPath = path.isEmpty ? key : "\(path).\(key)"
            let mirror = Mirror(reflecting: child.value)
            let isSection = mirror.displayStyle == .struct && !mirror.children.isEmpty && !(child.value is BrokerURL)
            if isSection { return leaves(of: child.value, path: childPath) }
            return childPath == "devices" ? [] : [childPath]
        }
    }

    func testEachKeyIsReadIntoItsOwnSetting() throws {
        let samples = [
            "gateway.id": "attic", "mqtt.url": "mqtts://b:1", "mqtt.base_topic": "x/y", "mqtt.version": "3.1.1",
            "mqtt.client_id": "me", "mqtt.username": "joe", "mqtt.password": "p", "mqtt.password_file": "/p",
            "mqtt.keep_alive": "7", "mqtt.tls.ca_file": "/ca", "mqtt.tls.certificate_file": "/c",
            "mqtt.tls.key_file": "/k", "mqtt.tls.key_password": "p", "mqtt.tls.key_password_file": "/p",
            "bluetooth.scan.enabled": "no", "bluetooth.scan.mode": "active",
            "bluetooth.scan.name": "T.*", "bluetooth.scan.rssi": "-70", "bluetooth.scan.allow_duplicates": "off",
            "bluetooth.scan.renew_interval": "0", "bluetooth.watchdog.enabled": "off",
            "bluetooth.watchdog.power_cycle": "on", "bluetooth.watchdog.silence": "3000",
            "bluetooth.notify_sockets": "yes",
            "publish.advertisements": "false",
            "publish.unknown_devices": "False", "commands.enabled": "false", "outbox.path": "/o", "outbox.limit": "9",
            "outbox.size_limit": "7",
            "homeassistant.enabled": "true", "homeassistant.prefix": "ha/x", "logging.level": "error",
            "logging.format": "json", "bluetooth.adapters": "hci1, 00:1A:7D:DA:71:13",
            "bluetooth.scan.services": "180f,181a", "commands.verbs": "read,stop_scan",
            "commands.devices": "a4c1385e07d3",
        ]
        XCTAssertEqual(samples.keys.sorted(), SettingKey.all.map(\.path).sorted())
        let companions = [
            "mqtt.tls.certificate_file": "mqtt.tls.key_file",
            "mqtt.tls.key_file": "mqtt.tls.certificate_file",
        ]
        // A key with one possible value, and those that read a file, change nothing here.
        for (path, sample) in samples where !path.hasSuffix("password_file") && path != "bluetooth.scan.mode" {
            var keys = [path] + (companions[path].map { [$0] } ?? [])
            if path.hasPrefix("mqtt.tls.") { keys.append("mqtt.url") }
            var environment: [String: String] = [:]
            for key in SettingKey.all where keys.contains(key.path) {
                environment[key.environmentVariable] = samples[key.path]
            }
            let settings = try Settings.load(path: nil, environment: environment)
            let defaults = Settings()
            let changed = zip(
                settings.scalarEntries + settings.listEntries, defaults.scalarEntries + defaults.listEntries
            ).filter { $0.value != $1.value }.map(\.0.key)
            XCTAssertEqual(changed.sorted(), keys.sorted(), "\(path)=\(sample)")
        }
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
              scan: { mode: active, name: "Tracker.*", services: [180f, 0x181A], rssi: -80, allow_duplicates: no }
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
            "mqtt: { tls: { ca_file: x } }":
                "b.yaml:1:14: mqtt.tls: mqtt.url is mqtt://127.0.0.1:1883, which is not encrypted; write mqtts:// for TLS",
            "mqtt: { username: joe, password: s3cr3t, password_file: /p }":
                "b.yaml:1:57: mqtt.password_file: give the password or its file, not both",
            "mqtt: { password: s3cr3t, version: 3.1.1 }":
                "b.yaml:1:19: mqtt.password: with MQTT 3.1.1 a password needs mqtt.username beside it",
            "mqtt: { base_topic: ha/x }\nhomeassistant: { enabled: on, prefix: ha }":
                "b.yaml:1:21: mqtt.base_topic: must not be homeassistant.prefix or below it",
            "bluetooth: { scan: { renew_interval: 10 } }":
                "b.yaml:1:38: bluetooth.scan.renew_interval: expected 0 (never) or at least 1000 milliseconds",
            "devices: [{ address: 'C0:00:00:00:00:01', passkey: 1234567 }]":
                "b.yaml:1:52: devices[0].passkey: expected a number of up to six digits",
            "devices: [{ address: 'C0:00:00:00:00:01', conect: always }]":
                "b.yaml:1:43: devices[0]: unknown key 'conect'; did you mean 'connect'?",
            "commands: { enabled: maybe }": "b.yaml:1:22: commands.enabled: expected true or false, found 'maybe'",
            "- a": "b.yaml:1:1: expected a mapping, found a list",
            "mqtt: { tls: { key_password: s3cr3t, key_password_file: /p } }":
                "b.yaml:1:57: mqtt.tls.key_password_file: give the password or its file, not both",
            // A colon without its space makes the password a part of the key, or of a text.
            "mqtt: { password:s3cr3t }":
                "b.yaml:1:9: mqtt: unknown key 'password' (write a space after its colon); did you mean 'password'?",
            "mqtt:\n  password:s3cr3t":
                "b.yaml:2:3: mqtt: expected a mapping, found text; is there a space after each colon?",
            "mqtt: { password:s3cr3t, password:s3cr3t }":
                "b.yaml:1:26: mqtt: 'password' (write a space after its colon) stands twice, first in line 1",
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

    func testPasskeysAreNeverShown() throws {
        let text = "devices: [{ address: 'C0:00:00:00:00:01', passkey: 012345 }]"
        let settings = try Settings.parse(text, file: "b.yaml")
        XCTAssertEqual(settings.devices.first?.passkey?.value, 12345)
        var dumped = ""
        dump(settings, to: &dumped)
        for text in ["\(settings)", dumped, String(reflecting: settings), "\(settings.deviceEntries)"] {
            XCTAssertFalse(text.contains("12345"), text)
        }
    }

    func testCredentialsOfAURLGoWithIt() throws {
        let path = try file("mqtt: { url: 'mqtt://joe:s3cr3t@one' }")
        defer { unlink(path) }
        var settings = try Settings.load(path: path, environment: ["BLUEFERRY_MQTT_URL": "mqtt://two"])
        XCTAssertNil(settings.mqtt.username)
        XCTAssertNil(settings.mqtt.password, "the first broker's password must not reach the second")
        settings = try Settings.load(path: path, environment: ["BLUEFERRY_MQTT_PASSWORD": "newer"])
        XCTAssertEqual(settings.mqtt.username, "joe")
        XCTAssertEqual(settings.mqtt.password?.reveal(), "newer")

        let keyed = try file("mqtt: { username: joe, password_file: /nowhere }")
        defer { unlink(keyed) }
        settings = try Settings.load(path: keyed, environment: ["BLUEFERRY_MQTT_URL": "mqtt://ann:pw@two"])
        XCTAssertEqual(settings.mqtt.username, "ann")
        XCTAssertEqual(settings.mqtt.password?.reveal(), "pw")
        settings = try Settings.load(path: keyed, environment: ["BLUEFERRY_MQTT_PASSWORD": "pw"])
        XCTAssertEqual(settings.mqtt.password?.reveal(), "pw")
        XCTAssertNil(settings.mqtt.passwordFile)
    }

    func testCertificateFromTheFileAndItsKeyFromTheEnvironment() throws {
        let path = try file("mqtt: { url: 'mqtts://b', tls: { certificate_file: /c } }")
        defer { unlink(path) }
        let settings = try Settings.load(path: path, environment: ["BLUEFERRY_MQTT_TLS_KEY_FILE": "/k"])
        XCTAssertEqual(settings.mqtt.tls.keyFile, "/k")
        XCTAssertThrowsError(try Settings.load(path: path)) {
            XCTAssertEqual("\($0)", "\(path):1:32: mqtt.tls: certificate_file and key_file go together")
        }
    }

    func testEmptyVariablesAreKeysWithoutAValue() throws {
        let path = try file("mqtt: { username: joe, keep_alive: 9 }")
        defer { unlink(path) }
        let settings = try Settings.load(
            path: path,
            environment: [
                "BLUEFERRY_MQTT_USERNAME": "", "BLUEFERRY_MQTT_KEEP_ALIVE": "", "BLUEFERRY_BLUETOOTH_ADAPTERS": "",
                "BLUEFERRY_COMMANDS_ENABLED": "",
            ])
        XCTAssertNil(settings.mqtt.username)
        XCTAssertEqual(settings.mqtt.keepAlive, 9)
        XCTAssertEqual(settings.bluetooth.adapters, [])
        XCTAssertTrue(settings.commands.enabled)
    }

    func testListsFromArgumentsTakeCommas() throws {
        let settings = try Settings.load(path: nil, overrides: [("bluetooth.adapters", "hci7, My adapter")])
        XCTAssertEqual(settings.bluetooth.adapters, ["hci7", "My adapter"])
        XCTAssertThrowsError(try Settings.load(path: nil, overrides: [("bluetooth.scan.services", "180f,xyz")])) {
            XCTAssertEqual(
                "\($0)",
                "argument: bluetooth.scan.services: expected a UUID such as 180f, found 'xyz'")
        }
    }

    func testVariablesThatAreNoSettingsAreNamed() {
        let unknown = Settings.unknownVariables(in: ["BLUEFERRY_MQTT_ULR": "x", "BLUEFERRY_MQTT_URL": "x", "HOME": "/"])
        XCTAssertEqual(unknown.map(\.name), ["BLUEFERRY_MQTT_ULR"])
        XCTAssertEqual(unknown.map(\.nearest), ["BLUEFERRY_MQTT_URL"])
    }

    func testGatewayIDFromTheHostName() {
        var gateway = Settings.Gateway()
        XCTAssertEqual(gateway.resolvedID(hostName: "pi-4_b"), "pi-4_b")
        XCTAssertEqual(gateway.resolvedID(hostName: "pi.local/+#é"), "pi-local----")
        XCTAssertEqual(gateway.resolvedID(hostName: "…"), "gateway")
        XCTAssertEqual(gateway.resolvedID(hostName: ""), "gateway")
        XCTAssertEqual(gateway.resolvedID(hostName: String(repeating: "a", count: 99)).count, 64)
        gateway.id = "attic"
        XCTAssertEqual(gateway.resolvedID(hostName: "pi"), "attic")
    }

    func testBrokerURLs() throws {
        let good = [
            ("mqtt://127.0.0.1", "mqtt://127.0.0.1:1883"), ("mqtts://broker", "mqtts://broker:8883"),
            ("MQTT://broker:1/", "mqtt://broker:1"), ("mqtt://u:p%40@[fe80::1]", "mqtt://[fe80::1]:1883"),
            ("mqtt://u:a@b@host:5", "mqtt://host:5"), ("unix:///run/mosquitto.sock", "unix:///run/mosquitto.sock"),
        ]
        for (text, expected) in good { XCTAssertEqual(try BrokerURL(parsing: text).description, expected, text) }
        XCTAssertEqual(try BrokerURL(parsing: "mqtt://u:a@b@host").password?.reveal(), "a@b")
        let bad = [
            "", "broker:1883", "http://x", "mqtt://", "mqtt://:1883", "mqtt://h:0", "mqtt://h:65536", "mqtt://h:+1",
            "mqtt://h:", "mqtt://h/path", "mqtt://[::1", "mqtt://[::1]x", "mqtt://[[fe8]:183", "mqtt://a[b]:1",
            "mqtt://u%zz@h", "mqtt://u:%00@h",
            "mqtt://u:%ff@h", "mqtt://h h", "unix://run/x", "unix:///", "unix:///" + String(repeating: "x", count: 107),
        ]
        for text in bad { XCTAssertThrowsError(try BrokerURL(parsing: text), text) }
    }

    func testNoFileTraps() throws {
        let shipped = Array(try Data(contentsOf: URL(fileURLWithPath: shippedFile)))
        var generator = SystemRandomNumberGenerator()
        var faults = 0
        for _ in 0..<1000 {
            var bytes = shipped
            for _ in 0..<Int.random(in: 1...8, using: &generator) {
                let index = Int.random(in: 0..<bytes.count, using: &generator)
                bytes[index] = [0x3a, 0x20, 0x0a, 0x7b, 0x5b, 0x26, 0x00, 0xff].randomElement(using: &generator) ?? 0
            }
            do {
                _ = try Settings.parse(String(decoding: bytes, as: UTF8.self), file: "b.yaml")
            } catch {
                faults += 1
                XCTAssertTrue("\(error)".hasPrefix("b.yaml:"), "\(error)")
            }
        }
        XCTAssertGreaterThan(faults, 0)
    }

    /// A file with this text that the caller removes.
    private func file(_ text: String) throws -> String {
        let path = NSTemporaryDirectory() + "blueferry-settings-\(UUID().uuidString).yaml"
        try Data(text.utf8).write(to: URL(fileURLWithPath: path))
        return path
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
            XCTAssertEqual(
                "\($0)", "argument: mqtt.ulr: is no setting that an argument can give; did you mean 'mqtt.url'?")
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
