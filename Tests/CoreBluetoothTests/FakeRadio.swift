import Bluetooth
import EventLoop
import TestKit
import XCTest

@testable import CoreBluetooth

/// An engine that does what a test scripts.
@EventLoopActor
final class FakeRadio: Radio {
    nonisolated let connected = ConnectedDevices()
    var state = CBManagerState.unknown
    var observers: [any RadioObserver] = []
    var scans: [FakeScan] = []
    var holders: [RadioHolder: DeviceKey] = [:]
    var linked: Set<DeviceKey> = []
    var waiting: [(RadioHolder, Pending<Void>)] = []
    var connectsAtOnce = true
    var tree: [RemoteService] = []
    var values: [RemoteAttribute: [UInt8]] = [:]
    var failure: RadioFailure?
    var log: [String] = []
    /// While set, operations wait for it.
    var gate: Pending<Void>?
    var valueDuringSubscribe: [UInt8]?
    /// A connected socket, which the library then owns.
    var channel: Int32?

    nonisolated init() {}

    func attach(_ observer: any RadioObserver) { observers.append(observer) }
    func detach(_ observer: any RadioObserver) { observers.removeAll { $0 === observer } }

    func change(_ state: CBManagerState) {
        self.state = state
        for observer in observers { observer.radioDidChangeState(state) }
    }

    func startScan(
        _ request: RadioScanRequest, _ heard: @escaping @EventLoopActor (Sighting) -> Void
    ) -> any RadioScan {
        log.append("scan")
        let scan = FakeScan(request: request, heard: heard)
        scans.append(scan)
        return scan
    }

    func connect(_ key: DeviceKey, for holder: RadioHolder) async throws {
        log.append("connect")
        holders[holder] = key
        if let failure { throw failure }
        if !connectsAtOnce {
            let pending = Pending<Void>()
            waiting.append((holder, pending))
            try await pending.value()
        }
        linked.insert(key)
    }

    func release(_ key: DeviceKey, for holder: RadioHolder) async {
        log.append("release")
        holders[holder] = nil
        for (waiter, pending) in waiting where waiter == holder {
            pending.fail(RadioFailure(kind: .cancelled, message: "cancelled"))
        }
        if !holders.values.contains(key) { linked.remove(key) }
    }

    func drop(_ key: DeviceKey, _ reason: LinkEnd) {
        linked.remove(key)
        for observer in observers { observer.radio(linkDidGoDown: key, reason: reason) }
    }

    func notify(_ value: [UInt8], _ characteristic: UInt16, _ key: DeviceKey) {
        for observer in observers { observer.radio(didNotify: value, characteristic: characteristic, of: key) }
    }

    func isConnected(_ key: DeviceKey) -> Bool { linked.contains(key) }
    func name(of key: DeviceKey) -> String? { nil }
    func services(of key: DeviceKey) -> [RemoteService] { tree }
    func commandLength(of key: DeviceKey) -> Int { 244 }

    private func operate(_ name: String) async throws {
        log.append(name)
        if let gate { try await gate.value() }
        if let failure { throw failure }
    }

    func read(_ attribute: RemoteAttribute, of key: DeviceKey) async throws -> [UInt8] {
        try await operate("read")
        return values[attribute] ?? []
    }

    func write(
        _ value: [UInt8], to attribute: RemoteAttribute, withResponse: Bool, of key: DeviceKey
    ) async throws {
        try await operate(withResponse ? "write" : "command")
        values[attribute] = value
    }

    func subscribe(_ characteristic: UInt16, of key: DeviceKey, for holder: RadioHolder) async throws {
        if let valueDuringSubscribe { notify(valueDuringSubscribe, characteristic, key) }
        try await operate("subscribe")
    }

    func unsubscribe(_ characteristic: UInt16, of key: DeviceKey, for holder: RadioHolder) async throws {
        try await operate("unsubscribe")
    }

    func rssi(of key: DeviceKey) async throws -> Int {
        try await operate("rssi")
        return -61
    }

    func openChannel(_ psm: UInt16, of key: DeviceKey) async throws -> Int32 {
        try await operate("channel")
        guard let channel else { throw RadioFailure(kind: .notSupported, message: "no channels here") }
        return channel
    }
}

@EventLoopActor
final class FakeScan: RadioScan {
    let request: RadioScanRequest
    let heard: @EventLoopActor (Sighting) -> Void
    var isStopped = false

    init(request: RadioScanRequest, heard: @escaping @EventLoopActor (Sighting) -> Void) {
        self.request = request
        self.heard = heard
    }

    func stop() { isStopped = true }
}

/// A manager over a scripted engine.
class FakeRadioTestCase: XCTestCase {
    static let key = DeviceKey(BluetoothAddress(value: 0xa4c1_385e_07d3), .public)
    let radio = FakeRadio()
    let recorder = Recorder()
    let queue = DispatchQueue(label: "test")
    /// Connections go with their manager: it is kept for the time of the test.
    var kept: CBCentralManager?
    var journal: Journal { recorder.journal }

    override func tearDown() {
        kept = nil
        settle()
    }

    /// Runs `body` on the loop, after all that was asked for before, and waits for it.
    @discardableResult
    func onLoop<Result: Sendable>(_ body: @escaping @EventLoopActor (FakeRadio) -> Result) -> Result? {
        let done = DispatchSemaphore(value: 0)
        let box = Locked<Result?>(nil)
        let radio = radio
        LoopCalls.perform {
            let result = body(radio)
            box.withLock { $0 = result }
            done.signal()
        }
        XCTAssertEqual(done.wait(timeout: .now() + 10), .success, "the loop stands still")
        return box.withLock { $0 }
    }

    /// Waits until the engine's tasks and the callbacks that are due have run.
    func settle() {
        for _ in 0..<4 { onLoop { _ in } }
        queue.sync {}
    }

    func makeManager(
        _ delegate: Recorder? = nil, options: [String: Any]? = nil, directory: URL? = nil
    ) -> CBCentralManager {
        CBCentralManager(
            delegate: delegate ?? recorder, queue: queue, options: options, radio: radio, stateDirectory: directory)
    }

    func makePoweredOn() -> CBCentralManager {
        let manager = makeManager()
        onLoop { $0.change(.poweredOn) }
        journal.wait(for: "state poweredOn")
        return manager
    }

    func makeConnected() throws -> (CBCentralManager, CBPeripheral) {
        onLoop { $0.tree = FakeRadioTestCase.tree }
        let manager = makePoweredOn()
        let peripheral = try XCTUnwrap(
            manager.retrievePeripherals(withIdentifiers: [Self.key.identifier]).first)
        peripheral.delegate = recorder
        manager.connect(peripheral)
        journal.wait(for: "connect true")
        kept = manager
        return (manager, peripheral)
    }

    /// Discovers all of the tree.
    func discover(_ peripheral: CBPeripheral) throws -> [CBUUID: CBCharacteristic] {
        peripheral.discoverServices(nil)
        settle()
        for service in try XCTUnwrap(peripheral.services) { peripheral.discoverCharacteristics(nil, for: service) }
        settle()
        var found: [CBUUID: CBCharacteristic] = [:]
        for characteristic in peripheral.services?.compactMap(\.characteristics).flatMap({ $0 }) ?? [] {
            found[characteristic.uuid] = characteristic
        }
        return found
    }

    static let tree: [RemoteService] = [
        RemoteService(
            uuid: BluetoothUUID(0x180f), handle: 0x10, includes: [0x40],
            characteristics: [
                RemoteCharacteristic(
                    uuid: BluetoothUUID(0x2a19), handle: 0x11, properties: [.read, .notify],
                    descriptors: [
                        RemoteDescriptor(uuid: BluetoothUUID(0x2902), handle: 0x13),
                        RemoteDescriptor(uuid: BluetoothUUID(0x2901), handle: 0x14),
                    ])
            ]),
        RemoteService(
            uuid: BluetoothUUID(0x1802), handle: 0x20,
            characteristics: [
                RemoteCharacteristic(
                    uuid: BluetoothUUID(0x2a06), handle: 0x21, properties: [.write, .writeWithoutResponse])
            ]),
        RemoteService(uuid: BluetoothUUID(0x180a), handle: 0x40, isPrimary: false),
    ]
}
