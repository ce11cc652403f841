internal import Bluetooth
internal import Central
public import Dispatch
internal import EventLoop
public import Foundation

/// Finds peripherals and connects to them.
///
/// Make one, wait for `poweredOn` in ``CBCentralManagerDelegate/centralManagerDidUpdateState(_:)``, then scan or connect.
/// Below `poweredOn` a command is logged and does nothing. Managers do not disturb each other, in one process or in
/// several: each has a scan, peripherals and connections of its own, and a link goes down with its last holder.
///
/// The machine's system bus is used; `DBUS_SYSTEM_BUS_ADDRESS` names another.
///
/// `@unchecked Sendable`: its variables are behind locks, or set once by the initialiser.
open class CBCentralManager: CBManager, @unchecked Sendable {
    /// Optional abilities of the machine.
    public struct Feature: OptionSet, Sendable {
        public let rawValue: UInt
        public init(rawValue: UInt) { self.rawValue = rawValue }

        /// Scanning and connecting with extended advertisements.
        public static let extendedScanAndConnect = Feature(rawValue: 1)
    }

    private struct State {
        weak var delegate: (any CBCentralManagerDelegate)?
        var isScanning = false
        var scanGeneration = 0
    }

    private let variables: Locked<State>
    private let peripherals = Locked<[DeviceKey: PeripheralReference]>([:])
    let session: ManagerSession
    let restoration: Restoration?

    /// A manager without a delegate, whose callbacks come on the main queue.
    public convenience override init() {
        self.init(delegate: nil, queue: nil, options: nil)
    }

    public convenience init(delegate: (any CBCentralManagerDelegate)?, queue: DispatchQueue?) {
        self.init(delegate: delegate, queue: queue, options: nil)
    }

    /// - Parameters:
    ///   - queue: where the callbacks come, one at a time and in order; nil is the main queue.
    ///   - options: see the keys that begin with `CBCentralManagerOption`.
    public convenience init(
        delegate: (any CBCentralManagerDelegate)?, queue: DispatchQueue?, options: [String: Any]? = nil
    ) {
        self.init(delegate: delegate, queue: queue, options: options, radio: SharedRadio.radio)
    }

    init(
        delegate: (any CBCentralManagerDelegate)?, queue: DispatchQueue?, options: [String: Any]?, radio: any Radio,
        stateDirectory: URL? = nil
    ) {
        variables = Locked(State(delegate: delegate))
        let callbacks = DispatchQueue(label: "blueferry.corebluetooth.callbacks", target: queue ?? .main)
        session = ManagerSession(radio: radio, queue: callbacks)
        restoration = (options?[CBCentralManagerOptionRestoreIdentifierKey] as? String)
            .flatMap { Restoration(identifier: $0, directory: stateDirectory) }
        super.init()
        session.owner.manager = self
        if let restored = restoration?.load() { restore(restored) }
        LoopCalls.perform { [session] in session.open() }
    }

    /// A manager with an engine of its own, as if in a process of its own.
    /// - Parameter busAddress: nil for the system's bus.
    package convenience init(
        delegate: (any CBCentralManagerDelegate)?, queue: DispatchQueue?, options: [String: Any]? = nil,
        busAddress: String?
    ) {
        self.init(delegate: delegate, queue: queue, options: options, radio: CentralRadio(busAddress: busAddress))
    }

    /// Another manager on the same engine, as every manager of a process is.
    package func beside(delegate: (any CBCentralManagerDelegate)?, queue: DispatchQueue?) -> CBCentralManager {
        CBCentralManager(delegate: delegate, queue: queue, options: nil, radio: session.radio)
    }

    /// Waits until what is to be restored is written.
    package func flushRestoration() { restoration?.flush() }

    deinit {
        restoration?.end()
        for peripheral in livePeripherals { peripheral.storage.withLock { $0.state = .disconnected } }
        LoopCalls.perform { [session] in session.close() }
    }

    /// Who hears of what happens.
    open weak var delegate: (any CBCentralManagerDelegate)? {
        get { variables.withLock { $0.delegate } }
        set { variables.withLock { $0.delegate = newValue } }
    }

    /// Whether this manager scans.
    open var isScanning: Bool { variables.withLock { $0.isScanning } }

    /// Whether the machine can do all of `features`. BlueZ does not tell of extended advertising: false for it.
    open class func supports(_ features: Feature) -> Bool { features.isEmpty }

    // MARK: Scanning

    /// Listens for peripherals that advertise, or with the option ask for, one of the services; for nil or none, for
    /// all. Replaces this manager's running scan. Without ``CBCentralManagerScanOptionAllowDuplicatesKey`` each
    /// peripheral is told once for each scan.
    open func scanForPeripherals(withServices serviceUUIDs: [CBUUID]?, options: [String: Any]? = nil) {
        guard isPoweredOn("scanForPeripherals") else { return }
        let request = scanRequest(serviceUUIDs, options)
        startScan(request)
        restoration?.scanning(request)
    }

    private func scanRequest(_ serviceUUIDs: [CBUUID]?, _ options: [String: Any]?) -> RadioScanRequest {
        var request = RadioScanRequest()
        request.services = serviceUUIDs?.map(\.value) ?? []
        request.solicited =
            (options?[CBCentralManagerScanOptionSolicitedServiceUUIDsKey] as? [CBUUID])?.map(\.value) ?? []
        request.allowsDuplicates = isTrue(options?[CBCentralManagerScanOptionAllowDuplicatesKey])
        return request
    }

    /// A scan with a pattern for the whole name, for DeviceDiscovery: the engine's own filter, as of the bridge's scans.
    /// - Throws: `CBError.invalidParameters` where the pattern is none.
    package func scan(named pattern: String?, services: [CBUUID]?, options: [String: Any]) throws {
        var check = ScanRequest(kind: .library)
        check.name = pattern
        do { try check.check() } catch { throw CBError(.invalidParameters, error.message) }
        guard isPoweredOn("a scan") else { return }
        var request = scanRequest(services, options)
        request.name = pattern
        startScan(request)
    }

    private func startScan(_ request: RadioScanRequest, isRestored: Bool = false) {
        let generation = variables.withLock { state in
            state.isScanning = true
            state.scanGeneration += 1
            return state.scanGeneration
        }
        LoopCalls.perform { [session] in session.startScan(request, generation: generation, isRestored: isRestored) }
    }

    /// Ends the scan; nothing more is discovered. Harmless without one.
    open func stopScan() {
        guard isPoweredOn("stopScan") else { return }
        variables.withLock { $0.isScanning = false }
        restoration?.scanning(nil)
        LoopCalls.perform { [session] in session.stopScan() }
    }

    func isScanning(_ generation: Int) -> Bool {
        variables.withLock { $0.isScanning && $0.scanGeneration == generation }
    }

    // MARK: Connections

    /// Connects, and waits for as long as that takes: an attempt ends by itself only on an error that trying again
    /// cannot mend. It is cancelled by ``cancelPeripheralConnection(_:)``, and when the last reference to the peripheral
    /// goes. For options see the keys that begin with `CBConnectPeripheralOption`.
    open func connect(_ peripheral: CBPeripheral, options: [String: Any]? = nil) {
        guard isPoweredOn("connect"), owns(peripheral) else { return }
        if isTrue(options?[CBConnectPeripheralOptionRequiresANCS]) {
            let error = CBError(.operationNotSupported, "Apple's notification centre service is not there on Linux.")
            return session.deliver { manager in
                manager.delegate?.centralManager(manager, didFailToConnect: peripheral, error: error)
            }
        }
        let seconds = (options?[CBConnectPeripheralOptionStartDelayKey] as? NSNumber)?.doubleValue ?? 0
        start(
            peripheral, delay: seconds > 0 && seconds < 1e9 ? .seconds(seconds) : nil,
            reconnects: isTrue(options?[CBConnectPeripheralOptionEnableAutoReconnect]))
        restoration?.changed(self)
    }

    private func start(
        _ peripheral: CBPeripheral, delay: Duration? = nil, reconnects: Bool = false, isRestored: Bool = false
    ) {
        let attempt = peripheral.storage.withLock { state in
            state.attempt += 1
            if state.state != .connected { state.state = .connecting }
            return state.attempt
        }
        let request = ConnectRequest(
            key: peripheral.key, reference: peripheral.reference, attempt: attempt, delay: delay,
            reconnects: reconnects, isRestored: isRestored)
        LoopCalls.perform { [session] in session.connect(request) }
    }

    /// Ends a connection, or the wait for one: `didDisconnectPeripheral` with a nil error, and nothing after it. A link
    /// that others hold, in this process or another, stays up for them.
    open func cancelPeripheralConnection(_ peripheral: CBPeripheral) {
        guard isPoweredOn("cancelPeripheralConnection"), owns(peripheral) else { return }
        let isEnding = peripheral.storage.withLock { state in
            guard state.state == .connecting || state.state == .connected else { return false }
            state.state = .disconnecting
            return true
        }
        guard isEnding else { return }
        LoopCalls.perform { [session, key = peripheral.key, reference = peripheral.reference] in
            session.cancel(key, reference)
        }
    }

    /// The peripherals with these identifiers. An identifier that this library has not made is left out.
    open func retrievePeripherals(withIdentifiers identifiers: [UUID]) -> [CBPeripheral] {
        identifiers.compactMap { DeviceKey(identifier: $0) }.map { key in
            LoopCalls.perform { [session] in session.learnName(key) }
            return peripheral(for: key)
        }
    }

    /// The peripherals that any program of this machine is connected to and that offer one of the services. To use one,
    /// connect this manager to it.
    open func retrieveConnectedPeripherals(withServices serviceUUIDs: [CBUUID]) -> [CBPeripheral] {
        found(session.radio.connected.offering(serviceUUIDs.map(\.value)))
    }

    private func found(_ devices: [(DeviceKey, ConnectedDevices.Record)]) -> [CBPeripheral] {
        devices.map { key, record in
            let peripheral = peripheral(for: key)
            if let name = record.name { _ = peripheral.adopt(name: name) }
            return peripheral
        }
    }

    /// Asks for ``CBCentralManagerDelegate/centralManager(_:connectionEventDidOccur:for:)``: of the peripherals and
    /// services in the options, or of all. Calling it again replaces what was asked for.
    open func registerForConnectionEvents(options: [CBConnectionEventMatchingOption: Any]? = nil) {
        guard isPoweredOn("registerForConnectionEvents") else { return }
        let services = (options?[.serviceUUIDs] as? [CBUUID]).map { Set($0.map(\.value)) }
        let peripherals = (options?[.peripheralUUIDs] as? [UUID]).map { identifiers in
            Set(identifiers.compactMap { DeviceKey(identifier: $0) })
        }
        let filter = ConnectionEventFilter(services: services, peripherals: peripherals)
        LoopCalls.perform { [session] in session.registerForEvents(filter) }
    }

    // MARK: The first release

    @available(*, deprecated, message: "Use retrievePeripherals(withIdentifiers:)")
    open func retrievePeripherals(_ peripheralUUIDs: [Any]) {
        let identifiers = peripheralUUIDs.compactMap { item in
            item as? UUID ?? (item as? CBUUID).flatMap { UUID(uuidString: $0.uuidString) }
        }
        session.deliver { manager in
            let peripherals = manager.retrievePeripherals(withIdentifiers: identifiers)
            manager.delegate?.centralManager(manager, didRetrievePeripherals: peripherals)
        }
    }

    @available(*, deprecated, message: "Use retrieveConnectedPeripherals(withServices:)")
    open func retrieveConnectedPeripherals() {
        session.deliver { manager in
            let peripherals = manager.found(manager.session.radio.connected.offering(nil))
            manager.delegate?.centralManager(manager, didRetrieveConnectedPeripherals: peripherals)
        }
    }

    // MARK: Peripherals

    /// The one object for a device.
    func peripheral(for key: DeviceKey) -> CBPeripheral {
        peripherals.withLock { table in
            if let known = table[key]?.peripheral { return known }
            if table.count >= 256, table.count & (table.count - 1) == 0 {
                table = table.filter { $0.value.peripheral != nil }
            }
            let new = CBPeripheral(key: key, session: session)
            table[key] = new.reference
            return new
        }
    }

    func existingPeripheral(_ key: DeviceKey) -> CBPeripheral? {
        peripherals.withLock { $0[key]?.peripheral }
    }

    var livePeripherals: [CBPeripheral] {
        peripherals.withLock { $0.values.compactMap(\.peripheral) }
    }

    // MARK: Helpers

    /// Just before `centralManagerDidUpdateState`.
    func adopt(state: CBManagerState) {
        setState(state)
        guard state != .poweredOn else { return }
        variables.withLock { $0.isScanning = false }
        for peripheral in livePeripherals {
            peripheral.storage.withLock { if $0.state != .connecting { $0.state = .disconnected } }
        }
    }

    private func restore(_ restored: RestoredState) {
        let request = restored.scan
        let keys = restored.peripherals
        // The first of all callbacks: the queue is empty.
        session.deliver { manager in
            let peripherals = keys.map { manager.peripheral(for: $0) }
            for peripheral in peripherals { manager.start(peripheral, isRestored: true) }
            if let request { manager.startScan(request, isRestored: true) }
            var dictionary: [String: Any] = [CBCentralManagerRestoredStatePeripheralsKey: peripherals]
            if let request {
                dictionary[CBCentralManagerRestoredStateScanServicesKey] = request.services.map { CBUUID($0) }
                dictionary[CBCentralManagerRestoredStateScanOptionsKey] = [
                    CBCentralManagerScanOptionAllowDuplicatesKey: NSNumber(value: request.allowsDuplicates)
                ]
            }
            manager.delegate?.centralManager(manager, willRestoreState: dictionary)
        }
    }

    private func isPoweredOn(_ command: String) -> Bool {
        if state == .poweredOn { return true }
        Misuse.log("\(command) is accepted only in the powered on state; the state is \(state)")
        return false
    }

    private func owns(_ peripheral: CBPeripheral) -> Bool {
        if peripheral.session === session { return true }
        Misuse.log("\(peripheral) belongs to another manager")
        return false
    }

    private func isTrue(_ option: Any?) -> Bool {
        (option as? NSNumber)?.boolValue ?? (option as? Bool) ?? false
    }
}

/// The state of a central manager in the first releases; the raw values are those of ``CBManagerState``.
@available(*, deprecated, message: "Use CBManagerState")
public enum CBCentralManagerState: Int, Sendable {
    case unknown = 0
    case resetting
    case unsupported
    case unauthorized
    case poweredOff
    case poweredOn
}
