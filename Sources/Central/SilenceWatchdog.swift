internal import EventLoop

/// What the engine does about a discovery that hears nothing any more.
public struct SilencePolicy: Sendable, Equatable {
    /// No shorter silence is one.
    public var floor: Duration = .seconds(60)
    /// The adapter may be switched off and on again, which ends its links.
    public var allowsPowerCycle = false

    public init() {}

    /// How often the count is looked at: seldom, since each look wakes the process.
    var tick: Duration { max(.seconds(1), min(.seconds(10), floor / 3)) }
}

/// Whether the discovery of one controller has fallen silent, without I/O: it is given the number of advertisements now
/// and then, and says which cure comes next.
///
/// What is silence depends on what is usual. The longest usual quiet is learned at each look, in which a longer one
/// counts half at once and a shorter one a sixteenth; four times that, and no less than the floor, is silence. Where
/// little was heard so far nothing is usual, and so nothing is silent. After each cure the clock starts anew, and the
/// next one waits twice as long. What is heard again ends the silence, and what is usual is learned afresh: the gap that
/// was cured is no part of it.
struct SilenceWatchdog {
    enum Action: Equatable {
        case restart
        case powerCycle
        /// The cures did not help: told once for each silence.
        case alarm(silence: Duration)
        /// Heard again after at least one cure.
        case recovered
    }

    /// Looks at which something was heard before there is a usual quiet.
    static let lessons = 5
    private static let longestPause = Duration.seconds(3600)

    private let policy: SilencePolicy
    private var lastCount: UInt64 = 0
    private var lastHeard: MonotonicTime?
    /// What the next cure is counted from: what was heard, or the last cure.
    private var mark: MonotonicTime?
    private(set) var usualQuiet: Duration = .zero
    private var learned = 0
    /// Cures in this silence.
    private(set) var cures = 0
    private var hasAlarmed = false
    private var mayPowerCycle = true

    init(_ policy: SilencePolicy = SilencePolicy()) {
        self.policy = policy
    }

    /// After so much quiet the next cure is due; nil while nothing is usual.
    var limit: Duration? {
        guard learned >= Self.lessons else { return nil }
        let base = max(policy.floor, usualQuiet * 4)
        return min(base * (1 << min(cures, 10)), max(base, Self.longestPause))
    }

    /// Discovery ended or was not there: nothing is known of what comes.
    mutating func reset(count: UInt64) {
        self = SilenceWatchdog(policy)
        lastCount = count
    }

    /// Discovery runs again after a cure, or the cure failed: its time counts from now.
    mutating func cureEnded(at now: MonotonicTime) {
        mark = now
    }

    /// - Parameter count: advertisements since the start, of this controller.
    mutating func look(count: UInt64, at now: MonotonicTime) -> Action? {
        guard count == lastCount else {
            lastCount = count
            return heard(at: now)
        }
        guard let mark, let lastHeard, let limit, now - mark >= limit else { return nil }
        self.mark = now
        defer { cures += 1 }
        if cures == 0 { return .restart }
        if policy.allowsPowerCycle, mayPowerCycle {
            mayPowerCycle = false
            return .powerCycle
        }
        if !hasAlarmed {
            hasAlarmed = true
            return .alarm(silence: now - lastHeard)
        }
        // From here on it goes on trying, ever more seldom.
        mayPowerCycle = true
        return .restart
    }

    private mutating func heard(at now: MonotonicTime) -> Action? {
        let wasCured = cures > 0
        if wasCured {
            self = SilenceWatchdog(policy, lastCount: lastCount)
        } else if let lastHeard {
            let quiet = now - lastHeard
            usualQuiet += (quiet - usualQuiet) / (quiet > usualQuiet ? 2 : 16)
            learned = min(learned + 1, Self.lessons)
        }
        lastHeard = now
        mark = now
        return wasCured ? .recovered : nil
    }

    private init(_ policy: SilencePolicy, lastCount: UInt64) {
        self.policy = policy
        self.lastCount = lastCount
    }
}
