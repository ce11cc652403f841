@_exported public import CoreBluetooth

/// Hears of the state of Bluetooth.
public protocol BluetoothDeviceManagerDelegate: AnyObject {
    /// Below `poweredOn` nothing is discovered and nothing is connected.
    func bluetoothDeviceManager(_ manager: BluetoothDeviceManager, didUpdateState state: CBManagerState)
}

/// The way in: one central manager with a discoverer, a connection manager and a registry of known devices on it.
///
/// All callbacks come on the queue that is given, one at a time and in order.
///
/// `@unchecked Sendable`: what changes is behind a lock.
public final class BluetoothDeviceManager: NSObject, @unchecked Sendable {
    /// The central manager beneath. Its delegate is this object's; use it for what is not offered here.
    public let centralManager: CBCentralManager
    public let discoverer: BluetoothDeviceDiscoverer
    public let connectionManager: BluetoothDeviceConnectionManager
    public let registry: BluetoothDeviceRegistry

    private struct State {
        weak var delegate: (any BluetoothDeviceManagerDelegate)?
        var streams: [Int: AsyncStream<CBManagerState>.Continuation] = [:]
        var lastStream = 0
    }

    private let variables = Locked(State())
    private let proxy = CentralDelegate()

    /// - Parameters:
    ///   - queue: where callbacks come; nil is the main queue.
    ///   - registryFile: where known devices are kept; nil: in memory only.
    public convenience init(queue: DispatchQueue? = nil, registryFile: URL? = nil) {
        self.init(CBCentralManager(delegate: nil, queue: queue), queue ?? .main, registryFile)
    }

    /// With an engine of its own, on the bus at `busAddress`, or on the system's.
    package convenience init(queue: DispatchQueue, registryFile: URL? = nil, busAddress: String?) {
        self.init(CBCentralManager(delegate: nil, queue: queue, busAddress: busAddress), queue, registryFile)
    }

    private init(_ central: CBCentralManager, _ queue: DispatchQueue, _ registryFile: URL?) {
        centralManager = central
        discoverer = BluetoothDeviceDiscoverer(central, queue)
        registry = BluetoothDeviceRegistry(file: registryFile)
        connectionManager = BluetoothDeviceConnectionManager(central, queue, registry)
        super.init()
        proxy.manager = self
        central.delegate = proxy
    }

    public weak var delegate: (any BluetoothDeviceManagerDelegate)? {
        get { variables.withLock { $0.delegate } }
        set { variables.withLock { $0.delegate = newValue } }
    }

    public var state: CBManagerState { centralManager.state }

    /// The state, beginning with that of now: `for await state in manager.states where state == .poweredOn { break }`
    /// waits for Bluetooth.
    public var states: AsyncStream<CBManagerState> {
        let (stream, continuation) = AsyncStream.makeStream(of: CBManagerState.self)
        let number = variables.withLock { variables in
            variables.lastStream += 1
            variables.streams[variables.lastStream] = continuation
            return variables.lastStream
        }
        continuation.yield(state)
        continuation.onTermination = { [weak self] _ in self?.variables.withLock { $0.streams[number] = nil } }
        return stream
    }

    deinit {
        for stream in variables.withLock({ $0.streams.values }) { stream.finish() }
    }

    fileprivate func stateChanged() {
        for stream in variables.withLock({ $0.streams.values }) { stream.yield(state) }
        if state != .poweredOn { discoverer.bluetoothWentOff() }
        connectionManager.stateChanged()
        delegate?.bluetoothDeviceManager(self, didUpdateState: state)
    }
}

/// Passes the central manager's callbacks on to those whose they are.
///
/// `@unchecked Sendable`: set once, before the first callback.
private final class CentralDelegate: NSObject, CBCentralManagerDelegate, @unchecked Sendable {
    weak var manager: BluetoothDeviceManager?

    func centralManagerDidUpdateState(_ central: CBCentralManager) { manager?.stateChanged() }

    func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi: NSNumber
    ) {
        manager?.discoverer.discovered(peripheral, advertisementData, rssi)
    }

    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        manager?.connectionManager.connected(peripheral)
    }

    func centralManager(
        _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?
    ) {
        manager?.connectionManager.failed(peripheral, error)
    }

    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
    ) {
        manager?.connectionManager.disconnected(peripheral, error)
    }
}
