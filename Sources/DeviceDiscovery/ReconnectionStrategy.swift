public import CoreBluetooth

/// When a connection that was lost, or that did not come about, is tried again.
public enum ReconnectionStrategy: Sendable, Equatable {
    case none
    /// Each `interval` seconds, `limit` times.
    case linear(interval: TimeInterval, limit: Int)
    /// After `initial` seconds, then each time after twice as long, at most `maximum`; `limit` times.
    case exponential(initial: TimeInterval, maximum: TimeInterval, limit: Int)

    /// The seconds before a try; nil where there is to be none.
    /// - Parameter attempt: 1 for the first try after a loss.
    public func delay(beforeAttempt attempt: Int) -> TimeInterval? {
        guard attempt >= 1 else { return nil }
        switch self {
        case .none: return nil
        case .linear(let interval, let limit):
            return attempt <= limit ? Self.bounded(interval) : nil
        case .exponential(let initial, let maximum, let limit):
            guard attempt <= limit else { return nil }
            let delay = Self.bounded(initial) * Double(sign: .plus, exponent: min(attempt - 1, 40), significand: 1)
            return Self.bounded(min(delay, maximum))
        }
    }

    /// Nonsense (negative, endless, not a number) becomes what a timer can take.
    private static func bounded(_ interval: TimeInterval) -> TimeInterval {
        interval.isNaN ? 0 : min(max(interval, 0), 31_536_000)
    }
}
