public import Bluetooth
internal import Glibc

/// The names of the bridge's topics. Nothing that comes from a device stands in one, except its address and handles.
public struct TopicSpace: Sendable {
    /// `<base>/<gw>/`
    public let prefix: String
    public let base: String
    private let responses: String

    public init(base: String, gateway: String) {
        self.base = base
        prefix = base + "/" + gateway + "/"
        responses = prefix + "response/"
    }

    public var status: String { prefix + "status" }
    public var info: String { prefix + "info" }
    public var health: String { prefix + "health" }
    public var discovery: String { prefix + "discovery" }
    public var discoveryEvent: String { prefix + "discovery/event" }
    public var events: String { prefix + "events" }

    public func adapter(_ address: BluetoothAddress) -> String { prefix + "adapters/" + address.topicForm }
    public func device(_ address: BluetoothAddress) -> String { prefix + "devices/" + address.topicForm }
    public func availability(_ address: BluetoothAddress) -> String { device(address) + "/availability" }
    public func connection(_ address: BluetoothAddress) -> String { device(address) + "/connection" }
    public func services(_ address: BluetoothAddress) -> String { device(address) + "/services" }

    /// - Parameter service, characteristic: topic levels (UUID, with the handle where there are twins).
    public func characteristic(_ address: BluetoothAddress, _ service: String, _ characteristic: String) -> String {
        device(address) + "/characteristics/" + service + "/" + characteristic
    }

    public func response(_ verb: String, replyTo: String? = nil) -> String {
        guard let replyTo else { return responses + verb }
        return responses + verb + "/" + replyTo
    }

    /// Every filter that commands arrive on.
    public var commandFilters: [String] {
        [
            prefix + "request/+",
            prefix + "devices/+/connection/set",
            prefix + "devices/+/characteristics/+/+/set",
            prefix + "devices/+/characteristics/+/+/get",
            prefix + "devices/+/characteristics/+/+/notify",
        ]
    }
}

/// The topic of one kind for any device: the address is written over in place, so that the hot path builds no string.
struct DeviceTopicTemplate {
    private var bytes: [UInt8]
    private let addressOffset: Int

    /// - Parameter suffix: what follows the address, with its slash.
    init(_ space: TopicSpace, suffix: String) {
        let head = Array((space.prefix + "devices/").utf8)
        addressOffset = head.count
        bytes = head + [UInt8](repeating: UInt8(ascii: "0"), count: 12) + Array(suffix.utf8) + [0]
    }

    /// The topic of a device, with its closing NUL, valid during the call.
    mutating func withTopic<Result>(
        of address: BluetoothAddress, _ body: (UnsafeBufferPointer<UInt8>) -> Result
    ) -> Result {
        let offset = addressOffset
        return bytes.withUnsafeMutableBufferPointer { buffer in
            var rest = address.value
            for index in stride(from: offset + 11, through: offset, by: -1) {
                let digit = UInt8(truncatingIfNeeded: rest & 0xf)
                buffer[index] = digit < 10 ? UInt8(ascii: "0") + digit : UInt8(ascii: "a") + digit - 10
                rest >>= 4
            }
            return body(UnsafeBufferPointer(buffer))
        }
    }
}

/// A message's topic, as a command.
public enum InboundTopic: Equatable, Sendable {
    case request(verb: String)
    case connectionSet(device: String)
    case characteristic(device: String, service: String, characteristic: String, action: Action)

    public enum Action: String, Sendable {
        case set, get, notify
    }

    private static let request = "request/"

    /// Nil for a topic that is none of this gateway's command topics, whatever it looks like.
    public init?(_ topic: UnsafeRawBufferPointer, in space: TopicSpace) {
        guard let below = Self.bytes(of: topic, behind: space.prefix), !below.isEmpty else { return nil }
        if let verb = Self.bytes(of: below, behind: Self.request), !verb.contains(0x2f) {
            guard let verb = String(validating: verb) else { return nil }
            self = .request(verb: verb)
            return
        }
        guard let rest = String(validating: below) else { return nil }
        let levels = rest.split(separator: "/", omittingEmptySubsequences: false).map(String.init)
        switch levels.count {
        case 4 where levels[0] == "devices" && levels[2] == "connection" && levels[3] == "set":
            self = .connectionSet(device: levels[1])
        case 6 where levels[0] == "devices" && levels[2] == "characteristics":
            guard let action = Action(rawValue: levels[5]) else { return nil }
            self = .characteristic(
                device: levels[1], service: levels[3], characteristic: levels[4], action: action)
        default:
            return nil
        }
    }
}

extension InboundTopic {
    /// What follows a prefix; nil where the bytes do not start with it.
    private static func bytes(of topic: UnsafeRawBufferPointer, behind prefix: String) -> UnsafeRawBufferPointer? {
        let isBehind = prefix.utf8.withContiguousStorageIfAvailable { prefix in
            guard let start = topic.baseAddress, let name = prefix.baseAddress else { return prefix.isEmpty }
            return topic.count >= prefix.count && memcmp(start, name, prefix.count) == 0
        }
        guard isBehind ?? topic.starts(with: prefix.utf8) else { return nil }
        return UnsafeRawBufferPointer(rebasing: topic[prefix.utf8.count...])
    }
}

extension String {
    /// Nil where the bytes are not UTF-8.
    init?(validating bytes: some Sequence<UInt8>) {
        self.init(validating: bytes, as: UTF8.self)
    }
}
