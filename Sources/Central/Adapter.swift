internal import BlueZ
public import Bluetooth
public import EventLoop

/// The state of a controller, in the words of the MQTT contract.
public enum AdapterState: String, Sendable {
    case unknown
    /// bluetoothd is away.
    case resetting
    /// There is no such controller now: unplugged.
    case unsupported
    /// The bus policy denies access.
    case unauthorized
    case poweredOff
    case poweredOn
}

/// How advertisements are asked for.
public enum DiscoveryMethod: String, Sendable {
    case none
    /// With an advertisement monitor beside the discovery: the controller's duplicate filter is off.
    case monitor
    /// Discovery alone: the controller may report each device only once in about 11 s.
    case discovery
}

/// A controller, known by its address: unplugged and back, perhaps under another name, it is the same object.
@EventLoopActor
public final class Adapter {
    public nonisolated let address: BluetoothAddress
    /// `hci0`, as the system names it now.
    public internal(set) var systemName = ""
    /// Its alias.
    public internal(set) var name = ""
    public internal(set) var state = AdapterState.unknown
    /// BlueZ shows it now.
    public var isPresent: Bool { remote != nil }
    /// It is among the adapters to be used.
    public internal(set) var isSelected = true
    /// BlueZ discovers on it, for us or for others.
    public internal(set) var isDiscovering = false
    public internal(set) var supportsMonitor = false
    /// Links that are up, whoever holds them.
    public internal(set) var connectionCount = 0

    /// How our own scan runs on it.
    public var method: DiscoveryMethod {
        guard discovery.isRunning || discovery.isRenewing else { return .none }
        return discovery.isMonitoring ? .monitor : .discovery
    }

    var remote: RemoteAdapter?
    var discovery = DiscoveryMachine()
    var discoveryTimer: LoopTimer?
    var renewTimer: LoopTimer?
    var watchdog: LoopTimer?
    /// Advertisements that this controller heard since the start.
    var heardCount: UInt64 = 0
    var silence: SilenceWatchdog
    var silenceTimer: LoopTimer?
    /// The watchdog switched it off and has not yet seen it on again.
    var isPowerCycling = false
    /// Switches the controller on again after the watchdog switched it off.
    var powerTimer: LoopTimer?
    var monitor: AdvertisementMonitor?
    /// Which scans use this controller.
    var sessions: ScanSessionSet = []
    /// Devices that are to be connected and have to be heard first.
    var soughtCount = 0
    var queue: ConnectQueue<BluetoothAddress>
    var lastReportedMethod = DiscoveryMethod.none
    var warnedOfFailures = false

    init(address: BluetoothAddress, places: Int, silence: SilencePolicy = SilencePolicy()) {
        self.address = address
        self.silence = SilenceWatchdog(silence)
        queue = ConnectQueue(places: places)
    }
}
