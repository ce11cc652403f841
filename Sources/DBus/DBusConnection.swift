internal import CDBus
public import EventLoop
internal import Glibc

/// A private connection to a message bus, driven by the event loop. Source: `DBusConnection` of libdbus.
///
/// It does not come back by itself: when the bus goes, every pending call fails, ``onDisconnect`` is called once, and
/// the owner opens another. A connection lives until ``close()`` or until the bus goes.
@EventLoopActor
public final class DBusConnection {
    /// Called once when the bus closes the connection; not after ``close()``.
    public var onDisconnect: (@EventLoopActor () -> Void)?
    public private(set) var uniqueName = ""
    /// Calls to others than the bus itself that wait for their reply. dbus-daemon allows 128, and counts those that were
    /// given up until they are answered; beyond 90, or 120 with those, calls wait here for their turn.
    public var callsInFlight: Int { calls.inFlight }
    /// The socket of the bus, which stays this connection's; nil where it is closed.
    /// Source: `dbus_connection_get_unix_fd`.
    public var descriptor: Int32? {
        var descriptor: Int32 = -1
        return isOpen && dbus_connection_get_unix_fd(pointer, &descriptor) != 0 ? descriptor : nil
    }

    /// Messages dispatched before other descriptors get their turn.
    private static let dispatchLimit = 512
    /// The same as a time: devices that come and go cost more than those that are heard.
    private static let turnTime: Duration = .milliseconds(3)
    /// libdbus reads about 2 KiB at a time. So many messages in them say that there is more, which is read without a
    /// turn of the loop.
    private static let fullRead = 4
    /// Keeps what libdbus points to alive. Emptied by ``shutDown()``.
    private static var open: [ObjectIdentifier: DBusConnection] = [:]

    private let pointer: OpaquePointer
    @exclusivity(unchecked) private var watches: WatchSet
    @exclusivity(unchecked) private var calls = CallTable()
    /// Fires for the earliest deadline of the calls, or of one that was answered since.
    private var deadlineTimer: LoopTimer?
    /// The reply that libdbus hands on; it is told once libdbus has let go of it, so that a large one stands in memory
    /// once.
    @exclusivity(unchecked) private var answer: (call: PendingCall, reply: DBusMessage)?
    /// One or two: a search is shorter than a hash.
    @exclusivity(unchecked) private var owners: [(name: String, owner: String)] = []
    @exclusivity(unchecked) private var signalHandlers: [@EventLoopActor (borrowing DBusMessageView) -> Void] = []
    private var exports: [String: Export] = [:]
    @exclusivity(unchecked) private var isOpen = true
    @exclusivity(unchecked) private var isDispatching = false
    @exclusivity(unchecked) private var isDispatchScheduled = false
    /// A watch is being handled, after which there is a dispatch in any case.
    @exclusivity(unchecked) private var isReading = false
    @exclusivity(unchecked) private var dispatchedInTurn = 0
    @exclusivity(unchecked) private var turnEnd = MonotonicTime(nanoseconds: 0)
    /// Messages that this dispatch has handed on.
    @exclusivity(unchecked) private var handled = 0

    private struct Export {
        let isSubtree: Bool
        let handler: @EventLoopActor (DBusMessage) -> DBusMessage?
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

    static let busName = "org.freedesktop.DBus"

    private init(_ address: DBusAddress) throws(DBusError) {
        let text = Self.text(of: address)
        pointer = try withDBusError { dbus_connection_open_private(text, $0) }
        watches = WatchSet()
        dbus_connection_set_exit_on_disconnect(pointer, 0)
        Self.open[ObjectIdentifier(self)] = self
        guard Self.setFunctions(of: pointer, Unmanaged.passUnretained(self).toOpaque()) else {
            shutDown()
            throw DBusError(
                code: .disconnected, name: nil,
                message: "the event loop cannot watch the bus's socket, or memory is out")
        }
    }

    /// Not isolated, since each call of an isolated closure by C is checked, which costs more than the closure does.
    private nonisolated static func setFunctions(of pointer: OpaquePointer, _ me: UnsafeMutableRawPointer) -> Bool {
        dbus_connection_set_dispatch_status_function(
            pointer,
            { _, status, me in
                guard status == DBUS_DISPATCH_DATA_REMAINS else { return }
                DBusConnection.from(me, nil) { connection, _ in connection.scheduleDispatch() }
            }, me, nil)
        let filter: DBusHandleMessageFunction = { _, message, me in
            DBusConnection.from(me, message) { $0.handle($1) } ?? DBUS_HANDLER_RESULT_NOT_YET_HANDLED
        }
        return dbus_connection_add_filter(pointer, filter, me, nil) != 0
            && dbus_connection_set_watch_functions(
                pointer, { watch, me in DBusConnection.from(me, watch) { $0.add($1) ? 1 : 0 } ?? 0 },
                { watch, me in DBusConnection.from(me, watch) { $0.watches.remove($1) } },
                { watch, me in DBusConnection.from(me, watch) { $0.update($1) } }, me, nil) != 0
    }

    private static func text(of address: DBusAddress) -> String {
        switch address {
        case .address(let text): text
        case .system: environment("DBUS_SYSTEM_BUS_ADDRESS") ?? "unix:path=/run/dbus/system_bus_socket"
        case .session: environment("DBUS_SESSION_BUS_ADDRESS") ?? "autolaunch:"
        }
    }

    /// Calls `body` with the connection that libdbus's user data stands for. libdbus calls back from within our own calls
    /// only. Nothing is to be captured by `body`: this happens several times for each message.
    @discardableResult
    private nonisolated static func from<Result>(
        _ me: UnsafeMutableRawPointer?, _ object: OpaquePointer?,
        _ body: @escaping @EventLoopActor (DBusConnection, OpaquePointer?) -> Result
    ) -> Result? {
        guard let me else { return nil }
        assert(EventLoop.shared.isOnLoop, "libdbus called from another thread")
        let connection = Unmanaged<DBusConnection>.fromOpaque(me).takeUnretainedValue()
        // The isolation is part of the closure's type only, not of its representation.
        return unsafeBitCast(body, to: ((DBusConnection, OpaquePointer?) -> Result).self)(connection, object)
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
        let pending = calls.removeAll()
        deadlineTimer?.cancel()
        dbus_connection_close(pointer)
        Self.open[ObjectIdentifier(self)] = nil
        // While it dispatches, libdbus holds a reference of its own.
        dbus_connection_unref(pointer)
        for call in pending { call.finish(.failure(.disconnected)) }
        notify?()
    }

    // MARK: Reading

    private func add(_ watch: OpaquePointer?) -> Bool {
        watches.add(watch, for: self)
    }

    /// A watch of ours has something.
    func handle(_ watch: OpaquePointer, _ flags: UInt32) {
        guard isOpen else { return }
        isReading = true
        dbus_watch_handle(watch, flags)
        isReading = false
    }

    /// Hands on what the watches have read. True where there is more to read, for which no turn of the loop is needed.
    func dispatchAfterReading() -> Bool {
        let count = dispatch()
        if isOpen, count >= Self.fullRead {
            if dispatchedInTurn == 0 { turnEnd = .now + Self.turnTime }
            dispatchedInTurn += count
            if dispatchedInTurn < Self.dispatchLimit, .now < turnEnd { return true }
        }
        dispatchedInTurn = 0
        return false
    }

    private func update(_ watch: OpaquePointer?) {
        if watches.update(watch) { return }
        // libdbus is in the middle of something.
        _ = EventLoop.shared.schedule(at: .now) { [weak self] in self?.shutDown() }
    }

    private func scheduleDispatch() {
        guard !isDispatching, !isReading, !isDispatchScheduled else { return }
        isDispatchScheduled = true
        _ = EventLoop.shared.schedule(at: .now) { [weak self] in
            self?.isDispatchScheduled = false
            self?.dispatch()
        }
    }

    /// Hands on what was read; gives back how many messages that were.
    @discardableResult
    private func dispatch() -> Int {
        guard isOpen, !isDispatching else { return 0 }
        isDispatching = true
        handled = 0
        var remains = true
        while remains, isOpen, handled < Self.dispatchLimit {
            remains = dbus_connection_dispatch(pointer) == DBUS_DISPATCH_DATA_REMAINS
            if let (call, reply) = answer {
                answer = nil
                finish(call, reply)
                // What is read while it is told is told of to nobody.
                remains = isOpen && dbus_connection_get_dispatch_status(pointer) == DBUS_DISPATCH_DATA_REMAINS
            }
        }
        isDispatching = false
        if isOpen, handled >= Self.dispatchLimit { scheduleDispatch() }
        return handled
    }

    private func handle(_ message: OpaquePointer?) -> DBusHandlerResult {
        guard let message else { return DBUS_HANDLER_RESULT_NOT_YET_HANDLED }
        handled += 1
        switch dbus_message_get_type(message) {
        case DBUS_MESSAGE_TYPE_SIGNAL:
            let view = DBusMessageView(message)
            if view.memberEquals("Disconnected"), view.interfaceEquals("org.freedesktop.DBus.Local") {
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
            replied(message)
            return DBUS_HANDLER_RESULT_HANDLED
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

    /// Sends a signal, an answer, or a call whose answer nobody waits for. In place of an answer that has a fault the
    /// other side gets an error. Source: `dbus_connection_send`.
    /// - Returns: why it was not sent; nil where it was.
    @discardableResult
    public func send(_ message: DBusMessage) -> DBusError? {
        guard isOpen else { return .disconnected }
        if let fault = message.faultToSend {
            if let error = message.errorInstead(of: fault) { dbus_connection_send(pointer, error.pointer, nil) }
            return fault
        }
        return dbus_connection_send(pointer, message.pointer, nil) != 0 ? nil : Self.refused
    }

    private static let refused = DBusError.invalid(
        "libdbus refused the message: it holds a descriptor, which this bus does not pass, or memory is out")

    /// Bytes that wait to be written, for a sender that must not outrun the bus.
    public var outgoingBytes: Int { isOpen ? Int(dbus_connection_get_outgoing_size(pointer)) : 0 }

    /// Calls a method. `completion` is called exactly once, never before this returns: with the reply, with the other
    /// side's error, with the message's ``DBusMessage/fault``, or after `timeout` with a timeout; a reply that comes later
    /// is dropped.
    public func call(
        _ message: DBusMessage, timeout: Duration,
        _ completion: @escaping @EventLoopActor (Result<DBusMessage, DBusError>) -> Void
    ) {
        _ = start(message, timeout, completion)
    }

    /// Calls a method and waits for its reply; ends at once where the task is cancelled.
    /// - Throws: ``DBusError``: `remote` with the other side's error, `timeout`, `cancelled`, `disconnected`, or
    ///   `invalidMessage` where the message has a fault.
    public func call(_ message: DBusMessage, timeout: Duration) async throws(DBusError) -> DBusMessage {
        let slot = CallSlot()
        let result: Result<DBusMessage, DBusError> = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                slot.call = start(message, timeout) { continuation.resume(returning: $0) }
                if Task.isCancelled { slot.cancel() }
            }
        } onCancel: {
            Task { @EventLoopActor in slot.cancel() }
        }
        return try result.get()
    }

    private func start(
        _ message: DBusMessage, _ timeout: Duration,
        _ completion: @escaping @EventLoopActor (Result<DBusMessage, DBusError>) -> Void
    ) -> PendingCall {
        let call = PendingCall(message, self, timeout: timeout, completion)
        if let fault = message.faultToSend {
            call.finishSoon(fault)
        } else if !message.isCall || !message.wantsReply {
            call.finishSoon(.invalid("only a call that wants a reply can wait for one"))
        } else if !isOpen {
            call.finishSoon(.disconnected)
        } else {
            arm(call.deadline)
            if call.isCounted {
                calls.enqueue(call)
                startWaiting()
            } else {
                transmit(call, message)
            }
        }
        return call
    }

    private func transmit(_ call: PendingCall, _ message: DBusMessage) {
        // What was sent before has its serial for good, by which the reply is found; a copy gets a new one.
        let message = message.isSealed ? message.copy() : message
        if let fault = message.fault { return call.finishSoon(fault) }
        guard dbus_connection_get_is_connected(pointer) != 0 else { return call.finishSoon(.disconnected) }
        guard dbus_connection_send(pointer, message.pointer, &call.serial) != 0 else {
            return call.finishSoon(Self.refused)
        }
        call.callee = callee(of: call)
        calls.started(call)
    }

    // MARK: Replies

    /// Tells who has a name, from now on: replies to calls to the name are taken from that client alone.
    public func setOwner(_ owner: String?, of name: String) {
        owners.removeAll { $0.name == name }
        if let owner { owners.append((name, owner)) }
    }

    private func callee(of call: PendingCall) -> String? {
        guard let destination = call.destination else { return nil }
        let isOwnName = destination.utf8.first == UInt8(ascii: ":") || destination == Self.busName
        if isOwnName { return destination }
        for entry in owners where entry.name == destination { return entry.owner }
        return nil
    }

    private func replied(_ message: OpaquePointer) {
        guard let call = calls.call(dbus_message_get_reply_serial(message)), isCallee(message, of: call) else { return }
        dbus_message_ref(message)
        answer = (call, DBusMessage(adopting: message))
    }

    /// Who was called answers, or the bus in its place. The bus vouches for the sender's name; but it may let anybody
    /// send a reply that nobody has asked for.
    private func isCallee(_ message: OpaquePointer, of call: PendingCall) -> Bool {
        guard let callee = call.callee else { return true }
        guard let sender = dbus_message_get_sender(message) else { return false }
        func isSender(_ name: String) -> Bool { strcmp(name, sender) == 0 }
        // The name may have changed hands just before the call, of which we heard after it.
        return isSender(callee) || isSender(Self.busName) || self.callee(of: call).map(isSender) == true
    }

    private func finish(_ call: PendingCall, _ reply: DBusMessage) {
        calls.answered(call)
        startWaiting()
        if let error = reply.remoteError { call.finish(.failure(error)) } else { call.finish(.success(reply)) }
    }

    /// Ends a call whose reply is not waited for any more; the bus counts it until it is answered.
    func abandon(_ call: PendingCall, _ error: DBusError) {
        calls.abandoned(call)
        call.finish(.failure(error))
        startWaiting()
    }

    /// Wakes up for a deadline. An answered call leaves the timer: the next one is set when it fires.
    private func arm(_ deadline: MonotonicTime) {
        if let timer = deadlineTimer, timer.isPending, timer.deadline <= deadline { return }
        deadlineTimer?.cancel()
        deadlineTimer = EventLoop.shared.schedule(at: deadline) { [weak self] in self?.expire() }
    }

    private func expire() {
        for call in calls.expired(at: .now) { call.expire() }
        if isOpen, let next = calls.nextDeadline { arm(next) }
    }

    private func startWaiting() {
        while isOpen, let call = calls.dequeue() {
            if let message = call.message { transmit(call, message) }
        }
    }

    // MARK: Objects

    /// Answers method calls to an object, or with `subtree` to all below it too; the longest path wins. A handler gives
    /// the answer, or nil and sends it later by ``send(_:)``. An answer with a fault goes out as an error.
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

@EventLoopActor
private final class CallSlot {
    var call: PendingCall?

    func cancel() {
        call?.abandon(
            DBusError(code: .cancelled, name: nil, message: "the task that waited for the reply was cancelled"))
    }
}
