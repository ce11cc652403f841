internal import CDBus
internal import EventLoop
internal import Glibc

/// A call on its way: it finishes once.
@EventLoopActor
final class PendingCall {
    var timer: LoopTimer?
    var pointer: OpaquePointer?
    weak var connection: DBusConnection?
    private var completion: (@EventLoopActor (Result<DBusMessage, DBusError>) -> Void)?

    init(_ completion: @escaping @EventLoopActor (Result<DBusMessage, DBusError>) -> Void) {
        self.completion = completion
    }

    var isFinished: Bool { completion == nil }

    func finish(_ result: Result<DBusMessage, DBusError>) {
        guard let completion else { return }
        self.completion = nil
        timer?.cancel()
        timer = nil
        completion(result)
    }

    /// Lets go of libdbus's object once it was answered.
    func release() {
        guard let pointer else { return }
        self.pointer = nil
        dbus_pending_call_unref(pointer)
    }

    /// Tells libdbus that nobody waits any more.
    func cancel() {
        guard let pointer else { return }
        dbus_pending_call_cancel(pointer)
        release()
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
