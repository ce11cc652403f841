internal import CDBus
public import EventLoop
internal import Glibc

/// A message of the bus. Source: `DBusMessage` of libdbus, which counts its references.
@EventLoopActor
public final class DBusMessage {
    // Set once, and libdbus counts references atomically: safe to let go of on any thread.
    nonisolated(unsafe) let pointer: OpaquePointer

    /// Takes over one reference.
    init(adopting pointer: OpaquePointer) {
        self.pointer = pointer
    }

    deinit { dbus_message_unref(pointer) }

    /// A method call. Names and paths that are not valid are replaced by ones that no object has, so that the call fails
    /// by an answer; libdbus would end the process.
    public init(call destination: String, path: String, interface: String, member: String) {
        let isName = dbus_validate_bus_name(destination, nil) != 0
        pointer = Self.made(
            dbus_message_new_method_call(
                isName ? destination : "org.freedesktop.DBus", Self.validPath(path), Self.validInterface(interface),
                Self.validMember(member)))
    }

    /// A signal.
    public init(signal path: String, interface: String, member: String) {
        pointer = Self.made(
            dbus_message_new_signal(Self.validPath(path), Self.validInterface(interface), Self.validMember(member)))
    }

    /// libdbus gives no message only when memory is out.
    private static func made(_ pointer: OpaquePointer?) -> OpaquePointer {
        guard let pointer else { preconditionFailure("out of memory") }
        return pointer
    }

    private static func validPath(_ path: String) -> String { dbus_validate_path(path, nil) != 0 ? path : "/invalid" }

    private static func validInterface(_ name: String) -> String {
        dbus_validate_interface(name, nil) != 0 ? name : "invalid.Interface"
    }

    private static func validMember(_ name: String) -> String {
        dbus_validate_member(name, nil) != 0 ? name : "Invalid"
    }

    /// An empty answer to this call, to be filled and sent.
    public func reply() -> DBusMessage {
        DBusMessage(adopting: Self.made(dbus_message_new_method_return(pointer)))
    }

    /// An error as the answer to this call.
    public func error(_ name: String, _ message: String) -> DBusMessage {
        let valid = dbus_validate_error_name(name, nil) != 0 ? name : "org.freedesktop.DBus.Error.Failed"
        return DBusMessage(adopting: Self.made(dbus_message_new_error(pointer, valid, message)))
    }

    /// A copy without a serial, to be sent again. Source: `dbus_message_copy`.
    public func copy() -> DBusMessage { DBusMessage(adopting: Self.made(dbus_message_copy(pointer))) }

    public func writer() -> MessageWriter { MessageWriter(pointer) }
    public func reader() -> MessageReader { MessageReader(pointer, owner: self) }

    public var path: String? { dbus_message_get_path(pointer).map { String(cString: $0) } }
    public var interface: String? { dbus_message_get_interface(pointer).map { String(cString: $0) } }
    public var member: String? { dbus_message_get_member(pointer).map { String(cString: $0) } }
    public var sender: String? { dbus_message_get_sender(pointer).map { String(cString: $0) } }
    public var signature: String { dbus_message_get_signature(pointer).map { String(cString: $0) } ?? "" }
    public var wantsReply: Bool { dbus_message_get_no_reply(pointer) == 0 }

    /// Sends only to this client; a signal without a destination goes to all that match it.
    public func setDestination(_ name: String) {
        if dbus_validate_bus_name(name, nil) != 0 { dbus_message_set_destination(pointer, name) }
    }

    /// Asks the other side not to answer.
    public func setNoReply() { dbus_message_set_no_reply(pointer, 1) }

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

    init(_ pointer: OpaquePointer) {
        self.pointer = pointer
    }

    /// The bytes of the object's path.
    public var path: UnsafeRawBufferPointer { Self.bytes(dbus_message_get_path(pointer)) }
    public var sender: String? { dbus_message_get_sender(pointer).map { String(cString: $0) } }

    public func memberEquals(_ text: StaticString) -> Bool { Self.equal(dbus_message_get_member(pointer), text) }
    public func interfaceEquals(_ text: StaticString) -> Bool { Self.equal(dbus_message_get_interface(pointer), text) }
    public func reader() -> MessageReader { MessageReader(pointer, owner: nil) }

    private static func bytes(_ text: UnsafePointer<CChar>?) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(start: text, count: text.map { strlen($0) } ?? 0)
    }

    private static func equal(_ text: UnsafePointer<CChar>?, _ other: StaticString) -> Bool {
        guard let text, other.hasPointerRepresentation else { return false }
        return strcmp(text, UnsafeRawPointer(other.utf8Start).assumingMemoryBound(to: CChar.self)) == 0
    }
}
