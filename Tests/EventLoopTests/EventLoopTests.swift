import Glibc
import XCTest

@testable import EventLoop

final class EventLoopTests: XCTestCase {
    override class func setUp() { EventLoop.shared.startThread() }

    @EventLoopActor
    private final class Log {
        var entries: [String] = []
        func add(_ entry: String) { entries.append(entry) }
    }

    /// The next turn of the loop has come.
    @EventLoopActor
    private func turn() async throws {
        let pending = Pending<Void>()
        SystemClock.shared.schedule(after: .zero) { pending.succeed(()) }
        try await pending.value(timeout: .seconds(10))
    }

    private func makeSockets() -> (Int32, Int32) {
        var ends: [Int32] = [-1, -1]
        XCTAssertEqual(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends), 0)
        return (ends[0], ends[1])
    }

    // MARK: Executor

    func testIsolatedCodeRunsOnTheLoopAndOnlyThere() async {
        XCTAssertFalse(EventLoop.shared.isOnLoop)
        let isOnLoop = await Task { @EventLoopActor in EventLoop.shared.isOnLoop }.value
        XCTAssertTrue(isOnLoop)
    }

    func testJobsOfManyThreadsAllRun() async {
        let sum = await withTaskGroup(of: Int.self) { group in
            for number in 0..<2_000 { group.addTask { @EventLoopActor in number } }
            return await group.reduce(0, +)
        }
        XCTAssertEqual(sum, 1_999_000)
    }

    @EventLoopActor
    func testJobsThatMakeJobsLeaveRoomForTimersAndDescriptors() async throws {
        let isOver = Pending<Void>()
        let (near, far) = makeSockets()
        defer {
            close(near)
            close(far)
        }
        var isBusy = true
        @EventLoopActor func makeWork() { if isBusy { Task { @EventLoopActor in makeWork() } } }
        makeWork()
        let registration = try EventLoop.shared.register(near, .read) { _ in isOver.succeed(()) }
        SystemClock.shared.schedule(after: .milliseconds(1)) { XCTAssertEqual(write(far, "x", 1), 1) }
        try await isOver.value(timeout: .seconds(10))
        isBusy = false
        registration.cancel()
    }

    func testUpkeepOfWholeFiveSecondsMeetsOnOneBeat() {
        func time(_ interval: Duration, from milliseconds: UInt64) -> UInt64 {
            let now = MonotonicTime(nanoseconds: milliseconds * 1_000_000)
            return SystemClock.upkeepTime(after: interval, from: now).nanoseconds / 1_000_000
        }
        XCTAssertEqual(time(.seconds(5), from: 12_400), 15_000)
        XCTAssertEqual(time(.seconds(5), from: 12_600), 20_000)
        // From beat to beat no time is lost, although a timer is always a little late.
        XCTAssertEqual(time(.seconds(5), from: 15_001), 20_000)
        XCTAssertEqual(time(.seconds(10), from: 20_300), 30_000)
        XCTAssertEqual(time(.seconds(60), from: 14_999), 75_000)
        // Whoever asks for another interval gets it.
        XCTAssertEqual(time(.seconds(7), from: 12_400), 19_400)
        XCTAssertEqual(time(.milliseconds(1), from: 12_400), 12_401)
        XCTAssertEqual(time(.zero, from: 12_400), 12_400)
        XCTAssertEqual(
            SystemClock.upkeepTime(after: .seconds(5), from: MonotonicTime(nanoseconds: .max)).nanoseconds
                % 5_000_000_000, 0)
    }

    // MARK: Descriptors

    @EventLoopActor
    func testACancelledRegistrationIsSilentAndItsSlotIsUsedAgain() async throws {
        let log = Log()
        let (near, far) = makeSockets()
        defer {
            close(near)
            close(far)
        }
        XCTAssertEqual(write(far, "x", 1), 1)
        let first = try EventLoop.shared.register(near, .read) { _ in log.add("first") }
        first.cancel()
        first.cancel()
        let isRead = Pending<Void>()
        let second = try EventLoop.shared.register(near, .read) { _ in
            log.add("second")
            isRead.succeed(())
        }
        first.cancel()  // must not end the second, which may have its slot
        first.events = [.read, .write]
        try await isRead.value(timeout: .seconds(10))
        second.cancel()
        try await turn()
        XCTAssertEqual(Set(log.entries), ["second"])
    }

    @EventLoopActor
    func testAStaleReportOfTheSameBatchIsDropped() async throws {
        // Two descriptors become readable in one turn; whoever comes first closes the other and takes its number.
        let log = Log()
        let pairs = [makeSockets(), makeSockets()]
        var registrations: [IORegistration] = []
        let isOver = Pending<Void>()
        for index in 0..<2 {
            let other = 1 - index
            registrations.append(
                try EventLoop.shared.register(pairs[index].0, .read) { _ in
                    log.add("read")
                    for registration in registrations { registration.cancel() }
                    close(pairs[other].0)
                    let (fresh, partner) = self.makeSockets()
                    registrations = [(try? EventLoop.shared.register(fresh, .read) { _ in log.add("stale") })]
                        .compactMap { $0 }
                    SystemClock.shared.schedule(after: .zero) {
                        for registration in registrations { registration.cancel() }
                        close(fresh)
                        close(partner)
                        isOver.succeed(())
                    }
                    close(pairs[index].0)
                })
        }
        for pair in pairs { XCTAssertEqual(write(pair.1, "x", 1), 1) }
        try await isOver.value(timeout: .seconds(10))
        XCTAssertEqual(log.entries, ["read"])
        for pair in pairs { close(pair.1) }
    }

    @EventLoopActor
    func testEventsCanBeChanged() async throws {
        let (near, far) = makeSockets()
        defer {
            close(near)
            close(far)
        }
        let log = Log()
        let isWritable = Pending<Void>()
        let registration = try EventLoop.shared.register(near, .read) { events in
            log.add(events.contains(.write) ? "write" : "read")
            isWritable.succeed(())
        }
        try await turn()
        XCTAssertEqual(log.entries, [])
        registration.events = .write
        try await isWritable.value(timeout: .seconds(10))
        XCTAssertEqual(log.entries.first, "write")
        registration.cancel()
    }

    @EventLoopActor
    func testAWrongDescriptorIsAnError() async throws {
        XCTAssertThrowsError(try EventLoop.shared.register(-1, .read) { _ in }) { error in
            XCTAssertEqual((error as? LoopError)?.errno, EBADF)
            XCTAssertEqual((error as? LoopError)?.call, "epoll_ctl")
        }
        let (near, far) = makeSockets()
        defer {
            close(near)
            close(far)
        }
        let registration = try EventLoop.shared.register(near, .read) { _ in }
        XCTAssertThrowsError(try EventLoop.shared.register(near, .read) { _ in }, "the same descriptor twice")
        registration.cancel()
    }

    // MARK: Timers

    @EventLoopActor
    func testTimersFireInTheirOrderAndNotBeforeTheirTime() async throws {
        let log = Log()
        let isOver = Pending<Void>()
        let start = SystemClock.shared.now
        SystemClock.shared.schedule(after: .milliseconds(30)) {
            XCTAssertGreaterThanOrEqual(SystemClock.shared.now - start, .milliseconds(30))
            log.add("c")
            isOver.succeed(())
        }
        SystemClock.shared.schedule(after: .milliseconds(10)) { log.add("a") }
        SystemClock.shared.schedule(after: .milliseconds(20)) { log.add("b") }
        let cancelled = SystemClock.shared.schedule(after: .milliseconds(15)) { log.add("cancelled") }
        cancelled.cancel()
        XCTAssertFalse(cancelled.isPending)
        try await isOver.value(timeout: .seconds(10))
        XCTAssertEqual(log.entries, ["a", "b", "c"])
    }

    /// A loose timer takes part in a turn that comes anyway, and without one comes by itself.
    @EventLoopActor
    func testALooseTimerNeedsNoTurnOfItsOwn() async throws {
        let start = SystemClock.shared.now
        let log = Log()
        let isOver = Pending<Void>()
        SystemClock.shared.scheduleLoosely(after: .milliseconds(10)) {
            XCTAssertGreaterThanOrEqual(SystemClock.shared.now - start, .milliseconds(10))
            log.add("loose")
        }
        // The exact one, due just after it, brings the turn.
        SystemClock.shared.schedule(after: .milliseconds(11)) {
            log.add("exact")
            isOver.succeed(())
        }
        try await isOver.value(timeout: .seconds(10))
        try await turn()
        XCTAssertEqual(log.entries.sorted(), ["exact", "loose"])
        let alone = Pending<Void>()
        SystemClock.shared.scheduleLoosely(after: .milliseconds(10)) { alone.succeed(()) }
        let cancelled = SystemClock.shared.scheduleLoosely(after: .milliseconds(1)) { XCTFail("it was cancelled") }
        cancelled.cancel()
        let before = SystemClock.shared.now
        try await alone.value(timeout: .seconds(10))
        XCTAssertGreaterThanOrEqual(SystemClock.shared.now - before, .milliseconds(10))
    }

    @EventLoopActor
    func testATimerCancelledByOneOfTheSameTurnDoesNotFire() async throws {
        let clock = ManualClock()
        let log = Log()
        var second: LoopTimer?
        clock.schedule(after: .seconds(1)) { second?.cancel() }
        second = clock.schedule(after: .seconds(1)) { log.add("fired") }
        clock.advance(by: .seconds(2))
        XCTAssertEqual(log.entries, [])
    }

    @EventLoopActor
    func testSleepEndsWithItsTask() async throws {
        let task = Task { @EventLoopActor in try await SystemClock.shared.sleep(for: .seconds(600)) }
        try await turn()
        task.cancel()
        guard case .failure(let error) = await task.result else { return XCTFail("slept through") }
        XCTAssertTrue(error is CancellationError)
        let second = Task { @EventLoopActor in try await SystemClock.shared.sleep(for: .seconds(600)) }
        second.cancel()  // before it began
        guard case .failure = await second.result else { return XCTFail("slept through") }
        try await SystemClock.shared.sleep(for: .milliseconds(1))
    }

    @EventLoopActor
    func testAManualClockFiresEachTimerAtItsOwnTime() async throws {
        let clock = ManualClock()
        let start = clock.now
        let log = Log()
        @EventLoopActor func note(_ name: String) { log.add("\(name)@\((clock.now - start).clampedMilliseconds)") }
        clock.schedule(after: .milliseconds(20)) { note("b") }
        clock.schedule(after: .milliseconds(10)) {
            note("a")
            clock.schedule(after: .milliseconds(5)) { note("nested") }
        }
        clock.schedule(after: .milliseconds(20)) { note("c") }
        clock.schedule(after: .milliseconds(41)) { note("late") }
        let wall = clock.wallNow.milliseconds
        clock.advance(by: .milliseconds(40))
        XCTAssertEqual(log.entries, ["a@10", "nested@15", "b@20", "c@20"])
        XCTAssertEqual((clock.now - start).clampedMilliseconds, 40)
        XCTAssertEqual(clock.wallNow.milliseconds, wall + 40)
        clock.jumpWallClock(by: .seconds(-3600))
        XCTAssertEqual(log.entries.count, 4, "a jump of the wall clock moves no timer")
        clock.advance(by: .milliseconds(1))
        XCTAssertEqual(log.entries.last, "late@41")
    }

    @EventLoopActor
    func testManyTimersComeOutSorted() async throws {
        let clock = ManualClock()
        var seed: UInt64 = 42
        var fired: [UInt64] = []
        var timers: [LoopTimer] = []
        for _ in 0..<5_000 {
            seed = seed &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            timers.append(
                clock.schedule(after: .microseconds(Int64(seed >> 44))) { fired.append(clock.now.nanoseconds) })
        }
        for index in stride(from: 0, to: timers.count, by: 3) { timers[index].cancel() }
        clock.advance(by: .seconds(10))
        XCTAssertEqual(fired.count, 5_000 - (5_000 + 2) / 3)
        XCTAssertEqual(fired, fired.sorted())
    }

    func testTimesStopAtTheEndsOfTheirRange() {
        let late = MonotonicTime(nanoseconds: .max - 1)
        XCTAssertEqual((late + .seconds(1)).nanoseconds, .max)
        XCTAssertEqual((MonotonicTime(nanoseconds: 5) + .seconds(-1)).nanoseconds, 0)
        XCTAssertEqual(Duration.seconds(Int64.max).clampedNanoseconds, .max)
        XCTAssertEqual(Duration.seconds(Int64.min).clampedNanoseconds, .min)
        XCTAssertEqual(MonotonicTime(nanoseconds: 1) - MonotonicTime(nanoseconds: 3), .nanoseconds(-2))
    }

    // MARK: Pending

    @EventLoopActor
    func testOnlyTheFirstResultCounts() async throws {
        let pending = Pending<Int>()
        pending.succeed(1)
        pending.succeed(2)
        pending.fail(CancellationError())
        let value = try await pending.value()
        XCTAssertEqual(value, 1)
    }

    @EventLoopActor
    func testAPendingValueHasADeadline() async throws {
        let pending = Pending<Int>()
        do {
            _ = try await pending.value(timeout: .milliseconds(10))
            XCTFail("a value out of nothing")
        } catch {
            XCTAssertTrue(error is DeadlineExceeded, "\(error)")
        }
    }

    @EventLoopActor
    func testEveryWaiterGetsThePendingValue() async throws {
        let pending = Pending<Int>()
        let tasks = (0..<3).map { _ in Task { @EventLoopActor in try await pending.value(timeout: .seconds(10)) } }
        try await turn()
        pending.succeed(7)
        for task in tasks {
            let value = try await task.value
            XCTAssertEqual(value, 7)
        }
    }

    // MARK: Workers, signals and processes

    @EventLoopActor
    func testAWorkerRunsOffTheLoopAndInOrder() async throws {
        let worker = BlockingWorker(name: "test")
        let isOnLoop = await worker.run { EventLoop.shared.isOnLoop }
        XCTAssertFalse(isOnLoop)
        let log = Log()
        let isOver = Pending<Void>()
        for number in 0..<100 {
            worker.submit {
                Task { @EventLoopActor in
                    log.add("\(number)")
                    if log.entries.count == 100 { isOver.succeed(()) }
                }
            }
        }
        try await isOver.value(timeout: .seconds(10))
        XCTAssertEqual(log.entries, (0..<100).map(String.init))
    }

    @EventLoopActor
    func testTheEndOfAProcessIsToldOnce() async throws {
        var arguments: [UnsafeMutablePointer<CChar>?] = [strdup("true"), nil]
        defer { free(arguments[0]) }
        var pid: pid_t = 0
        XCTAssertEqual(posix_spawnp(&pid, "true", nil, nil, &arguments, environ), 0)
        let log = Log()
        let isOver = Pending<Void>()
        let watch = try ProcessWatch(pid) {
            log.add("ended")
            isOver.succeed(())
        }
        try await isOver.value(timeout: .seconds(10))
        var status: Int32 = -1
        XCTAssertEqual(waitpid(pid, &status, 0), pid)
        try await turn()
        XCTAssertEqual(log.entries, ["ended"])
        watch.cancel()
        XCTAssertThrowsError(try ProcessWatch(0x3fff_ffff) {})
    }

    @EventLoopActor
    func testASignalIsAnEventOfTheLoop() async throws {
        // Only the loop's thread blocks it: the signal is sent to that thread.
        SignalSource.block([SIGUSR2])
        let isOver = Pending<Int32>()
        let source = try SignalSource([SIGUSR2]) { isOver.succeed($0) }
        XCTAssertEqual(pthread_kill(pthread_self(), SIGUSR2), 0)
        let signal = try await isOver.value(timeout: .seconds(10))
        XCTAssertEqual(signal, SIGUSR2)
        source.cancel()
        source.cancel()
    }

    @EventLoopActor
    func testHooksRunAfterABatch() async throws {
        let log = Log()
        let isOver = Pending<Void>()
        EventLoop.shared.addBatchHook { if log.entries.first == "batch" { isOver.succeed(()) } }
        SystemClock.shared.schedule(after: .zero) { log.add("batch") }
        try await isOver.value(timeout: .seconds(10))
    }
}
