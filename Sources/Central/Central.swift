package import BlueZ
public import Bluetooth
public import EventLoop

public struct CentralOptions: Sendable {
    /// A D-Bus address; nil: the system bus as libdbus finds it.
    public var busAddress: String?
    /// The controllers to use; empty: all.
    public var adapters: [AdapterSelector] = []
    /// Register an advertisement monitor beside discovery where BlueZ has it.
    public var usesMonitor = true
    /// Where there is no monitor, discovery is restarted this often, since that renews the controller's duplicate
    /// filter; nil: never.
    public var renewInterval: Duration? = .seconds(10)
    /// Connects under way at a time on each controller.
    public var concurrentConnects = 3
    /// What ``Central/pair(_:timeout:)`` enters where a device asks for a passkey.
    public var passkeys: [BluetoothAddress: UInt32] = [:]
    /// What is done where discovery runs and hears nothing any more; nil: nothing.
    public var silence: SilencePolicy? = SilencePolicy()
    /// The time for a GATT call without a timeout of its own. BlueZ drops a link after 30 s without an answer.
    public var callTimeout: Duration = .seconds(35)
    /// Takes notifications by a socket of their own where BlueZ gives one: cheaper, and nobody else can subscribe to the
    /// same characteristic meanwhile. False: by signals of the bus, which all programs share.
    ///
    /// For bluetoothd from 5.86 on. Before 5.84 it frees what it still uses where a link ends, or the peer refuses, while a
    /// socket is asked for; it crashes of that at the latest when the device is removed. Before 5.86 the end of the client
    /// does the same. Source: `src/gatt-client.c`, register_notify_io_cb and notify_client_disconnect.
    public var usesNotifySockets = false

    public init() {}
}

public enum CentralState: Sendable, Equatable, CustomStringConvertible {
    case stopped
    /// The bus cannot be reached; tried again and again.
    case noBus(String)
    /// Nobody owns org.bluez.
    case noBlueZ
    case unauthorized(String)
    case running

    public var description: String {
        switch self {
        case .stopped: "stopped"
        case .noBus(let reason): "the D-Bus system bus cannot be reached: \(reason)"
        case .noBlueZ: "bluetoothd does not run (nobody owns org.bluez on the bus)"
        case .unauthorized(let reason): "the bus denies access to org.bluez: \(reason)"
        case .running: "running"
        }
    }
}

public struct CentralStatistics: Sendable {
    public var advertisements: UInt64 = 0
    /// Advertisements that at least one scan got.
    public var advertisementsMatched: UInt64 = 0
    public var notifications: UInt64 = 0
    public var connects: UInt64 = 0
    public var connectFailures: UInt64 = 0
    public var linksLost: UInt64 = 0
    public var scanStarts: UInt64 = 0
    public var scanFailures: UInt64 = 0
    public var busLosses: UInt64 = 0
    /// How often bluetoothd went away.
    public var blueZLosses: UInt64 = 0
    /// Silences of a discovery that the watchdog set about to cure.
    public var silences: UInt64 = 0
    /// Calls that wait for an answer of BlueZ.
    public var callsInFlight = 0
}

/// Takes what the engine has to tell, synchronously and on the loop. Every function has an empty default.
@EventLoopActor
public protocol CentralObserver: AnyObject {
    func centralDidChange(_ central: Central)
    func central(_ central: Central, adapterDidChange adapter: Adapter)
    /// An advertisement that at least one scan gets. The hot path: nothing in it may wait or take long.
    func central(_ central: Central, didReceive advertisement: borrowing AdvertisementEvent)
    func central(_ central: Central, deviceDidAppear device: Device)
    func central(_ central: Central, device: Device, didChange changes: DeviceChanges)
    /// BlueZ has removed it. The object stays only while it is wanted or has an attachment.
    func central(_ central: Central, deviceDidDisappear device: Device)
    func central(_ central: Central, connectionDidChange device: Device)
    func central(_ central: Central, servicesDidChange device: Device)
    /// ``GATTCharacteristic/isNotifying`` changed, by us, by BlueZ, or since the link came or went.
    func central(_ central: Central, subscriptionDidChange characteristic: GATTCharacteristic)
    /// A notification, or the answer to a read of ours.
    func central(_ central: Central, didReceive value: borrowing ValueEvent)
    func central(_ central: Central, scanDidStart session: ScanSession)
    func central(_ central: Central, scanDidEnd session: ScanSession, reason: ScanEndReason)
    func central(_ central: Central, warning: CentralWarning)
}

extension CentralObserver {
    public func centralDidChange(_ central: Central) {}
    public func central(_ central: Central, adapterDidChange adapter: Adapter) {}
    public func central(_ central: Central, didReceive advertisement: borrowing AdvertisementEvent) {}
    public func central(_ central: Central, deviceDidAppear device: Device) {}
    public func central(_ central: Central, device: Device, didChange changes: DeviceChanges) {}
    public func central(_ central: Central, deviceDidDisappear device: Device) {}
    public func central(_ central: Central, connectionDidChange device: Device) {}
    public func central(_ central: Central, servicesDidChange device: Device) {}
    public func central(_ central: Central, subscriptionDidChange characteristic: GATTCharacteristic) {}
    public func central(_ central: Central, didReceive value: borrowing ValueEvent) {}
    public func central(_ central: Central, scanDidStart session: ScanSession) {}
    public func central(_ central: Central, scanDidEnd session: ScanSession, reason: ScanEndReason) {}
    public func central(_ central: Central, warning: CentralWarning) {}
}

/// The engine: Bluetooth LE's central role over BlueZ. It comes back by itself from the loss of the bus, of bluetoothd
/// and of controllers; scans and wanted connections outlive them.
@EventLoopActor
public final class Central {
    public nonisolated let options: CentralOptions
    public internal(set) var state = CentralState.stopped
    let clock: any LoopClock
    package let bluez: BlueZClient
    private let inlet = Inlet()
    @exclusivity(unchecked) var observers: [any CentralObserver] = []
    var adaptersByAddress: [BluetoothAddress: Adapter] = [:]
    @exclusivity(unchecked) var devicesByAddress: [BluetoothAddress: Device] = [:]
    @exclusivity(unchecked) var scanTable = ScanTable()
    @exclusivity(unchecked) var counts = CentralStatistics()
    var isStarted = false
    var pairing: Set<BluetoothAddress> = []

    public init(options: CentralOptions = CentralOptions(), clock: any LoopClock = SystemClock.shared) {
        self.options = options
        self.clock = clock
        bluez = BlueZClient(busAddress: options.busAddress, clock: clock)
        inlet.central = self
        bluez.delegate = inlet
        bluez.agent.delegate = inlet
    }

    /// Opens the bus and keeps at it until ``stop()``; returns at once.
    public func start() {
        guard !isStarted else { return }
        isStarted = true
        bluez.start()
    }

    /// Ends scans and monitors, leaves links as they are, closes the bus. Takes at most 2 s.
    public func stop() async {
        guard isStarted else { return }
        isStarted = false
        for session in scanTable.sessions { end(session, .shutdown) }
        for adapter in adapters where adapter.isPowerCycling {
            if let remote = adapter.remote { bluez.setPowered(true, remote) { _ in } }
        }
        let deadline = clock.now + .milliseconds(1500)
        while clock.now < deadline, adapters.contains(where: { $0.discovery.state != .idle }) {
            do { try await clock.sleep(for: .milliseconds(10)) } catch { break }
        }
        for device in Array(devicesByAddress.values) where device.link != nil { linkEnded(device, "the engine stops") }
        bluez.stop()
        change(to: .stopped)
    }

    public func addObserver(_ observer: any CentralObserver) {
        guard !observers.contains(where: { $0 === observer }) else { return }
        observers.append(observer)
    }

    public func removeObserver(_ observer: any CentralObserver) {
        observers.removeAll { $0 === observer }
    }

    /// Every controller seen in this run, by address.
    public var adapters: [Adapter] { adaptersByAddress.values.sorted { $0.address < $1.address } }

    public func adapter(_ selector: AdapterSelector) -> Adapter? {
        switch selector {
        case .address(let address): adaptersByAddress[address]
        case .name(let name): adapters.first { $0.isPresent && ($0.systemName == name || $0.name == name) }
        }
    }

    public var devices: [Device] { Array(devicesByAddress.values) }
    public var deviceAddresses: [BluetoothAddress] { Array(devicesByAddress.keys) }
    public var deviceCount: Int { devicesByAddress.count }
    public func device(_ address: BluetoothAddress) -> Device? { devicesByAddress[address] }

    /// The one device that advertises this name; nil where there is none, or more than one.
    public func device(named name: String) -> Device? {
        let found = devicesByAddress.values.filter { $0.name == name }
        return found.count == 1 ? found.first : nil
    }

    public var statistics: CentralStatistics {
        var counts = counts
        counts.callsInFlight = bluez.callsInFlight
        return counts
    }

    func change(to state: CentralState) {
        guard state != self.state else { return }
        self.state = state
        for observer in observers { observer.centralDidChange(self) }
    }

    func warn(_ level: CentralWarning.Level, _ code: String, _ message: String, _ device: BluetoothAddress? = nil) {
        let warning = CentralWarning(level, code, message, device: device)
        for observer in observers { observer.central(self, warning: warning) }
    }
}
