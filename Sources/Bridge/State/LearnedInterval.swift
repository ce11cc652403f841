internal import EventLoop

/// How often a device is heard, learned from the gaps between its advertisements. A longer gap counts half at once, a
/// shorter one a sixteenth, so that lost advertisements do not make a device unreachable.
struct LearnedInterval: Equatable {
    /// The shortest silence that makes a device unreachable.
    static let floor: Duration = .seconds(60)
    /// Longer gaps are an absence, not an interval.
    private static let ceiling: Float = 3_600_000

    /// In milliseconds; 0 before the second advertisement.
    private var milliseconds: Float = 0

    mutating func learn(gap: Duration) {
        let gap = Float(gap.clampedMilliseconds)
        guard gap >= 0, gap <= Self.ceiling else { return }
        if milliseconds == 0 {
            milliseconds = gap
        } else {
            milliseconds += (gap - milliseconds) * (gap > milliseconds ? 0.5 : 0.0625)
        }
    }

    /// After so long without an advertisement the device is unreachable: four intervals, at least a minute.
    var silence: Duration {
        max(Self.floor, .milliseconds(Int64(milliseconds * 4)))
    }
}
