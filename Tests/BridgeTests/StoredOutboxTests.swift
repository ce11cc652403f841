import EventLoop
import Glibc
import Sandbox
import Store
import XCTest

@testable import Bridge

/// A state on the disk that a test opens, and opens again as it would be found after a crash.
@EventLoopActor
final class StoredRig {
    let directory: TemporaryDirectory
    let clock = ManualClock()
    let state: StoredState
    private(set) var warnings: [String] = []
    var path: String { directory.file("outbox.db") }

    init(
        _ directory: TemporaryDirectory? = nil, limit: Int = 100_000, sizeLimit: Int = 128 << 20
    ) async throws {
        self.directory = try directory ?? TemporaryDirectory(prefix: "blueferry-test")
        state = await StoredState.open(
            path: self.directory.file("outbox.db"), limit: limit, sizeLimit: sizeLimit, clock: clock)
        state.outbox.onWarning = { [weak self] _, message in self?.warnings.append(message) }
    }

    func outbox(file: StaticString = #filePath, line: UInt = #line) throws -> StoredOutbox {
        try XCTUnwrap(state.outbox as? StoredOutbox, file: file, line: line)
    }

    /// What was given so far is committed.
    func commit() async throws {
        for _ in 0..<3 {
            clock.advance(by: StateStore.tick)
            await settle()
        }
    }

    /// The worker has done what it was given, and the loop knows.
    func settle() async {
        for _ in 0..<3 {
            _ = await StateStore.run {}
            for _ in 0..<5 { await Task.yield() }
        }
    }

    /// The files as a SIGKILL at this moment would leave them.
    func crashImage() throws -> TemporaryDirectory {
        let image = try TemporaryDirectory(prefix: "blueferry-test")
        for name in ["outbox.db", "outbox.db-wal", "outbox.db.sequences"] {
            try copy(directory.file(name), to: image.file(name))
        }
        return image
    }

    private func copy(_ source: String, to target: String) throws {
        let input = open(source, O_RDONLY)
        guard input >= 0 else { return }
        let output = open(target, O_WRONLY | O_CREAT, 0o600)
        XCTAssertGreaterThanOrEqual(output, 0)
        var bytes = [UInt8](repeating: 0, count: 1 << 16)
        while true {
            let count = read(input, &bytes, bytes.count)
            guard count > 0 else { break }
            XCTAssertEqual(write(output, bytes, count), count)
        }
        close(input)
        close(output)
    }

    static func message(_ text: String, size: Int = 0) -> OutboxMessage {
        OutboxMessage(topic: "t", payload: Array(text.utf8) + [UInt8](repeating: 0x20, count: size))
    }

    static func text(_ message: OutboxMessage) -> String {
        String(decoding: message.payload.prefix { $0 != 0x20 }, as: UTF8.self)
    }

    /// Takes all that waits, in order, as a broker does that acknowledges at once.
    func drain(_ outbox: any Outbox) async -> [String] {
        var texts: [String] = []
        var misses = 0
        while outbox.count > 0, misses < 1000 {
            if let (id, message) = outbox.next(after: nil, in: .ordered) {
                misses = 0
                texts.append(Self.text(message))
                outbox.remove(id)
            } else {
                misses += 1
                await settle()
            }
        }
        return texts
    }
}

final class StoredOutboxTests: LoopTestCase {
    private func names(_ numbers: Range<Int>) -> [String] { numbers.map { "\($0)" } }

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
        XCTAssertEqual(texts.filter { $0 != "answer" }, names(0..<3 * StoredOutbox.window))
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
        XCTAssertEqual(texts, names(0..<20_100))
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
        XCTAssertEqual(texts, names(5000..<8000))
        let live = await rig.drain(outbox)
        XCTAssertEqual(live, names(5000..<8000))
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
        XCTAssertEqual(left, names(2000 - left.count..<2000))
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
        XCTAssertEqual(texts, names(0..<3000), "and comes once")
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
    func testAFullDiskIsOneWarningAndMemoryTakesOver() async throws {
        let rig = try await StoredRig()
        let outbox = try rig.outbox()
        for number in 0..<3000 { outbox.enqueue(StoredRig.message("\(number)", size: 500)) }
        try await rig.commit()
        XCTAssertLessThan(outbox.memory, 2 << 20)
        let epoch = outbox.epoch
        // As a full disk answers: SQLITE_FULL.
        try outbox.store.file.database.perform { connection in
            let pages = try connection.rows("PRAGMA page_count").first?.first
            guard case .int(let count)? = pages else { return XCTFail("no page count") }
            try connection.execute("PRAGMA max_page_count=\(count + 1)")
        }
        for number in 3000..<4000 {
            outbox.enqueue(StoredRig.message("\(number)", size: 500))
            if number % 100 == 0 { try await rig.commit() }
        }
        try await rig.commit()
        XCTAssertEqual(rig.warnings.count, 1, "\(rig.warnings)")
        XCTAssertTrue(rig.warnings.first?.contains("make room") == true, "\(rig.warnings)")
        XCTAssertTrue(rig.warnings.first?.contains(rig.path) == true, "\(rig.warnings)")
        XCTAssertNotNil(outbox.problem)
        XCTAssertFalse(outbox.store.isArmed)
        let texts = await rig.drain(outbox)
        XCTAssertEqual(texts, names(0..<4000))
        XCTAssertEqual(outbox.dropped, 0)
        XCTAssertEqual(outbox.epoch, epoch, "its numbers are kept in another file")
        // The bounds hold in memory too.
        for _ in 0..<40_000 { outbox.enqueue(StoredRig.message("x", size: 1000)) }
        XCTAssertLessThanOrEqual(outbox.memory, MemoryOutbox.sizeLimit)
        XCTAssertGreaterThan(outbox.dropped, 0)
        await outbox.close(within: .seconds(5))
    }

    @EventLoopActor
    func testADatabaseThatBreaksWhileItRunsIsSetAsideAtTheNextStart() async throws {
        let rig = try await StoredRig()
        let outbox = try rig.outbox()
        for number in 0..<12_000 { outbox.enqueue(StoredRig.message("\(number)", size: 500)) }
        try await rig.commit()
        let epoch = outbox.epoch
        XCTAssertGreaterThan(outbox.count, 11_000)
        try outbox.store.file.database.perform {
            _ = try $0.rows("PRAGMA wal_checkpoint(TRUNCATE)")
            try $0.execute("PRAGMA cache_size=1")
            try $0.execute("PRAGMA shrink_memory")
        }
        try scribble(over: rig.path)
        let texts = await rig.drain(outbox)
        XCTAssertEqual(texts.count + Int(outbox.dropped), 12_000, "what is lost is counted")
        XCTAssertEqual(texts, names(0..<texts.count))
        XCTAssertNotNil(outbox.problem)
        XCTAssertTrue(rig.warnings.contains { $0.contains(rig.path) }, "\(rig.warnings)")
        outbox.enqueue(StoredRig.message("after"))
        let after = await rig.drain(outbox)
        XCTAssertEqual(after, ["after"])
        await outbox.close(within: .seconds(5))
        let again = try await StoredRig(try rig.crashImage())
        XCTAssertEqual(again.warnings.count, 1)
        XCTAssertTrue(again.warnings.first?.contains(again.path + ".damaged") == true, "\(again.warnings)")
        XCTAssertEqual(access(again.path + ".damaged", F_OK), 0)
        XCTAssertNotEqual(again.state.outbox.epoch, epoch)
        XCTAssertEqual(again.state.outbox.count, 0)
        XCTAssertNil(again.state.outbox.problem)
        await again.state.outbox.close(within: .seconds(5))
    }

    private func scribble(over path: String) throws {
        let descriptor = open(path, O_RDWR)
        XCTAssertGreaterThanOrEqual(descriptor, 0)
        defer { close(descriptor) }
        let size = Int(lseek(descriptor, 0, SEEK_END))
        let noise = [UInt8](repeating: 0x55, count: 4096)
        for offset in stride(from: 4096, to: size, by: 4096) {
            XCTAssertEqual(pwrite(descriptor, noise, noise.count, offset), 4096)
        }
    }

    @EventLoopActor
    func testAFileThatIsNoneIsSetAside() async throws {
        let directory = try TemporaryDirectory(prefix: "blueferry-test")
        try directory.write("this is no database, and never was one\n", to: "outbox.db")
        let rig = try await StoredRig(directory)
        XCTAssertEqual(rig.warnings.count, 1)
        XCTAssertTrue(rig.warnings.first?.contains("outbox.db.damaged") == true, "\(rig.warnings)")
        try rig.outbox().enqueue(StoredRig.message("a"))
        try await rig.commit()
        XCTAssertEqual(try rig.outbox().store.commits, 1)
        await rig.state.outbox.close(within: .seconds(5))
    }

    @EventLoopActor
    func testTwoBridgesOnOneFile() async throws {
        let rig = try await StoredRig()
        let second = try await StoredRig(rig.directory)
        XCTAssertTrue(second.state.isHeldElsewhere)
        XCTAssertEqual(second.warnings.count, 1)
        XCTAssertTrue(second.warnings.first?.contains("another process (\(getpid()))") == true, "\(second.warnings)")
        second.state.outbox.enqueue(StoredRig.message("a"))
        let texts = await second.drain(second.state.outbox)
        XCTAssertEqual(texts, ["a"])
        try rig.outbox().enqueue(StoredRig.message("b"))
        try await rig.commit()
        XCTAssertNil(rig.state.outbox.problem)
        await rig.state.outbox.close(within: .seconds(5))
    }

    @EventLoopActor
    func testADirectoryIsMadeAndWhereItCannotBeMemoryTakesItsPlace() async throws {
        let directory = try TemporaryDirectory(prefix: "blueferry-test")
        let made = await StoredState.open(path: directory.file("new/outbox.db"), limit: 10, sizeLimit: 1000)
        XCTAssertNil(made.outbox.problem)
        XCTAssertNotNil(made.journal)
        await made.outbox.close(within: .seconds(5))
        for path in [directory.file("outbox.db"), directory.file("next/outbox.db"), directory.file("new/outbox.db")] {
            XCTAssertNil(StoredState.obstacle(at: path), path)
        }
        for path in [directory.file("a/b/outbox.db"), "/dev/null/outbox.db", "/proc/outbox.db"] {
            let state = await StoredState.open(path: path, limit: 10, sizeLimit: 1000)
            XCTAssertNil(state.journal)
            if path != "/proc/outbox.db" { XCTAssertNotNil(StoredState.obstacle(at: path), path) }
            XCTAssertFalse(state.isHeldElsewhere)
            var warnings: [String] = []
            state.outbox.onWarning = { _, message in warnings.append(message) }
            XCTAssertEqual(warnings.count, 1)
            XCTAssertTrue(warnings.first?.contains(path) == true, "\(warnings)")
            XCTAssertTrue(warnings.first?.contains("in memory only") == true, "\(warnings)")
            XCTAssertNotNil(state.outbox.problem)
            state.outbox.enqueue(StoredRig.message("a"))
            XCTAssertEqual(state.outbox.count, 1)
        }
    }

    @EventLoopActor
    func testAnEndCommitsWhatIsLeft() async throws {
        let rig = try await StoredRig()
        for number in 0..<2500 { try rig.outbox().enqueue(StoredRig.message("\(number)")) }
        await rig.state.outbox.close(within: .seconds(5))
        let again = try await StoredRig(rig.directory)
        let texts = await again.drain(again.state.outbox)
        XCTAssertEqual(texts.count, 2500)
        XCTAssertTrue(texts == names(0..<2500))
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
