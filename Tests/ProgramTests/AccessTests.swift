import EventLoop
import Foundation
import MQTT
import Sandbox
import TestKit
import XCTest

/// The files in Packaging/, in the hands of the programs that they are for.
final class AccessTests: ProgramCase {
    private static let packaging = World.root + "/Packaging/"

    @EventLoopActor
    private func probe(_ broker: PrivateBroker, _ user: String) async throws -> MQTTProbe {
        try await MQTTProbe.connect(port: broker.port) { ($0.username, $0.password) = (user, user) }
    }

    @EventLoopActor
    func testTheBrokersListGivesEachRoleItsOwn() async throws {
        let directory = try TemporaryDirectory()
        let users = ["attic": "attic", "reader": "reader", "operator": "operator", "cellar": "cellar"]
        let passwords = try await passwordFile(users, in: directory)
        var options = PrivateBroker.Options()
        options.listener = ["listener {port} 127.0.0.1", "allow_anonymous false", "password_file \(passwords)"]
        options.lines = ["acl_file \(Self.packaging)mosquitto.acl"]
        let broker = try await PrivateBroker.start(options)
        let bus = try await PrivateBus.start()
        let environment = ["DBUS_SYSTEM_BUS_ADDRESS": bus.address, "BLUEFERRY_MQTT_PASSWORD": "attic"]
        let simulator = try start(["simulate", "--fleet", World.root + "/config/fleet.yaml"], environment: environment)
        let (reader, person) = (try await probe(broker, "reader"), try await probe(broker, "operator"))
        let bridge = try start(
            [
                "run", "--set", "gateway.id=attic", "--set", "mqtt.url=\(broker.url)", "--set", "mqtt.username=attic",
                "--set", "outbox.path=\(directory.file("outbox.db"))",
            ], environment: environment)

        // A reader sees what there is to see.
        for topic in ["status", "info", "discovery", "adapters/+", "devices/+/advertisement"] {
            try await reader.wait(for: "blueferry/attic/" + topic, within: .seconds(20))
        }
        // It sends nothing: what comes of it is the operator's request alone.
        try await reader.publish("blueferry/attic/request/devices", "{\"id\":\"reader\"}")
        try await reader.publish("blueferry/attic/status", "stolen", retain: true)
        try await person.publish("blueferry/attic/request/devices", "{\"id\":\"operator\",\"limit\":1}")
        let answer = try await person.wait(for: "blueferry/attic/response/devices")
        XCTAssertTrue(answer.text.contains("\"operator\""), answer.text)
        // The operator sends requests, and nothing else.
        let device = "blueferry/attic/devices/c00000000001/connection/set"
        try await person.publish(device, "connect")
        try await person.publish("blueferry/attic/status", "stolen", retain: true)
        // The bridge publishes only below its base: an answer elsewhere is the broker's to refuse.
        var properties = PublishProperties()
        properties.responseTopic = "elsewhere/answers"
        try await person.publish(
            "blueferry/attic/request/devices", "{\"id\":\"away\",\"limit\":1}", properties: properties)
        try await person.publish("blueferry/attic/request/devices", "{\"id\":\"last\",\"limit\":1}")
        try await person.wait(for: "blueferry/attic/response/devices") { $0.text.contains("\"last\"") }
        for client in [reader, person] {
            XCTAssertFalse(client.messages.contains { $0.text == "stolen" || $0.topic == "elsewhere/answers" })
        }
        XCTAssertFalse(person.messages.contains { $0.text.contains("\"reader\"") })
        XCTAssertFalse(reader.messages.contains { $0.topic.contains("/re") }, "a reader sees commands or answers")
        XCTAssertFalse(bridge.lines.text.contains("c00000000001"), bridge.lines.text)
        try await end(bridge)
        try await person.wait(for: "blueferry/attic/status") { $0.text == "offline" }

        // Another gateway's credentials do not open this gateway's topics, and neither do none.
        let other = try await probe(broker, "cellar")
        try await other.publish("blueferry/attic/status", "stolen", retain: true)
        try await person.settleBelowRequests()
        XCTAssertFalse(person.messages.contains { $0.text == "stolen" })
        XCTAssertEqual(other.messages.count, 0)
        for client in [reader, person, other] { await client.stop() }
        _ = await simulator.process.stop()
        await broker.stop()
        await bus.stop()
        directory.remove()
    }

    /// A bus that denies org.bluez to everybody, with the policy file as Packaging has it but for the user's name.
    @EventLoopActor
    private func check(withPolicyFor user: String) async throws -> Outcome {
        let directory = try TemporaryDirectory()
        let policy = try String(contentsOfFile: Self.packaging + "blueferry-dbus.conf", encoding: .utf8)
        XCTAssertTrue(policy.contains("policy user=\"blueferry\""))
        try directory.write(
            policy.replacingOccurrences(of: "user=\"blueferry\"", with: "user=\"\(user)\""), to: "policy.conf")
        let address = "unix:path=" + directory.file("bus")
        let file = try directory.write(
            """
            <busconfig>
              <listen>\(address)</listen>
              <auth>EXTERNAL</auth>
              <policy context="default">
                <allow user="*"/><allow own="*"/>
                <allow send_type="signal"/><allow send_type="method_return"/><allow send_type="error"/>
                <allow receive_type="method_call"/><allow receive_type="method_return"/>
                <allow receive_type="error"/><allow receive_type="signal"/>
                <allow send_destination="org.freedesktop.DBus"/>
                <deny send_destination="org.bluez"/>
              </policy>
              <include>policy.conf</include>
            </busconfig>
            """, to: "bus.conf")
        let lines = Lines()
        let daemon = try ChildProcess(
            "dbus-daemon", ["--config-file=\(file)", "--nofork", "--nopidfile", "--print-address=1"],
            output: .lines { lines.add($0) }, errors: .lines { lines.add($0) })
        try await lines.monitor.wait("the bus") { lines.text.contains("unix:path=") }
        let environment = ["DBUS_SYSTEM_BUS_ADDRESS": address]
        let simulator = try start(["simulate", "--fleet", World.root + "/config/fleet.yaml"], environment: environment)
        try await wait(simulator, for: "simulating")
        let outcome = try await run(["check", "--set", "mqtt.url=mqtt://127.0.0.1:9"], environment: environment)
        _ = await simulator.process.stop()
        _ = await daemon.stop()
        directory.remove()
        return outcome
    }

    @EventLoopActor
    func testTheBusPolicyOpensBlueZToItsUserAlone() async throws {
        let denied = try await check(withPolicyFor: "blueferry-of-nobody")
        XCTAssertTrue(denied.text.contains("the bus denies access to BlueZ"), denied.text)
        let allowed = try await check(withPolicyFor: NSUserName())
        XCTAssertTrue(allowed.text.contains("BlueZ runs on the D-Bus system bus"), allowed.text)
        XCTAssertTrue(allowed.text.contains("hears every advertisement by a monitor"), allowed.text)
    }

    /// Runs a tool to its end and gathers both of its outputs.
    @EventLoopActor
    private func tool(_ program: String, _ arguments: [String]) async throws -> Outcome {
        let lines = Lines()
        let process = try ChildProcess(
            program, arguments, output: .lines { lines.add($0) }, errors: .lines { lines.add($0) })
        return Outcome(exit: try await process.waitForExit(within: .seconds(60)), text: lines.text)
    }

    @EventLoopActor
    func testTheInstalledUnitIsOneThatSystemdTakes() async throws {
        let directory = try TemporaryDirectory()
        let root = directory.file("root")
        let arguments = ["--root", root, "--binary", World.program]
        let install = World.root + "/scripts/install"
        for _ in 0..<2 {
            let installed = try await tool(install, arguments)
            XCTAssertEqual(installed.exit, .code(0), installed.text)
        }
        let secrets = try FileManager.default.attributesOfItem(atPath: root + "/etc/blueferry/blueferry.env")
        XCTAssertEqual(secrets[.posixPermissions] as? Int, 0o600)
        // The second time the owner's settings are left alone.
        let settings = root + "/etc/blueferry/blueferry.yaml"
        try "gateway: { id: mine }\n".write(toFile: settings, atomically: true, encoding: .utf8)
        let again = try await tool(install, arguments)
        XCTAssertTrue(again.text.contains("is there already"), again.text)
        XCTAssertEqual(try String(contentsOfFile: settings, encoding: .utf8), "gateway: { id: mine }\n")
        let dry = try await tool(install, ["--dry-run", "--binary", World.program])
        XCTAssertEqual(dry.exit, .code(0), dry.text)
        XCTAssertTrue(dry.text.contains("/etc/systemd/system/blueferry.service"), dry.text)

        // systemd looks for the program where the unit says.
        let unit = try String(contentsOfFile: root + "/etc/systemd/system/blueferry.service", encoding: .utf8)
        XCTAssertTrue(unit.contains("ExecStart=/usr/local/bin/blueferry run"), unit)
        let file = try directory.write(
            unit.replacingOccurrences(of: "=/usr/local/bin/blueferry", with: "=" + World.program),
            to: "blueferry.service")
        let verified = try await tool("systemd-analyze", ["verify", "--man=no", file])
        XCTAssertEqual(verified.exit, .code(0), verified.text)
        XCTAssertFalse(verified.text.contains("blueferry.service"), verified.text)
        // Of 100; docs/security.md says what it is.
        let exposure = try await tool(
            "systemd-analyze", ["security", "--no-pager", "--offline=true", "--threshold=25", file])
        XCTAssertEqual(exposure.exit, .code(0), exposure.text)
        directory.remove()
    }
}

extension MQTTProbe {
    /// Returns once what was sent to an operator before has arrived: its own request goes there and back.
    fileprivate func settleBelowRequests() async throws {
        try await publish("blueferry/none/request/settle", "settled")
        try await wait(for: "blueferry/none/request/settle")
    }
}
