import EventLoop
import MQTT
import Sandbox
import TestKit
import XCTest

final class FaultyBrokerTests: BrokerTestCase {
    private func will(_ id: String) -> MQTTMessage {
        MQTTMessage(topic: "gw/\(id)/status", payload: Array("offline".utf8), retain: true)
    }

    @EventLoopActor
    func testTheWillFiresWhenWeVanishAndNotWhenWeLeave() async throws {
        let broker = try await PrivateBroker.start()
        let probe = try await MQTTProbe.connect(port: broker.port, subscribing: ["gw/#"])
        for (id, version) in [("five", MQTTVersion.v5), ("three", .v311)] {
            var settings = settings(broker, id, version)
            settings.will = will(id)
            let recorder = Recorder(settings)
            try await recorder.connect()
            recorder.client.publish("gw/\(id)/status", Array("online".utf8), qos: .atLeastOnce, retain: true)
            let online = try await probe.wait(for: "gw/\(id)/status")
            XCTAssertEqual(online.text, "online")
            // A late subscriber gets the birth as retained.
            let late = try await MQTTProbe.connect(port: broker.port, subscribing: ["gw/\(id)/#"])
            let retained = try await late.wait(for: "gw/\(id)/status")
            XCTAssertTrue(retained.retain)
            await late.stop()
            // A second client of this name drives the first one out: the broker publishes its will.
            var thief = MQTTSettings(host: "127.0.0.1", port: broker.port, clientID: id)
            thief.version = version
            let second = Recorder(thief)
            try await second.connect()
            let offline = try await probe.wait(for: "gw/\(id)/status")
            XCTAssertEqual(offline.text, "offline")
            await recorder.client.stop(flushWithin: .zero)
            await second.client.stop(flushWithin: .seconds(1))
        }
        var polite = settings(broker, "polite")
        polite.will = will("polite")
        let recorder = Recorder(polite)
        try await recorder.connect()
        recorder.client.publish("gw/polite/status", Array("bye".utf8), qos: .atLeastOnce, retain: true)
        await recorder.client.stop(flushWithin: .seconds(2))
        XCTAssertEqual(recorder.acknowledged.count, 1)
        XCTAssertEqual(recorder.faults, [])
        try await probe.settle()
        XCTAssertEqual(probe.newest("gw/polite/status")?.text, "bye")
        await probe.stop()
        await broker.stop()
    }

    @EventLoopActor
    func testARestartedBrokerIsFoundWithinTwoSecondsAndSubscribedAgain() async throws {
        let broker = try await PrivateBroker.start()
        for version in [MQTTVersion.v5, .v311] {
            let recorder = Recorder(settings(broker, "bridge", version))
            recorder.client.subscribe("in/#")
            try await recorder.connect()
            try await recorder.monitor.wait("the subscription") { recorder.subscribed.count == 1 }
            await broker.killBroker()
            let fault = try await recorder.fault()
            XCTAssertEqual(fault.code, .unreachable)
            XCTAssertTrue(fault.wasConnected)
            XCTAssertEqual(recorder.client.publish("t", []), .dropped(.notConnected))
            // Let the waits grow to their longest.
            let refused = try await recorder.fault(10, within: .seconds(15))
            XCTAssertEqual(refused.code, .unreachable)
            XCTAssertFalse(refused.wasConnected)
            XCTAssertTrue(refused.message.contains("Connection refused"), refused.message)
            XCTAssertTrue(refused.message.contains("127.0.0.1:\(broker.port)"), refused.message)
            try await broker.startBroker()
            let start = MonotonicTime.now
            try await recorder.monitor.wait("the subscription") { recorder.subscribed.count == 2 }
            XCTAssertLessThan(MonotonicTime.now - start, .seconds(2))
            let probe = try await MQTTProbe.connect(port: broker.port, subscribing: [])
            try await probe.publish("in/once", "x")
            try await recorder.monitor.wait("the message") { !recorder.messages.isEmpty }
            try await probe.settle()
            XCTAssertEqual(recorder.messages.map(\.topic), ["in/once"])
            await probe.stop()
            await recorder.client.stop(flushWithin: .seconds(1))
        }
        await broker.stop()
    }

    @EventLoopActor
    func testAWrongPasswordIsNamedAndGivenGrowingPeace() async throws {
        var options = PrivateBroker.Options()
        options.listener = ["listener {port} 127.0.0.1", "password_file {directory}/passwords"]
        options.files = ["passwords": ""]
        let broker = try await PrivateBroker.start(options)
        for version in [MQTTVersion.v5, .v311] {
            var settings = settings(broker, "bridge", version)
            settings.username = "user"
            settings.password = "s3cr3t"
            let recorder = Recorder(settings)
            recorder.client.start()
            let second = try await recorder.fault(2)
            let first = recorder.faults[0]
            for fault in [first, second] {
                XCTAssertEqual(fault.code, .notAuthorised)
                XCTAssertFalse(fault.wasConnected)
                XCTAssertTrue(fault.message.contains("not authorised"), fault.message)
                XCTAssertFalse(fault.message.contains("s3cr3t"))
            }
            XCTAssertEqual(first.reason, version == .v5 ? 0x87 : 5)
            let waits = [try XCTUnwrap(first.retryDelay), try XCTUnwrap(second.retryDelay)]
            XCTAssertTrue((Duration.milliseconds(500)...(.seconds(1))).contains(waits[0]), "\(waits)")
            XCTAssertTrue((Duration.seconds(1)...(.seconds(2))).contains(waits[1]), "\(waits)")
            await recorder.client.stop(flushWithin: .seconds(1))
            XCTAssertEqual(recorder.client.state, .stopped)
        }
        await broker.stop()
    }

    @EventLoopActor
    func testTwoClientsOfOneNameAreToldSoAndGiveEachOtherPeace() async throws {
        let broker = try await PrivateBroker.start()
        for version in [MQTTVersion.v5, .v311] {
            let first = Recorder(settings(broker, "bridge", version))
            let second = Recorder(settings(broker, "bridge", version), monitor: first.monitor)
            first.client.start()
            second.client.start()
            let takeovers = { (first.faults + second.faults).filter { $0.code == .takenOver } }
            try await first.monitor.wait("the takeover") { takeovers().count >= 2 }
            for fault in takeovers() {
                XCTAssertTrue(fault.message.contains("'bridge'"), fault.message)
                XCTAssertGreaterThanOrEqual(try XCTUnwrap(fault.retryDelay), .milliseconds(500))
            }
            await first.client.stop(flushWithin: .zero)
            await second.client.stop(flushWithin: .zero)
        }
        await broker.stop()
    }

    @EventLoopActor
    func testAFrozenBrokerBoundsWhatWaitsAndLosesNoToken() async throws {
        let broker = try await PrivateBroker.start()
        var limits = settings(broker)
        limits.pendingLimit = 256 << 10
        limits.unacknowledgedLimit = 50
        let recorder = Recorder(limits)
        try await recorder.connect()
        broker.freeze()
        let payload = [UInt8](repeating: 7, count: 1_000)
        let before = residentKilobytes()
        var slow = 0
        for _ in 0..<50_000 {
            let outcome = recorder.client.publish("t", payload)
            if outcome == .dropped(.slow) { slow += 1 } else { XCTAssertEqual(outcome, .sent(.none)) }
        }
        XCTAssertGreaterThan(slow, 20_000)
        XCTAssertEqual(recorder.client.statistics.droppedSlow, UInt64(slow))
        XCTAssertLessThanOrEqual(recorder.client.statistics.pendingBytes, 256 << 10)
        // 50 MB were offered.
        XCTAssertLessThan(residentKilobytes() - before, 10_000)
        var sent: [PublishToken] = []
        for _ in 0..<60 {
            if case .sent(let token) = recorder.client.publish("q", [1], qos: .atLeastOnce) { sent.append(token) }
        }
        XCTAssertEqual(sent.count, 50)
        XCTAssertEqual(recorder.client.statistics.droppedFull, 10)
        broker.thaw()
        try await recorder.monitor.wait("all acknowledgements") { recorder.acknowledged == sent }
        // What is broken off comes back to its owner.
        broker.freeze()
        guard case .sent(let last) = recorder.client.publish("q", [2], qos: .atLeastOnce) else {
            return XCTFail("not sent")
        }
        await broker.killBroker()
        _ = try await recorder.fault()
        XCTAssertEqual(recorder.lost, [last])
        XCTAssertEqual(recorder.client.statistics.unacknowledged, 0)
        XCTAssertEqual(recorder.client.statistics.lost, 1)
        await recorder.client.stop(flushWithin: .zero)
        await broker.stop()
    }

    @EventLoopActor
    func testASilentBrokerIsGivenUp() async throws {
        let broker = try await PrivateBroker.start()
        var settings = settings(broker)
        settings.keepAlive = 5
        let recorder = Recorder(settings)
        try await recorder.connect()
        broker.freeze()
        let fault = try await recorder.fault(1, within: .seconds(20))
        XCTAssertEqual(fault.code, .unreachable)
        XCTAssertTrue(fault.message.contains("silent"), fault.message)
        await recorder.client.stop(flushWithin: .zero)
        await broker.stop()
    }

    @EventLoopActor
    func testABrokerThatNeverAnswersEndsAtTheDeadlineAndStopDoesNotWait() async throws {
        let broker = try await PrivateBroker.start()
        broker.freeze()
        var settings = settings(broker)
        settings.connectTimeout = .milliseconds(300)
        let recorder = Recorder(settings)
        recorder.client.start()
        let fault = try await recorder.fault()
        XCTAssertTrue(fault.message.contains("within 300 ms"), fault.message)
        let start = MonotonicTime.now
        await recorder.client.stop(flushWithin: .seconds(5))
        XCTAssertLessThan(MonotonicTime.now - start, .seconds(1))
        XCTAssertEqual(recorder.client.state, .stopped)
        await broker.stop()
    }

    @EventLoopActor
    func testStopEndsAtItsLimitWithABrokerThatDoesNotAcknowledge() async throws {
        let broker = try await PrivateBroker.start()
        let recorder = Recorder(settings(broker))
        try await recorder.connect()
        broker.freeze()
        guard case .sent(let token) = recorder.client.publish("t", [1], qos: .atLeastOnce) else {
            return XCTFail("not sent")
        }
        let start = MonotonicTime.now
        await recorder.client.stop(flushWithin: .milliseconds(200))
        XCTAssertLessThan(MonotonicTime.now - start, .seconds(1))
        XCTAssertEqual(recorder.lost, [token])
        await broker.stop()
    }

    @EventLoopActor
    func testANameThatDoesNotExistIsNamed() async throws {
        let settings = MQTTSettings(host: "no-such-host.invalid", clientID: "bridge")
        let recorder = Recorder(settings)
        recorder.client.start()
        let fault = try await recorder.fault()
        XCTAssertEqual(fault.code, .unreachable)
        XCTAssertTrue(fault.message.contains("no-such-host.invalid"), fault.message)
        await recorder.client.stop(flushWithin: .zero)
    }
}
