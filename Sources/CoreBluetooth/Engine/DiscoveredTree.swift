internal import Bluetooth
internal import Foundation

/// The attributes that a program has discovered on one peripheral. Lives behind the peripheral's lock.
struct DiscoveredTree {
    private struct Entry {
        var service: CBService
        var remote: RemoteService
    }

    private(set) var services: [CBService]?
    private var entries: [UInt16: Entry] = [:]
    private var characteristics: [UInt16: CBCharacteristic] = [:]
    private var descriptors: [UInt16: CBDescriptor] = [:]

    func knows(_ handle: UInt16) -> Bool {
        entries[handle] != nil || characteristics[handle] != nil || descriptors[handle] != nil
    }

    func characteristic(_ handle: UInt16) -> CBCharacteristic? { characteristics[handle] }

    var allCharacteristics: [CBCharacteristic] { Array(characteristics.values) }

    /// The one object of a remote service.
    private mutating func object(_ remote: RemoteService, _ peripheral: CBPeripheral) -> CBService {
        if let entry = entries[remote.handle], entry.service.uuid.value == remote.uuid {
            entries[remote.handle]?.remote = remote
            return entry.service
        }
        let service = CBService(
            uuid: CBUUID(remote.uuid), handle: remote.handle, primary: remote.isPrimary, peripheral: peripheral)
        entries[remote.handle] = Entry(service: service, remote: remote)
        return service
    }

    mutating func add(_ found: [RemoteService], _ peripheral: CBPeripheral) {
        let objects = found.map { object($0, peripheral) }
        services = Self.merge(services, objects)
    }

    mutating func add(_ found: [RemoteService], includedBy parent: CBService, _ peripheral: CBPeripheral) {
        let objects = found.map { object($0, peripheral) }
        parent.storage.withLock { $0.included = Self.merge($0.included, objects) }
    }

    mutating func add(_ found: [RemoteCharacteristic], of service: CBService) {
        var objects: [CBCharacteristic] = []
        for remote in found {
            if let known = characteristics[remote.handle], known.uuid.value == remote.uuid, known.service === service {
                objects.append(known)
                continue
            }
            let new = CBCharacteristic(
                uuid: CBUUID(remote.uuid), handle: remote.handle,
                properties: CBCharacteristicProperties(rawValue: UInt(remote.properties.rawValue)), service: service)
            characteristics[remote.handle] = new
            objects.append(new)
        }
        service.storage.withLock { $0.characteristics = Self.merge($0.characteristics, objects) }
    }

    mutating func add(_ found: [RemoteDescriptor], of characteristic: CBCharacteristic) {
        var objects: [CBDescriptor] = []
        for remote in found {
            if let known = descriptors[remote.handle], known.uuid.value == remote.uuid,
                known.characteristic === characteristic
            {
                objects.append(known)
                continue
            }
            let new = CBDescriptor(uuid: CBUUID(remote.uuid), handle: remote.handle, characteristic: characteristic)
            descriptors[remote.handle] = new
            objects.append(new)
        }
        characteristic.storage.withLock { $0.descriptors = Self.merge($0.descriptors, objects) }
    }

    /// Takes away what the peer no longer has as it was; nil where nothing had been discovered yet.
    mutating func change(to new: [RemoteService]) -> [CBService]? {
        guard services != nil else { return nil }
        let standing = Dictionary(new.map { ($0.handle, $0) }) { first, _ in first }
        let gone = entries.values.filter { standing[$0.remote.handle] != $0.remote }
            .sorted { $0.remote.handle < $1.remote.handle }
        for entry in gone {
            entries[entry.remote.handle] = nil
            for characteristic in entry.remote.characteristics {
                characteristics[characteristic.handle] = nil
                for descriptor in characteristic.descriptors { descriptors[descriptor.handle] = nil }
            }
        }
        let objects = gone.map(\.service)
        services?.removeAll { service in objects.contains { $0 === service } }
        return objects
    }

    private static func merge<Attribute: CBAttribute>(_ old: [Attribute]?, _ new: [Attribute]) -> [Attribute] {
        guard let old, !old.isEmpty else { return new.sorted { $0.handle < $1.handle } }
        let handles = Set(new.map(\.handle))
        return (old.filter { !handles.contains($0.handle) } + new).sorted { $0.handle < $1.handle }
    }
}

/// Counts the writes without response that have not reached the kernel yet.
struct CommandQueue {
    private var waiting = 0
    private var wasFull = false

    /// Above this, programs are asked to wait…
    private static let comfortable = 32
    /// …and above this their writes are dropped.
    private static let limit = 1024

    var hasRoom: Bool { waiting < Self.comfortable }

    /// False where the write has to be dropped.
    mutating func add() -> Bool {
        guard waiting < Self.limit else { return false }
        waiting += 1
        if !hasRoom { wasFull = true }
        return true
    }

    /// True where a program that was asked to wait may go on.
    mutating func remove() -> Bool {
        waiting = max(0, waiting - 1)
        guard wasFull, waiting <= Self.comfortable / 2 else { return false }
        wasFull = false
        return true
    }
}

// What the manager's queue does to a peripheral just before a callback.
extension CBPeripheral {
    /// True where the name is a new one.
    func adopt(name: String) -> Bool {
        storage.withLock { state in
            guard state.name != name else { return false }
            state.name = name
            return true
        }
    }

    /// False where the program has gone on to something else since.
    func adoptConnected(_ attempt: Int, commandLength: Int) -> Bool {
        storage.withLock { state in
            guard state.attempt == attempt, state.state != .disconnecting else { return false }
            state.state = .connected
            state.commandLength = commandLength
            state.commands = CommandQueue()
            return true
        }
    }

    func adoptDisconnected(_ attempt: Int, isReconnecting: Bool) {
        let characteristics = storage.withLock { state in
            if state.attempt == attempt {
                state.state = isReconnecting && state.state != .disconnecting ? .connecting : .disconnected
            }
            state.commands = CommandQueue()
            return state.tree.allCharacteristics
        }
        for characteristic in characteristics { characteristic.storage.withLock { $0.isNotifying = false } }
    }

    func adopt(_ services: [RemoteService]) {
        storage.withLock { $0.tree.add(services, self) }
    }

    func adopt(_ services: [RemoteService], includedBy parent: CBService) {
        storage.withLock { $0.tree.add(services, includedBy: parent, self) }
    }

    func adopt(_ characteristics: [RemoteCharacteristic], of service: CBService) {
        storage.withLock { $0.tree.add(characteristics, of: service) }
    }

    func adopt(_ descriptors: [RemoteDescriptor], of characteristic: CBCharacteristic) {
        storage.withLock { $0.tree.add(descriptors, of: characteristic) }
    }

    func adoptChanged(_ services: [RemoteService]) -> [CBService]? {
        storage.withLock { $0.tree.change(to: services) }
    }

    func characteristic(_ handle: UInt16) -> CBCharacteristic? {
        storage.withLock { $0.tree.characteristic(handle) }
    }
}
