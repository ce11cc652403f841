/// Time as the engine sees it: a protocol, so that tests drive it by hand.
@EventLoopActor
public protocol LoopClock: AnyObject {
    var now: MonotonicTime { get }
    var wallNow: WallTime { get }

    /// Calls `body` on the loop once `interval` has passed. The timer lives until it fires or is cancelled.
    @discardableResult
    func schedule(after interval: Duration, _ body: @escaping @EventLoopActor () -> Void) -> LoopTimer

    /// The same for upkeep that comes again and again, and that may come a little earlier or later together with other
    /// upkeep, so that the process wakes up once for all of it.
    @discardableResult
    func scheduleUpkeep(after interval: Duration, _ body: @escaping @EventLoopActor () -> Void) -> LoopTimer

    /// The same for what may come up to ``EventLoop/looseness`` later, together with whatever else wakes the process up.
    @discardableResult
    func scheduleLoosely(after interval: Duration, _ body: @escaping @EventLoopActor () -> Void) -> LoopTimer
}

extension LoopClock {
    /// At its time exactly, as tests expect it.
    @discardableResult
    public func scheduleLoosely(after interval: Duration, _ body: @escaping @EventLoopActor () -> Void) -> LoopTimer {
        schedule(after: interval, body)
    }

    /// At its time exactly, as tests expect it.
    @discardableResult
    public func scheduleUpkeep(after interval: Duration, _ body: @escaping @EventLoopActor () -> Void) -> LoopTimer {
        schedule(after: interval, body)
    }

    /// Suspends for `interval`; ends early, with `CancellationError`, where the task is cancelled.
    public func sleep(for interval: Duration) async throws {
        let box = SleepBox()
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
                if Task.isCancelled { return continuation.resume(throwing: CancellationError()) }
                box.continuation = continuation
                box.timer = schedule(after: interval) { box.finish(nil) }
            }
        } onCancel: {
            Task { @EventLoopActor in box.finish(CancellationError()) }
        }
    }
}

@EventLoopActor
private final class SleepBox {
    var continuation: CheckedContinuation<Void, any Error>?
    var timer: LoopTimer?

    nonisolated init() {}

    func finish(_ error: (any Error)?) {
        timer?.cancel()
        guard let continuation else { return }
        self.continuation = nil
        if let error { continuation.resume(throwing: error) } else { continuation.resume() }
    }
}

/// The machine's clocks and the loop's timers.
@EventLoopActor
public final class SystemClock: LoopClock {
    public static let shared = SystemClock()

    private init() {}

    public var now: MonotonicTime { .now }
    public var wallNow: WallTime { .now }

    @discardableResult
    public func schedule(after interval: Duration, _ body: @escaping @EventLoopActor () -> Void) -> LoopTimer {
        EventLoop.shared.schedule(at: .now + interval, body)
    }

    @discardableResult
    public func scheduleLoosely(after interval: Duration, _ body: @escaping @EventLoopActor () -> Void) -> LoopTimer {
        EventLoop.shared.scheduleLoosely(at: .now + interval, body)
    }

    @discardableResult
    public func scheduleUpkeep(after interval: Duration, _ body: @escaping @EventLoopActor () -> Void) -> LoopTimer {
        EventLoop.shared.schedule(at: Self.upkeepTime(after: interval, from: .now), body)
    }

    /// For an interval of whole five seconds the nearest beat of five seconds, so that all such upkeep comes at one time;
    /// any other interval stays as it is. Pure.
    nonisolated static func upkeepTime(after interval: Duration, from now: MonotonicTime) -> MonotonicTime {
        let beat: Int64 = 5_000_000_000
        let length = interval.clampedNanoseconds
        let exact = now + interval
        guard length > 0, length % beat == 0 else { return exact }
        let nearest = (exact + .nanoseconds(beat / 2)).nanoseconds / UInt64(beat) * UInt64(beat)
        return MonotonicTime(nanoseconds: nearest)
    }
}

/// A clock that stands still until it is advanced; due timers fire in order, each at its own time.
@EventLoopActor
public final class ManualClock: LoopClock {
    public private(set) var now: MonotonicTime
    public private(set) var wallNow: WallTime
    private var queue = TimerQueue()

    public init(
        now: MonotonicTime = MonotonicTime(nanoseconds: 1_000_000_000),
        wallNow: WallTime = WallTime(milliseconds: 1_700_000_000_000)
    ) {
        self.now = now
        self.wallNow = wallNow
    }

    @discardableResult
    public func schedule(after interval: Duration, _ body: @escaping @EventLoopActor () -> Void) -> LoopTimer {
        let timer = LoopTimer(deadline: now + interval, body)
        queue.add(timer)
        return timer
    }

    /// Moves both clocks on, and fires on the way what falls due.
    public func advance(by interval: Duration) {
        let end = now + interval
        while let next = queue.nextDeadline, next <= end {
            move(to: max(next, now))
            for timer in queue.popDue(at: now) { timer.fire() }
        }
        move(to: end)
    }

    /// Moves the wall clock alone, as a person or NTP does.
    public func jumpWallClock(by interval: Duration) {
        wallNow.milliseconds += interval.clampedMilliseconds
    }

    private func move(to time: MonotonicTime) {
        wallNow.milliseconds += Int64((time.nanoseconds / 1_000_000) - (now.nanoseconds / 1_000_000))
        now = time
    }
}
