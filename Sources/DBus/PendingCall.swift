internal import CDBus
internal import EventLoop
internal import Glibc

/// A call on its way: it finishes once.
@EventLoopActor
final class PendingCall {
    /// What is to be sent, until the call has finished.
    private(set) var message: DBusMessage?
    /// The bus counts it against its limit. What the bus itself answers, it does not count.
    let isCounted: Bool
    let destination: String?
    let deadline: MonotonicTime
    /// Its number among what the connection has sent, by which the reply is known; 0 before it is sent.
    var serial: UInt32 = 0
    /// Whose reply it is that is waited for; nil where that was not known when it was sent.
    var callee: String?
    private let timeout: Duration
    /// Until the call has finished.
    private var connection: DBusConnection?
    private var completion: (@EventLoopActor (Result<DBusMessage, DBusError>) -> Void)?

    init(
        _ message: DBusMessage, _ connection: DBusConnection, timeout: Duration,
        _ completion: @escaping @EventLoopActor (Result<DBusMessage, DBusError>) -> Void
    ) {
        self.message = message
        self.connection = connection
        self.timeout = timeout
        self.completion = completion
        deadline = MonotonicTime.now + timeout
        destination = message.destination
        isCounted = destination != DBusConnection.busName
    }

    var isFinished: Bool { completion == nil }

    func finish(_ result: Result<DBusMessage, DBusError>) {
        guard let completion else { return }
        self.completion = nil
        message = nil
        connection = nil
        completion(result)
    }

    /// Finishes on the loop's next turn, for what fails before it is on its way.
    func finishSoon(_ error: DBusError) {
        _ = EventLoop.shared.schedule(at: .now) { self.finish(.failure(error)) }
    }

    /// Its time is over.
    func expire() {
        let text = serial == 0 && isCounted ? "no turn, since too many calls are unanswered," : "no reply"
        abandon(
            DBusError(
                code: .timeout, name: "org.freedesktop.DBus.Error.NoReply",
                message: "\(text) within \(timeout.clampedMilliseconds) ms"))
    }

    /// Nobody waits for the reply any more.
    func abandon(_ error: DBusError) { connection?.abandon(self, error) }
}

/// The calls of a connection that were sent, by their serials, and those that wait for their turn. The bus counts a call
/// until it is answered, so one whose time is over keeps its place until then.
///
/// libdbus has such a table of its own (`DBusPendingCall`), which makes the error of a timeout with each call, and takes
/// a reply from whoever sends one with the right number.
@EventLoopActor
struct CallTable {
    /// Calls that somebody waits for.
    static let mostInFlight = 90
    /// With those that were given up. dbus-daemon allows 128 (`max_replies_per_connection`).
    static let mostUnanswered = 120

    private(set) var inFlight = 0
    private var abandoned = 0
    private var sent: [UInt32: PendingCall] = [:]
    private var waiting: [PendingCall] = []
    private var firstWaiting = 0

    nonisolated init() {}

    mutating func enqueue(_ call: PendingCall) { waiting.append(call) }

    /// The next that is to be sent; nil where there is none, or no room.
    mutating func dequeue() -> PendingCall? {
        while firstWaiting < waiting.count {
            let call = waiting[firstWaiting]
            // What has finished needs no room: it goes even while there is none.
            if !call.isFinished, inFlight >= Self.mostInFlight || inFlight + abandoned >= Self.mostUnanswered {
                return nil
            }
            firstWaiting += 1
            if firstWaiting >= 256 {
                waiting.removeFirst(firstWaiting)
                firstWaiting = 0
            }
            if !call.isFinished { return call }
        }
        waiting.removeAll(keepingCapacity: true)
        firstWaiting = 0
        return nil
    }

    /// The call got its serial.
    mutating func started(_ call: PendingCall) {
        sent[call.serial] = call
        if call.isCounted { inFlight += 1 }
    }

    func call(_ serial: UInt32) -> PendingCall? { sent[serial] }

    mutating func answered(_ call: PendingCall) {
        guard sent.removeValue(forKey: call.serial) != nil, call.isCounted else { return }
        if call.isFinished { abandoned -= 1 } else { inFlight -= 1 }
    }

    /// To be called before the call is finished.
    mutating func abandoned(_ call: PendingCall) {
        guard call.isCounted, !call.isFinished, sent[call.serial] === call else { return }
        inFlight -= 1
        abandoned += 1
    }

    /// Those that have not finished.
    private var unfinished: [PendingCall] { (Array(sent.values) + waiting[firstWaiting...]).filter { !$0.isFinished } }

    /// Those whose time is over, the earliest first.
    func expired(at now: MonotonicTime) -> [PendingCall] {
        unfinished.filter { $0.deadline <= now }.sorted { ($0.deadline, $0.serial) < ($1.deadline, $1.serial) }
    }

    var nextDeadline: MonotonicTime? { unfinished.map(\.deadline).min() }

    mutating func removeAll() -> [PendingCall] {
        let all = Array(sent.values) + waiting[firstWaiting...]
        self = CallTable()
        return all
    }
}

/// Runs a call that reports by a `DBusError` of libdbus, frees the error, and throws it with its name and message.
func withDBusError(_ body: (UnsafeMutablePointer<CDBus.DBusError>) -> OpaquePointer?) throws(DBusError) -> OpaquePointer
{
    var error = CDBus.DBusError()
    dbus_error_init(&error)
    defer { dbus_error_free(&error) }
    if let pointer = body(&error) { return pointer }
    throw DBusError(
        code: .disconnected, name: error.name.map { String(cString: $0) },
        message: error.message.map { String(cString: $0) } ?? "unknown error")
}

/// A variable of the environment that is set and not empty.
func environment(_ name: String) -> String? {
    guard let value = getenv(name) else { return nil }
    let text = String(cString: value)
    return text.isEmpty ? nil : text
}
