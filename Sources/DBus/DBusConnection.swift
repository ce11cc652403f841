internal import CDBus
public import EventLoop

/// A private connection to a message bus, driven by the event loop. Source: `DBusConnection` of libdbus.
///
/// It does not come back by itself: when the bus goes, every pending call fails, ``onDisconnect`` is called once, and
/// the owner opens another. A connection lives until ``close()`` or until the bus goes.
@EventLoopActor
public final class DBusConnection {
    /// Called once when the bus closes the connection; not after ``close()``.
    public var onDisconnect: (@EventLoopActor () -> Void)?
    public private(set) var uniqueName = ""
    /// Calls that wait for their reply on the bus. dbus-daemon allows 128; beyond 90 they wait here for their turn.
    public var callsInFlight: Int { calls.count }

    private static let inFlightLimit = 90
    /// Messages dispatched before other descriptors get their turn.
    private static let dispatchLimit = 512
    /// Keeps what libdbus points to alive. Emptied by ``shutDown()``.
    private static var open: [ObjectIdentifier: DBusConnection] = [:]

    private let pointer: OpaquePointer
    private var watches: WatchSet
    private var calls: [OpaquePointer: PendingCall] = [:]
    private var waiting: [WaitingCall] = []
    private var waitingStart = 0
    private var signalHandlers: [@EventLoopActor (borrowing DBusMessageView) -> Void] = []
    private var exports: [String: Export] = [:]
    private var isOpen = true
    private var isDispatching = false
    private var isDispatchScheduled = false

    private struct Export {
        let isSubtree: Bool
        let handler: @EventLoopActor (DBusMessage) -> DBusMessage?
    }

    private struct WaitingCall {
        let message: DBusMessage
        let deadline: MonotonicTime
        let call: PendingCall
    }

    // MARK: Opening and closing

    /// Opens a connection and says Hello.
    /// - Throws: ``DBusError`` where there is no bus at the address, or it does not answer within `timeout`.
    public static func open(_ address: DBusAddress, timeout: Duration = .seconds(5)) async throws(DBusError)
        -> DBusConnection
    {
        let connection = try DBusConnection(address)
        do throws(DBusError) {
            let hello = DBusMessage(
                call: busName, path: "/org/freedesktop/DBus", interface: busName, member: "Hello")
            let reply = try await connection.call(hello, timeout: timeout)
            guard let name = reply.reader().string() else {
                throw DBusError(code: .invalidMessage, name: nil, message: "the bus answered Hello without a name")
            }
            connection.uniqueName = name
            dbus_bus_set_unique_name(connection.pointer, name)
            return connection
        } catch {
            connection.close()
            throw error
        }
    }

    private static let busName = "org.freedesktop.DBus"

    private init(_ address: DBusAddress) throws(DBusError) {
        let text = Self.text(of: address)
        pointer = try withDBusError { dbus_connection_open_private(text, $0) }
        watches = WatchSet()
        dbus_connection_set_exit_on_disconnect(pointer, 0)
        Self.open[ObjectIdentifier(self)] = self
        let me = Unmanaged.passUnretained(self).toOpaque()
        dbus_connection_set_watch_functions(
            pointer,
            { watch, me in DBusConnection.from(me) { $0.add(watch) } ? 1 : 0 },
            { watch, me in _ = DBusConnection.from(me) { $0.watches.remove(watch) } },
            { watch, me in _ = DBusConnection.from(me) { $0.watches.update(watch) } }, me, nil)
        dbus_connection_set_dispatch_status_function(
            pointer,
            { _, status, me in
                guard status == DBUS_DISPATCH_DATA_REMAINS else { return }
                _ = DBusConnection.from(me) { $0.scheduleDispatch() }
            }, me, nil)
        let filter: DBusHandleMessageFunction = { _, message, me in
            guard let message else { return DBUS_HANDLER_RESULT_NOT_YET_HANDLED }
            var result = DBUS_HANDLER_RESULT_NOT_YET_HANDLED
            _ = DBusConnection.from(me) { result = $0.handle(message) }
            return result
        }
        dbus_connection_add_filter(pointer, filter, me, nil)
    }

    private static func text(of address: DBusAddress) -> String {
        switch address {
        case .address(let text): text
        case .system: environment("DBUS_SYSTEM_BUS_ADDRESS") ?? "unix:path=/run/dbus/system_bus_socket"
        case .session: environment("DBUS_SESSION_BUS_ADDRESS") ?? "autolaunch:"
        }
    }

    /// The connection that libdbus's user data stands for. False where it was shut down.
    private nonisolated static func from(
        _ me: UnsafeMutableRawPointer?, _ body: @EventLoopActor (DBusConnection) -> Void
    ) -> Bool {
        guard let me else { return false }
        let connection = Unmanaged<DBusConnection>.fromOpaque(me).takeUnretainedValue()
        EventLoopActor.assumeIsolated { body(connection) }
        return true
    }

    /// Closes the connection. Pending calls fail; nothing is called afterwards.
    public func close() {
        onDisconnect = nil
        shutDown()
    }

    private func shutDown() {
        guard isOpen else { return }
        isOpen = false
        let notify = onDisconnect
        onDisconnect = nil
        signalHandlers = []
        exports = [:]
        dbus_connection_set_dispatch_status_function(pointer, nil, nil, nil)
        dbus_connection_set_watch_functions(pointer, nil, nil, nil, nil, nil)
        watches.removeAll()
        let pending = Array(calls.values) + waiting[waitingStart...].map(\.call)
        calls = [:]
        waiting = []
        waitingStart = 0
        for call in pending { call.cancel() }
        dbus_connection_close(pointer)
        Self.open[ObjectIdentifier(self)] = nil
        // While it dispatches, libdbus holds a reference of its own.
        dbus_connection_unref(pointer)
        for call in pending { call.finish(.failure(.disconnected)) }
        notify?()
    }

    // MARK: Reading

    private func add(_ watch: OpaquePointer?) {
        watches.add(watch) { [weak self] watch, flags in
            guard let self, isOpen else { return }
            dbus_watch_handle(watch, flags)
        } afterwards: { [weak self] in
            self?.dispatch()
        }
    }

    private func scheduleDispatch() {
        guard !isDispatching, !isDispatchScheduled else { return }
        isDispatchScheduled = true
        _ = EventLoop.shared.schedule(at: .now) { [weak self] in
            self?.isDispatchScheduled = false
            self?.dispatch()
        }
    }

    private func dispatch() {
        guard isOpen, !isDispatching else { return }
        isDispatching = true
        var left = Self.dispatchLimit
        while isOpen, left > 0, dbus_connection_dispatch(pointer) == DBUS_DISPATCH_DATA_REMAINS { left -= 1 }
        isDispatching = false
        if isOpen, left == 0 { scheduleDispatch() }
    }

    private func handle(_ message: OpaquePointer) -> DBusHandlerResult {
        switch dbus_message_get_type(message) {
        case DBUS_MESSAGE_TYPE_SIGNAL:
            let view = DBusMessageView(message)
            if view.interfaceEquals("org.freedesktop.DBus.Local"), view.memberEquals("Disconnected") {
                shutDown()
            } else {
                for handler in signalHandlers { handler(view) }
            }
            return DBUS_HANDLER_RESULT_HANDLED
        case DBUS_MESSAGE_TYPE_METHOD_CALL:
            // Peer is answered by libdbus, and so is what no handler is there for.
            guard !DBusMessageView(message).interfaceEquals("org.freedesktop.DBus.Peer"),
                let export = export(for: message)
            else { return DBUS_HANDLER_RESULT_NOT_YET_HANDLED }
            dbus_message_ref(message)
            if let answer = export.handler(DBusMessage(adopting: message)) { send(answer) }
            return DBUS_HANDLER_RESULT_HANDLED
        default:
            return DBUS_HANDLER_RESULT_NOT_YET_HANDLED
        }
    }

    // MARK: Signals

    /// Calls `handler` for each signal that arrives, whatever rule it matched. Handlers stay for the connection's life.
    public func addSignalHandler(_ handler: @escaping @EventLoopActor (borrowing DBusMessageView) -> Void) {
        signalHandlers.append(handler)
    }

    /// Asks the bus for the signals that match. Source: `org.freedesktop.DBus.AddMatch`.
    public func addMatch(_ rule: MatchRule) async throws(DBusError) {
        _ = try await busCall("AddMatch") { $0.append(string: rule.text) }
    }

    public func removeMatch(_ rule: MatchRule) async throws(DBusError) {
        _ = try await busCall("RemoveMatch") { $0.append(string: rule.text) }
    }

    // MARK: Names

    /// The unique name of who owns a name, or nil. Source: `org.freedesktop.DBus.GetNameOwner`.
    public func nameOwner(of name: String) async throws(DBusError) -> String? {
        do throws(DBusError) {
            return try await busCall("GetNameOwner") { $0.append(string: name) }.reader().string()
        } catch {
            if error.name == "org.freedesktop.DBus.Error.NameHasNoOwner" { return nil }
            throw error
        }
    }

    /// Takes a name; it does not queue behind another owner. Source: `org.freedesktop.DBus.RequestName`.
    public func requestName(_ name: String) async throws(DBusError) {
        let doNotQueue: UInt32 = 4
        let reply = try await busCall("RequestName") {
            $0.append(string: name)
            $0.append(uint32: doNotQueue)
        }
        let code = reply.reader().uint32()
        guard code == 1 || code == 4 else {
            throw DBusError(
                code: .remote, name: "org.freedesktop.DBus.Error.NameExists", message: "\(name) has another owner")
        }
    }

    /// Gives a name back. Source: `org.freedesktop.DBus.ReleaseName`.
    public func releaseName(_ name: String) async throws(DBusError) {
        _ = try await busCall("ReleaseName") { $0.append(string: name) }
    }

    private func busCall(_ member: String, _ fill: (inout MessageWriter) -> Void) async throws(DBusError) -> DBusMessage
    {
        let message = DBusMessage(
            call: Self.busName, path: "/org/freedesktop/DBus", interface: Self.busName, member: member)
        var writer = message.writer()
        fill(&writer)
        return try await call(message, timeout: .seconds(5))
    }

    // MARK: Sending

    /// Sends a signal, an answer, or a call whose answer nobody waits for. Without a bus it goes nowhere.
    public func send(_ message: DBusMessage) {
        guard isOpen else { return }
        dbus_connection_send(pointer, message.pointer, nil)
    }

    /// Bytes that wait to be written, for a sender that must not outrun the bus.
    public var outgoingBytes: Int { isOpen ? Int(dbus_connection_get_outgoing_size(pointer)) : 0 }

    /// Calls a method. `completion` is called exactly once, never before this returns: with the reply, with the other
    /// side's error, or after `timeout` with a timeout; a reply that comes later is dropped.
    public func call(
        _ message: DBusMessage, timeout: Duration,
        _ completion: @escaping @EventLoopActor (Result<DBusMessage, DBusError>) -> Void
    ) {
        let call = PendingCall(completion)
        guard isOpen else {
            _ = EventLoop.shared.schedule(at: .now) { call.finish(.failure(.disconnected)) }
            return
        }
        let deadline = MonotonicTime.now + timeout
        call.timer = EventLoop.shared.schedule(at: deadline) { [weak self] in self?.expire(call, after: timeout) }
        if calls.count < Self.inFlightLimit {
            start(call, message)
        } else {
            waiting.append(WaitingCall(message: message, deadline: deadline, call: call))
        }
    }

    /// Calls a method and waits for its reply.
    public func call(_ message: DBusMessage, timeout: Duration) async throws(DBusError) -> DBusMessage {
        let result = await withCheckedContinuation { continuation in
            call(message, timeout: timeout) { continuation.resume(returning: $0) }
        }
        return try result.get()
    }

    private func start(_ call: PendingCall, _ message: DBusMessage) {
        var pending: OpaquePointer?
        let isSent =
            dbus_connection_send_with_reply(pointer, message.pointer, &pending, cdbus_timeout_infinite) != 0
        guard isSent, let pending else {
            _ = EventLoop.shared.schedule(at: .now) { call.finish(.failure(.disconnected)) }
            return
        }
        call.pointer = pending
        call.connection = self
        calls[pending] = call
        dbus_pending_call_set_notify(
            pending,
            { pending, data in
                guard let pending, let data else { return }
                let call = Unmanaged<PendingCall>.fromOpaque(data).takeUnretainedValue()
                EventLoopActor.assumeIsolated { call.connection?.replied(pending, call) }
            }, Unmanaged.passUnretained(call).toOpaque(), nil)
    }

    private func replied(_ pending: OpaquePointer, _ call: PendingCall) {
        guard calls.removeValue(forKey: pending) != nil else { return }
        let reply = dbus_pending_call_steal_reply(pending).map { DBusMessage(adopting: $0) }
        call.release()
        startWaiting()
        guard let reply else { return call.finish(.failure(.disconnected)) }
        if let error = reply.remoteError {
            // libdbus itself answers what was pending when the bus went.
            call.finish(.failure(dbus_connection_get_is_connected(pointer) != 0 ? error : .disconnected))
        } else {
            call.finish(.success(reply))
        }
    }

    private func expire(_ call: PendingCall, after timeout: Duration) {
        if let pending = call.pointer { calls[pending] = nil }
        call.cancel()
        startWaiting()
        call.finish(
            .failure(
                DBusError(
                    code: .timeout, name: "org.freedesktop.DBus.Error.NoReply",
                    message: "no reply within \(timeout.clampedMilliseconds) ms")))
    }

    private func startWaiting() {
        while isOpen, calls.count < Self.inFlightLimit, waitingStart < waiting.count {
            let next = waiting[waitingStart]
            waitingStart += 1
            if !next.call.isFinished { start(next.call, next.message) }
        }
        if waitingStart == waiting.count {
            waiting.removeAll(keepingCapacity: true)
            waitingStart = 0
        }
    }

    // MARK: Objects

    /// Answers method calls to an object, or with `subtree` to all below it too; the longest path wins. A handler gives
    /// the answer, or nil and sends it later by ``send(_:)``.
    public func export(path: String, subtree: Bool, _ handler: @escaping @EventLoopActor (DBusMessage) -> DBusMessage?)
    {
        exports[path] = Export(isSubtree: subtree, handler: handler)
    }

    public func unexport(path: String) {
        exports[path] = nil
    }

    private func export(for message: OpaquePointer) -> Export? {
        guard !exports.isEmpty, let text = dbus_message_get_path(message) else { return nil }
        let path = String(cString: text)
        if let exact = exports[path] { return exact }
        var end = path.endIndex
        while let slash = path[..<end].lastIndex(of: "/") {
            let parent = slash == path.startIndex ? "/" : String(path[..<slash])
            if let export = exports[parent], export.isSubtree { return export }
            end = slash
        }
        return nil
    }
}
