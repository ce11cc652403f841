import EventLoop
import MQTT
import Sandbox
import TestKit
import XCTest

final class TLSTests: BrokerTestCase {
    @EventLoopActor
    private func trusting(_ broker: PrivateBroker, ca: String? = "ca.pem") -> MQTTSettings {
        var settings = settings(broker)
        settings.tls = TLSSettings(caFile: ca.map { broker.directory.file($0) })
        return settings
    }

    @EventLoopActor
    private func firstFault(_ settings: MQTTSettings) async throws -> MQTTFault {
        let recorder = Recorder(settings)
        recorder.client.start()
        let fault = try await recorder.fault()
        await recorder.client.stop(flushWithin: .zero)
        return fault
    }

    @EventLoopActor
    func testMessagesGoThereAndBackThroughTLS() async throws {
        let broker = try await PrivateBroker.start(TLSFixtures.broker())
        for version in [MQTTVersion.v5, .v311] {
            var settings = trusting(broker)
            settings.version = version
            settings.receivedPayloadLimit = 4 << 20
            let recorder = Recorder(settings)
            try await recorder.connect()
            recorder.client.subscribe("t/#")
            try await recorder.monitor.wait("the subscription") { recorder.subscribed.count == 1 }
            let large = (0..<1 << 20).map { UInt8(truncatingIfNeeded: $0 &* 31) }
            recorder.client.publish("t/large", large, qos: .atLeastOnce)
            for number in 0..<500 { recorder.client.publish("t/\(number)", [1], qos: .atLeastOnce) }
            try await recorder.monitor.wait("the messages") {
                recorder.messages.count == 501 && recorder.acknowledged.count == 501
            }
            XCTAssertTrue(recorder.messages.first?.payload == large)
            XCTAssertEqual(recorder.faults, [])
            await recorder.client.stop(flushWithin: .seconds(1))
        }
        await broker.stop()
    }

    @EventLoopActor
    func testABrokerThatIsNotTrustedIsRefusedWithTheReason() async throws {
        let good = try await PrivateBroker.start(TLSFixtures.broker())
        let unknown = try await firstFault(trusting(good, ca: "other.pem"))
        XCTAssertEqual(unknown.code, .tls)
        XCTAssertTrue(unknown.message.contains("certificate in certificate chain"), unknown.message)
        let system = try await firstFault(trusting(good, ca: nil))
        XCTAssertEqual(system.code, .tls)
        XCTAssertTrue(system.message.contains("is not accepted"), system.message)
        var renamed = trusting(good)
        renamed.host = "localhost"
        let name = try await firstFault(renamed)
        XCTAssertEqual(name.code, .tls)
        XCTAssertTrue(name.message.contains("another host name"), name.message)
        renamed.tls?.verifiesHostName = false
        let recorder = Recorder(renamed)
        try await recorder.connect()
        await recorder.client.stop(flushWithin: .seconds(1))
        await good.stop()

        let expired = try await PrivateBroker.start(TLSFixtures.broker(TLSFixtures.expiredServer))
        let old = try await firstFault(trusting(expired))
        XCTAssertEqual(old.code, .tls)
        XCTAssertTrue(old.message.contains("expired"), old.message)
        XCTAssertGreaterThanOrEqual(try XCTUnwrap(old.retryDelay), .milliseconds(500))
        await expired.stop()
    }

    @EventLoopActor
    func testTheBrokerMayAskForOurCertificate() async throws {
        let broker = try await PrivateBroker.start(TLSFixtures.broker(TLSFixtures.server, ["require_certificate true"]))
        let without = try await firstFault(trusting(broker))
        // The broker's alert may be lost in the end of the connection.
        XCTAssertTrue(without.message.contains("certificate"), without.message)
        var with = trusting(broker)
        with.tls?.certificateFile = broker.directory.file("client.pem")
        with.tls?.keyFile = broker.directory.file("client.key")
        with.tls?.keyPassword = "wrong-s3cr3t"
        let wrong = try await firstFault(with)
        XCTAssertEqual(wrong.code, .tls)
        XCTAssertTrue(wrong.message.contains("client.key"), wrong.message)
        XCTAssertFalse(wrong.message.contains("s3cr3t"), wrong.message)
        with.tls?.keyPassword = TLSFixtures.clientKeyPassword
        let recorder = Recorder(with)
        try await recorder.connect()
        await recorder.client.stop(flushWithin: .seconds(1))
        await broker.stop()
    }

    @EventLoopActor
    func testFilesThatAreMissingAreNamed() async throws {
        var settings = MQTTSettings(host: "127.0.0.1", port: 1, clientID: "bridge")
        settings.tls = TLSSettings(caFile: "/nowhere/ca.pem")
        let missing = try await firstFault(settings)
        XCTAssertEqual(missing.code, .tls)
        XCTAssertTrue(missing.message.contains("mqtt.tls.ca_file '/nowhere/ca.pem'"), missing.message)
        settings.tls = TLSSettings(certificateFile: "/dev/null")
        let alone = try await firstFault(settings)
        XCTAssertTrue(alone.message.contains("only useful together"), alone.message)
    }

    @EventLoopActor
    func testTLSToAPlainPortFailsSoon() async throws {
        let plain = try await PrivateBroker.start()
        var settings = settings(plain)
        settings.tls = TLSSettings()
        let fault = try await firstFault(settings)
        XCTAssertFalse(fault.wasConnected)
        XCTAssertFalse(fault.message.contains("within"), fault.message)
        await plain.stop()
        let silent = try ScriptedBroker(answer: [], closes: true)
        settings.port = silent.port
        let closed = try await firstFault(settings)
        XCTAssertFalse(closed.message.contains("within"), closed.message)
        silent.stop()
    }
}
