import EventLoop
import XCTest

@testable import Central

final class SilenceWatchdogTests: XCTestCase {
    /// A room in which something is heard at times, looked at every ten seconds.
    private struct Room {
        var watchdog: SilenceWatchdog
        var now = MonotonicTime(nanoseconds: 1_000_000_000)
        var count: UInt64 = 0

        init(_ configure: (inout SilencePolicy) -> Void = { _ in }) {
            var policy = SilencePolicy()
            configure(&policy)
            watchdog = SilenceWatchdog(policy)
        }

        /// Lets time pass, with so many advertisements each so often; gives what was done, with the second.
        mutating func pass(
            _ seconds: Int, hearing heard: UInt64 = 0, every interval: Int = 10
        ) -> [(second: Int, action: SilenceWatchdog.Action)] {
            var actions: [(Int, SilenceWatchdog.Action)] = []
            for second in stride(from: 10, through: seconds, by: 10) {
                now = now + .seconds(10)
                if second % interval == 0 { count += heard }
                if let action = watchdog.look(count: count, at: now) { actions.append((second, action)) }
            }
            return actions
        }
    }

    func testABusyRoomThatFallsSilentIsCuredAfterTheFloor() {
        var room = Room()
        XCTAssertEqual(room.pass(600, hearing: 3000).count, 0)
        let actions = room.pass(100)
        XCTAssertEqual(actions.map(\.action), [.restart])
        XCTAssertEqual(actions.first?.second, 60)
    }

    func testOneBeaconEveryTenSecondsIsNotSilentAfterTwenty() {
        var room = Room { $0.floor = .seconds(10) }
        XCTAssertEqual(room.pass(600, hearing: 1).count, 0)
        XCTAssertEqual(room.pass(20).count, 0)
        XCTAssertEqual(room.pass(40).map(\.action), [.restart])
    }

    func testASlowRoomIsGivenFourOfItsOwnQuiets() {
        var room = Room()
        XCTAssertEqual(room.pass(7200, hearing: 1, every: 120).count, 0)
        let actions = room.pass(600)
        XCTAssertEqual(actions.map(\.action), [.restart])
        XCTAssertGreaterThanOrEqual(actions.first?.second ?? 0, 480)
    }

    func testARoomInWhichNothingWasEverHeardIsNotSilent() {
        var room = Room()
        XCTAssertEqual(room.pass(86_400).count, 0)
        // Nor one in which somebody passed by.
        _ = room.pass(20, hearing: 5)
        XCTAssertEqual(room.pass(86_400).count, 0)
    }

    func testCuresGoFromMildToStrongAndThenAPersonIsTold() {
        var room = Room()
        _ = room.pass(600, hearing: 100)
        let mild = room.pass(700)
        XCTAssertEqual(mild.map(\.action).prefix(2), [.restart, .alarm(silence: .seconds(180))])
        XCTAssertEqual(mild.map(\.second).prefix(3), [60, 180, 420])

        var strong = Room { $0.allowsPowerCycle = true }
        _ = strong.pass(600, hearing: 100)
        XCTAssertEqual(
            strong.pass(500).map(\.action), [.restart, .powerCycle, .alarm(silence: .seconds(420))])
    }

    func testItIsNoStormAndTheAlarmComesOnce() {
        var room = Room { $0.allowsPowerCycle = true }
        _ = room.pass(600, hearing: 100)
        let actions = room.pass(86_400).map(\.action)
        XCTAssertLessThan(actions.count, 40)
        XCTAssertEqual(actions.filter { if case .alarm = $0 { true } else { false } }.count, 1)
        XCTAssertGreaterThan(actions.filter { $0 == .restart }.count, 2)
    }

    /// The gap that was cured is no part of what is usual, and a new silence begins with the mild cure.
    func testTheSilenceThatWasCuredIsNotInherited() {
        var room = Room()
        _ = room.pass(600, hearing: 100)
        _ = room.pass(3600)
        XCTAssertEqual(room.pass(10, hearing: 100).map(\.action), [.recovered])
        XCTAssertEqual(room.watchdog.cures, 0)
        XCTAssertEqual(room.watchdog.usualQuiet, .zero)
        XCTAssertNil(room.watchdog.limit)
        XCTAssertEqual(room.pass(60, hearing: 100).count, 0)
        XCTAssertEqual(room.watchdog.limit, .seconds(60))
        let again = room.pass(60)
        XCTAssertEqual(again.map(\.action), [.restart])
        XCTAssertEqual(again.first?.second, 60)
    }

    func testTheClockBeginsWithTheEndOfTheCure() {
        var room = Room()
        _ = room.pass(600, hearing: 100)
        XCTAssertEqual(room.pass(60).map(\.action), [.restart])
        // The restart itself took its time.
        room.now = room.now + .seconds(100)
        room.watchdog.cureEnded(at: room.now)
        XCTAssertEqual(room.pass(110).count, 0)
        XCTAssertEqual(room.pass(10).count, 1)
    }

    func testAScanThatBeginsAnewKnowsNothing() {
        var room = Room()
        _ = room.pass(600, hearing: 100)
        room.watchdog.reset(count: room.count)
        XCTAssertEqual(room.pass(3600).count, 0)
    }

    func testLooksAreSeldom() {
        var policy = SilencePolicy()
        XCTAssertEqual(policy.tick, .seconds(10))
        policy.floor = .milliseconds(1)
        XCTAssertEqual(policy.tick, .seconds(1))
    }
}
