import EventLoop
import Sandbox
import TestKit
import XCTest

@testable import MQTT

/// The packets that leave past libmosquitto.
final class PacketQueueTests: XCTestCase {
    private func packet(_ topic: String, _ payload: [UInt8], version5: Bool) -> [UInt8]? {
        var queue = PacketQueue()
        let isTaken = payload.withUnsafeBytes { queue.append(topic: topic, payload: $0, hasProperties: version5) }
        XCTAssertEqual(queue.count > 0, isTaken)
        return isTaken ? Array(queue.bytes) : nil
    }

    func testBytesOfAPacket() {
        XCTAssertEqual(packet("a/b", [1, 2], version5: false), [0x30, 7, 0, 3, 0x61, 0x2f, 0x62, 1, 2])
        XCTAssertEqual(packet("a/b", [1, 2], version5: true), [0x30, 8, 0, 3, 0x61, 0x2f, 0x62, 0, 1, 2])
        XCTAssertEqual(packet("a", [], version5: false), [0x30, 3, 0, 1, 0x61])
    }

    func testTheLengthTakesAsManyBytesAsItNeeds() {
        let lengths: [(Int, [UInt8])] = [
            (124, [0x7f]), (125, [0x80, 1]), (16_380, [0xff, 0x7f]), (16_381, [0x80, 0x80, 1]),
            (2_097_148, [0xff, 0xff, 0x7f]), (2_097_149, [0x80, 0x80, 0x80, 1]),
        ]
        for (count, bytes) in lengths {
            let payload = [UInt8](repeating: 9, count: count)
            XCTAssertEqual(packet("a", payload, version5: false), [0x30] + bytes + [0, 1, 0x61] + payload)
        }
    }

    func testTopicsThatAreNotPlainAreLeftToTheLibrary() {
        for topic in ["", "a/+", "#", "ü", "a\u{7}", "a\u{7f}", String(repeating: "a", count: 65_536)] {
            XCTAssertNil(packet(topic, [1], version5: true), topic)
        }
    }

    func testItKnowsThatWhatWaitsIsLate() {
        func time(_ milliseconds: UInt64) -> MonotonicTime { MonotonicTime(nanoseconds: milliseconds * 1_000_000) }
        var queue = PacketQueue()
        func append() {
            [7, 7, 7].withUnsafeBytes { XCTAssertTrue(queue.append(topic: "a", payload: $0, hasProperties: false)) }
        }
        XCTAssertFalse(queue.isLate(at: time(5_000)), "nothing waits")
        append()
        XCTAssertFalse(queue.isLate(at: time(5_000)))
        append()
        XCTAssertFalse(queue.isLate(at: time(6_000)))
        XCTAssertTrue(queue.isLate(at: time(6_001)))
        let first = queue.count / 2
        queue.removeFirst(first - 1)
        XCTAssertTrue(queue.isLate(at: time(6_002)), "a byte of the first is still here")
        queue.removeFirst(1)
        XCTAssertFalse(queue.isLate(at: time(6_003)), "what waits now is looked at from now on")
        XCTAssertTrue(queue.isLate(at: time(7_004)))
        queue.removeFirst(queue.count)
        XCTAssertFalse(queue.isLate(at: time(9_000)))
    }

    func testBytesLeaveInOrderThroughGrowthAndPartialWrites() {
        var queue = PacketQueue()
        var expected: [UInt8] = []
        var written: [UInt8] = []
        for number in 0..<2_000 {
            let payload = [UInt8](repeating: UInt8(truncatingIfNeeded: number), count: number % 97)
            payload.withUnsafeBytes { XCTAssertTrue(queue.append(topic: "t", payload: $0, hasProperties: false)) }
            expected += [0x30, UInt8(3 + payload.count), 0, 1, 0x74] + payload
            if number % 3 == 0 {
                let part = Array(queue.bytes.prefix(number % 113))
                written += part
                queue.removeFirst(part.count)
                // Behind the rest of the packet that was cut another one begins.
                let rest = Array(queue.bytes.dropFirst(queue.begun))
                XCTAssertTrue(
                    rest.isEmpty || rest.starts(with: [0x30]) && rest.dropFirst(2).starts(with: [0, 1, 0x74]))
            }
        }
        written += Array(queue.bytes)
        queue.removeFirst(.max)
        XCTAssertEqual(queue.count, 0)
        XCTAssertEqual(queue.begun, 0)
        XCTAssertTrue(written == expected)
        let last: [UInt8] = [7]
        last.withUnsafeBytes { XCTAssertTrue(queue.append(topic: "t", payload: $0, hasProperties: false)) }
        XCTAssertEqual(Array(queue.bytes), [0x30, 4, 0, 1, 0x74, 7])
    }
}

final class PlainPublishTests: BrokerTestCase {
    /// What leaves past libmosquitto and what leaves through it share one socket.
    @EventLoopActor
    func testPacketsOfBothWaysArriveWhole() async throws {
        let broker = try await PrivateBroker.start()
        for version in [MQTTVersion.v311, .v5] {
            let subscriber = Recorder(settings(broker, "subscriber", version))
            try await subscriber.connect()
            subscriber.client.subscribe("#")
            try await subscriber.monitor.wait("the subscription") { subscriber.subscribed == ["#"] }
            let publisher = Recorder(settings(broker, "publisher", version))
            try await publisher.connect()
            let large = [UInt8](repeating: 5, count: 100_000)
            for number in 0..<200 {
                publisher.client.publish("plain", [UInt8(number)])
                publisher.client.publish("ü", [UInt8(number)])
                publisher.client.publish("sure", [UInt8(number)], qos: .atLeastOnce)
                if number % 50 == 0 { publisher.client.publish("large", large) }
            }
            try await subscriber.monitor.wait("all messages") { subscriber.messages.count == 604 }
            for topic in ["plain", "ü", "sure"] {
                let payloads = subscriber.messages.filter { $0.topic == topic }.map(\.payload)
                XCTAssertEqual(payloads, (0..<200).map { [UInt8($0)] }, topic)
            }
            XCTAssertEqual(subscriber.messages.filter { $0.topic == "large" && $0.payload == large }.count, 4)
            XCTAssertEqual(publisher.client.statistics.pendingBytes, 0)
            // What is queued leaves before the farewell.
            publisher.client.publish("plain", [1, 2, 3])
            await publisher.client.stop(flushWithin: .seconds(5))
            try await subscriber.monitor.wait("the last message") { subscriber.messages.last?.payload == [1, 2, 3] }
            await subscriber.client.stop(flushWithin: .zero)
        }
        await broker.stop()
    }

    /// A broker that stands still for a while leaves a packet half written, with packets of both ways behind it.
    @EventLoopActor
    func testBothWaysGoOnAfterABrokerThatStoodStill() async throws {
        let broker = try await PrivateBroker.start()
        let subscriber = Recorder(settings(broker, "subscriber", .v5))
        try await subscriber.connect()
        subscriber.client.subscribe("sure")
        try await subscriber.monitor.wait("the subscription") { subscriber.subscribed == ["sure"] }
        let publisher = Recorder(settings(broker, "publisher", .v5))
        try await publisher.connect()
        broker.freeze()
        let large = [UInt8](repeating: 5, count: 1 << 19)
        var taken = 0
        for number in 0..<20 {
            publisher.client.publish("plain", [UInt8(number)])
            if case .sent = publisher.client.publish("sure", large, qos: .atLeastOnce) { taken += 1 }
            publisher.client.publish("plain", [UInt8](repeating: 1, count: 500))
        }
        XCTAssertEqual(taken, 20)
        XCTAssertGreaterThan(publisher.client.statistics.pendingBytes, 0, "the socket took all of it")
        broker.thaw()
        try await subscriber.monitor.wait("all that must arrive", within: .seconds(30)) {
            subscriber.messages.count == taken
        }
        await publisher.client.stop(flushWithin: .seconds(5))
        await subscriber.client.stop(flushWithin: .zero)
        await broker.stop()
    }
}
