internal import Glibc

/// A reading of the monotonic clock, in nanoseconds since an arbitrary start. Source: `clock_gettime(2)`, CLOCK_MONOTONIC.
public struct MonotonicTime: Hashable, Comparable, Sendable {
    public var nanoseconds: UInt64

    public init(nanoseconds: UInt64) {
        self.nanoseconds = nanoseconds
    }

    /// The machine's monotonic clock, read now.
    public static var now: MonotonicTime {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return MonotonicTime(nanoseconds: UInt64(time.tv_sec) &* 1_000_000_000 &+ UInt64(time.tv_nsec))
    }

    public static func < (left: MonotonicTime, right: MonotonicTime) -> Bool {
        left.nanoseconds < right.nanoseconds
    }

    /// The time after an interval; a negative interval or an overflow stops at the ends of the range.
    public static func + (time: MonotonicTime, interval: Duration) -> MonotonicTime {
        let nanoseconds = interval.clampedNanoseconds
        let (sum, overflow) = time.nanoseconds.addingReportingOverflow(nanoseconds.magnitude)
        if nanoseconds >= 0 { return MonotonicTime(nanoseconds: overflow ? .max : sum) }
        let left = time.nanoseconds > nanoseconds.magnitude ? time.nanoseconds - nanoseconds.magnitude : 0
        return MonotonicTime(nanoseconds: left)
    }

    /// The interval from `earlier` to `later`; negative where `later` came first.
    public static func - (later: MonotonicTime, earlier: MonotonicTime) -> Duration {
        later >= earlier
            ? .nanoseconds(Int64(clamping: later.nanoseconds - earlier.nanoseconds))
            : .nanoseconds(-Int64(clamping: earlier.nanoseconds - later.nanoseconds))
    }
}

/// A reading of the wall clock, in milliseconds since 1970-01-01T00:00:00Z. Source: `clock_gettime(2)`, CLOCK_REALTIME.
public struct WallTime: Hashable, Comparable, Sendable {
    public var milliseconds: Int64

    public init(milliseconds: Int64) {
        self.milliseconds = milliseconds
    }

    /// The machine's wall clock, read now.
    public static var now: WallTime {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return WallTime(milliseconds: Int64(time.tv_sec) * 1000 + Int64(time.tv_nsec) / 1_000_000)
    }

    public static func < (left: WallTime, right: WallTime) -> Bool {
        left.milliseconds < right.milliseconds
    }
}

extension Duration {
    /// This interval in nanoseconds, held in the range of 64 bits.
    public var clampedNanoseconds: Int64 {
        let (seconds, attoseconds) = components
        let (scaled, overflow) = seconds.multipliedReportingOverflow(by: 1_000_000_000)
        if overflow { return seconds < 0 ? .min : .max }
        let (sum, carried) = scaled.addingReportingOverflow(attoseconds / 1_000_000_000)
        return carried ? (seconds < 0 ? .min : .max) : sum
    }

    /// This interval in whole milliseconds, rounded towards zero.
    public var clampedMilliseconds: Int64 { clampedNanoseconds / 1_000_000 }
}
