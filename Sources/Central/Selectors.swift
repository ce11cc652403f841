public import Bluetooth

/// Names a controller: by its address, which stays, or by its name in the system.
public enum AdapterSelector: Hashable, Sendable, CustomStringConvertible {
    case address(BluetoothAddress)
    /// The system's name (`hci0`) or the alias.
    case name(String)

    public init(parsing text: String) {
        self = BluetoothAddress(parsing: text).map(AdapterSelector.address) ?? .name(text)
    }

    public var description: String {
        switch self {
        case .address(let address): address.description
        case .name(let name): name
        }
    }
}

/// Names a service, characteristic or descriptor: its UUID, and its handle where the UUID is not alone.
public struct AttributeSelector: Hashable, Sendable, CustomStringConvertible {
    public let uuid: BluetoothUUID
    public let handle: UInt16?

    public init(uuid: BluetoothUUID, handle: UInt16? = nil) {
        self.uuid = uuid
        self.handle = handle
    }

    /// Takes `180f`, `0x180F`, the dashed form, and each with `_` and the handle in hexadecimal, as `2a06_0015`.
    public init?(parsing text: String) {
        let parts = text.split(separator: "_", omittingEmptySubsequences: false)
        guard parts.count <= 2, let first = parts.first else { return nil }
        guard let uuid = BluetoothUUID(parsing: first) else { return nil }
        self.uuid = uuid
        guard parts.count == 2 else {
            handle = nil
            return
        }
        guard !parts[1].isEmpty, parts[1].count <= 4, let handle = UInt16(parts[1], radix: 16) else { return nil }
        self.handle = handle
    }

    public var description: String {
        handle.map { "\(uuid.topicForm)_\(Hex.encode(UInt64($0), digits: 4))" } ?? uuid.topicForm
    }
}

/// Who wants a link or a subscription. Links and subscriptions end when their last holder lets go.
public struct HolderID: Hashable, Sendable, CustomStringConvertible {
    private final class Identity: Sendable {}
    private let identity = Identity()
    public let name: String

    /// A holder unlike every other, whatever its name.
    public init(_ name: String) {
        self.name = name
    }

    public static func == (left: HolderID, right: HolderID) -> Bool { left.identity === right.identity }
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(identity)) }
    public var description: String { name }
}

/// Whether a link that ends is sought again.
public enum ConnectPolicy: Sendable {
    case once
    case keep
}

public enum WriteType: Sendable {
    /// By the properties: a request where the characteristic takes one, else a command.
    case automatic
    case request
    case command
}
