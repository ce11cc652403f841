public import Bluetooth
public import Central
public import EventLoop

extension Device: AdvertisementSource {
    public var adapterAddress: BluetoothAddress? { adapter?.address }
}

/// The radio's port over the engine. It holds links in two names: the settings' and the commands'.
@EventLoopActor
public final class CentralRadio: RadioPort {
    public weak var delegate: (any RadioDelegate)?
    /// Where advertisements go; the port above is for what is rare. Held until ``stop()``, since a weak reference would be
    /// looked at with each advertisement.
    @exclusivity(unchecked) public var bridge: Bridge?
    public let central: Central

    private let configuration = HolderID("configuration")
    private let commands = HolderID("commands")
    private var configuredScan: ScanSession?
    private var commandedScan: ScanSession?
    @exclusivity(unchecked) private var configuredSet: ScanSessionSet = []
    @exclusivity(unchecked) private var commandedSet: ScanSessionSet = []

    public init(_ central: Central) {
        self.central = central
    }

    public func start() {
        central.addObserver(self)
        central.start()
    }

    public func stop() async {
        bridge = nil
        await central.stop()
    }

    // MARK: What is there

    public var problem: String? { central.state.problem }
    public var adapters: [AdapterReport] { central.adapters.map { Self.report($0) } }
    public var scans: [ScanReport] {
        central.scans.filter { $0.request.kind != .library }.map { Self.report($0) }
    }
    public var deviceAddresses: [BluetoothAddress] { central.deviceAddresses }

    public var counts: RadioCounts {
        let statistics = central.statistics
        var counts = RadioCounts()
        counts.advertisements = statistics.advertisements
        counts.notifications = statistics.notifications
        counts.connects = statistics.connects
        counts.linksLost = statistics.linksLost
        counts.scanStarts = statistics.scanStarts
        counts.busLosses = statistics.busLosses
        counts.blueZLosses = statistics.blueZLosses
        counts.silences = statistics.silences
        counts.callsInFlight = statistics.callsInFlight
        counts.devices = central.deviceCount
        return counts
    }

    public func device(_ address: BluetoothAddress) -> DeviceReport? { central.device(address).map { Self.report($0) } }

    public func isBonded(_ address: BluetoothAddress) -> Bool { central.device(address)?.isBonded ?? false }

    public func obstacle(to address: BluetoothAddress) -> Obstacle? {
        switch central.obstacle(to: address) {
        case nil: nil
        case .unheard: .unheard
        case .noBlueZ: problem.map(Obstacle.radio)
        case let obstacle?: obstacle.isOurs ? .radio(obstacle.description) : .link(obstacle.description)
        }
    }

    public func services(_ address: BluetoothAddress) -> [ServiceReport] {
        (central.device(address)?.services ?? []).map { Self.report($0) }
    }

    // MARK: Scans

    public func startScan(_ command: ScanCommand) throws(CommandError) -> ScanReport {
        var request = ScanRequest(kind: command.isConfigured ? .configured : .commanded)
        request.name = command.name
        request.services = command.services
        request.solicited = command.solicited
        request.rssi = command.rssi
        request.allowDuplicates = command.allowDuplicates
        request.adapter = command.adapter.map { AdapterSelector(parsing: $0) }
        request.timeout = command.timeout
        do {
            return Self.report(try central.startScan(request))
        } catch {
            throw CommandError(error)
        }
    }

    public func stopScan(_ id: String) -> Bool {
        guard let session = central.scans.first(where: { $0.id == id && $0.request.kind != .library }) else {
            return false
        }
        session.stop()
        return true
    }

    // MARK: Links

    public func keepConnected(_ address: BluetoothAddress, adapter: String?) {
        central.keepConnected(address, adapter: adapter.map { AdapterSelector(parsing: $0) }, holder: configuration)
    }

    public func wantSubscriptions(_ address: BluetoothAddress, _ paths: [AttributePath]) {
        for path in paths {
            central.wantSubscription(
                address, service: AttributeSelector(path.service),
                characteristic: AttributeSelector(path.characteristic), holder: configuration)
        }
    }

    public func connect(
        _ address: BluetoothAddress, adapter: String?, timeout: Duration?, keep: Bool
    ) async throws(CommandError) {
        do {
            _ = try await central.connect(
                address, adapter: adapter.map { AdapterSelector(parsing: $0) }, timeout: timeout,
                policy: keep ? .keep : .once, holder: commands)
        } catch {
            throw CommandError(error)
        }
    }

    public func cancelConnect(_ address: BluetoothAddress) {
        central.cancelConnect(address, holder: commands)
    }

    public func disconnect(_ address: BluetoothAddress, force: Bool) async throws(CommandError) -> Bool {
        do {
            return try await central.disconnect(address, holder: commands, force: force)
        } catch {
            throw CommandError(error)
        }
    }

    public func linkRSSI(_ address: BluetoothAddress) async throws(CommandError) -> Int8 {
        do {
            return try await central.rssi(address)
        } catch {
            throw CommandError(error)
        }
    }

    public func pair(_ address: BluetoothAddress, timeout: Duration) async throws(CommandError) {
        do {
            try await central.pair(address, timeout: timeout)
        } catch {
            throw CommandError(error)
        }
    }

    public func unpair(_ address: BluetoothAddress) async throws(CommandError) {
        do {
            try await central.unpair(address)
        } catch {
            throw CommandError(error)
        }
    }

    public func forget(_ address: BluetoothAddress) async throws(CommandError) {
        do {
            try await central.forget(address)
        } catch {
            throw CommandError(error)
        }
    }

    // MARK: Values

    private func characteristic(
        _ address: BluetoothAddress, _ path: AttributePath
    ) throws(CentralError) -> GATTCharacteristic {
        try central.characteristic(
            address, service: AttributeSelector(path.service), characteristic: AttributeSelector(path.characteristic))
    }

    public func read(
        _ address: BluetoothAddress, _ path: AttributePath, offset: Int, timeout: Duration
    ) async throws(CommandError) -> [UInt8] {
        do throws(CentralError) {
            let characteristic = try characteristic(address, path)
            guard let name = path.descriptor else {
                return try await central.read(characteristic, offset: offset, timeout: timeout)
            }
            let descriptor = try central.descriptor(characteristic, AttributeSelector(name))
            return try await central.read(descriptor, offset: offset, timeout: timeout)
        } catch {
            throw CommandError(error)
        }
    }

    public func read(
        _ address: BluetoothAddress, _ path: AttributePath, offset: Int, timeout: Duration,
        then completion: @escaping @EventLoopActor (Result<[UInt8], CommandError>) -> Void
    ) {
        do throws(CentralError) {
            let characteristic = try characteristic(address, path)
            if path.descriptor == nil {
                return central.read(characteristic, offset: offset, timeout: timeout) {
                    completion($0.mapError { CommandError($0) })
                }
            }
        } catch {
            return completion(.failure(CommandError(error)))
        }
        readByTask(address, path, offset: offset, timeout: timeout, then: completion)
    }

    public func write(
        _ address: BluetoothAddress, _ path: AttributePath, value: [UInt8], mode: WriteMode, offset: Int,
        timeout: Duration
    ) async throws(CommandError) {
        do throws(CentralError) {
            let characteristic = try characteristic(address, path)
            guard let name = path.descriptor else {
                let type: WriteType =
                    switch mode {
                    case .request: .request
                    case .command: .command
                    case .automatic: .automatic
                    }
                return try await central.write(value, to: characteristic, type: type, offset: offset, timeout: timeout)
            }
            let descriptor = try central.descriptor(characteristic, AttributeSelector(name))
            try await central.write(value, to: descriptor, offset: offset, timeout: timeout)
        } catch {
            throw CommandError(error)
        }
    }

    public func subscribe(
        _ address: BluetoothAddress, _ path: AttributePath, timeout: Duration
    ) async throws(CommandError) {
        do throws(CentralError) {
            try await central.subscribe(try characteristic(address, path), holder: commands, timeout: timeout)
        } catch {
            throw CommandError(error)
        }
    }

    public func unsubscribe(_ address: BluetoothAddress, _ path: AttributePath) async throws(CommandError) {
        do throws(CentralError) {
            try await central.unsubscribe(try characteristic(address, path), holder: commands)
        } catch {
            throw CommandError(error)
        }
    }
}

// MARK: - What the engine tells

extension CentralRadio: CentralObserver {
    public func centralDidChange(_ central: Central) { delegate?.radioDidChange() }

    public func central(_ central: Central, adapterDidChange adapter: Adapter) {
        delegate?.adapterDidChange(Self.report(adapter))
    }

    public func central(_ central: Central, didReceive advertisement: borrowing AdvertisementEvent) {
        var hits: ScanHits = []
        var first: ScanHits = []
        if !advertisement.sessions.isDisjoint(with: configuredSet) { hits.insert(.configured) }
        if !advertisement.sessions.isDisjoint(with: commandedSet) { hits.insert(.commanded) }
        guard !hits.isEmpty else { return }
        if !advertisement.firstFor.isDisjoint(with: configuredSet) { first.insert(.configured) }
        if !advertisement.firstFor.isDisjoint(with: commandedSet) { first.insert(.commanded) }
        bridge?.heard(
            advertisement.device, hits: hits, first: first, at: HeardTime(advertisement.time, advertisement.wall))
    }

    public func central(_ central: Central, deviceDidAppear device: Device) {
        delegate?.deviceDidChange(device.address)
    }

    public func central(_ central: Central, device: Device, didChange changes: DeviceChanges) {
        guard changes != .signalLost else { return }
        delegate?.deviceDidChange(device.address)
    }

    public func central(_ central: Central, deviceDidDisappear device: Device) {
        delegate?.deviceDidDisappear(device.address)
    }

    public func central(_ central: Central, connectionDidChange device: Device) {
        delegate?.linkDidChange(device.address)
    }

    public func central(_ central: Central, servicesDidChange device: Device) {
        delegate?.servicesDidChange(device.address)
    }

    public func central(_ central: Central, didReceive value: borrowing ValueEvent) {
        let characteristic = value.characteristic
        delegate?.didReceive(
            HeardValue(
                address: value.device.address, service: characteristic.service?.key ?? "",
                characteristic: characteristic.key, bytes: value.value, isRead: value.source == .read))
    }

    public func central(_ central: Central, scanDidStart session: ScanSession) {
        switch session.request.kind {
        case .configured:
            configuredScan = session
            configuredSet = session.set
        case .commanded:
            commandedScan = session
            commandedSet = session.set
        case .library: return
        }
        delegate?.scanDidStart(Self.report(session))
    }

    public func central(_ central: Central, scanDidEnd session: ScanSession, reason: ScanEndReason) {
        guard session.request.kind != .library else { return }
        if session === configuredScan {
            configuredScan = nil
            configuredSet = []
        }
        if session === commandedScan {
            commandedScan = nil
            commandedSet = []
        }
        delegate?.scanDidEnd(Self.report(session), reason: reason.rawValue)
    }

    public func central(_ central: Central, warning: CentralWarning) {
        delegate?.radioDidWarn(
            level: LogLevel(warning.level), code: warning.code, message: warning.message, device: warning.device)
    }
}

// MARK: - From the engine's values to the bridge's

extension CentralRadio {
    static func report(_ adapter: Adapter) -> AdapterReport {
        AdapterReport(
            address: adapter.address, systemName: adapter.systemName, name: adapter.name,
            state: AdapterReport.State(rawValue: adapter.state.rawValue) ?? .unknown, isPresent: adapter.isPresent,
            isSelected: adapter.isSelected, isDiscovering: adapter.isDiscovering, method: adapter.method.rawValue,
            connections: adapter.connectionCount)
    }

    static func report(_ device: Device) -> DeviceReport {
        let connection = device.connection
        return DeviceReport(
            address: device.address, addressType: device.isPresent ? device.addressType : nil,
            adapter: device.adapter?.address, name: device.name, rssi: device.rssi, lastSeen: device.lastSeenWall,
            isBonded: device.isBonded, services: device.advertisedServices,
            link: LinkReport(
                state: LinkReport.State(rawValue: connection.state.rawValue) ?? .disconnected,
                adapter: connection.adapter, mtu: connection.mtu, since: connection.since,
                attempts: connection.attempts, reason: connection.reason))
    }

    static func report(_ session: ScanSession) -> ScanReport {
        let request = session.request
        let command = ScanCommand(
            isConfigured: request.kind == .configured, name: request.name, services: request.services,
            solicited: request.solicited, rssi: request.rssi, timeout: request.timeout,
            allowDuplicates: request.allowDuplicates, adapter: request.adapter?.description)
        return ScanReport(id: session.id, command: command, started: session.startedAt, ends: session.endsAt)
    }

    static func report(_ service: GATTService) -> ServiceReport {
        ServiceReport(
            uuid: service.uuid, handle: service.handle, key: service.key, isPrimary: service.isPrimary,
            includes: service.includes,
            characteristics: service.characteristics.map { characteristic in
                ServiceReport.Characteristic(
                    uuid: characteristic.uuid, handle: characteristic.handle, key: characteristic.key,
                    properties: characteristic.properties.names,
                    descriptors: characteristic.descriptors.map { .init(uuid: $0.uuid, handle: $0.handle) })
            })
    }
}

extension AttributeSelector {
    init(_ name: AttributeName) { self.init(uuid: name.uuid, handle: name.handle) }
}

extension CommandError {
    init(_ error: CentralError) {
        self.init(error.code, error.message, att: error.att, bluez: error.bluezName)
    }
}

extension LogLevel {
    init(_ level: CentralWarning.Level) {
        switch level {
        case .info: self = .info
        case .warning: self = .warning
        case .error: self = .error
        }
    }
}
