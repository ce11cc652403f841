import EventLoop
import TestKit
import XCTest

@testable import MQTT

final class ReceiveMarkTests: BrokerTestCase {
    private func time(_ milliseconds: UInt64) -> MonotonicTime {
        MonotonicTime(nanoseconds: 1_000_000_000 + milliseconds * 1_000_000)
    }

    /// So many writes, one after each pause.
    private func write(_ mark: inout ReceiveMark, _ count: Int, pause: UInt64 = 1) {
        for number in 0..<UInt64(count) { mark.wrote(at: time((number + 1) * pause), after: time(number * pause)) }
    }

    func testItRisesForAStreamOfWritesThatIsAcknowledgedInAWideWindow() {
        var mark = ReceiveMark()
        XCTAssertFalse(mark.mayRise(window: 20, unacknowledged: 1))
        write(&mark, 7)
        XCTAssertFalse(mark.mayRise(window: 20, unacknowledged: 1))
        write(&mark, 1)
        XCTAssertTrue(mark.mayRise(window: 20, unacknowledged: 1))
        XCTAssertFalse(mark.mayRise(window: 20, unacknowledged: 0), "nothing is to come")
        XCTAssertFalse(mark.mayRise(window: 10, unacknowledged: 5), "so many never come")
    }

    func testAPauseOrAMessageToUsEndsTheStream() {
        var mark = ReceiveMark()
        write(&mark, 20)
        write(&mark, 1, pause: 3)
        XCTAssertFalse(mark.mayStay)
        write(&mark, 20)
        mark.received()
        XCTAssertFalse(mark.mayStay)
        XCTAssertFalse(mark.mayRise(window: 20, unacknowledged: 1))
    }

    func testWhoWaitsForSingleAcknowledgementsHasThemAtOnceMoreAndMoreOften() {
        var mark = ReceiveMark()
        mark.wasMissed()
        write(&mark, 15)
        XCTAssertFalse(mark.mayRise(window: 20, unacknowledged: 1))
        write(&mark, 1)
        XCTAssertTrue(mark.mayRise(window: 20, unacknowledged: 1))
        for _ in 0..<30 { mark.wasMissed() }
        write(&mark, 4_095)
        XCTAssertFalse(mark.mayRise(window: 20, unacknowledged: 1))
        mark.wasReached()
        XCTAssertTrue(mark.mayRise(window: 20, unacknowledged: 1))
    }

    // MARK: On a socket

    /// A client that writes so fast that its mark is up, and how many messages it has sent.
    @EventLoopActor
    private func raised(_ broker: ScriptedBroker) async throws -> (Recorder, Int) {
        let recorder = Recorder(MQTTSettings(host: "127.0.0.1", port: broker.port, clientID: "bridge"))
        try await recorder.connect()
        var sent = 0
        while recorder.client.connection?.mark.isRaised != true {
            XCTAssertLessThan(sent, 4_000, "the mark does not rise")
            if sent >= 4_000 { break }
            sent += 1
            recorder.client.publish("t", [1], qos: .atLeastOnce)
            await Task.yield()
        }
        return (recorder, sent)
    }

    @EventLoopActor
    private func end(_ recorder: Recorder, _ broker: ScriptedBroker) async {
        await recorder.client.stop(flushWithin: .zero)
        broker.stop()
    }

    @EventLoopActor
    func testSingleAcknowledgementsAreTakenThoughNothingElseComes() async throws {
        let broker = try ScriptedBroker(answer: [0x20, 3, 0, 0, 0])
        let (recorder, sent) = try await raised(broker)
        for number in 0..<min(sent, 7) {
            broker.send([0x40, 2, 0x10, UInt8(number)])
            await Task.yield()
        }
        try await recorder.monitor.wait("acknowledgements") { recorder.acknowledged.count == min(sent, 7) }
        XCTAssertEqual(recorder.client.connection?.mark.isRaised, false, "whoever wrote has paused")
        broker.send([0x40, 2, 0x10, 7])
        try await recorder.monitor.wait("the next") { recorder.acknowledged.count == min(sent, 8) }
        await end(recorder, broker)
    }

    @EventLoopActor
    func testTheShortRestOfAMessageComes() async throws {
        let broker = try ScriptedBroker(answer: [0x20, 3, 0, 0, 0])
        let (recorder, _) = try await raised(broker)
        let payload = [UInt8](repeating: 7, count: 60)
        let packet = [0x30, 65, 0, 2, 0x69, 0x6e, 0] + payload
        broker.send(Array(packet.dropLast(3)))
        let deadline = MonotonicTime.now + .seconds(10)
        while recorder.client.connection?.inbound.isInsidePacket == false, .now < deadline { await Task.yield() }
        XCTAssertEqual(recorder.client.connection?.inbound.isInsidePacket, true)
        broker.send(Array(packet.suffix(3)))
        try await recorder.monitor.wait("the message") { recorder.messages.map(\.payload) == [payload] }
        await end(recorder, broker)
    }

    @EventLoopActor
    func testTheEndOfTheConnectionIsNoticed() async throws {
        let broker = try ScriptedBroker(answer: [0x20, 3, 0, 0, 0])
        let (recorder, sent) = try await raised(broker)
        broker.stop()
        let fault = try await recorder.fault()
        XCTAssertEqual(fault.code, .unreachable)
        XCTAssertEqual(recorder.lost.count, sent, "nothing was acknowledged")
        await recorder.client.stop(flushWithin: .zero)
    }
}
