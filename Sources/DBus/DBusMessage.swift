internal import CDBus
public import EventLoop
internal import Glibc

/// One reference to a message of libdbus, for the message's object and its readers.
///
/// `@unchecked Sendable`: the pointer never changes, and what it points to is touched on the loop only.
final class MessageHandle: @unchecked Sendable {
    let raw: OpaquePointer

    /// Takes over one reference.
    init(_ raw: OpaquePointer) {
        self.raw = raw
    }

    deinit {
        if EventLoop.shared.isOnLoop { return dbus_message_unref(raw) }
        // The last of many large messages lets libdbus read again, which calls into the loop.
        let address = UInt(bitPattern: raw)
        Task { @EventLoopActor in
            if let pointer = OpaquePointer(bitPattern: address) { dbus_message_unref(pointer) }
        }
    }
}

/// A message of the bus. Source: `DBusMessage` of libdbus, which counts its references.
///
/// Making and filling one never fails on the spot: what cannot stand in a message becomes its ``fault``, and sending it
/// fails with that.
@EventLoopActor
public final class DBusMessage {
    // Both are written by the initializers, on the loop, and by writers, which are not Sendable and stay on the loop.
    nonisolated(unsafe) private var handle: MessageHandle
    nonisolated(unsafe) private var firstFault: DBusError?
    /// Types were nested as the writer pleased, so that the whole is to be looked at before it is sent.
    nonisolated(unsafe) var isFreelyNested = false
    private var knownDestination: String?
    /// Read by writers and readers too, which stay on the loop.
    nonisolated var pointer: OpaquePointer { handle.raw }

    /// Why the message cannot be sent, an `invalidMessage`; nil for one that can.
    public var fault: DBusError? { firstFault }

    /// Takes over one reference.
    init(adopting pointer: OpaquePointer) {
        handle = MessageHandle(pointer)
    }

    /// A method call. A name or path that is not valid is a ``fault``. Source: `dbus_message_new_method_call`.
    public init(call destination: String, path: String, interface: String, member: String) {
        firstFault =
            Syntax.busName.fault(destination) ?? Syntax.path.fault(path) ?? Syntax.interface.fault(interface)
            ?? Syntax.member.fault(member)
        let made = Self.made(
            firstFault != nil
                ? dbus_message_new(DBUS_MESSAGE_TYPE_METHOD_CALL)
                : dbus_message_new_method_call(destination, path, interface, member))
        handle = MessageHandle(made)
        knownDestination = destination
    }

    /// A method call to an object that the bus has named, which nothing of is looked at again.
    /// - Parameter path: bytes that came as an object path, with a final zero.
    /// - Parameter interface, member: names that are valid as they stand in the program.
    public init(call destination: StaticString, knownPath path: [UInt8], interface: StaticString, member: StaticString)
    {
        handle = MessageHandle(
            Self.made(
                path.withUnsafeBytes { path in
                    dbus_message_new_method_call(
                        Self.text(destination), path.baseAddress?.assumingMemoryBound(to: CChar.self),
                        Self.text(interface), Self.text(member))
                }))
        knownDestination = destination.description
    }

    private static func text(_ name: StaticString) -> UnsafePointer<CChar> {
        UnsafeRawPointer(name.utf8Start).assumingMemoryBound(to: CChar.self)
    }

    /// A signal. A name or path that is not valid is a ``fault``. Source: `dbus_message_new_signal`.
    public init(signal path: String, interface: String, member: String) {
        firstFault = Syntax.path.fault(path) ?? Syntax.interface.fault(interface) ?? Syntax.member.fault(member)
        let made = Self.made(
            firstFault != nil
                ? dbus_message_new(DBUS_MESSAGE_TYPE_SIGNAL) : dbus_message_new_signal(path, interface, member))
        handle = MessageHandle(made)
    }

    /// A message that only carries its fault.
    private init(faulty type: Int32, _ fault: DBusError) {
        firstFault = fault
        handle = MessageHandle(Self.made(dbus_message_new(type)))
    }

    /// For calls of libdbus that give no message only when memory is out, where Swift itself goes on no longer.
    private static func made(_ pointer: OpaquePointer?) -> OpaquePointer {
        guard let pointer else { preconditionFailure("out of memory") }
        return pointer
    }

    /// Keeps the first thing that is wrong.
    nonisolated func fail(_ text: String) {
        if firstFault == nil { firstFault = .invalid(text) }
    }

    nonisolated var hasFault: Bool { firstFault != nil }

    /// True once it was sent, and for one that came: libdbus ends the process over a change.
    nonisolated var isSealed: Bool { dbus_message_get_serial(pointer) != 0 }

    /// An empty answer to this call, to be filled and sent. Source: `dbus_message_new_method_return`.
    public func reply() -> DBusMessage {
        guard isCall, isSealed else {
            return DBusMessage(faulty: DBUS_MESSAGE_TYPE_METHOD_RETURN, .invalid("only a call that came is answered"))
        }
        return DBusMessage(adopting: Self.made(dbus_message_new_method_return(pointer)))
    }

    /// An error as the answer to this call. A name that is not valid becomes `org.freedesktop.DBus.Error.Failed`, and a
    /// NUL in the text U+FFFD, since the other side has to get an answer. Source: `dbus_message_new_error`.
    public func error(_ name: String, _ message: String) -> DBusMessage {
        guard isCall, isSealed else {
            return DBusMessage(faulty: DBUS_MESSAGE_TYPE_ERROR, .invalid("only a call that came is answered"))
        }
        let valid = Syntax.errorName.isValid(name) ? name : Self.failed
        return DBusMessage(adopting: Self.made(dbus_message_new_error(pointer, valid, Self.withoutNUL(message))))
    }

    private static let failed = "org.freedesktop.DBus.Error.Failed"

    private static func withoutNUL(_ text: String) -> String {
        if Syntax.hasNoNUL(text) { return text }
        return String(String.UnicodeScalarView(text.unicodeScalars.map { $0 == "\0" ? "\u{FFFD}" : $0 }))
    }

    /// The error that goes out in place of an answer that has a fault, so that the caller does not wait in vain; nil for
    /// what is no answer.
    func errorInstead(of fault: DBusError) -> DBusMessage? {
        let serial = dbus_message_get_reply_serial(pointer)
        guard serial != 0, !isSealed else { return nil }
        let error = DBusMessage(adopting: Self.made(dbus_message_new(DBUS_MESSAGE_TYPE_ERROR)))
        var isDone = dbus_message_set_error_name(error.pointer, Self.failed) != 0
        isDone = dbus_message_set_reply_serial(error.pointer, serial) != 0 && isDone
        if let destination = dbus_message_get_destination(pointer) {
            isDone = dbus_message_set_destination(error.pointer, destination) != 0 && isDone
        }
        error.setNoReply()
        var writer = error.writer()
        writer.append(string: fault.message)
        return isDone && error.fault == nil ? error : nil
    }

    /// A copy without a serial, to be sent again; it has the same fault. Source: `dbus_message_copy`.
    public func copy() -> DBusMessage {
        let type = dbus_message_get_type(pointer)
        if let firstFault { return DBusMessage(faulty: type, firstFault) }
        guard let copy = dbus_message_copy(pointer) else {
            return DBusMessage(faulty: type, .invalid("a descriptor in the message cannot be copied"))
        }
        let message = DBusMessage(adopting: copy)
        message.isFreelyNested = isFreelyNested
        message.knownDestination = knownDestination
        return message
    }

    public func writer() -> MessageWriter { MessageWriter(self) }
    public func reader() -> MessageReader { MessageReader(pointer, owner: handle) }

    public var path: String? { dbus_message_get_path(pointer).map { String(cString: $0) } }
    public var interface: String? { dbus_message_get_interface(pointer).map { String(cString: $0) } }
    public var member: String? { dbus_message_get_member(pointer).map { String(cString: $0) } }
    public var sender: String? { dbus_message_get_sender(pointer).map { String(cString: $0) } }
    var destination: String? { knownDestination ?? dbus_message_get_destination(pointer).map { String(cString: $0) } }
    public var signature: String { dbus_message_get_signature(pointer).map { String(cString: $0) } ?? "" }
    public var wantsReply: Bool { dbus_message_get_no_reply(pointer) == 0 }

    /// Sends only to this client; a signal without a destination goes to all that match it. A name that is not valid is
    /// a ``fault``. Source: `dbus_message_set_destination`.
    public func setDestination(_ name: String) {
        if let wrong = Syntax.busName.fault(name) { return fail(wrong.message) }
        guard canChange else { return }
        knownDestination = nil
        if dbus_message_set_destination(pointer, name) == 0 { fail("out of memory") }
    }

    /// Asks the other side not to answer.
    public func setNoReply() {
        if canChange { dbus_message_set_no_reply(pointer, 1) }
    }

    private var canChange: Bool {
        if isSealed { fail("the message was sent already: fill a copy") }
        return !isSealed
    }

    var isCall: Bool { dbus_message_get_type(pointer) == DBUS_MESSAGE_TYPE_METHOD_CALL }

    /// What keeps it from being sent. Structures nest freely as they are written, so the whole is looked at last.
    var faultToSend: DBusError? {
        if let firstFault { return firstFault }
        guard isFreelyNested, let signature = dbus_message_get_signature(pointer),
            dbus_signature_validate(signature, nil) == 0
        else { return nil }
        return .invalid("the arguments are nested too deeply")
    }

    /// The error that this message is, or nil.
    var remoteError: DBusError? {
        guard dbus_message_get_type(pointer) == DBUS_MESSAGE_TYPE_ERROR else { return nil }
        let name = dbus_message_get_error_name(pointer).map { String(cString: $0) }
        return DBusError(code: .remote, name: name, message: reader().string() ?? "")
    }
}

/// A signal as it arrives, borrowed for the call of its handler; nothing of it is copied.
@EventLoopActor
public struct DBusMessageView: ~Copyable {
    let pointer: OpaquePointer
    /// Asked for again and again.
    private let member: UnsafePointer<CChar>?

    init(_ pointer: OpaquePointer) {
        self.pointer = pointer
        member = dbus_message_get_member(pointer)
    }

    /// Of a message that was made here, as long as that lives.
    package init(_ message: DBusMessage) {
        self.init(message.pointer)
    }

    /// The bytes of the object's path.
    public var path: UnsafeRawBufferPointer { Self.bytes(dbus_message_get_path(pointer)) }
    public var sender: String? { dbus_message_get_sender(pointer).map { String(cString: $0) } }

    public func memberEquals(_ text: StaticString) -> Bool { Self.equal(member, text) }
    public func interfaceEquals(_ text: StaticString) -> Bool { Self.equal(dbus_message_get_interface(pointer), text) }
    public func reader() -> MessageReader { MessageReader(pointer, owner: nil) }

    /// Reads the arguments where they lie, as long as the view lives. Nil where they do not begin with a text: then
    /// ``reader()`` serves.
    public func wireReader() -> WireReader? {
        guard let view = BodyView(pointer) else { return nil }
        return WireReader(view.arguments, signature: view.signature)
    }

    private static func bytes(_ text: UnsafePointer<CChar>?) -> UnsafeRawBufferPointer {
        guard let text else { return UnsafeRawBufferPointer(start: nil, count: 0) }
        return UnsafeRawBufferPointer(start: text, count: strlen(text))
    }

    private static func equal(_ text: UnsafePointer<CChar>?, _ other: StaticString) -> Bool {
        guard let text, other.hasPointerRepresentation else { return false }
        return strcmp(text, UnsafeRawPointer(other.utf8Start).assumingMemoryBound(to: CChar.self)) == 0
    }
}

extension DBusMessage {
    /// Reads the arguments where they lie. Nil, without a call, where they do not begin with a text: then ``reader()``
    /// serves. The reader is good during the call only.
    public func withWireReader<Result>(_ body: @EventLoopActor (WireReader) -> Result) -> Result? {
        guard let view = BodyView(pointer) else { return nil }
        // The caller may let go of the message in the call.
        let held = Unmanaged.passRetained(self)
        defer { held.release() }
        return body(WireReader(view.arguments, signature: view.signature))
    }
}
