import EnduranceKit
import XCTest

final class FramesTests: XCTestCase {
    /// QoS 1, topic "a/b", packet 7, one property (message expiry 1), payload "hi".
    private let publish: [UInt8] = [0x32, 15, 0, 3, 0x61, 0x2f, 0x62, 0, 7, 5, 2, 0, 0, 0, 1, 0x68, 0x69]

    func testAStreamInPieces() {
        var splitter = FrameSplitter()
        let stream = publish + [0x40, 2, 0, 7] + [0xc0, 0]
        var frames: [FrameSplitter.Frame] = []
        for byte in stream {
            splitter.append([byte])
            while let frame = splitter.next() { frames.append(frame) }
        }
        XCTAssertEqual(frames.map(\.header), [0x32, 0x40, 0xc0])
        XCTAssertTrue(splitter.isAtBoundary)
        splitter.append(publish.prefix(4))
        XCTAssertNil(splitter.next())
        XCTAssertFalse(splitter.isAtBoundary)
    }

    func testALongPacket() {
        var splitter = FrameSplitter()
        splitter.append([0x30, 0x80, 0x02] + [UInt8](repeating: 1, count: 256))
        XCTAssertEqual(splitter.next()?.body.count, 256)
        XCTAssertNil(splitter.next())
    }

    func testPublishAndItsAcknowledgement() throws {
        var splitter = FrameSplitter()
        splitter.append(publish)
        let message = try XCTUnwrap(splitter.next().flatMap { PublishFrame($0) })
        XCTAssertEqual(message.topic, "a/b")
        XCTAssertEqual([Int(message.qos), Int(message.packet)], [1, 7])
        XCTAssertEqual(message.payload, [0x68, 0x69])
        XCTAssertEqual(acknowledgement(.init(header: 0x40, body: [0, 7]))?.packet, 7)
        XCTAssertEqual(acknowledgement(.init(header: 0x40, body: [0, 7]))?.isTaken, true)
        XCTAssertEqual(acknowledgement(.init(header: 0x40, body: [0, 7, 0x97]))?.isTaken, false)
        XCTAssertNil(acknowledgement(.init(header: 0x32, body: [0, 7])))
    }

    func testBrokenPackets() {
        XCTAssertNil(PublishFrame(.init(header: 0x32, body: [0])))
        XCTAssertNil(PublishFrame(.init(header: 0x32, body: [0, 9, 1])))
        XCTAssertNil(PublishFrame(.init(header: 0x32, body: [0, 1, 0x61, 0, 1, 9])))
        XCTAssertNil(PublishFrame(.init(header: 0x40, body: [0, 7])))
    }
}
