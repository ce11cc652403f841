import Bluetooth
import Glibc
import XCTest

@testable import CoreBluetooth

final class ChannelTests: XCTestCase {
    private func makePair() throws -> (CBL2CAPChannel, Int32) {
        var ends: [Int32] = [0, 0]
        XCTAssertEqual(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends), 0)
        let peer = CBPeer(identifier: UUID())
        return (CBL2CAPChannel(peer: peer, psm: 0x81, socket: ends[0]), ends[1])
    }

    func testStreamsReadWriteAndEnd() throws {
        let (channel, far) = try makePair()
        XCTAssertEqual(channel.psm, 0x81)
        let input = try XCTUnwrap(channel.inputStream)
        let output = try XCTUnwrap(channel.outputStream)
        XCTAssertEqual(input.streamStatus, .notOpen)
        input.open()
        output.open()
        XCTAssertFalse(input.hasBytesAvailable)
        XCTAssertTrue(output.hasSpaceAvailable)
        XCTAssertEqual(output.write([1, 2, 3], maxLength: 3), 3)
        var buffer = [UInt8](repeating: 0, count: 8)
        XCTAssertEqual(Glibc.read(far, &buffer, 8), 3)
        XCTAssertEqual(Array(buffer.prefix(3)), [1, 2, 3])
        XCTAssertEqual(Glibc.write(far, [UInt8]([7, 8]), 2), 2)
        XCTAssertTrue(input.hasBytesAvailable)
        XCTAssertEqual(input.read(&buffer, maxLength: 8), 2)
        XCTAssertEqual(Array(buffer.prefix(2)), [7, 8])
        Glibc.close(far)
        XCTAssertEqual(input.read(&buffer, maxLength: 8), 0)
        XCTAssertEqual(input.streamStatus, .atEnd)
        XCTAssertEqual(output.write([1], maxLength: 1), -1)
        XCTAssertEqual(output.streamStatus, .error)
        XCTAssertNotNil(output.streamError)
    }

    func testChannelClosesWithBothStreams() throws {
        let (channel, far) = try makePair()
        defer { Glibc.close(far) }
        channel.inputStream.open()
        channel.outputStream.open()
        channel.inputStream.close()
        XCTAssertEqual(channel.outputStream.write([5], maxLength: 1), 1)
        channel.outputStream.close()
        var buffer = [UInt8](repeating: 0, count: 8)
        XCTAssertEqual(Glibc.read(far, &buffer, 8), 1)
        XCTAssertEqual(Glibc.read(far, &buffer, 8), 0)
    }

    func testStreamDelegateIsToldInTheRunLoop() throws {
        final class Listener: NSObject, StreamDelegate {
            var events: [Stream.Event] = []
            var bytes: [UInt8] = []
            func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
                events.append(eventCode)
                guard eventCode == .hasBytesAvailable, let input = aStream as? InputStream else { return }
                var buffer = [UInt8](repeating: 0, count: 8)
                let count = input.read(&buffer, maxLength: 8)
                if count > 0 { bytes += buffer.prefix(count) }
            }
        }
        let (channel, far) = try makePair()
        let listener = Listener()
        let input = try XCTUnwrap(channel.inputStream)
        input.delegate = listener
        input.schedule(in: .current, forMode: .default)
        input.open()
        XCTAssertEqual(Glibc.write(far, [UInt8]([7]), 1), 1)
        let deadline = Date(timeIntervalSinceNow: 10)
        while listener.bytes.count < 1, Date() < deadline {
            _ = RunLoop.current.run(mode: .default, before: Date(timeIntervalSinceNow: 0.05))
        }
        XCTAssertEqual(Glibc.write(far, [UInt8]([8]), 1), 1)
        Glibc.close(far)
        while !listener.events.contains(.endEncountered), Date() < deadline {
            _ = RunLoop.current.run(mode: .default, before: Date(timeIntervalSinceNow: 0.05))
        }
        XCTAssertEqual(listener.bytes, [7, 8])
        XCTAssertEqual(listener.events.first, .openCompleted)
        XCTAssertEqual(
            listener.events.last, .endEncountered, "\(listener.events.map(\.rawValue)) \(input.streamStatus.rawValue)")
    }
}
