import EventLoop
import XCTest

@testable import Bridge

final class OutboxTests: LoopTestCase {
    private func message(_ text: String) -> OutboxMessage { OutboxMessage(topic: text, payload: Array(text.utf8)) }

    @EventLoopActor
    func testOldestFirstAndWhatWasRemovedIsGone() async {
        let outbox = MemoryOutbox(limit: 10)
        for number in 0..<5 { outbox.enqueue(message("\(number)")) }
        var ids: [UInt64] = []
        var texts: [String] = []
        while let (id, message) = outbox.next(after: ids.last, in: .ordered) {
            ids.append(id)
            texts.append(String(decoding: message.payload, as: UTF8.self))
        }
        XCTAssertEqual(texts, ["0", "1", "2", "3", "4"])
        outbox.remove(ids[1])
        outbox.remove(ids[1])
        XCTAssertEqual(outbox.count, 4)
        XCTAssertEqual(outbox.next(after: ids[0], in: .ordered)?.id, ids[2])
        XCTAssertEqual(outbox.next(after: nil, in: .ordered)?.id, ids[0])
        XCTAssertEqual(outbox.dropped, 0)
    }

    @EventLoopActor
    func testBeyondTheLimitTheOldestGoAndAreCounted() async {
        let outbox = MemoryOutbox(limit: 3)
        for number in 0..<5000 { outbox.enqueue(message("\(number)")) }
        XCTAssertEqual(outbox.count, 3)
        XCTAssertEqual(outbox.dropped, 4997)
        XCTAssertEqual(outbox.next(after: nil, in: .ordered)?.message, message("4997"))
        let small = MemoryOutbox(limit: 1000, sizeLimit: 1000)
        for _ in 0..<100 { small.enqueue(message(String(repeating: "x", count: 100))) }
        XCTAssertLessThanOrEqual(small.count, 4)
        XCTAssertEqual(small.dropped, UInt64(100 - small.count))
    }

    @EventLoopActor
    func testNothingIsLostOverLongUse() async {
        let outbox = MemoryOutbox(limit: 100)
        var last: UInt64?
        for number in 0..<5000 {
            outbox.enqueue(message("\(number)"))
            guard let (id, next) = outbox.next(after: last, in: .ordered) else {
                return XCTFail("\(number) is missing")
            }
            XCTAssertEqual(next, message("\(number)"))
            outbox.remove(id)
            last = id
        }
        XCTAssertEqual(outbox.count, 0)
        XCTAssertEqual(outbox.dropped, 0)
    }

    @EventLoopActor
    func testNumbersOfMessagesInFlightAreBoundedAndOrderIsKept() async {
        let broker = FakeBroker()
        let clock = ManualClock()
        let publisher = Publisher(broker: broker, outbox: MemoryOutbox(limit: 1000), clock: clock)
        broker.acknowledgesAtOnce = false
        let relay = Relay(publisher)
        broker.delegate = relay
        broker.isConnected = true
        for number in 0..<250 { publisher.send(message("m/\(number)")) }
        XCTAssertEqual(broker.messages.count, 100)
        // The connection ends: what was not acknowledged goes again, first.
        publisher.disconnected()
        broker.unacknowledged = []
        broker.messages = []
        publisher.connected(first: [])
        for _ in 0..<100 where publisher.outbox.count > 0 {
            broker.acknowledge()
            clock.advance(by: .milliseconds(10))
        }
        XCTAssertEqual(broker.messages.map(\.topic), (0..<250).map { "m/\($0)" })
        XCTAssertEqual(publisher.outbox.count, 0)
    }

    @EventLoopActor
    func testStatesComeBackAfterAReconnectWithTheBirthFirst() async {
        let broker = FakeBroker()
        let publisher = Publisher(broker: broker, outbox: MemoryOutbox(limit: 1000), clock: ManualClock())
        broker.acknowledgesAtOnce = false
        let relay = Relay(publisher)
        broker.delegate = relay
        publisher.set("a", [1])
        publisher.set("status", [2])
        publisher.set("a", [3])
        broker.isConnected = true
        publisher.connected(first: ["status"])
        XCTAssertEqual(broker.messages.map(\.topic), ["status", "a"])
        broker.acknowledge()
        publisher.set("a", [3])
        XCTAssertEqual(broker.messages.count, 2, "an equal payload costs nothing")
        publisher.clear("a")
        XCTAssertEqual(broker.messages.last?.payload, "")
        publisher.disconnected()
        publisher.connected(first: ["status"])
        XCTAssertEqual(broker.messages.suffix(2).map(\.topic), ["status", "a"], "the removal was not acknowledged")
        broker.acknowledge()
        XCTAssertEqual(publisher.retainedTopics, ["status"])
    }

    @EventLoopActor
    func testAnswersWhoseTimeHasPassedAreNotSentLate() async {
        let broker = FakeBroker()
        let clock = ManualClock()
        let publisher = Publisher(broker: broker, outbox: MemoryOutbox(limit: 1000), clock: clock)
        let expires = WallTime(milliseconds: clock.wallNow.milliseconds + 2500)
        publisher.send(OutboxMessage(topic: "late", payload: [1], expires: expires))
        clock.advance(by: .seconds(1))
        broker.isConnected = true
        broker.acknowledgesAtOnce = false
        publisher.connected(first: [])
        XCTAssertEqual(broker.messages.first?.properties?.expiry, 2)
        publisher.disconnected()
        clock.advance(by: .seconds(2))
        publisher.connected(first: [])
        XCTAssertEqual(broker.messages.count, 1)
        XCTAssertEqual(publisher.counts.expired, 1)
        XCTAssertEqual(publisher.outbox.count, 0)
    }
}

/// Gives acknowledgements to a publisher.
@EventLoopActor
final class Relay: BrokerDelegate {
    private let publisher: Publisher
    init(_ publisher: Publisher) { self.publisher = publisher }
    func brokerDidConnect() {}
    func brokerDidDisconnect(reason: String, isSerious: Bool) {}
    func brokerDidReceive(_ message: InboundMessage) {}
    func brokerDidAcknowledge(token: UInt64) { publisher.acknowledged(token) }
}
