public import CoreBluetooth

/// One device, as a discovery has heard it.
///
/// `@unchecked Sendable`: the dictionary's values are immutable.
public struct BluetoothDeviceDiscoveryData: @unchecked Sendable {
    public let peripheral: CBPeripheral
    /// The newest, with the keys of CoreBluetooth.
    public internal(set) var advertisementData: [String: Any]
    /// In dBm, the newest; 127 where it is not known.
    public internal(set) var rssi: Int
    public let firstSeen: Date
    public internal(set) var lastSeen: Date

    public var identifier: UUID { peripheral.identifier }
    public var name: String? { peripheral.name }
}

/// Why a discovery ended.
public enum BluetoothDeviceDiscoveryStopReason: String, Sendable {
    case timeout
    case stopped
    case bluetoothOff
}

/// What is wrong with a request to discover.
public enum BluetoothDeviceDiscoveryError: Error, Equatable, Sendable, LocalizedError {
    /// The timeout, in milliseconds, has to be more than 0 and at most a year.
    case invalidTimeout(Int)
    /// The name is no pattern; the text says why.
    case invalidPattern(String)
    /// Bluetooth is off, or a discovery runs already.
    case notStarted

    public var errorDescription: String? {
        switch self {
        case .invalidTimeout(let value): "the timeout must be from 1 to 31536000000 milliseconds, not \(value)"
        case .invalidPattern(let text): text
        case .notStarted: "Bluetooth is off, or a discovery runs already"
        }
    }
}

/// Hears of a discovery. All have defaults that do nothing.
public protocol BluetoothDeviceDiscovererDelegate: AnyObject {
    func discovererDidStartDiscovering(_ discoverer: BluetoothDeviceDiscoverer)
    /// A device was heard; with duplicates, each time.
    func discoverer(_ discoverer: BluetoothDeviceDiscoverer, didDiscover device: BluetoothDeviceDiscoveryData)
    func discoverer(
        _ discoverer: BluetoothDeviceDiscoverer, didStopDiscovering reason: BluetoothDeviceDiscoveryStopReason)
}

extension BluetoothDeviceDiscovererDelegate {
    public func discovererDidStartDiscovering(_ discoverer: BluetoothDeviceDiscoverer) {}
    public func discoverer(_ discoverer: BluetoothDeviceDiscoverer, didDiscover device: BluetoothDeviceDiscoveryData) {}
    public func discoverer(
        _ discoverer: BluetoothDeviceDiscoverer, didStopDiscovering reason: BluetoothDeviceDiscoveryStopReason
    ) {}
}

/// The same events as notifications. Their object is the discoverer.
extension Notification.Name {
    public static let bluetoothDeviceDiscoveryStarted = Notification.Name("bluetoothDeviceDiscoveryStarted")
    /// With a ``BluetoothDeviceDiscoveryData`` under ``BluetoothDeviceDiscoverer/discoveryDataKey``.
    public static let bluetoothDeviceDiscovered = Notification.Name("bluetoothDeviceDiscovered")
    /// With the reason's text under ``BluetoothDeviceDiscoverer/stopReasonKey``.
    public static let bluetoothDeviceDiscoveryStopped = Notification.Name("bluetoothDeviceDiscoveryStopped")
}

/// Discovers devices by a pattern for their names and by their services, for a time.
///
/// `@unchecked Sendable`: what changes is behind a lock.
public final class BluetoothDeviceDiscoverer: NSObject, @unchecked Sendable {
    /// In the user info of ``Foundation/Notification/Name/bluetoothDeviceDiscovered``.
    public static let discoveryDataKey = "discoveryData"
    /// In the user info of ``Foundation/Notification/Name/bluetoothDeviceDiscoveryStopped``.
    public static let stopReasonKey = "reason"

    /// One event of ``events(named:withServices:timeout:)``.
    public enum Event: Sendable {
        case started
        case discovered(BluetoothDeviceDiscoveryData)
        case stopped(BluetoothDeviceDiscoveryStopReason)
    }

    private struct State {
        weak var delegate: (any BluetoothDeviceDiscovererDelegate)?
        var scanOptions: [String: Any] = [CBCentralManagerScanOptionAllowDuplicatesKey: false]
        var devices: [BluetoothDeviceDiscoveryData] = []
        var places: [UUID: Int] = [:]
        /// Counts the discoveries; an end that is meant for an older one does nothing.
        var number = 0
        var isDiscovering = false
        var stream: AsyncStream<Event>.Continuation?
    }

    private let central: CBCentralManager
    private let queue: DispatchQueue
    private let variables = Locked(State())

    /// Milliseconds; more would not fit the timer's arithmetic everywhere.
    private static let longestTimeout = 31_536_000_000

    init(_ central: CBCentralManager, _ queue: DispatchQueue) {
        self.central = central
        self.queue = DispatchQueue(label: "blueferry.devicediscovery", target: queue)
    }

    public weak var delegate: (any BluetoothDeviceDiscovererDelegate)? {
        get { variables.withLock { $0.delegate } }
        set { variables.withLock { $0.delegate = newValue } }
    }

    /// The options of the next scan, with the keys of CoreBluetooth. Duplicates are off by default.
    public var scanOptions: [String: Any] {
        get { variables.withLock { $0.scanOptions } }
        set { variables.withLock { $0.scanOptions = newValue } }
    }

    public var isDiscovering: Bool { variables.withLock { $0.isDiscovering } }

    /// What the running discovery has found, or what the last one had, in the order of discovery.
    public var discoveredDevices: [BluetoothDeviceDiscoveryData] { variables.withLock { $0.devices } }

    /// Begins to discover.
    /// - Parameters:
    ///   - pattern: a regular expression for the whole name: `Tracker.*` is "starts with Tracker". A device whose name
    ///     is not known fails it until it is known. The bridge's `scan` command has the same filter.
    ///   - services: at least one must be advertised; nil or none: no condition.
    ///   - timeout: milliseconds after which the discovery ends.
    /// - Returns: false where Bluetooth is off or a discovery runs already.
    /// - Throws: ``BluetoothDeviceDiscoveryError``.
    @discardableResult
    public func discoverDevices(
        named pattern: String? = nil, withServices services: [CBUUID]? = nil, timeout: Int
    ) throws -> Bool {
        try start(pattern, services, timeout, nil)
    }

    private func start(
        _ pattern: String?, _ services: [CBUUID]?, _ timeout: Int, _ stream: AsyncStream<Event>.Continuation?
    ) throws -> Bool {
        guard (1...Self.longestTimeout).contains(timeout) else {
            throw BluetoothDeviceDiscoveryError.invalidTimeout(timeout)
        }
        guard central.state == .poweredOn else { return false }
        let started = variables.withLock { state -> (Int, [String: Any])? in
            guard !state.isDiscovering else { return nil }
            state.isDiscovering = true
            state.number += 1
            state.devices = []
            state.places = [:]
            state.stream = stream
            return (state.number, state.scanOptions)
        }
        guard let (number, options) = started else { return false }
        // Before the scan: what it finds follows on the same queue.
        queue.async { self.tellStarted(number) }
        do {
            try central.scan(named: pattern, services: services, options: options)
        } catch {
            variables.withLock { state in
                state.isDiscovering = false
                state.number += 1
                state.stream = nil
            }
            throw BluetoothDeviceDiscoveryError.invalidPattern(error.localizedDescription)
        }
        queue.asyncAfter(deadline: .now() + .milliseconds(timeout)) { [weak self] in self?.end(.timeout, number) }
        return true
    }

    /// Ends the discovery; false where none runs.
    @discardableResult
    public func stopDiscoveringDevices() -> Bool {
        guard let number = variables.withLock({ $0.isDiscovering ? $0.number : nil }) else { return false }
        end(.stopped, number)
        return true
    }

    /// Discovers, with the events as a sequence: ``Event/started`` first and ``Event/stopped(_:)`` last. Giving the
    /// iteration up ends the discovery.
    /// - Throws: ``BluetoothDeviceDiscoveryError``, with `notStarted` for what ``discoverDevices(named:withServices:timeout:)``
    ///   answers with false.
    public func events(
        named pattern: String? = nil, withServices services: [CBUUID]? = nil, timeout: Int
    ) throws -> AsyncStream<Event> {
        let (stream, continuation) = AsyncStream.makeStream(of: Event.self, bufferingPolicy: .bufferingNewest(10_000))
        guard try start(pattern, services, timeout, continuation) else {
            throw BluetoothDeviceDiscoveryError.notStarted
        }
        let number = variables.withLock { $0.number }
        continuation.onTermination = { [weak self] termination in
            if case .cancelled = termination { self?.end(.stopped, number) }
        }
        return stream
    }

    // MARK: On the queue

    func discovered(_ peripheral: CBPeripheral, _ advertisementData: [String: Any], _ rssi: NSNumber) {
        let now = Date()
        let data = BluetoothDeviceDiscoveryData(
            peripheral: peripheral, advertisementData: advertisementData, rssi: rssi.intValue, firstSeen: now,
            lastSeen: now)
        // On this object's own queue, behind the start.
        queue.async { self.tellDiscovered(data) }
    }

    private func tellDiscovered(_ data: BluetoothDeviceDiscoveryData) {
        let told = variables.withLock { state -> (BluetoothDeviceDiscoveryData, AsyncStream<Event>.Continuation?)? in
            guard state.isDiscovering else { return nil }
            guard let place = state.places[data.identifier] else {
                state.places[data.identifier] = state.devices.count
                state.devices.append(data)
                return (data, state.stream)
            }
            state.devices[place].advertisementData = data.advertisementData
            state.devices[place].rssi = data.rssi
            state.devices[place].lastSeen = data.lastSeen
            return (state.devices[place], state.stream)
        }
        guard let (data, stream) = told else { return }
        stream?.yield(.discovered(data))
        delegate?.discoverer(self, didDiscover: data)
        NotificationCenter.default.post(
            name: .bluetoothDeviceDiscovered, object: self, userInfo: [Self.discoveryDataKey: data])
    }

    private func tellStarted(_ number: Int) {
        guard variables.withLock({ $0.number == number }) else { return }
        variables.withLock { $0.stream }?.yield(.started)
        delegate?.discovererDidStartDiscovering(self)
        NotificationCenter.default.post(name: .bluetoothDeviceDiscoveryStarted, object: self)
    }

    func bluetoothWentOff() {
        guard let number = variables.withLock({ $0.isDiscovering ? $0.number : nil }) else { return }
        end(.bluetoothOff, number)
    }

    private func end(_ reason: BluetoothDeviceDiscoveryStopReason, _ number: Int) {
        let (hasEnded, stream) = variables.withLock { state -> (Bool, AsyncStream<Event>.Continuation?) in
            guard state.isDiscovering, state.number == number else { return (false, nil) }
            state.isDiscovering = false
            defer { state.stream = nil }
            return (true, state.stream)
        }
        guard hasEnded else { return }
        if central.state == .poweredOn { central.stopScan() }
        queue.async { [self] in
            stream?.yield(.stopped(reason))
            stream?.finish()
            delegate?.discoverer(self, didStopDiscovering: reason)
            NotificationCenter.default.post(
                name: .bluetoothDeviceDiscoveryStopped, object: self, userInfo: [Self.stopReasonKey: reason.rawValue])
        }
    }
}
