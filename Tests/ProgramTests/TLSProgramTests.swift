import EventLoop
import MQTT
import Sandbox
import TestKit
import XCTest

/// The program, its settings and a broker that speaks TLS.
final class TLSProgramTests: ProgramCase {
    /// A settings file in the broker's directory.
    @EventLoopActor
    private func settings(
        _ broker: PrivateBroker, host: String = "127.0.0.1", ca: String? = "ca.pem", _ tls: [String] = []
    ) throws -> String {
        let authority = ca.map { ["ca_file: \(broker.directory.file($0))"] } ?? []
        return try broker.directory.write(
            """
            gateway: { id: gw }
            mqtt:
              url: mqtts://\(host):\(broker.port)
              tls: { \((authority + tls).joined(separator: ", ")) }
            outbox: { path: \(broker.directory.file("outbox.db")) }
            """, to: "blueferry.yaml")
    }

    @EventLoopActor
    private func probe(_ broker: PrivateBroker) async throws -> MQTTProbe {
        try await MQTTProbe.connect(port: broker.port) { settings in
            settings.tls = .init(
                caFile: broker.directory.file("ca.pem"), certificateFile: broker.directory.file("client.pem"),
                keyFile: broker.directory.file("client.key"))
            settings.tls?.keyPassword = TLSFixtures.clientKeyPassword
        }
    }

    /// The bridge logs the cause and goes on trying; `check` says the same in its sentence about the broker.
    @EventLoopActor
    private func expectRefusal(
        _ file: String, _ cause: String, line: UInt = #line
    ) async throws {
        let bridge = try start(["run", "--config", file])
        try await wait(bridge, for: cause)
        XCTAssertTrue(bridge.process.isRunning, "line \(line)")
        try await end(bridge, line: line)
        let check = try await run(["check", "--config", file])
        XCTAssertEqual(check.exit, .code(69), check.text, line: line)
        let sentences = check.text.split(separator: "\n").filter { $0.contains(cause) }
        XCTAssertEqual(sentences.count, 1, check.text, line: line)
        XCTAssertTrue(sentences.first?.hasPrefix("missing ") ?? false, check.text, line: line)
    }

    @EventLoopActor
    func testABadCertificateIsRefusedAndItsCauseNamed() async throws {
        let good = try await PrivateBroker.start(TLSFixtures.broker())
        try await expectRefusal(try settings(good, ca: "other.pem"), "self-signed certificate in certificate chain")
        try await expectRefusal(try settings(good, ca: nil), "is not accepted: ")
        try await expectRefusal(try settings(good, host: "localhost"), "is for another host name")
        await good.stop()
        let expired = try await PrivateBroker.start(TLSFixtures.broker(TLSFixtures.expiredServer))
        try await expectRefusal(try settings(expired), "certificate has expired")
        await expired.stop()
    }

    @EventLoopActor
    func testAClientCertificateIsAskedForAndGiven() async throws {
        let broker = try await PrivateBroker.start(TLSFixtures.broker(TLSFixtures.server, ["require_certificate true"]))
        try await expectRefusal(try settings(broker), "certificate")
        let own = ["certificate_file", "key_file"].map { key in
            "\(key): \(broker.directory.file(key == "key_file" ? "client.key" : "client.pem"))"
        }
        try await expectRefusal(try settings(broker, own + ["key_password: wrong-s3cr3t"]), "client.key")
        let password = try broker.directory.write(TLSFixtures.clientKeyPassword + "\n", to: "key-password")
        let file = try settings(broker, own + ["key_password_file: \(password)"])
        let bridge = try start(["run", "--config", file])
        let probe = try await probe(broker)
        try await probe.wait(for: "blueferry/gw/status", within: .seconds(20)) { $0.text == "online" }
        try await end(bridge)
        try await probe.wait(for: "blueferry/gw/status") { $0.text == "offline" }
        let check = try await run(["check", "--config", file])
        XCTAssertTrue(check.text.contains("the broker at 127.0.0.1:\(broker.port) accepts us"), check.text)
        await probe.stop()
        await broker.stop()
    }

    @EventLoopActor
    func testAFileThatIsMissingIsNamedWithItsKey() async throws {
        let broker = try await PrivateBroker.start(TLSFixtures.broker())
        try await expectRefusal(
            try settings(broker, ca: "absent.pem"), "mqtt.tls.ca_file '\(broker.directory.file("absent.pem"))'")
        await broker.stop()
    }
}
