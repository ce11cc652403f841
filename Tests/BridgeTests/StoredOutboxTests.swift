import EventLoop
import Glibc
import Sandbox
import Store
import XCTest

@testable import Bridge

final class StoredOutboxTests: LoopTestCase {
    /// Of many answers those that pass are bounded; the rest waits in the order of all, and comes back from the disk.
    @EventLoopActor
    func testMoreAnswersThanMayPassAreKeptInOrder() async throws {
        let rig = try await StoredRig()
        let outbox = try rig.outbox()
        for number in 0..<3 * StoredOutbox.window {
            outbox.enqueue(StoredRig.message("\(number)"))
            var answer = StoredRig.message("answer")
            answer.lane = .prompt
            outbox.enqueue(answer)
        }
        try await rig.commit()
        while let (id, _) = outbox.next(after: nil, in: .prompt) { outbox.remove(id) }
        let texts = await rig.drain(outbox)
        XCTAssertEqual(texts.filter { $0 != "answer" }, StoredRig.names(0..<3 * StoredOutbox.window))
        XCTAssertEqual(texts.count { $0 == "answer" }, 3 * StoredOutbox.window - StateFile.promptLimit)
        XCTAssertEqual(outbox.dropped, 0)
        XCTAssertEqual(rig.warnings, [])
    }

    @EventLoopActor
    func testWhatIsAcknowledgedSoonIsNeverWritten() async throws {
        let rig = try await StoredRig()
        let outbox = try rig.outbox()
        for round in 0..<50 {
            outbox.enqueue(StoredRig.message("\(round)"))
            rig.clock.advance(by: .milliseconds(7))
            let next = try XCTUnwrap(outbox.next(after: nil, in: .ordered))
            outbox.remove(next.id)
        }
        try await rig.commit()
        XCTAssertEqual(outbox.store.commits, 0)
        XCTAssertFalse(outbox.store.isArmed, "nothing to commit, and the loop wakes up for it")
        XCTAssertEqual(outbox.count, 0)
        await outbox.close(within: .seconds(5))
    }

    @EventLoopActor
    func testWhatIsNotAcknowledgedIsCommittedOnceAndSurvivesACrash() async throws {
        let rig = try await StoredRig()
        let outbox = try rig.outbox()
        for number in 0..<5 { outbox.enqueue(StoredRig.message("\(number)")) }
        rig.clock.advance(by: StateStore.tick)
        await rig.settle()
        XCTAssertEqual(outbox.store.commits, 0, "too early")
        rig.clock.advance(by: StateStore.tick)
        await rig.settle()
        XCTAssertEqual(outbox.store.commits, 1, "one commit for all")
        XCTAssertEqual(outbox.store.messagesWritten, 5)
        let first = try XCTUnwrap(outbox.next(after: nil, in: .ordered))
        outbox.remove(first.id)
        try await rig.commit()
        outbox.enqueue(StoredRig.message("too young"))
        let image = try rig.crashImage()
        let again = try await StoredRig(image)
        let next = try again.outbox()
        XCTAssertEqual(next.count, 4)
        next.enqueue(StoredRig.message("new"))
        let texts = await again.drain(next)
        XCTAssertEqual(texts, ["1", "2", "3", "4", "new"])
        await next.close(within: .seconds(5))
        let empty = try await StoredRig(image)
        XCTAssertEqual(empty.state.outbox.count, 0)
        XCTAssertEqual(empty.warnings, [])
        await empty.state.outbox.close(within: .seconds(5))
        await outbox.close(within: .seconds(5))
    }

    @EventLoopActor
    func testWhatIsAcknowledgedDuringItsCommitGoesWithTheNext() async throws {
        let rig = try await StoredRig()
        let outbox = try rig.outbox()
        outbox.enqueue(StoredRig.message("a"))
        rig.clock.advance(by: StateStore.tick)
        // The commit runs on the worker from here on, and its end is not known before this function waits.
        rig.clock.advance(by: StateStore.tick)
        let next = try XCTUnwrap(outbox.next(after: nil, in: .ordered))
        outbox.remove(next.id)
        try await rig.commit()
        XCTAssertEqual(outbox.store.messagesWritten, 1)
        XCTAssertEqual(outbox.store.commits, 2)
        let again = try await StoredRig(try rig.crashImage())
        XCTAssertEqual(again.state.outbox.count, 0)
        await again.state.outbox.close(within: .seconds(5))
        await outbox.close(within: .seconds(5))
    }

    @EventLoopActor
    func testALongQueueIsOnTheDiskAndComesBackInOrder() async throws {
        let rig = try await StoredRig()
        let outbox = try rig.outbox()
        var largest = 0
        for number in 0..<20_000 {
            outbox.enqueue(StoredRig.message("\(number)", size: 150))
            if number % 50 == 49 {
                rig.clock.advance(by: StateStore.tick)
                await rig.settle()
                largest = max(largest, outbox.memory)
            }
        }
        try await rig.commit()
        XCTAssertLessThan(largest, 2 << 20)
        XCTAssertEqual(outbox.count, 20_000)
        XCTAssertEqual(outbox.bytes, (0..<20_000).reduce(0) { $0 + StoredRig.message("\($1)", size: 150).size })
        // The queue goes on growing while it is sent.
        var texts: [String] = []
        for number in 20_000..<20_100 {
            outbox.enqueue(StoredRig.message("\(number)"))
            for _ in 0..<100 {
                guard let (id, message) = outbox.next(after: nil, in: .ordered) else { break }
                texts.append(StoredRig.text(message))
                outbox.remove(id)
            }
            rig.clock.advance(by: StateStore.tick)
            await rig.settle()
        }
        texts += await rig.drain(outbox)
        XCTAssertEqual(texts, StoredRig.names(0..<20_100))
        XCTAssertEqual(outbox.bytes, 0)
        XCTAssertEqual(outbox.dropped, 0)
        try await rig.commit()
        let again = try await StoredRig(try rig.crashImage())
        XCTAssertEqual(again.state.outbox.count, 0)
        await again.state.outbox.close(within: .seconds(5))
        await outbox.close(within: .seconds(5))
        var status = stat()
        XCTAssertEqual(stat(rig.path, &status), 0)
        XCTAssertLessThan(status.st_size, 1 << 20, "the file keeps what it does not need")
    }

    @EventLoopActor
    func testWhenFullTheOldestGoInMemoryAndOnTheDisk() async throws {
        let rig = try await StoredRig(limit: 3000)
        let outbox = try rig.outbox()
        for number in 0..<8000 {
            outbox.enqueue(StoredRig.message("\(number)"))
            if number % 400 == 0 {
                rig.clock.advance(by: StateStore.tick)
                await rig.settle()
            }
        }
        try await rig.commit()
        XCTAssertEqual(outbox.count, 3000)
        XCTAssertEqual(outbox.dropped, 5000)
        let again = try await StoredRig(try rig.crashImage())
        let reopened = try again.outbox()
        XCTAssertEqual(reopened.count, 3000)
        let texts = await again.drain(reopened)
        XCTAssertEqual(texts, StoredRig.names(5000..<8000))
        let live = await rig.drain(outbox)
        XCTAssertEqual(live, StoredRig.names(5000..<8000))
        await reopened.close(within: .seconds(5))
        await outbox.close(within: .seconds(5))
        // A limit that became smaller, and one of bytes.
        let full = try await StoredRig()
        for number in 0..<2000 { try full.outbox().enqueue(StoredRig.message("\(number)", size: 1000)) }
        try await full.commit()
        let small = try await StoredRig(try full.crashImage(), limit: 500, sizeLimit: 300_000)
        let left = await small.drain(small.state.outbox)
        XCTAssertEqual(left.last, "1999")
        XCTAssertLessThanOrEqual(left.count, 500)
        XCTAssertEqual(small.state.outbox.dropped, UInt64(2000 - left.count))
        XCTAssertEqual(left, StoredRig.names(2000 - left.count..<2000))
        await small.state.outbox.close(within: .seconds(5))
        await full.state.outbox.close(within: .seconds(5))
    }

    @EventLoopActor
    func testAnswersPassWhatWasKept() async throws {
        let rig = try await StoredRig()
        let outbox = try rig.outbox()
        for number in 0..<3000 { outbox.enqueue(StoredRig.message("\(number)")) }
        try await rig.commit()
        let expires = WallTime(milliseconds: rig.clock.wallNow.milliseconds + 10_000)
        outbox.enqueue(
            OutboxMessage(
                topic: "a", payload: Array("answer".utf8), responseCorrelation: [1], expires: expires, lane: .prompt))
        let prompt = try XCTUnwrap(outbox.next(after: nil, in: .prompt))
        XCTAssertEqual(StoredRig.text(prompt.message), "answer")
        try await rig.commit()
        let image = try rig.crashImage()
        let again = try await StoredRig(image)
        let kept = try XCTUnwrap(again.state.outbox.next(after: nil, in: .prompt))
        XCTAssertEqual(kept.message, prompt.message)
        again.state.outbox.remove(kept.id)
        let texts = await again.drain(again.state.outbox)
        XCTAssertEqual(texts, StoredRig.names(0..<3000), "and comes once")
        outbox.remove(prompt.id)
        try await rig.commit()
        let later = try await StoredRig(try rig.crashImage())
        XCTAssertNil(later.state.outbox.next(after: nil, in: .prompt))
        for state in [again, later, rig] { await state.state.outbox.close(within: .seconds(5)) }
    }

    @EventLoopActor
    func testNumbersGoOnAfterAKillAndAfterAnEnd() async throws {
        let rig = try await StoredRig()
        let outbox = try rig.outbox()
        let channel = ValueChannel(topic: "c/1")
        let other = ValueChannel(topic: "c/2")
        for number in 0..<100 {
            XCTAssertEqual(outbox.nextNumber(of: channel), ValueNumber(epoch: outbox.epoch, sequence: UInt64(number)))
        }
        XCTAssertEqual(outbox.nextNumber(of: other).sequence, 0)
        // Killed: nothing was committed, and none is used twice nor left out.
        let image = try rig.crashImage()
        let killed = try await StoredRig(image)
        let same = ValueChannel(topic: "c/1")
        XCTAssertEqual(killed.state.outbox.nextNumber(of: same), ValueNumber(epoch: outbox.epoch, sequence: 100))
        await killed.state.outbox.close(within: .seconds(5))
        let ended = try await StoredRig(image)
        let third = ValueChannel(topic: "c/1")
        XCTAssertEqual(ended.state.outbox.nextNumber(of: third), ValueNumber(epoch: outbox.epoch, sequence: 101))
        ended.state.outbox.renewEpoch()
        XCTAssertNotEqual(ended.state.outbox.epoch, outbox.epoch)
        XCTAssertEqual(ended.state.outbox.nextNumber(of: third).sequence, 0)
        await ended.state.outbox.close(within: .seconds(5))
        await outbox.close(within: .seconds(5))
    }

    @EventLoopActor
    func testAnEndCommitsWhatIsLeft() async throws {
        let rig = try await StoredRig()
        for number in 0..<2500 { try rig.outbox().enqueue(StoredRig.message("\(number)")) }
        await rig.state.outbox.close(within: .seconds(5))
        let again = try await StoredRig(rig.directory)
        let texts = await again.drain(again.state.outbox)
        XCTAssertEqual(texts.count, 2500)
        XCTAssertTrue(texts == StoredRig.names(0..<2500))
        await again.state.outbox.close(within: .seconds(5))
    }

    /// Whatever happens in whatever order: what was committed and not acknowledged is there after a crash, once and in
    /// order, and what was acknowledged is not sent in this run again.
    @EventLoopActor
    func testAnyCourseOfEventsKeepsWhatItMust() async throws {
        var random = SystemRandomNumberGenerator()
        for round in 0..<12 {
            var directory = try TemporaryDirectory(prefix: "blueferry-test")
            var waiting: [Int] = []
            var number = 0
            for life in 0..<4 {
                let rig = try await StoredRig(directory)
                let outbox = try rig.outbox()
                // Of those that a crash may bring back, each was sent before.
                var acknowledged: Set<Int> = []
                var safe = waiting
                var last: UInt64?
                for _ in 0..<Int.random(in: 5...60, using: &random) {
                    switch Int.random(in: 0..<5, using: &random) {
                    case 0, 1:
                        for _ in 0..<Int.random(in: 1...300, using: &random) {
                            outbox.enqueue(StoredRig.message("\(number)", size: 100))
                            waiting.append(number)
                            number += 1
                        }
                    case 2:
                        for _ in 0..<Int.random(in: 1...400, using: &random) {
                            guard let (id, message) = outbox.next(after: nil, in: .ordered) else { break }
                            let text = try XCTUnwrap(Int(StoredRig.text(message)))
                            XCTAssertEqual(text, waiting.first, "round \(round), life \(life)")
                            XCTAssertGreaterThan(id, last ?? 0)
                            last = id
                            outbox.remove(id)
                            acknowledged.insert(text)
                            waiting.removeFirst()
                        }
                    case 3: rig.clock.advance(by: StateStore.tick)
                    default:
                        try await rig.commit()
                        safe = waiting
                    }
                    if Bool.random(using: &random) { await rig.settle() }
                }
                let image = try rig.crashImage()
                await outbox.close(within: .seconds(5))
                let again = try await StoredRig(image)
                let found = (await again.drain(again.state.outbox)).compactMap { Int($0) }
                XCTAssertEqual(found, found.sorted(), "order")
                XCTAssertEqual(Set(found).count, found.count, "once")
                let missing = Set(safe).subtracting(acknowledged).subtracting(found)
                XCTAssertEqual(missing, [], "round \(round), life \(life): committed and lost")
                await again.state.outbox.close(within: .seconds(5))
                // The next life goes on where an orderly end left this one.
                directory = rig.directory
            }
        }
    }

    @EventLoopActor
    func testThePaceOfWhatWasKept() async {
        var pace = Pace(perSecond: 1000, burst: 10)
        let start = MonotonicTime(nanoseconds: 5_000_000_000)
        XCTAssertEqual((0..<100).filter { _ in pace.take(at: start) }.count, 11)
        XCTAssertEqual((0..<100).filter { _ in pace.take(at: start + .milliseconds(5)) }.count, 5)
        XCTAssertEqual((0..<100).filter { _ in pace.take(at: start + .seconds(9)) }.count, 11, "no credit for silence")
    }
}
