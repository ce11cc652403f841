internal import EventLoop

/// How long to wait before the next attempt. An unreachable broker is asked again at least every 1.5 s; one that sends
/// us away is left in peace for longer each time. Every wait is shortened by chance, up to half, so that a fleet does
/// not come back at the same instant.
struct Backoff {
    static let shortest = Duration.milliseconds(10)
    static let longestUnreachable = Duration.milliseconds(1_500)
    static let firstRefused = Duration.seconds(1)
    static let longestRefused = Duration.seconds(60)
    static let longestUnauthorised = Duration.seconds(300)

    /// So many short lives in a row, each begun at the first try, look like a takeover.
    static let suspiciousLives = 4

    private var unreachable = Self.shortest
    private var refused = Self.firstRefused
    private var shortLives = 0

    /// A connection, once accepted, has lasted this long before it ended with `code`. Returns true where it looks like a
    /// takeover that the broker did not name, as under 3.1.1 none can and of those with 5 many do not: it accepts us each
    /// time and soon closes again.
    mutating func connectionEnded(_ code: MQTTFault.Code, lasted: Duration) -> Bool {
        // Two clients that drive each other out stay connected for as long as the other one waits.
        if lasted > max(.seconds(30), refused * 2) { refused = Self.firstRefused }
        // The first try comes at once: a broker that went away is not there then, and one that drove us out is.
        unreachable = Self.shortest
        guard code == .unreachable else { return false }
        shortLives = lasted < max(.seconds(10), refused * 2) ? shortLives + 1 : 0
        return shortLives >= Self.suspiciousLives
    }

    /// The wait after a fault; the next one is longer.
    /// - Parameter share: by chance, from 0 to 1: of the half by which it is shortened at most, what is left.
    mutating func delay(after code: MQTTFault.Code, share: Double = .random(in: 0...1)) -> Duration {
        switch code {
        case .unreachable:
            defer { unreachable = min(unreachable * 2, Self.longestUnreachable) }
            return shortened(unreachable, share)
        case .refused, .tls, .protocolError, .notAuthorised, .takenOver:
            let isUnauthorised = code == .notAuthorised || code == .takenOver
            let longest = isUnauthorised ? Self.longestUnauthorised : Self.longestRefused
            let wait = min(refused, longest)
            refused = min(refused * 2, Self.longestUnauthorised)
            return shortened(wait, share)
        }
    }

    /// An attempt did not reach the broker: whatever closed the last connection, it was not a takeover.
    mutating func attemptFailed(_ code: MQTTFault.Code) {
        if code == .unreachable { shortLives = 0 }
    }

    private func shortened(_ wait: Duration, _ share: Double) -> Duration { wait / 2 + wait / 2 * share }
}
