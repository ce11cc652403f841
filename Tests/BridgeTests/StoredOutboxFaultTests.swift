import EventLoop
import Glibc
import Sandbox
import Store
import XCTest

@testable import Bridge

/// Disks that are full, files that are damaged, and places that cannot be used.
final class StoredOutboxFaultTests: LoopTestCase {
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
        XCTAssertEqual(texts, StoredRig.names(0..<4000))
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
        XCTAssertEqual(texts, StoredRig.names(0..<texts.count))
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

    // MARK: Commits that are gone

    /// A state with two pages of commits in its log and one in the database proper, as a SIGKILL leaves it.
    @EventLoopActor
    private func killed() async throws -> (image: TemporaryDirectory, epoch: UInt32) {
        let rig = try await StoredRig()
        let outbox = try rig.outbox()
        for number in 0..<3 {
            outbox.enqueue(StoredRig.message("\(number)"))
            try await rig.commit()
            if number == 0 {
                try outbox.store.file.database.perform { _ = try $0.rows("PRAGMA wal_checkpoint(TRUNCATE)") }
            }
        }
        XCTAssertEqual(outbox.store.commits, 3)
        let image = try rig.crashImage()
        let epoch = outbox.epoch
        await outbox.close(within: .seconds(5))
        return (image, epoch)
    }

    @EventLoopActor
    func testNothingIsSaidAfterAPlainKillOrAnOrderlyEnd() async throws {
        let (image, epoch) = try await killed()
        for _ in 0..<2 {
            let again = try await StoredRig(image)
            XCTAssertEqual(again.warnings, [])
            XCTAssertEqual(again.state.outbox.epoch, epoch)
            XCTAssertEqual(again.state.outbox.count, 3)
            await again.state.outbox.close(within: .seconds(5))
        }
    }

    /// SQLite takes a log that makes no sense for one that was never finished, and says nothing.
    @EventLoopActor
    func testALogOfGarbageIsTold() async throws {
        let (image, epoch) = try await killed()
        try scribble(over: image.file("outbox.db-wal"))
        try await expectLoss(of: 2, in: image, former: epoch, left: ["0"])
    }

    @EventLoopActor
    func testALogThatIsGoneIsTold() async throws {
        let (image, epoch) = try await killed()
        XCTAssertEqual(unlink(image.file("outbox.db-wal")), 0)
        try await expectLoss(of: 2, in: image, former: epoch, left: ["0"])
    }

    @EventLoopActor
    func testADatabaseThatIsGoneOrCutOffIsTold() async throws {
        for isCut in [false, true] {
            let (image, epoch) = try await killed()
            let path = image.file("outbox.db")
            unlink(path + "-wal")
            XCTAssertEqual(isCut ? truncate(path, 0) : unlink(path), 0)
            try await expectLoss(of: 3, in: image, former: epoch, left: [])
        }
    }

    /// Once: the next start is as any other.
    @EventLoopActor
    private func expectLoss(
        of count: Int, in image: TemporaryDirectory, former: UInt32, left: [String],
        file: StaticString = #filePath, line: UInt = #line
    ) async throws {
        let again = try await StoredRig(image)
        XCTAssertEqual(again.warnings.count, 1, "\(again.warnings)", file: file, line: line)
        let warning = again.warnings.first ?? ""
        let said = "\(again.path) lacks its last \(count) commits"
        XCTAssertTrue(warning.contains(said), warning, file: file, line: line)
        let outbox = try again.outbox()
        let epoch = outbox.epoch
        XCTAssertNotEqual(epoch, former, file: file, line: line)
        XCTAssertNil(outbox.problem, file: file, line: line)
        let texts = await again.drain(outbox)
        XCTAssertEqual(texts, left, file: file, line: line)
        outbox.enqueue(StoredRig.message("next"))
        try await again.commit()
        let second = try again.crashImage()
        await outbox.close(within: .seconds(5))
        let third = try await StoredRig(second)
        XCTAssertEqual(third.warnings, [], file: file, line: line)
        XCTAssertEqual(third.state.outbox.epoch, epoch, file: file, line: line)
        XCTAssertEqual(third.state.outbox.count, 1, file: file, line: line)
        await third.state.outbox.close(within: .seconds(5))
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
}
