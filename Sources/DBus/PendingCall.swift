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
    var timer: LoopTimer?
    /// libdbus's object, from when it is sent until it is answered, whether or not somebody still waits.
    var pointer: OpaquePointer?
    weak var connection: DBusConnection?
    private var completion: (@EventLoopActor (Result<DBusMessage, DBusError>) -> Void)?

    init(
        _ message: DBusMessage, _ connection: DBusConnection,
        _ completion: @escaping @EventLoopActor (Result<DBusMessage, DBusError>) -> Void
    ) {
        self.message = message
        self.connection = connection
        self.completion = completion
        isCounted = dbus_message_has_destination(message.pointer, DBUS_SERVICE_DBUS) == 0
    }

    var isFinished: Bool { completion == nil }

    func finish(_ result: Result<DBusMessage, DBusError>) {
        guard let completion else { return }
        self.completion = nil
        message = nil
        timer?.cancel()
        timer = nil
        completion(result)
    }

    /// Finishes on the loop's next turn, for what fails before it is on its way.
    func finishSoon(_ error: DBusError) {
        _ = EventLoop.shared.schedule(at: .now) { self.finish(.failure(error)) }
    }

    func expire(after timeout: Duration) {
        let text = pointer == nil && isCounted ? "no turn, since too many calls are unanswered," : "no reply"
        abandon(
            DBusError(
                code: .timeout, name: "org.freedesktop.DBus.Error.NoReply",
                message: "\(text) within \(timeout.clampedMilliseconds) ms"))
    }

    /// Nobody waits for the reply any more.
    func abandon(_ error: DBusError) {
        if let connection { connection.abandon(self, error) } else { finish(.failure(error)) }
    }

    /// Lets go of libdbus's object once it was answered.
    func release() {
        guard let pointer else { return }
        self.pointer = nil
        dbus_pending_call_unref(pointer)
    }

    /// Tells libdbus that no reply is looked for any more.
    func cancel() {
        guard let pointer else { return }
        dbus_pending_call_cancel(pointer)
        release()
    }
}

/// The calls of a connection that were sent, and those that wait for their turn. The bus counts a call until it is
/// answered, so one whose time is over keeps its place until then.
@EventLoopActor
struct CallTable {
    /// Calls that somebody waits for.
    static let mostInFlight = 90
    /// With those that were given up. dbus-daemon allows 128 (`max_replies_per_connection`).
    static let mostUnanswered = 120

    private(set) var inFlight = 0
    private var abandoned = 0
    private var sent: [OpaquePointer: PendingCall] = [:]
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

    mutating func started(_ call: PendingCall, _ pending: OpaquePointer) {
        sent[pending] = call
        if call.isCounted { inFlight += 1 }
    }

    /// True where the call was there.
    mutating func answered(_ pending: OpaquePointer) -> Bool {
        guard let call = sent.removeValue(forKey: pending) else { return false }
        if call.isCounted {
            if call.isFinished { abandoned -= 1 } else { inFlight -= 1 }
        }
        return true
    }

    /// To be called before the call is finished.
    mutating func abandoned(_ call: PendingCall) {
        guard let pending = call.pointer, sent[pending] != nil, call.isCounted, !call.isFinished else { return }
        inFlight -= 1
        abandoned += 1
    }

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
