internal import Bluetooth
internal import EventLoop

/// What the managers need of the engine. ``CentralRadio`` is the one of BlueZ; tests have one of their own.
@EventLoopActor
protocol Radio: AnyObject, Sendable {
    /// The links that are up on this machine, whoever made them; for any thread.
    nonisolated var connected: ConnectedDevices { get }

    var state: CBManagerState { get }

    /// The engine runs while at least one observer is attached.
    func attach(_ observer: any RadioObserver)
    func detach(_ observer: any RadioObserver)

    func startScan(_ request: RadioScanRequest, _ heard: @escaping @EventLoopActor (Sighting) -> Void) -> any RadioScan

    /// Returns once the link is up and its services are known; waits for ever. Ends with `cancelled` by ``release``.
    func connect(_ key: DeviceKey, for holder: RadioHolder) async throws
    /// Gives a pending or standing connection up; the link stays where others hold it.
    func release(_ key: DeviceKey, for holder: RadioHolder) async
    /// The engine goes with its last observer, but not before each of these was let go: a link is still being given up.
    func keep()
    func letGo()
    func isConnected(_ key: DeviceKey) -> Bool

    func name(of key: DeviceKey) -> String?
    func services(of key: DeviceKey) -> [RemoteService]
    /// The longest value of a write without response, in bytes.
    func commandLength(of key: DeviceKey) -> Int

    func read(_ attribute: RemoteAttribute, of key: DeviceKey) async throws -> [UInt8]
    func write(_ value: [UInt8], to attribute: RemoteAttribute, withResponse: Bool, of key: DeviceKey) async throws
    func subscribe(_ characteristic: UInt16, of key: DeviceKey, for holder: RadioHolder) async throws
    func unsubscribe(_ characteristic: UInt16, of key: DeviceKey, for holder: RadioHolder) async throws
    func rssi(of key: DeviceKey) async throws -> Int
    /// A connected socket, which the caller closes.
    func openChannel(_ psm: UInt16, of key: DeviceKey) async throws -> Int32
}

/// What the engine tells, synchronously, on the loop.
@EventLoopActor
protocol RadioObserver: AnyObject {
    func radioDidChangeState(_ state: CBManagerState)
    func radio(didRename key: DeviceKey, to name: String?)
    /// Comes again when more of its services are known.
    func radio(linkDidComeUp key: DeviceKey, services: [BluetoothUUID])
    func radio(linkDidGoDown key: DeviceKey, reason: LinkEnd)
    func radio(servicesDidChange key: DeviceKey)
    /// A notification or indication; reads do not come this way.
    func radio(didNotify value: [UInt8], characteristic: UInt16, of key: DeviceKey)
}

@EventLoopActor
protocol RadioScan: AnyObject {
    func stop()
}

struct RadioScanRequest: Equatable, Sendable {
    var services: [BluetoothUUID] = []
    var solicited: [BluetoothUUID] = []
    var allowsDuplicates = false
    /// A pattern for the whole name, as in the engine's own scans.
    var name: String?
}

/// One hearing of a device.
struct Sighting: Sendable {
    var key: DeviceKey
    var advertisement: Advertisement
}

/// Who holds a link: one for each connection that a manager asks for.
struct RadioHolder: Hashable, Sendable {
    let number: Int
}

enum LinkEnd: Sendable {
    case byPeer
    case silence
    case radioOff
}

/// An attribute by its place: a handle may name a characteristic and, in odd tables, a descriptor too.
enum RemoteAttribute: Hashable, Sendable {
    case characteristic(UInt16)
    case descriptor(UInt16)
}

struct RemoteService: Equatable, Sendable {
    var uuid: BluetoothUUID
    var handle: UInt16
    var isPrimary = true
    var includes: [UInt16] = []
    var characteristics: [RemoteCharacteristic] = []
}

struct RemoteCharacteristic: Equatable, Sendable {
    var uuid: BluetoothUUID
    var handle: UInt16
    var properties: CharacteristicProperties
    var descriptors: [RemoteDescriptor] = []
}

struct RemoteDescriptor: Equatable, Sendable {
    var uuid: BluetoothUUID
    var handle: UInt16
}

/// Why an operation of the engine failed.
struct RadioFailure: Error, Sendable {
    enum Kind: Sendable {
        case attribute(UInt8)
        case notConnected, cancelled, timeout, notSupported, connectionFailed, radioOff, unknownAttribute, tooLong, busy
        case other
    }

    var kind: Kind
    var message: String

    /// The error that the program sees.
    var visible: any Error {
        switch kind {
        case .attribute(let number): CBATTError(number: number, message)
        case .notConnected: CBError(.notConnected, message)
        case .cancelled: CBError(.operationCancelled, message)
        case .timeout: CBError(.connectionTimeout, message)
        case .notSupported: CBError(.operationNotSupported, message)
        case .connectionFailed, .radioOff: CBError(.connectionFailed, message)
        case .unknownAttribute: CBError(.invalidHandle, message)
        case .tooLong: CBATTError(number: 13, message)
        case .busy: CBError(.outOfSpace, message)
        case .other: CBError(.unknown, message)
        }
    }

    static func visible(_ error: any Error) -> any Error {
        (error as? RadioFailure)?.visible ?? CBError(.unknown, "\(error)")
    }
}

/// The links that are up, for getters on any thread.
final class ConnectedDevices: Sendable {
    struct Record: Sendable {
        var services: Set<BluetoothUUID>
        var name: String?
    }

    private let records = Locked<[DeviceKey: Record]>([:])

    func set(_ record: Record?, for key: DeviceKey) {
        records.withLock { $0[key] = record }
    }

    func removeAll() {
        records.withLock { $0.removeAll() }
    }

    /// Those that offer at least one of `services`, or all of them for nil; in the order of their addresses.
    func offering(_ services: [BluetoothUUID]?) -> [(DeviceKey, Record)] {
        records.withLock { $0 }
            .filter { record in services.map { $0.contains { record.value.services.contains($0) } } ?? true }
            .sorted { $0.key.address < $1.key.address }
            .map { ($0.key, $0.value) }
    }
}

extension Radio {
    func keep() {}
    func letGo() {}
}
