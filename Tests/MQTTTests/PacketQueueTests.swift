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

/// Messages of QoS 1 that leave past libmosquitto, and their acknowledgements.
final class AcknowledgedPacketsTests: XCTestCase {
    private func append(
        _ packets: inout AcknowledgedPackets, _ topic: String, _ payload: [UInt8], retain: Bool = false,
        properties: [UInt8]? = nil, limit: Int = 10
    ) -> UInt16? {
        Array(topic.utf8).withUnsafeBytes { topic in
            payload.withUnsafeBytes {
                packets.append(topic: topic, payload: $0, retain: retain, properties: properties, limit: limit)
            }
        }
    }

    func testBytesOfAPacket() {
        var packets = AcknowledgedPackets()
        XCTAssertEqual(append(&packets, "a/b", [1, 2]), 0x8001)
        XCTAssertEqual(append(&packets, "ü", [], retain: true, properties: []), 0x8002)
        XCTAssertEqual(append(&packets, "c", [3], properties: [2, 0, 0, 0, 9]), 0x8003)
        let expected: [UInt8] =
            [0x32, 9, 0, 3, 0x61, 0x2f, 0x62, 0x80, 1, 1, 2] + [0x33, 7, 0, 2, 0xc3, 0xbc, 0x80, 2, 0]
            + [0x32, 12, 0, 1, 0x63, 0x80, 3, 5, 2, 0, 0, 0, 9, 3]
        XCTAssertEqual(Array(packets.out.bytes), expected)
        XCTAssertNil(append(&packets, String(repeating: "a", count: 65_536), []))
        XCTAssertEqual(Array(packets.out.bytes), expected)
    }

    func testMoreThanTheBrokerTakesWaitsInOrder() {
        var packets = AcknowledgedPackets()
        var payloads: [UInt8] = []
        for number: UInt8 in 0..<50 { XCTAssertNotNil(append(&packets, "t", [number], limit: 3)) }
        for _ in 0..<60 {
            while packets.out.count > 0 {
                payloads.append(packets.out.bytes[7])
                XCTAssertTrue(packets.out.count % 8 == 0 && packets.out.count <= 24)
                packets.out.removeFirst(8)
            }
            packets.acknowledged(limit: 3)
        }
        XCTAssertEqual(payloads, Array(0..<50))
    }

    func testIdentifiersStayInTheirHalf() {
        var packets = AcknowledgedPackets()
        var seen: Set<UInt16> = []
        for _ in 0..<40_000 {
            if let identifier = append(&packets, "t", []) { seen.insert(identifier) }
            packets.out.removeFirst(packets.out.count)
            packets.acknowledged(limit: 10)
        }
        XCTAssertEqual(seen.min(), 0x8000)
        XCTAssertEqual(seen.max(), 0xffff)
        XCTAssertEqual(seen.count, 0x8000)
    }

    func testAcknowledgementsAreReadInWhateverPieces() throws {
        let words: [UInt8] = [0x40, 0x86, 1, 0x80, 3, 0x97] + [UInt8](repeating: 0x40, count: 131)
        let all: [UInt8] = [0x40, 2, 0x80, 1, 0x40, 3, 0x80, 2, 0x10] + words + [0x40, 4, 0x80, 4, 0, 0, 0xd0, 0]
        for size in 1...all.count {
            var reader = AcknowledgementReader()
            var seen: [String] = []
            var start = 0
            var isOther = false
            while start < all.count, !isOther {
                let piece = Array(all[start..<min(start + size, all.count)])
                try piece.withUnsafeBytes { bytes in
                    var place = 0
                    while let (identifier, reason) = try reader.next(bytes, &place) {
                        seen.append("\(identifier) \(reason)")
                    }
                    isOther = place < bytes.count
                    start += place
                }
            }
            XCTAssertEqual(seen, ["32769 0", "32770 16", "32771 151", "32772 0"], "pieces of \(size)")
            XCTAssertTrue(isOther)
            XCTAssertEqual(start, all.count - 2, "PINGRESP is for another")
            XCTAssertFalse(reader.isInside)
        }
    }

    func testAPacketThatMQTTDoesNotAllowIsAFault() {
        for bytes: [UInt8] in [[0x40, 1, 0], [0x40, 0], [0x40, 0x80, 0x80, 0x80, 0x80, 1]] {
            var reader = AcknowledgementReader()
            var place = 0
            do {
                let item = try bytes.withUnsafeBytes { try reader.next($0, &place) }
                XCTFail("\(String(describing: item))")
            } catch {
                XCTAssertEqual((error as? MQTTFault)?.code, .protocolError)
            }
        }
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
