import EventLoop
import XCTest

@testable import MQTT

final class BackoffTests: XCTestCase {
    private func delays(_ code: MQTTFault.Code, _ count: Int) -> [Int64] {
        var backoff = Backoff()
        return (0..<count).map { _ in backoff.delay(after: code, share: 1).clampedMilliseconds }
    }

    func testUnreachableIsAskedAgainWithin1500Milliseconds() {
        XCTAssertEqual(delays(.unreachable, 10), [10, 20, 40, 80, 160, 320, 640, 1_280, 1_500, 1_500])
    }

    func testRefusalsAreGivenGrowingPeaceUpToFiveMinutes() {
        let seconds: [Int64] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300].map { $0 * 1_000 }
        XCTAssertEqual(delays(.notAuthorised, 11), seconds)
        XCTAssertEqual(delays(.takenOver, 11), seconds)
        XCTAssertEqual(delays(.tls, 8), [1, 2, 4, 8, 16, 32, 60, 60].map { $0 * 1_000 })
    }

    func testWaitsAreShortenedByChanceUpToHalf() {
        var backoff = Backoff()
        XCTAssertEqual(backoff.delay(after: .takenOver, share: 0).clampedMilliseconds, 500)
        let drawn = Set((0..<50).map { _ in backoff.delay(after: .notAuthorised) })
        XCTAssertGreaterThan(drawn.count, 10)
    }

    func testALongConnectionForgetsWhatWasBeforeIt() {
        var backoff = Backoff()
        for _ in 0..<6 { _ = backoff.delay(after: .unreachable, share: 1) }
        XCTAssertFalse(backoff.connectionEnded(.unreachable, lasted: .seconds(6)))
        XCTAssertEqual(backoff.delay(after: .unreachable, share: 1), .milliseconds(10))
        for _ in 0..<6 { _ = backoff.delay(after: .takenOver, share: 1) }
        // The last wait was 32 s, and the next is 64 s: a minute of peace is not enough to forget.
        _ = backoff.connectionEnded(.takenOver, lasted: .seconds(60))
        XCTAssertEqual(backoff.delay(after: .takenOver, share: 1), .seconds(64))
        _ = backoff.connectionEnded(.takenOver, lasted: .seconds(300))
        XCTAssertEqual(backoff.delay(after: .takenOver, share: 1), .seconds(1))
    }

    func testAnUnnamedTakeoverIsSuspectedAtTheFourthShortLife() {
        var backoff = Backoff()
        let short = Duration.milliseconds(300)
        for _ in 0..<3 { XCTAssertFalse(backoff.connectionEnded(.unreachable, lasted: short)) }
        XCTAssertTrue(backoff.connectionEnded(.unreachable, lasted: short))
    }

    func testABrokerThatRestartsIsNoTakeover() {
        var backoff = Backoff()
        for _ in 0..<10 {
            XCTAssertFalse(backoff.connectionEnded(.unreachable, lasted: .milliseconds(300)))
            backoff.attemptFailed(.unreachable)
        }
    }
}

final class QueueTests: XCTestCase {
    func testSizesComeOutInOrderThroughGrowthAndWrap() {
        var queue = SizeQueue()
        for size in 0..<50 { queue.append(size) }
        for _ in 0..<40 { queue.removeFirst() }
        for size in 50..<300 { queue.append(size) }
        XCTAssertEqual(queue.count, 260)
        XCTAssertEqual(queue.bytes, (40..<300).reduce(0, +))
        for size in 40..<300 {
            let before = queue.bytes
            queue.removeFirst()
            XCTAssertEqual(before - queue.bytes, size)
        }
        queue.removeFirst()
        XCTAssertEqual(queue.bytes, 0)
        XCTAssertEqual(queue.count, 0)
    }

    func testAnIdentifierThatStandsTwiceGivesTheOlderTokenFirst() {
        var queue = TokenQueue()
        queue.append(packet: 7, token: 1, size: 10)
        queue.append(packet: 8, token: 2, size: 20)
        queue.append(packet: 7, token: 3, size: 30)
        XCTAssertEqual(queue.remove(packet: 8)?.number, 2)
        XCTAssertEqual(queue.remove(packet: 7)?.number, 1)
        XCTAssertEqual(queue.bytes, 30)
        XCTAssertEqual(queue.remove(packet: 7)?.number, 3)
        XCTAssertNil(queue.remove(packet: 7))
        XCTAssertEqual(queue.count, 0)
        for token in 0..<5_000 { queue.append(packet: UInt16(token), token: UInt64(token), size: 1) }
        for token in 0..<3_000 { XCTAssertEqual(queue.remove(packet: UInt16(token))?.number, UInt64(token)) }
        XCTAssertEqual(queue.removeAll().map(\.number), Array(3_000..<5_000))
        XCTAssertEqual(queue.bytes, 0)
    }
}

final class FaultTests: XCTestCase {
    func testRefusalsOf311() {
        let codes = (1...6).map { Answer.refusal311(UInt8($0), clientID: "me").code }
        XCTAssertEqual(codes, [.refused, .refused, .unreachable, .notAuthorised, .notAuthorised, .protocolError])
        XCTAssertTrue(Answer.refusal311(4, clientID: "me").message.contains("bad user name or password"))
        XCTAssertTrue(Answer.refusal311(5, clientID: "me").message.contains("not authorised"))
        XCTAssertTrue(Answer.refusal311(2, clientID: "me").message.contains("client identifier rejected"))
    }

    func testRefusalsOf5() {
        let expected: [(UInt8, MQTTFault.Code)] = [
            (0x84, .refused), (0x85, .refused), (0x86, .notAuthorised), (0x87, .notAuthorised), (0x8a, .notAuthorised),
            (0x88, .unreachable), (0x89, .unreachable), (0x9f, .refused), (0x82, .protocolError), (0xff, .refused),
        ]
        for (code, class_) in expected {
            XCTAssertEqual(Answer.refusal5(code, said: nil, clientID: "me").code, class_, "\(code)")
        }
        let fault = Answer.refusal5(0x87, said: "go\u{1b}away\n", clientID: "me")
        XCTAssertTrue(fault.message.hasSuffix("(it says: goaway)"), fault.message)
    }

    func testGoodByesOf5() {
        XCTAssertEqual(Answer.disconnect(0x8e, clientID: "me").code, .takenOver)
        XCTAssertTrue(Answer.disconnect(0x8e, clientID: "me").message.contains("session taken over"))
        XCTAssertEqual(Answer.disconnect(0x8b, clientID: "me").code, .unreachable)
        XCTAssertEqual(Answer.disconnect(0x98, clientID: "me").code, .refused)
    }

    func testSecretsAreNotDescribed() {
        var settings = MQTTSettings(host: "broker", clientID: "me")
        settings.username = "user"
        settings.password = "s3cr3t"
        settings.tls = TLSSettings()
        settings.tls?.keyPassword = "s3cr3t"
        var dumped = ""
        dump(settings, to: &dumped)
        for text in ["\(settings)", String(reflecting: settings), dumped, "\(String(describing: settings.tls))"] {
            XCTAssertFalse(text.contains("s3cr3t"), text)
        }
    }
}
