import EventLoop
import JSON
import Store
import XCTest

@testable import Bridge

/// Commands with an `id`, over the end of the process.
final class JournalTests: LoopTestCase {
    private static let write =
        #"{"id":"w","device":"c00000000001","service":"1802","characteristic":"2a06","value":"01"}"#

    @EventLoopActor
    private func bench(_ rig: StoredRig) -> Bench {
        Bench(clock: rig.clock, outbox: rig.state.outbox, journal: rig.state.journal)
    }

    /// Sends a request and gives its answer, which may wait for the disk.
    @EventLoopActor
    private func ask(_ bench: Bench, _ rig: StoredRig, _ verb: String, _ payload: String) async throws -> JSONValue {
        bench.broker.send("blueferry/gw/request/\(verb)", payload)
        await rig.settle()
        return try await bench.broker.take("blueferry/gw/response/\(verb)")
    }

    @EventLoopActor
    func testARepeatAfterARestartGetsTheFirstAnswerAndActsOnce() async throws {
        let rig = try await StoredRig()
        let bench = bench(rig)
        let first = try await ask(bench, rig, "write", Self.write)
        XCTAssertEqual(first["status"], .string("ok"))
        let number = try await ask(
            bench, rig, "write", Self.write.replacing("\"w\"", with: "7").replacing("\"01\"", with: "\"02\""))
        XCTAssertEqual(number["id"], .int(7))
        try await rig.commit()
        let again = try await StoredRig(try rig.crashImage())
        let next = self.bench(again)
        let repeated = try await ask(next, again, "write", Self.write)
        XCTAssertEqual(repeated, first)
        let reused = try await ask(next, again, "write", Self.write.replacing("\"01\"", with: "\"03\""))
        XCTAssertEqual(reused["error"]?["code"], .string("id_reused"))
        let other = try await ask(next, again, "write", Self.write.replacing("\"w\"", with: "\"7\""))
        XCTAssertEqual(other["status"], .string("ok"), "a text is not a number")
        XCTAssertEqual(next.radio.calls.filter { $0.hasPrefix("write") }.count, 1)
        // Five minutes are five minutes, over a restart too.
        let later = try await StoredRig(try rig.crashImage())
        later.clock.advance(by: .seconds(200))
        let patient = self.bench(later)
        _ = try await ask(patient, later, "write", Self.write)
        XCTAssertEqual(patient.radio.calls.filter { $0.hasPrefix("write") }.count, 0)
        later.clock.advance(by: .seconds(301))
        _ = try await ask(patient, later, "write", Self.write)
        XCTAssertEqual(patient.radio.calls.filter { $0.hasPrefix("write") }.count, 1)
        for rig in [rig, again, later] { await rig.state.outbox.close(within: .seconds(5)) }
    }

    /// The old request goes and the new one comes in one commit.
    @EventLoopActor
    func testAnIDThatIsUsedAgainAfterItsTimeIsRecordedAnew() async throws {
        let rig = try await StoredRig()
        let bench = bench(rig)
        _ = try await ask(bench, rig, "write", Self.write)
        try await rig.commit()
        rig.clock.advance(by: .seconds(301))
        let second = try await ask(bench, rig, "write", Self.write)
        XCTAssertEqual(bench.radio.calls.filter { $0.hasPrefix("write") }.count, 2)
        try await rig.commit()
        let again = try await StoredRig(try rig.crashImage())
        let next = self.bench(again)
        let repeated = try await ask(next, again, "write", Self.write)
        XCTAssertEqual(repeated, second)
        XCTAssertEqual(next.radio.calls.filter { $0.hasPrefix("write") }.count, 0)
        for rig in [rig, again] { await rig.state.outbox.close(within: .seconds(5)) }
    }

    @EventLoopActor
    func testWhatWasNotAnsweredHasAnUnknownOutcome() async throws {
        let rig = try await StoredRig()
        let bench = bench(rig)
        bench.radio.holdsCalls = true
        bench.broker.send("blueferry/gw/request/write", Self.write)
        bench.broker.send("blueferry/gw/request/connect", #"{"id":8,"device":"c00000000001"}"#)
        await rig.settle()
        XCTAssertEqual(bench.radio.pendingCalls.count, 2, "they run")
        let again = try await StoredRig(try rig.crashImage())
        let next = self.bench(again)
        let unknown = try await ask(next, again, "write", Self.write)
        XCTAssertEqual(unknown["id"], .string("w"))
        XCTAssertEqual(unknown["error"]?["code"], .string("outcome_unknown"))
        let connect = try await ask(next, again, "connect", #"{"id":8,"device":"c00000000001"}"#)
        XCTAssertEqual(connect["id"], .int(8))
        XCTAssertEqual(connect["error"]?["code"], .string("outcome_unknown"))
        let reused = try await ask(next, again, "write", Self.write.replacing("\"01\"", with: "\"02\""))
        XCTAssertEqual(reused["error"]?["code"], .string("id_reused"))
        XCTAssertFalse(next.radio.calls.contains { $0.hasPrefix("write") || $0.hasPrefix("connect") })
        for rig in [rig, again] { await rig.state.outbox.close(within: .seconds(5)) }
    }

    @EventLoopActor
    func testNothingActsBeforeItIsOnTheDiskAndReadsDoNotWait() async throws {
        let rig = try await StoredRig()
        let outbox = try rig.outbox()
        let bench = bench(rig)
        bench.broker.send("blueferry/gw/request/write", Self.write)
        bench.broker.send(
            "blueferry/gw/request/read",
            #"{"id":"r","device":"c00000000002","service":"180f","characteristic":"2a19"}"#)
        // One turn of the loop: the read runs, and the write waits for its commit.
        await Task.yield()
        await Task.yield()
        let calls = bench.radio.calls
        if calls.contains(where: { $0.hasPrefix("write") }) {
            XCTAssertGreaterThan(outbox.store.commits, 0, "\(calls)")
        }
        await rig.settle()
        XCTAssertTrue(bench.radio.calls.contains { $0.hasPrefix("write") })
        XCTAssertTrue(bench.radio.calls.contains { $0.hasPrefix("read") })
        try await rig.commit()
        let rows = try outbox.store.file.database.perform { try $0.rows("SELECT verb, id FROM requests") }
        XCTAssertEqual(rows, [[.text("write"), .text("sw")]], "reads are not recorded")
        await outbox.close(within: .seconds(5))
    }

    @EventLoopActor
    func testWithABrokenDiskCommandsRun() async throws {
        let rig = try await StoredRig()
        let outbox = try rig.outbox()
        let bench = bench(rig)
        try outbox.store.file.database.perform { try $0.execute("PRAGMA query_only=1") }
        let first = try await ask(bench, rig, "write", Self.write)
        XCTAssertEqual(first["status"], .string("ok"))
        let event = try await bench.broker.take("blueferry/gw/events")
        XCTAssertEqual(event["code"], .string("outbox"))
        XCTAssertEqual(event["level"], .string("warning"))
        let second = try await ask(bench, rig, "write", Self.write)
        XCTAssertEqual(second, first)
        XCTAssertEqual(bench.radio.calls.filter { $0.hasPrefix("write") }.count, 1)
        await outbox.close(within: .seconds(5))
    }

    @EventLoopActor
    func testTheJournalIsBounded() async throws {
        let rig = try await StoredRig()
        let bench = bench(rig)
        for number in 0..<1200 {
            bench.broker.send(
                "blueferry/gw/request/stop_scan", #"{"id":\#(number),"session":"none"}"#)
            if number % 100 == 99 { await rig.settle() }
        }
        try await rig.commit()
        try await rig.commit()
        let rows = try rig.outbox().store.file.database.perform { try $0.rows("SELECT count(*) FROM requests") }
        XCTAssertEqual(rows, [[.int(1000)]])
        rig.clock.advance(by: .seconds(301))
        _ = try await ask(bench, rig, "stop_scan", #"{"id":"x"}"#)
        try await rig.commit()
        let left = try rig.outbox().store.file.database.perform { try $0.rows("SELECT id FROM requests") }
        XCTAssertEqual(left, [[.text("sx")]])
        await rig.state.outbox.close(within: .seconds(5))
    }
}
