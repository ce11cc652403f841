internal import CMosquitto
internal import EventLoop
internal import Glibc

/// How much has to come before the loop is woken up for it. While we write all the time and by ourselves,
/// acknowledgements are taken some at a time, where each would cost a turn of its own; a message to us is longer than
/// the mark and wakes the loop at once. Source: socket(7), SO_RCVLOWAT.
struct ReceiveMark {
    /// What stays below the mark is taken after this time, or soon after.
    fileprivate static let patience: Duration = .milliseconds(15)
    /// Eight PUBACK packets of four bytes; of a PUBLISH packet to us the topic is about as long.
    private static let raisedBytes: Int32 = 32
    /// With a narrower window so many acknowledgements may never be on their way.
    private static let leastWindow = 16
    /// What we write carries the receipt of what came, and until then a broker with Nagle's algorithm keeps all else
    /// back. So there have to be writes this close to one another, in nanoseconds.
    private static let longestPause: UInt64 = 3_000_000
    private static let usualStreak = 8
    private static let longestStreak = 4096

    private(set) var isRaised = false
    /// Writes in a row, with short pauses and without a message to us between them.
    private var streak = 0
    private var neededStreak = ReceiveMark.usualStreak

    mutating func wrote(at time: MonotonicTime, after last: MonotonicTime) {
        streak = Self.isShort(last, time) ? streak + 1 : 0
    }

    /// What we write next may be an answer, upon which the next message comes.
    mutating func received() { streak = 0 }

    /// So much came: who writes does not wait for single acknowledgements.
    mutating func wasReached() { neededStreak = Self.usualStreak }

    /// Nothing was written for a while, perhaps for want of an acknowledgement.
    mutating func wasMissed() {
        streak = 0
        neededStreak = min(2 * neededStreak, Self.longestStreak)
    }

    /// Whether the mark may stay up.
    var mayStay: Bool { streak > 0 }

    /// - Parameters:
    ///   - window: packets that may be without an acknowledgement.
    ///   - unacknowledged: packets that are.
    func mayRise(window: Int, unacknowledged: Int) -> Bool {
        streak >= neededStreak && unacknowledged > 0 && window >= Self.leastWindow
    }

    mutating func set(raised: Bool, on socket: Int32) {
        guard raised != isRaised else { return }
        isRaised = raised
        var bytes = raised ? Self.raisedBytes : 1
        setsockopt(socket, SOL_SOCKET, SO_RCVLOWAT, &bytes, socklen_t(MemoryLayout<Int32>.size))
    }

    fileprivate static func isShort(_ from: MonotonicTime, _ to: MonotonicTime) -> Bool {
        to.nanoseconds &- from.nanoseconds < longestPause
    }
}

extension Connection {
    /// Raises or lowers the mark, after what came and what was written.
    func settleMark() {
        // The rest of a packet may be short.
        let isWhole = !inbound.isInsidePacket
        if mark.isRaised {
            if !mark.mayStay || !isWhole { setMark(raised: false) }
        } else if mark.mayRise(window: messages.window, unacknowledged: tokens.count), isWhole, isPlain, !isClosed {
            setMark(raised: true)
            if !isMarkWatched { watchMark() }
        }
    }

    private func setMark(raised: Bool) {
        mark.set(raised: raised, on: mosquitto_socket(instance.pointer))
    }

    private func watchMark() {
        isMarkWatched = true
        _ = EventLoop.shared.scheduleLoosely(at: .now + ReceiveMark.patience) { [weak self] in
            guard let self else { return }
            self.isMarkWatched = false
            self.markPassed()
        }
    }

    private func markPassed() {
        guard mark.isRaised, !isClosed else { return }
        let isQuiet = !ReceiveMark.isShort(sentAt, .now)
        let isMissed = isQuiet && tokens.count > 0
        readPlain()
        guard !isClosed, mark.isRaised else { return }
        if isMissed { mark.wasMissed() }
        if isQuiet || tokens.count == 0 {
            setMark(raised: false)
        } else {
            watchMark()
        }
    }
}
