/// What went wrong on the bus. The remote error's name and message are never lost.
public struct DBusError: Error, Equatable, Sendable, CustomStringConvertible {
    public enum Code: Sendable {
        /// No bus at that address, or it closed the connection.
        case disconnected
        /// No reply within the time allowed.
        case timeout
        /// The other side answered by an error.
        case remote
        /// A message that does not hold what it must, or cannot be made.
        case invalidMessage
        /// The task that waited for the reply was cancelled.
        case cancelled
    }

    public let code: Code
    /// The error's D-Bus name, such as `org.bluez.Error.NotReady`, where there is one.
    public let name: String?
    public let message: String

    public init(code: Code, name: String?, message: String) {
        self.code = code
        self.name = name
        self.message = message
    }

    public var description: String {
        switch (name, message.isEmpty) {
        case (let name?, true): name
        case (let name?, false): "\(name): \(message)"
        case (nil, _): message
        }
    }

    static func invalid(_ message: String) -> DBusError {
        DBusError(code: .invalidMessage, name: nil, message: message)
    }

    static let disconnected = DBusError(
        code: .disconnected, name: "org.freedesktop.DBus.Error.Disconnected", message: "the bus closed the connection")
}

/// Which bus to open.
public enum DBusAddress: Equatable, Sendable {
    /// As libdbus finds it: `DBUS_SYSTEM_BUS_ADDRESS`, else the well-known socket.
    case system
    /// `DBUS_SESSION_BUS_ADDRESS`.
    case session
    /// An address such as `unix:path=/run/bus`.
    case address(String)
}

/// Which signals a connection wants. Source: D-Bus specification, "Match Rules".
public struct MatchRule: Equatable, Sendable {
    /// The rule as the bus takes it.
    public let text: String

    public init(
        sender: String? = nil, interface: String? = nil, member: String? = nil, path: String? = nil,
        pathNamespace: String? = nil, arg0: String? = nil
    ) {
        var text = "type='signal'"
        for (key, value) in [
            ("sender", sender), ("interface", interface), ("member", member), ("path", path),
            ("path_namespace", pathNamespace), ("arg0", arg0),
        ] {
            // An apostrophe would end the value; the specification's way around it is to close, escape and reopen.
            guard let value else { continue }
            let quoted = value.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "'\\''")
            text += ",\(key)='\(quoted)'"
        }
        self.text = text
    }
}
