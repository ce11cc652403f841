internal import BlueZ
public import Bluetooth
public import EventLoop

public enum ValueSource: String, Sendable {
    /// A notification or an indication: BlueZ does not tell them apart.
    case notify
    /// The answer to a read of ours.
    case read
}

/// One value of a characteristic. The bytes are valid during the call.
public struct ValueEvent {
    public let device: Device
    public let characteristic: GATTCharacteristic
    public let value: UnsafeRawBufferPointer
    public let source: ValueSource
    public let time: MonotonicTime
}

@EventLoopActor
public final class GATTService {
    public nonisolated let uuid: BluetoothUUID
    public nonisolated let handle: UInt16
    public nonisolated let isPrimary: Bool
    /// Handles of the included services.
    public nonisolated let includes: [UInt16]
    public internal(set) var characteristics: [GATTCharacteristic] = []
    /// Its level in topics: the UUID, with `_<handle>` where it is not alone under it.
    public internal(set) var key: String
    public internal(set) weak var device: Device?

    init(uuid: BluetoothUUID, handle: UInt16, isPrimary: Bool, includes: [UInt16], device: Device) {
        self.uuid = uuid
        self.handle = handle
        self.isPrimary = isPrimary
        self.includes = includes
        self.device = device
        key = uuid.topicForm
    }
}

@EventLoopActor
public final class GATTCharacteristic {
    public nonisolated let uuid: BluetoothUUID
    public nonisolated let handle: UInt16
    public nonisolated let properties: CharacteristicProperties
    public internal(set) var descriptors: [GATTDescriptor] = []
    public internal(set) var key: String
    public internal(set) weak var service: GATTService?
    /// Notifications of it come to us.
    public var isNotifying: Bool { subscription?.isActive ?? false }
    /// The state that an observer keeps for it.
    public var attachment: AnyObject?

    /// Nil for the battery level that BlueZ keeps to itself (Battery1).
    let remote: RemoteCharacteristic?
    var subscription: Subscription?
    /// What is written without response in quick succession.
    var commands: CommandStream?
    /// `Value` signals that may be the echo of a read under way.
    var readsUnderWay = 0
    var heldValue: [UInt8]?
    /// Counts the values that were held.
    var heldNumber: UInt32 = 0
    weak var central: Central?

    init(
        uuid: BluetoothUUID, handle: UInt16, properties: CharacteristicProperties, service: GATTService,
        remote: RemoteCharacteristic?
    ) {
        self.uuid = uuid
        self.handle = handle
        self.remote = remote
        self.service = service
        self.properties = properties
        key = uuid.topicForm
    }

    public var device: Device? { service?.device }
    /// The ATT MTU of the link, where BlueZ says.
    public var mtu: Int? {
        guard let mtu = remote?.mtu, mtu > 0 else { return nil }
        return Int(mtu)
    }

    var isVirtual: Bool { remote == nil }
    var text: String { "\(service?.key ?? "?")/\(key)" }
}

@EventLoopActor
public final class GATTDescriptor {
    public nonisolated let uuid: BluetoothUUID
    public nonisolated let handle: UInt16
    public internal(set) var key: String
    public internal(set) weak var characteristic: GATTCharacteristic?
    let remote: RemoteDescriptor

    init(remote: RemoteDescriptor, characteristic: GATTCharacteristic) {
        self.remote = remote
        self.characteristic = characteristic
        uuid = remote.uuid
        handle = remote.handle
        key = remote.uuid.topicForm
    }

    var text: String { "\(characteristic?.text ?? "?")/\(key)" }
}

/// What stands under a UUID, perhaps beside others.
@EventLoopActor
protocol Attribute: AnyObject {
    nonisolated var uuid: BluetoothUUID { get }
    nonisolated var handle: UInt16 { get }
    var key: String { get set }
}

extension GATTService: Attribute {}
extension GATTCharacteristic: Attribute {}
extension GATTDescriptor: Attribute {}

/// Finds attributes by what users write.
@EventLoopActor
enum AttributeLookup {
    /// Gives each its key: twins get their handle added.
    static func nameKeys(_ attributes: [any Attribute]) {
        for attribute in attributes {
            let isAlone = attributes.filter { $0.uuid == attribute.uuid }.count == 1
            attribute.key =
                AttributeSelector(uuid: attribute.uuid, handle: isAlone ? nil : attribute.handle).description
        }
    }

    /// - Throws: `unknown_attribute` where there is none, `ambiguous_attribute` where there are several.
    static func find<Found: Attribute>(
        _ selector: AttributeSelector, in attributes: [Found], what: @autoclosure () -> String,
        of owner: @autoclosure () -> String
    ) throws(CentralError) -> Found {
        func isMeant(_ attribute: Found) -> Bool {
            attribute.uuid == selector.uuid && (selector.handle == nil || attribute.handle == selector.handle)
        }
        var first: Found?
        var twins: [String] = []
        for attribute in attributes where isMeant(attribute) {
            if let first {
                if twins.isEmpty { twins.append(first.key) }
                twins.append(attribute.key)
            } else {
                first = attribute
            }
        }
        if let first, twins.isEmpty { return first }
        guard twins.isEmpty else {
            throw CentralError(
                .ambiguousAttribute,
                "\(owner()) has \(twins.count) of \(what()) \(selector): name one of"
                    + " \(twins.joined(separator: ", "))")
        }
        let names = attributes.map(\.key).joined(separator: ", ")
        let known = names.isEmpty ? "it has none" : "it has \(names)"
        throw CentralError(.unknownAttribute, "\(owner()) has no \(what()) \(selector): \(known)")
    }
}
