import EnduranceKit
import XCTest

/// One channel with a value each 40 ms from 1000 on, as the radio logs it.
private func notes(_ count: Int = 50) -> Notes {
    var notes = Notes()
    notes.sent = [(0..<count).map { SentValue(number: UInt32($0), at: 1000 + 40 * Double($0)) }]
    notes.peers = [[]]
    notes.transit = 100
    return notes
}

extension Notes {
    /// These numbers arrived, one after another.
    fileprivate mutating func arrive(_ numbers: some Sequence<Int>, epoch: String = "e", from sequence: UInt64 = 0) {
        for (index, number) in numbers.enumerated() {
            received.append(
                ReceivedValue(
                    channel: 0, epoch: epoch, sequence: sequence + UInt64(index), number: UInt32(number),
                    at: 2000 + Double(index)))
        }
    }
}

final class LedgerTests: XCTestCase {
    func testEverythingArrived() {
        var notes = notes()
        notes.arrive(0..<50)
        let count = Reckoning(notes)
        XCTAssertEqual(count.sent, 50)
        XCTAssertEqual(count.received, 50)
        XCTAssertEqual([count.lost, count.inFlight, count.unheard, count.doubled, count.disordered], [0, 0, 0, 0, 0])
    }

    func testAMissingValueIsLost() {
        var notes = notes()
        notes.arrive(Array(0..<20) + Array(21..<50))
        XCTAssertEqual(Reckoning(notes).lost, 1)
        XCTAssertEqual(Reckoning(notes).received, 49)
    }

    func testARepeatUnderTheSameSequenceIsNoDouble() {
        var notes = notes()
        notes.arrive(0..<50)
        notes.arrive(30..<50, from: 30)
        XCTAssertEqual(Reckoning(notes).repeated, 20)
        XCTAssertEqual(Reckoning(notes).doubled, 0)
        XCTAssertEqual(Reckoning(notes).disordered, 0)
    }

    func testTheSameValueUnderAnotherSequenceIsADouble() {
        var notes = notes()
        notes.arrive(0..<50)
        notes.arrive([49], from: 50)
        XCTAssertEqual(Reckoning(notes).doubled, 1)
        notes.arrive([48], epoch: "f")
        XCTAssertEqual(Reckoning(notes).doubled, 2)
    }

    /// A subscriber throws away what comes under a number it has had.
    func testANumberThatStandsForTwoValuesLosesTheSecond() {
        var notes = notes()
        notes.arrive(0..<25)
        notes.arrive(25..<50, from: 24)
        XCTAssertEqual(Reckoning(notes).lost, 1)
        XCTAssertEqual(Reckoning(notes).repeated, 1)
    }

    func testOutOfOrder() {
        var notes = notes()
        notes.arrive(Array(0..<10) + [11, 10] + Array(12..<50))
        XCTAssertEqual(Reckoning(notes).disordered, 1)
        XCTAssertEqual(Reckoning(notes).lost, 0)
    }

    func testAValueThatNobodySent() {
        var notes = notes()
        notes.arrive(0..<51)
        XCTAssertEqual(Reckoning(notes).unknown, 1)
    }

    func testWhatTheBrokerForgotIsTheBrokersOnlyWhereItMayForget() {
        var notes = notes()
        notes.arrive(0..<49)
        notes.acknowledged = [Notes.key(0, 49)]
        XCTAssertEqual(Reckoning(notes).lost, 1)
        notes.brokerForgets = true
        XCTAssertEqual(Reckoning(notes).lost, 0)
        XCTAssertEqual(Reckoning(notes).lostByBroker, 1)
        notes.acknowledged = []
        XCTAssertEqual(Reckoning(notes).lost, 1)
    }

    /// The fault from 2000 to 2400 (values 25 to 34), subscribed again at 2600: values from 40 on are owed.
    func testAFaultThatEndsWithANewSubscription() {
        var notes = notes()
        notes.faults = [FaultWindow(begins: 2000, ends: 2400, healing: .bySubscribing, allowance: 100)]
        notes.peers = [[PeerEvent(.subscribed, at: 900), PeerEvent(.subscribed, at: 2600)]]
        notes.arrive(Array(0..<23) + Array(40..<50))
        let count = Reckoning(notes)
        XCTAssertEqual(count.lost, 0)
        XCTAssertEqual(count.inFlight, 2)
        XCTAssertEqual(count.oldestInFlight, 80)
        XCTAssertEqual(count.unheard, 15)
        notes.received.removeAll { $0.number == 22 || $0.number == 40 }
        XCTAssertEqual(Reckoning(notes).lost, 2)
    }

    func testWithoutASubscriptionTheFirstValueThatIsHeardEndsTheSilence() {
        var notes = notes()
        notes.faults = [FaultWindow(begins: 2000, ends: 2400, healing: .bySubscribing, allowance: 0)]
        notes.arrive(Array(0..<25) + Array(38..<45) + Array(46..<50))
        XCTAssertEqual(Reckoning(notes).lost, 1)
        XCTAssertEqual(Reckoning(notes).unheard, 13)
    }

    func testAFreezeOwesWhatComesAfterIt() {
        var notes = notes()
        notes.faults = [FaultWindow(begins: 2000, ends: 2400, healing: .atTheEnd, allowance: 0)]
        notes.arrive(Array(0..<25) + Array(38..<50))
        XCTAssertEqual(Reckoning(notes).lost, 0)
        notes.received.removeAll { $0.number == 38 }
        XCTAssertEqual(Reckoning(notes).lost, 1)
    }

    func testAFaultElsewhereExcusesNothing() {
        var notes = notes()
        notes.faults = [FaultWindow(begins: 2000, ends: 2400, healing: .neverDeaf, allowance: 100)]
        notes.arrive(Array(0..<25) + Array(26..<50))
        XCTAssertEqual(Reckoning(notes).lost, 1)
    }

    func testALinkThatEnds() {
        var notes = notes()
        notes.peers = [[PeerEvent(.disconnected, at: 2000), PeerEvent(.subscribed, at: 2400)]]
        notes.arrive(Array(0..<24) + Array(35..<50))
        let count = Reckoning(notes)
        XCTAssertEqual(count.endedLinks, 1)
        XCTAssertEqual([count.lost, count.inFlight, count.unheard], [0, 1, 10])
    }

    func testALinkThatNobodyUsedAnyMoreWhenItEnded() {
        var notes = notes()
        notes.peers = [[PeerEvent(.disconnected, at: 2000), PeerEvent(.subscribed, at: 2400)]]
        notes.arrive(Array(0..<12) + Array(35..<50))
        XCTAssertEqual(Reckoning(notes).lost, 11)
        notes.deserted = 500
        let count = Reckoning(notes)
        XCTAssertEqual([count.lost, count.inFlight, count.unheard], [0, 1, 22])
    }

    func testCommands() {
        var count = CommandCount()
        count.add(answer: "ok", contradicted: false, acted: 1)
        count.add(answer: "ok", contradicted: false, acted: 2)
        count.add(answer: "ok", contradicted: true, acted: 0)
        count.add(answer: "outcome_unknown", contradicted: false, acted: 1)
        count.add(answer: "not_connected", contradicted: false, acted: 0)
        count.add(answer: nil, contradicted: false, acted: 0)
        XCTAssertEqual(count.asked, 6)
        XCTAssertEqual([count.once, count.twice, count.ok, count.unknown], [2, 1, 3, 1])
        XCTAssertEqual([count.unanswered, count.pretended, count.contradicted], [1, 1, 1])
        XCTAssertEqual(count.refused, ["not_connected": 1])
    }
}

final class LevelnessTests: XCTestCase {
    private func samples(_ memory: (Int) -> Int, files: (Int) -> Int = { _ in 20 }) -> [SoakSample] {
        (0...100).map { SoakSample(at: Double($0), memory: memory($0), files: files($0)) }
    }

    func testLevelAfterTheFirstFifth() {
        XCTAssertTrue(Levelness(samples { $0 < 20 ? 1 << 20 : 20 << 20 }).isLevel)
    }

    func testMemoryThatGrows() {
        XCTAssertFalse(Levelness(samples { $0 << 20 }).isLevel)
    }

    func testDescriptorsThatGrow() {
        XCTAssertFalse(Levelness(samples({ _ in 1 << 20 }, files: { $0 })).isLevel)
    }

    func testNothingMeasuredIsNotLevel() {
        XCTAssertFalse(Levelness([]).isLevel)
    }
}
