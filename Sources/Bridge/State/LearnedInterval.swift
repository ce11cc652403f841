internal import EventLoop

/// How often a device is heard, learned from the gaps between its advertisements. A longer gap counts half at once, a
/// shorter one a sixteenth, so that lost advertisements do not make a device unreachable.
struct LearnedInterval: Equatable {
    /// The shortest silence that makes a device unreachable.
    static let floor: Duration = .seconds(60)
    /// Longer gaps are an absence, not an interval.
    private static let ceiling: Float = 3_600_000

    /// In milliseconds; 0 before the second advertisement.
    private var interval: Float = 0

    mutating func learn(gap: Duration) { learn(milliseconds: gap.clampedMilliseconds) }

    /// The same without `Duration`, whose 128 bits cost more than the rest.
    mutating func learn(from earlier: MonotonicTime, to later: MonotonicTime) {
        guard later >= earlier else { return }
        learn(milliseconds: Int64(clamping: (later.nanoseconds - earlier.nanoseconds) / 1_000_000))
    }

    private mutating func learn(milliseconds: Int64) {
        let gap = Float(milliseconds)
        guard gap >= 0, gap <= Self.ceiling else { return }
        if interval == 0 {
            interval = gap
        } else {
            interval += (gap - interval) * (gap > interval ? 0.5 : 0.0625)
        }
    }

    /// After so long without an advertisement the device is unreachable: four intervals, at least a minute.
    var silence: Duration {
        max(Self.floor, .milliseconds(Int64(interval * 4)))
    }
}
