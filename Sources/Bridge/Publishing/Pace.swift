internal import EventLoop

/// Spaces events out to a rate, after a burst. Pure.
struct Pace {
    private let interval: Duration
    private let burst: Duration
    private var due = MonotonicTime(nanoseconds: 0)

    init(perSecond: Int64, burst: Int64) {
        interval = .nanoseconds(1_000_000_000 / max(1, perSecond))
        self.burst = interval * burst
    }

    /// True where another event may happen now, and counts it.
    mutating func take(at now: MonotonicTime) -> Bool {
        let start = max(due, now)
        guard start - now <= burst else { return false }
        due = start + interval
        return true
    }
}
