import EventLoop
import Foundation
import MQTT
import Sandbox
import TestKit
import XCTest

/// Passwords and passkeys, wherever they were given, stand in nothing that the program writes.
final class SecretTests: ProgramCase {
    /// In a URL the sign is written `%40`.
    private static let password = "s3cr3t@w0rd"
    private static let passkey = "271828"
    private static let forbidden = ["s3cr3t", "w0rd", passkey, TLSFixtures.clientKeyPassword]

    /// Where the password may be given.
    private enum Place: String, CaseIterable {
        case url, file, setting, environment, environmentURL
    }

    private func assertNoSecret(_ text: String, _ what: String, line: UInt = #line) {
        for secret in Self.forbidden { XCTAssertFalse(text.contains(secret), "\(what): \(text)", line: line) }
    }

    @EventLoopActor
    private func broker(_ directory: TemporaryDirectory) async throws -> PrivateBroker {
        let passwords = try await passwordFile(["joe": Self.password, "probe": "p"], in: directory)
        var options = PrivateBroker.Options()
        options.listener = ["listener {port} 127.0.0.1", "allow_anonymous false", "password_file \(passwords)"]
        return try await PrivateBroker.start(options)
    }

    /// Settings with the password in a place of its own.
    @EventLoopActor
    private func arguments(
        _ place: Place, _ broker: PrivateBroker, _ directory: TemporaryDirectory,
        password: String = SecretTests.password
    ) throws -> (arguments: [String], environment: [String: String]) {
        let url = "mqtt://127.0.0.1:\(broker.port)"
        let escaped = password.split(separator: "@").joined(separator: "%40")
        let full = "mqtt://joe:\(escaped)@127.0.0.1:\(broker.port)"
        var mqtt = "url: \(url), username: joe"
        var environment = ["BLUEFERRY_LOGGING_LEVEL": "debug"]
        switch place {
        case .url: mqtt = "url: '\(full)'"
        case .file: mqtt += ", password_file: \(try directory.write(password + "\n", to: "password"))"
        case .setting: mqtt += ", password: '\(password)'"
        case .environment: environment["BLUEFERRY_MQTT_PASSWORD"] = password
        case .environmentURL: environment["BLUEFERRY_MQTT_URL"] = full
        }
        let file = try directory.write(
            """
            gateway: { id: gw }
            mqtt: { \(mqtt) }
            devices: [{ address: "C0:00:00:00:00:01", passkey: \(Self.passkey) }]
            outbox: { path: \(directory.file("state/outbox.db")) }
            """, to: "blueferry.yaml")
        return (["run", "--config", file], environment)
    }

    @EventLoopActor
    func testNoSecretIsWrittenAnywhere() async throws {
        for place in Place.allCases {
            let directory = try TemporaryDirectory()
            let state = directory.file("state")
            try FileManager.default.createDirectory(atPath: state, withIntermediateDirectories: false)
            let broker = try await broker(directory)
            let given = try arguments(place, broker, directory)
            let bridge = try start(given.arguments, environment: given.environment)
            let probe = try await MQTTProbe.connect(port: broker.port) { ($0.username, $0.password) = ("probe", "p") }
            try await probe.wait(for: "blueferry/gw/info", within: .seconds(20))
            try await probe.publish("blueferry/gw/request/config", "{\"id\":\"1\",\"get\":true}")
            try await probe.wait(for: "blueferry/gw/response/config")
            let line = try String(contentsOfFile: "/proc/\(bridge.process.pid)/cmdline", encoding: .utf8)
            assertNoSecret(line, "\(place): the command line")
            let before = probe.messages
            await broker.stopBroker()
            try await wait(bridge, for: "no broker at")
            probe.discard()
            try await broker.startBroker()
            try await probe.wait(for: "blueferry/gw/status", within: .seconds(20)) { $0.text == "online" }
            try await probe.publish("blueferry/gw/request/pair", "{\"id\":\"2\",\"device\":\"C0:00:00:00:00:01\"}")
            try await end(bridge)
            var check = given.arguments
            check[0] = "check"
            let outcome = try await run(check, environment: given.environment)
            XCTAssertTrue(outcome.text.contains("accepts us"), "\(place): \(outcome.text)")
            assertNoSecret(bridge.lines.text + outcome.text, "\(place): the output")
            for message in before + probe.messages { assertNoSecret(message.text, "\(place): \(message.topic)") }
            for file in try FileManager.default.contentsOfDirectory(atPath: state) {
                let bytes = FileManager.default.contents(atPath: state + "/" + file) ?? Data()
                assertNoSecret(String(decoding: bytes, as: UTF8.self), "\(place): \(file)")
            }
            await probe.stop()
            await broker.stop()
            directory.remove()
        }
    }

    @EventLoopActor
    func testARefusedPasswordIsNotRepeated() async throws {
        let directory = try TemporaryDirectory()
        let broker = try await broker(directory)
        let given = try arguments(.url, broker, directory, password: "s3cr3t@wrong")
        let bridge = try start(given.arguments, environment: given.environment)
        try await wait(bridge, for: "not authorised")
        try await end(bridge)
        assertNoSecret(bridge.lines.text, "a refusal")
        await broker.stop()
        directory.remove()
    }

    @EventLoopActor
    func testAMistakeInTheSettingsDoesNotShowThePasswordBesideIt() async throws {
        let directory = try TemporaryDirectory()
        let wrong = [
            "mqtt: { url: 'mqtt://joe:s3cr3t@broker:99999' }", "mqtt: { url: 'http://joe:s3cr3t@broker' }",
            "mqtt: { url: 'joe:s3cr3t@broker' }", "mqtt: { url: 'mqtt://joe:s3cr3t%zz@broker' }",
            "mqtt: { url: 'mqtt://joe:s3cr3t@' }", "mqtt: { password:s3cr3t }", "mqtt:\n  password:s3cr3t\n",
            "mqtt:\n  password s3cr3t\n", "mqtt:\n  username: joe\n  password s3cr3t\n",
            "mqtt: { password: [s3cr3t] }", "mqtt: { password: s3cr3t, password_file: /p }",
            "mqtt: { password: s3cr3t, version: 3.1.1 }", "mqtt: { password: 's3cr3t }",
            "mqtt: { password: @s3cr3t }", "mqtt: { password: s3cr3t, nonsense: 1 }", "mqtt: { password: !s3cr3t x }",
            "devices: [{ address: 'C0:00:00:00:00:01', passkey: 271828271828 }]",
        ]
        for text in wrong {
            let file = try directory.write(text, to: "wrong.yaml")
            for command in ["run", "check"] {
                let outcome = try await run([command, "--config", file])
                XCTAssertEqual(outcome.exit, .code(78), "\(text): \(outcome.text)")
                assertNoSecret(outcome.text, text)
            }
        }
        for argument in ["mqtt.url=mqtt://joe:s3cr3t@broker:x", "mqtt.passwort=s3cr3t", "mqtt.password=s3cr3t\u{7}"] {
            let outcome = try await run(["run", "--set", argument])
            XCTAssertEqual(outcome.exit, .code(78), "\(argument): \(outcome.text)")
            assertNoSecret(outcome.text, argument)
        }
        let variable = try await run(["run"], environment: ["BLUEFERRY_MQTT_URL": "mqtt:/joe:s3cr3t@broker"])
        XCTAssertEqual(variable.exit, .code(78))
        assertNoSecret(variable.text, "a variable")
        directory.remove()
    }

    @EventLoopActor
    func testTheKeysPasswordIsNotShown() async throws {
        let directory = try TemporaryDirectory()
        try directory.write(TLSFixtures.client, to: "client.pem")
        try directory.write(TLSFixtures.clientKey, to: "client.key")
        let file = try directory.write(
            """
            mqtt:
              url: mqtts://127.0.0.1:9
              tls:
                certificate_file: \(directory.file("client.pem"))
                key_file: \(directory.file("client.key"))
                key_password: \(TLSFixtures.clientKeyPassword)
            outbox: { path: \(directory.file("outbox.db")) }
            logging: { level: debug }
            """, to: "blueferry.yaml")
        let bridge = try start(["run", "--config", file])
        try await wait(bridge, for: "no broker at")
        try await end(bridge)
        let check = try await run(["check", "--config", file])
        assertNoSecret(bridge.lines.text + check.text, "a key's password")
        directory.remove()
    }
}
