import EventLoop
import Glibc
import TestKit
import XCTest

@testable import MQTT

/// Packets that are read and written past libmosquitto.
final class PlainPacketTests: BrokerTestCase {
    /// Two ends of a stream.
    private func pair() -> (Int32, Int32) {
        var ends: [Int32] = [-1, -1]
        XCTAssertEqual(socketpair(AF_UNIX, Int32(bitPattern: SOCK_STREAM.rawValue), 0, &ends), 0)
        return (ends[0], ends[1])
    }

    /// Writes the bytes in parts of a size; gives back the packets that come out, and whether what follows is none.
    private func packets(_ bytes: [UInt8], partsOf size: Int) throws -> (packets: [[UInt8]], isMalformed: Bool) {
        let (near, far) = pair()
        defer {
            close(near)
            close(far)
        }
        var inbound = InboundPackets()
        var found: [[UInt8]] = []
        for start in stride(from: 0, to: bytes.count, by: size) {
            let part = Array(bytes[start..<min(start + size, bytes.count)])
            XCTAssertEqual(write(far, part, part.count), part.count)
            while true {
                let (count, isFull) = inbound.fill(from: near)
                guard count > 0 else { break }
                search: while true {
                    switch inbound.next() {
                    case .packet(let first, let body): found.append([first] + Array(body.rest))
                    case .incomplete: break search
                    case .malformed: return (found, true)
                    }
                }
                if !isFull { break }
            }
        }
        return (found, false)
    }

    /// What a broker only says costs nothing.
    func testRoomIsMadeAsBytesCome() throws {
        let (near, far) = pair()
        defer {
            close(near)
            close(far)
        }
        var inbound = InboundPackets()
        let head: [UInt8] = [0x30, 0xff, 0xff, 0xff, 0x7f]
        XCTAssertEqual(write(far, head, head.count), head.count)
        var came = head.count
        for part in [3, 9_000, 60_000] {
            XCTAssertEqual(write(far, [UInt8](repeating: 1, count: part), part), part)
            came += part
            while inbound.fill(from: near).count > 0 {
                guard case .incomplete = inbound.next() else { return XCTFail("it is not complete") }
            }
            XCTAssertLessThanOrEqual(inbound.capacity, max(8 << 10, 4 * came))
        }
        XCTAssertGreaterThan(inbound.capacity, 60_000)
    }

    func testPacketsComeOutWholeHoweverTheyArrive() throws {
        var bytes: [UInt8] = []
        var expected: [[UInt8]] = []
        for (number, length) in [0, 1, 2, 127, 128, 300, 8_190, 8_191, 8_192, 20_000, 3, 0].enumerated() {
            let body = (0..<length).map { UInt8(truncatingIfNeeded: $0 &* 7 &+ number) }
            let high = length >> 7
            bytes.append(0x30)
            if high > 127 {
                bytes += [UInt8(length & 127) | 128, UInt8(high & 127) | 128, UInt8(high >> 7)]
            } else {
                bytes += high > 0 ? [UInt8(length & 127) | 128, UInt8(high)] : [UInt8(length)]
            }
            bytes += body
            expected.append([0x30] + body)
        }
        for size in [1, 3, 100, 4_096, bytes.count] {
            let result = try packets(bytes, partsOf: size)
            XCTAssertEqual(result.packets, expected, "\(size)")
            XCTAssertFalse(result.isMalformed)
        }
    }

    func testALengthOfFiveBytesIsNone() throws {
        let result = try packets([0xd0, 0, 0x30, 0x80, 0x80, 0x80, 0x80, 1], partsOf: 8)
        XCTAssertEqual(result.packets, [[0xd0]])
        XCTAssertTrue(result.isMalformed)
    }

    func testPropertiesComeBackAsTheyWent() {
        var properties = PublishProperties()
        properties.responseTopic = "answers/ü"
        properties.correlationData = [0, 1, 255]
        properties.messageExpiry = 0x0102_0304
        properties.contentType = "json"
        properties.userProperties = [.init(name: "a", value: "b"), .init(name: "a", value: "")]
        var queue = AcknowledgedQueue()
        queue.open(window: 1)
        let packet = Array("hello".utf8).withUnsafeBytes { payload in
            Array("t/1".utf8).withUnsafeBytes {
                queue.append(
                    topic: $0, payload: payload, retain: true, hasProperties: true, properties: properties)
            }
        }
        let bytes = Array(queue.bytes)
        XCTAssertEqual(bytes.first, 0x33)
        XCTAssertEqual(bytes.count, 2 + Int(bytes[1]))
        bytes.dropFirst(2).withContiguousStorageIfAvailable { rest in
            var cursor = PacketCursor(UnsafeRawBufferPointer(rest))
            XCTAssertEqual(cursor.text().map { Array($0) }, Array("t/1".utf8))
            XCTAssertEqual(cursor.uint16(), packet)
            XCTAssertEqual(PublishProperties(reading: &cursor), properties)
            XCTAssertEqual(Array(cursor.rest), Array("hello".utf8))
        }
    }

    func testWrongPropertiesAreNone() {
        let cases: [[UInt8]] = [
            [], [5, 1], [2, 1], [1, 2], [5, 2, 0, 0, 0], [3, 3, 0, 1], [4, 3, 0, 1, 0], [3, 35, 0, 1],
            [4, 38, 0, 0, 0],
            [0x80, 0x80, 0x80, 0x80, 0], [4, 8, 0, 1, 0xff], [2, 99, 0],
        ]
        for bytes in cases {
            bytes.withUnsafeBytes { bytes in
                var cursor = PacketCursor(bytes)
                XCTAssertNil(PublishProperties(reading: &cursor), "\(Array(bytes))")
            }
        }
    }

    func testSoManyLeaveAsMayBeUnacknowledged() {
        var queue = AcknowledgedQueue()
        queue.open(window: 2)
        var sizes: [Int] = []
        for number in 0..<5 {
            let before = queue.count
            let payload = [UInt8](repeating: 1, count: 10 + number)
            payload.withUnsafeBytes { payload in
                Array("t".utf8).withUnsafeBytes {
                    _ = queue.append(
                        topic: $0, payload: payload, retain: false, hasProperties: false, properties: nil)
                }
            }
            sizes.append(2 + 3 + 2 + 10 + number)
            XCTAssertEqual(queue.count - before, number < 2 ? sizes[number] : 0)
        }
        XCTAssertEqual(queue.count, sizes[0] + sizes[1])
        queue.acknowledged()
        XCTAssertEqual(queue.count, sizes[0] + sizes[1] + sizes[2])
        queue.removeFirst(queue.count)
        XCTAssertEqual(queue.count, 0)
        for _ in 0..<4 { queue.acknowledged() }
        XCTAssertEqual(queue.count, sizes[3] + sizes[4])
        queue.removeFirst(queue.count)
        XCTAssertEqual(queue.bytes.count, 0)
    }

    @EventLoopActor
    func testWhatTheProtocolDoesNotAllowEndsTheConnection() async throws {
        let wrong: [(bytes: [UInt8], code: MQTTFault.Code)] = [
            ([0x30, 0xff, 0xff, 0xff, 0xff, 1], .protocolError), ([0x30, 2, 0, 5], .protocolError),
            ([0x30, 2, 0, 0], .protocolError), ([0x30, 4, 0, 1, 0xff, 0], .protocolError),
            ([0x34, 6, 0, 1, 0x74, 0, 1, 0], .protocolError), ([0x32, 4, 0, 1, 0x74, 0], .protocolError),
            ([0x30, 4, 0, 1, 0x74, 9], .protocolError), ([0x40, 1, 0], .protocolError), ([0x90, 1, 0], .protocolError),
            ([0x20, 3, 0, 0, 0], .protocolError), ([0x10, 0], .protocolError), ([0xe0, 0], .unreachable),
        ]
        for (bytes, code) in wrong {
            let broker = try ScriptedBroker(answer: [0x20, 3, 0, 0, 0, 0xd0, 0] + bytes)
            let recorder = Recorder(MQTTSettings(host: "127.0.0.1", port: broker.port, clientID: "bridge"))
            recorder.client.start()
            let fault = try await recorder.fault()
            XCTAssertEqual(fault.code, code, "\(bytes): \(fault)")
            XCTAssertTrue(fault.wasConnected)
            await recorder.client.stop(flushWithin: .zero)
            broker.stop()
        }
    }
}
