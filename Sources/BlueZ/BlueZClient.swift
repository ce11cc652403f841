package import DBus
public import EventLoop

/// The client of org.bluez: the bus, the mirror of its objects, and the calls. It finds its way back by itself when the
/// bus or bluetoothd goes; what was pending then fails at once.
@EventLoopActor
public final class BlueZClient {
    /// Held: a weak reference would be looked at with each advertisement.
    public var delegate: (any BlueZDelegate)? {
        get { mirror.delegate }
        set { mirror.delegate = newValue }
    }
    public let agent = PairingAgent()
    public private(set) var state = BlueZState.stopped
    let clock: any LoopClock
    private let busAddress: String?
    private let mirror = Mirror()
    private(set) var connection: DBusConnection?
    /// There from the first notify socket of a connection on.
    private(set) var keeper: ConnectionKeeper?
    /// Raised with each bus connection and each owner of org.bluez: what an earlier one set going has no say any more.
    private var generation = 0
    private var timer: LoopTimer?
    private var failures = 0
    private var management: ManagementSocket?
    private var monitorCount = 0

    static let name = "org.bluez"

    public init(busAddress: String?, clock: any LoopClock) {
        self.busAddress = busAddress
        self.clock = clock
    }

    public var isRunning: Bool {
        if case .running = state { return true }
        return false
    }

    public var adapters: [RemoteAdapter] { mirror.adapters }
    public var devices: [RemoteDevice] { mirror.devices }
    public var callsInFlight: Int { connection?.callsInFlight ?? 0 }

    func device(at path: String) -> RemoteDevice? { mirror.object(at: path) as? RemoteDevice }

    // MARK: The bus

    /// Opens the bus, and again whenever it is lost.
    public func start() {
        guard case .stopped = state else { return }
        agent.client = self
        open()
    }

    /// Closes the bus: BlueZ ends the discovery, the monitors and the agent of a client that leaves.
    public func stop() {
        generation += 1
        timer?.cancel()
        timer = nil
        state = .stopped
        management?.shutDown()
        management = nil
        mirror.clear()
        closeConnection()
    }

    private func closeConnection() {
        connection?.onDisconnect = nil
        connection?.close()
        connection = nil
        keeper?.close()
        keeper = nil
    }

    /// Runs a call that bluetoothd is not to lose its caller in.
    /// - Parameter isHarmful: bluetoothd itself would suffer, and not only the call. For these there is a keeper; programs
    ///   without them are not given one: for as long as it held the sessions of a program that was killed, BlueZ would
    ///   signal each value once more to whoever is next.
    func keepingConnection<Value>(
        isHarmful: Bool, _ completion: @escaping Completion<Value>, _ body: (@escaping Completion<Value>) -> Void
    ) {
        if isHarmful, keeper?.isRunning != true {
            keeper = connection?.descriptor.flatMap { ConnectionKeeper(bus: $0) }
        }
        let keeper = keeper
        keeper?.begin()
        body { result in
            keeper?.end()
            completion(result)
        }
    }

    private func set(_ state: BlueZState) {
        self.state = state
        delegate?.blueZ(didChange: state)
    }

    private func open() {
        generation += 1
        let generation = self.generation
        set(.opening)
        Task { @EventLoopActor in
            do throws(DBusError) {
                let connection = try await DBusConnection.open(address)
                guard generation == self.generation else { return connection.close() }
                try await opened(connection, generation)
            } catch {
                guard generation == self.generation else { return }
                lost(BlueZError(error))
            }
        }
    }

    private var address: DBusAddress {
        busAddress.map { .address($0) } ?? .system
    }

    /// Subscribes to all signals before anything is asked, so that nothing falls in between.
    private func opened(_ connection: DBusConnection, _ generation: Int) async throws(DBusError) {
        self.connection = connection
        connection.onDisconnect = { [weak self] in
            guard let self, generation == self.generation else { return }
            lost(BlueZError(kind: .busLost, name: nil, message: "the bus closed the connection"))
        }
        // Held for as long as the connection is open; weak references would be looked at with each signal.
        connection.addSignalHandler { view in self.handle(view) }
        for rule in Self.rules { try await connection.addMatch(rule) }
        guard generation == self.generation else { return }
        failures = 0
        let owner = try await connection.nameOwner(of: Self.name)
        guard generation == self.generation else { return }
        connection.setOwner(owner, of: Self.name)
        if owner == nil { set(.noBlueZ) } else { load() }
    }

    private static let rules: [MatchRule] = [
        MatchRule(
            sender: name, interface: "org.freedesktop.DBus.Properties", member: "PropertiesChanged"),
        MatchRule(sender: name, interface: "org.freedesktop.DBus.ObjectManager", member: "InterfacesAdded"),
        MatchRule(sender: name, interface: "org.freedesktop.DBus.ObjectManager", member: "InterfacesRemoved"),
        MatchRule(sender: name, interface: "org.bluez.Device1", member: "Disconnected"),
        MatchRule(
            sender: "org.freedesktop.DBus", interface: "org.freedesktop.DBus", member: "NameOwnerChanged", arg0: name),
    ]

    private func lost(_ error: BlueZError) {
        generation += 1
        state = .noBus(error)
        mirror.clear()
        closeConnection()
        delegate?.blueZ(didChange: state)
        failures += 1
        let longest: Int64 = min(200 << min(Int64(failures) - 1, 3), 1000)
        retry(after: .milliseconds(Int64.random(in: longest / 2...longest))) { $0.open() }
    }

    private func retry(after pause: Duration, _ body: @escaping @EventLoopActor (BlueZClient) -> Void) {
        timer?.cancel()
        timer = clock.schedule(after: pause) { [weak self] in
            guard let self else { return }
            body(self)
        }
    }

    // MARK: Objects

    private func load() {
        set(.loading)
        let generation = self.generation
        let call = DBusMessage(
            call: Self.name, path: "/", interface: "org.freedesktop.DBus.ObjectManager", member: "GetManagedObjects")
        connection?.call(call, timeout: .seconds(10)) { [weak self] result in
            guard let self, generation == self.generation else { return }
            switch result {
            case .success(let reply):
                // First, so that what the mirror tells may already call BlueZ.
                state = .running
                agent.register()
                if reply.withWireReader({ self.mirror.load($0) }) == nil { mirror.load(reply.reader()) }
                delegate?.blueZ(didChange: state)
            case .failure(let error): loadFailed(BlueZError(error))
            }
        }
    }

    private func loadFailed(_ error: BlueZError) {
        if error.kind == .accessDenied {
            set(.unauthorized(error))
        } else if error.kind == .noBlueZ {
            return set(.noBlueZ)
        }
        retry(after: .seconds(2)) { $0.load() }
    }

    private func handle(_ view: borrowing DBusMessageView) {
        if view.memberEquals("PropertiesChanged") {
            mirror.propertiesChanged(view)
        } else if view.memberEquals("InterfacesAdded") {
            if let reader = view.wireReader() {
                mirror.interfacesAdded(reader)
            } else {
                mirror.interfacesAdded(view.reader())
            }
        } else if view.memberEquals("InterfacesRemoved") {
            mirror.interfacesRemoved(view.reader())
        } else if view.memberEquals("NameOwnerChanged") {
            ownerChanged(view.reader())
        } else if view.memberEquals("Disconnected") {
            mirror.disconnected(path: view.path, view.reader())
        }
    }

    /// Takes a signal as if the bus had brought it: for the benchmarks, which have no bus.
    package func deliver(_ signal: DBusMessage) {
        handle(DBusMessageView(signal))
    }

    /// `sss`: name, former owner, new owner.
    private func ownerChanged(_ reader: MessageReader) {
        var reader = reader
        guard reader.equals("org.bluez") else { return }
        reader.next()
        reader.next()
        let owner = reader.string() ?? ""
        let isOwned = !owner.isEmpty
        connection?.setOwner(isOwned ? owner : nil, of: Self.name)
        generation += 1
        timer?.cancel()
        let generation = self.generation
        connection?.onDisconnect = { [weak self] in
            guard let self, generation == self.generation else { return }
            lost(BlueZError(kind: .busLost, name: nil, message: "the bus closed the connection"))
        }
        // Objects of a former owner are not those of the next, even where the paths are the same.
        state = .noBlueZ
        mirror.clear()
        if isOwned { load() } else { set(.noBlueZ) }
    }

    // MARK: Further parts

    func nextMonitorPath() -> String {
        monitorCount += 1
        return "/blueferry/monitor\(monitorCount)"
    }

    /// RSSI of the live link to a device. Source: BlueZ doc/mgmt-api, Get Connection Information.
    public func linkRSSI(
        of device: RemoteDevice, _ completion: @escaping @EventLoopActor (Result<Int8, BlueZError>) -> Void
    ) {
        guard let index = UInt16(device.adapter.systemName.drop { !$0.isNumber }) else {
            let error = BlueZError(kind: .notSupported, name: nil, message: "the adapter has no number")
            return completion(.failure(error))
        }
        do throws(BlueZError) {
            if management == nil { management = try ManagementSocket() }
            management?.rssi(index: index, address: device.address, isRandom: device.isRandomAddress, completion)
        } catch {
            completion(.failure(error))
        }
    }
}

extension BlueZError {
    /// The same in terms of BlueZ.
    init(_ error: DBusError) {
        if let name = error.name {
            self.init(name: name, message: error.message)
            return
        }
        let kind: Kind =
            switch error.code {
            case .disconnected: .busLost
            case .timeout: .timeout
            default: .failed
            }
        self.init(kind: kind, name: nil, message: error.message)
    }
}
