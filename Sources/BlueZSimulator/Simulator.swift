internal import Bluetooth
public import DBus
public import EventLoop

/// A radio full of devices behind an org.bluez of its own, faithful to BlueZ 5.66 on a kernel 6.1.
@EventLoopActor
public final class Simulator {
    let fleet: Fleet
    let air: Air
    let faults = Faults()
    let clock: any LoopClock
    let timing: SimulatorTiming
    private(set) var daemon: Daemon?
    private let storage = Storage()
    private var address: DBusAddress?
    private var control: ControlServer?
    private var isStarting = false
    // Kept across runs of the daemon.
    private var repeatsSignals = false
    private var signalDelay = Duration.zero
    private var earlierSignals = 0

    /// Told when the bus is gone.
    public var onBusLost: (@EventLoopActor () -> Void)?

    public init(fleet: Fleet, clock: any LoopClock = SystemClock.shared, timing: SimulatorTiming = SimulatorTiming()) {
        self.fleet = fleet
        self.clock = clock
        self.timing = timing
        air = Air(fleet, clock: clock, timing: timing)
    }

    /// Takes the name org.bluez on a bus, and listens for commands on a unix socket. It returns when the adapters are
    /// there; they get their power a moment later.
    /// - Throws: ``DBusError`` where the bus cannot be reached or has an org.bluez; ``SimulatorError`` for the socket.
    public func start(on address: DBusAddress, control socketPath: String? = nil) async throws {
        self.address = address
        if let socketPath {
            let server = ControlServer(Control(self))
            try server.listen(at: socketPath)
            control = server
        }
        do {
            try await startDaemon()
        } catch {
            control?.close()
            control = nil
            throw error
        }
        air.begin()
    }

    /// The same for a bus given by its address; nil: the system bus as libdbus finds it.
    public func start(onBus address: String?, control socketPath: String? = nil) async throws {
        try await start(on: address.map { .address($0) } ?? .system, control: socketPath)
    }

    /// Takes everything down in order.
    public func stop() async {
        air.end()
        control?.close()
        control = nil
        await stopDaemon()
    }

    // MARK: bluetoothd

    var isRunning: Bool { daemon != nil }

    func startDaemon() async throws {
        guard let address, daemon == nil, !isStarting else { return }
        isStarting = true
        defer { isStarting = false }
        let daemon = try await Daemon.start(
            on: address, air: air, storage: storage, faults: faults, isExperimental: fleet.isExperimental,
            clock: clock, timing: timing)
        self.daemon = daemon
        daemon.bus.repeatsSignals = repeatsSignals
        daemon.bus.signalDelay = signalDelay
        daemon.onCrash = { [weak self] in self?.killDaemon() }
        daemon.bus.connection.onDisconnect = { [weak self] in
            self?.killDaemon()
            self?.onBusLost?()
        }
        daemon.begin()
    }

    func killDaemon() {
        earlierSignals += daemon?.bus.signalCount ?? 0
        daemon?.kill()
        daemon = nil
    }

    func stopDaemon() async {
        guard let daemon else { return }
        self.daemon = nil
        await daemon.stop()
        earlierSignals += daemon.bus.signalCount
    }

    func repeatSignals(_ on: Bool) {
        repeatsSignals = on
        daemon?.bus.repeatsSignals = on
    }

    func delaySignals(_ delay: Duration) {
        signalDelay = delay
        daemon?.bus.signalDelay = delay
    }

    // MARK: Controllers

    func unplug(_ controller: Controller) {
        guard controller.isPlugged else { return }
        controller.isPlugged = false
        if let daemon, let adapter = daemon.adapter(of: controller) {
            daemon.removeAdapter(adapter)
        } else {
            controller.stopRadio()
        }
    }

    /// - Parameter name: the kernel may give it another number.
    func plug(_ controller: Controller, as name: String?) throws(ControlFault) {
        guard !controller.isPlugged else { throw ControlFault("adapter \(controller.name) is plugged already") }
        // As the kernel does: the lowest number that is free.
        let taken = air.controllers.filter(\.isPlugged).map(\.name)
        let name = name ?? (0...).lazy.map { "hci\($0)" }.first { !taken.contains($0) }
        if let name, name != controller.name {
            guard name.hasPrefix("hci"), Int(name.dropFirst(3)) != nil,
                !air.controllers.contains(where: { $0.isPlugged && $0.name == name })
            else { throw ControlFault("'\(name)' is not a name such as hci1 that is free") }
            controller.name = name
        }
        controller.isPlugged = true
        daemon?.addAdapter(controller)
    }

    // MARK: Counters

    /// Advertisements that were handed to bluetoothd, since the start.
    public var advertisementCount: Int { air.advertisementCount }
    /// Signals that bluetoothd emitted, of any kind, since the start; one that is sent twice counts once.
    public var signalCount: Int { earlierSignals + (daemon?.bus.signalCount ?? 0) }
}

/// Why the simulator cannot start.
public struct SimulatorError: Error, Sendable, CustomStringConvertible {
    public let description: String
}
