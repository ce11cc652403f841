public import Bluetooth
internal import EventLoop
internal import JSON

/// Where the bridge's lines for people go.
public enum LogLevel: Int, Sendable, Comparable, CaseIterable {
    case debug, info, warning, error

    public static func < (left: LogLevel, right: LogLevel) -> Bool { left.rawValue < right.rawValue }

    public var name: String {
        switch self {
        case .debug: "debug"
        case .info: "info"
        case .warning: "warning"
        case .error: "error"
        }
    }
}

/// Takes the lines that a person should see. Secrets are never in them.
public typealias LogSink = @EventLoopActor (LogLevel, _ code: String, _ message: String, BluetoothAddress?) -> Void

/// `events`: warnings and errors that a person should see, on the log and the broker; so many a minute and no more.
@EventLoopActor
final class EventLog {
    private static let limit = 60

    private let space: TopicSpace
    private let publisher: Publisher
    private let clock: any LoopClock
    private let log: LogSink
    private var sentThisMinute = 0
    private var minute: UInt64 = 0
    private(set) var suppressed: UInt64 = 0

    init(space: TopicSpace, publisher: Publisher, clock: any LoopClock, log: @escaping LogSink) {
        self.space = space
        self.publisher = publisher
        self.clock = clock
        self.log = log
    }

    /// - Parameter isEnd: it ends what an earlier event told of, and is published although it is no warning.
    func report(
        _ level: LogLevel, _ code: String, _ message: String, device: BluetoothAddress? = nil, isEnd: Bool = false
    ) {
        let minute = clock.now.nanoseconds / 60_000_000_000
        if minute != self.minute {
            self.minute = minute
            sentThisMinute = 0
        }
        guard sentThisMinute < Self.limit else {
            suppressed += 1
            return
        }
        sentThisMinute += 1
        log(level, code, message, device)
        guard level >= .warning || isEnd else { return }
        let event = Payloads.event(
            level: level.name, code: code, message: message, device: device, at: clock.wallNow)
        publisher.send(OutboxMessage(topic: space.events, payload: event.serialised()))
    }

    /// A line for the log alone.
    func note(_ level: LogLevel, _ code: String, _ message: String) {
        log(level, code, message, nil)
    }
}
