internal import Bluetooth
internal import Central
internal import EventLoop
internal import Glibc

/// The engine over BlueZ: one ``Central`` for all managers of the process, which runs while there is a manager.
@EventLoopActor
final class CentralRadio: Radio, CentralObserver {
    nonisolated let connected = ConnectedDevices()
    private(set) var state = CBManagerState.unknown

    private nonisolated let busAddress: String?
    private var central: Central?
    private var observers: [any RadioObserver] = []
    private var scans: [CentralScan] = []
    private var holders: [RadioHolder: HolderID] = [:]
    /// The links that are up, as the observers were told.
    private var up: Set<DeviceKey> = []
    private var hasRun = false
    private var releases = 0

    /// - Parameter busAddress: nil for the system bus, as libdbus finds it.
    nonisolated init(busAddress: String? = nil) {
        self.busAddress = busAddress
    }

    // MARK: Life

    func attach(_ observer: any RadioObserver) {
        observers.append(observer)
        guard central == nil else { return }
        var options = CentralOptions()
        options.busAddress = busAddress
        let central = Central(options: options)
        self.central = central
        hasRun = false
        central.addObserver(self)
        central.start()
    }

    func detach(_ observer: any RadioObserver) {
        observers.removeAll { $0 === observer }
        stopIfIdle()
    }

    private func stopIfIdle() {
        guard observers.isEmpty, releases == 0, let central else { return }
        self.central = nil
        central.removeObserver(self)
        scans = []
        up = []
        connected.removeAll()
        state = .unknown
        Task { await central.stop() }
    }

    // MARK: State

    func centralDidChange(_ central: Central) { updateState() }

    func central(_ central: Central, adapterDidChange adapter: Adapter) { updateState() }

    private func updateState() {
        guard let central else { return }
        let new = aggregate(central)
        guard new != state else { return }
        state = new
        for observer in observers { observer.radioDidChangeState(new) }
    }

    private func aggregate(_ central: Central) -> CBManagerState {
        switch central.state {
        case .stopped: return .unknown
        case .unauthorized: return .unauthorized
        case .noBus, .noBlueZ: return hasRun ? .resetting : .unsupported
        case .running: break
        }
        hasRun = true
        let states = central.adapters.filter(\.isSelected).map(\.state)
        let order: [(AdapterState, CBManagerState)] = [
            (.poweredOn, .poweredOn), (.resetting, .resetting), (.poweredOff, .poweredOff),
            (.unauthorized, .unauthorized), (.unknown, .unknown),
        ]
        return order.first { states.contains($0.0) }?.1 ?? .unsupported
    }

    // MARK: Scanning

    func startScan(
        _ request: RadioScanRequest, _ heard: @escaping @EventLoopActor (Sighting) -> Void
    ) -> any RadioScan {
        let scan = CentralScan(request: request, heard: heard) { [weak self] scan in
            self?.scans.removeAll { $0 === scan }
        }
        guard let central else { return scan }
        var wanted = ScanRequest(kind: .library)
        wanted.owner = "CoreBluetooth"
        // Apple's two lists are alternatives, the engine's are both conditions: with both, the scan itself decides.
        if request.solicited.isEmpty { wanted.services = request.services }
        if request.services.isEmpty { wanted.solicited = request.solicited }
        wanted.allowDuplicates = true
        wanted.name = request.name
        do {
            scan.session = try central.startScan(wanted)
        } catch {
            Misuse.warn("the scan could not start: \(error.message)")
            return scan
        }
        scans.append(scan)
        reportKnown(to: scan, central)
        return scan
    }

    /// A new scan hears at once of the devices that were heard a moment ago: BlueZ may say nothing more of them for
    /// seconds, where the controller filters duplicates.
    private func reportKnown(to scan: CentralScan, _ central: Central) {
        let now = MonotonicTime.now
        for device in central.devices where device.isPresent && device.rssi != nil {
            guard let seen = device.lastSeen, now - seen < .seconds(10) else { continue }
            guard scan.session?.admits(device) == true, scan.admits(device) else { continue }
            scan.report(device)
        }
    }

    func central(_ central: Central, didReceive advertisement: borrowing AdvertisementEvent) {
        for scan in scans {
            guard let session = scan.session, advertisement.sessions.contains(session.set) else { continue }
            let device = advertisement.device
            if scan.admits(device) { scan.report(device) }
        }
    }

    func central(_ central: Central, device: Device, didChange changes: DeviceChanges) {
        let key = device.key
        if changes.contains(.name) {
            for observer in observers { observer.radio(didRename: key, to: device.name) }
        }
        if up.contains(key) { record(device) }
    }

    // MARK: Connections

    func connect(_ key: DeviceKey, for holder: RadioHolder) async throws {
        guard let central else { throw Self.off }
        let identity = HolderID("CoreBluetooth")
        holders[holder] = identity
        do {
            _ = try await central.connect(key.address, holder: identity)
        } catch {
            holders[holder] = nil
            throw RadioFailure(error)
        }
    }

    func release(_ key: DeviceKey, for holder: RadioHolder) async {
        guard let central, let identity = holders.removeValue(forKey: holder) else { return }
        _ = try? await central.disconnect(key.address, holder: identity)
    }

    func keep() { releases += 1 }

    func letGo() {
        releases -= 1
        stopIfIdle()
    }

    func isConnected(_ key: DeviceKey) -> Bool { device(key)?.isConnected ?? false }

    func central(_ central: Central, connectionDidChange device: Device) {
        let key = device.key
        if device.isConnected {
            record(device)
            guard up.insert(key).inserted else { return }
            tellLinkUp(device)
        } else if up.remove(key) != nil {
            connected.set(nil, for: key)
            let reason = linkEnd(device)
            for observer in observers { observer.radio(linkDidGoDown: key, reason: reason) }
        }
    }

    private func tellLinkUp(_ device: Device) {
        let services = device.services.map(\.uuid)
        for observer in observers { observer.radio(linkDidComeUp: device.key, services: services) }
    }

    private func linkEnd(_ device: Device) -> LinkEnd {
        if let adapter = device.adapter, adapter.state != .poweredOn { return .radioOff }
        // BlueZ 5.82 and newer give the reason as org.bluez.Reason.Timeout and the like.
        return device.connection.reason?.lowercased().contains("timeout") == true ? .silence : .byPeer
    }

    private func record(_ device: Device) {
        let known = device.services.map(\.uuid)
        let services = Set(known.isEmpty ? device.advertisedServices : known)
        connected.set(ConnectedDevices.Record(services: services, name: device.name), for: device.key)
    }

    // MARK: Attributes

    func name(of key: DeviceKey) -> String? { device(key)?.name }

    func commandLength(of key: DeviceKey) -> Int {
        max(ATT.defaultMTU, device(key)?.mtu ?? ATT.defaultMTU) - ATT.valueHeader
    }

    func services(of key: DeviceKey) -> [RemoteService] {
        (device(key)?.services ?? []).map { service in
            RemoteService(
                uuid: service.uuid, handle: service.visibleHandle, isPrimary: service.isPrimary,
                includes: service.includes,
                characteristics: service.characteristics.map { characteristic in
                    RemoteCharacteristic(
                        uuid: characteristic.uuid, handle: characteristic.visibleHandle,
                        properties: characteristic.properties,
                        descriptors: characteristic.descriptors.map {
                            RemoteDescriptor(uuid: $0.uuid, handle: $0.handle)
                        })
                })
        }
    }

    func central(_ central: Central, servicesDidChange device: Device) {
        let key = device.key
        guard up.contains(key) else { return }
        record(device)
        // A link of another program comes up before its services are known, and they come one by one.
        tellLinkUp(device)
        for observer in observers { observer.radio(servicesDidChange: key) }
    }

    func central(_ central: Central, didReceive value: borrowing ValueEvent) {
        guard value.source == .notify else { return }
        let key = value.device.key
        let handle = value.characteristic.visibleHandle
        let bytes = Array(value.value)
        for observer in observers { observer.radio(didNotify: bytes, characteristic: handle, of: key) }
    }

    func read(_ attribute: RemoteAttribute, of key: DeviceKey) async throws -> [UInt8] {
        let (central, device) = try current(key)
        do {
            switch attribute {
            case .characteristic(let handle): return try await central.read(device.characteristic(handle))
            case .descriptor(let handle): return try await central.read(device.descriptor(handle))
            }
        } catch {
            throw RadioFailure(error)
        }
    }

    func write(
        _ value: [UInt8], to attribute: RemoteAttribute, withResponse: Bool, of key: DeviceKey
    ) async throws {
        let (central, device) = try current(key)
        do {
            switch attribute {
            case .characteristic(let handle):
                let characteristic = try device.characteristic(handle)
                if withResponse {
                    try await central.write(value, to: characteristic, type: .request)
                } else {
                    try await central.send(value, to: characteristic)
                }
            case .descriptor(let handle):
                try await central.write(value, to: device.descriptor(handle))
            }
        } catch {
            throw RadioFailure(error)
        }
    }

    func subscribe(_ characteristic: UInt16, of key: DeviceKey, for holder: RadioHolder) async throws {
        let (central, device) = try current(key)
        guard let identity = holders[holder] else { throw Self.off }
        do {
            try await central.subscribe(device.characteristic(characteristic), holder: identity)
        } catch {
            throw RadioFailure(error)
        }
    }

    func unsubscribe(_ characteristic: UInt16, of key: DeviceKey, for holder: RadioHolder) async throws {
        let (central, device) = try current(key)
        guard let identity = holders[holder] else { throw Self.off }
        do {
            try await central.unsubscribe(device.characteristic(characteristic), holder: identity)
        } catch {
            throw RadioFailure(error)
        }
    }

    func rssi(of key: DeviceKey) async throws -> Int {
        let (central, _) = try current(key)
        do {
            return Int(try await central.rssi(key.address))
        } catch {
            throw RadioFailure(error)
        }
    }

    func openChannel(_ psm: UInt16, of key: DeviceKey) async throws -> Int32 {
        _ = try current(key)
        return try await ChannelSocket.connect(to: key, psm: psm)
    }

    private static let off = RadioFailure(kind: .radioOff, message: "Bluetooth is off.")

    private func device(_ key: DeviceKey) -> Device? { central?.device(key.address) }

    private func current(_ key: DeviceKey) throws -> (Central, Device) {
        guard let central else { throw Self.off }
        guard let device = central.device(key.address), device.isConnected else {
            throw RadioFailure(kind: .notConnected, message: "The peripheral is not connected.")
        }
        return (central, device)
    }
}

/// One manager's scan.
@EventLoopActor
private final class CentralScan: RadioScan {
    var session: ScanSession?
    private let request: RadioScanRequest
    private let heard: @EventLoopActor (Sighting) -> Void
    private let ended: @EventLoopActor (CentralScan) -> Void
    private var reported: Set<DeviceKey> = []

    init(
        request: RadioScanRequest, heard: @escaping @EventLoopActor (Sighting) -> Void,
        ended: @escaping @EventLoopActor (CentralScan) -> Void
    ) {
        self.request = request
        self.heard = heard
        self.ended = ended
    }

    func stop() {
        session?.stop()
        session = nil
        ended(self)
    }

    func admits(_ device: Device) -> Bool {
        if request.services.isEmpty, request.solicited.isEmpty { return true }
        let services = device.advertisedServices
        if request.services.contains(where: { services.contains($0) }) { return true }
        let solicited = device.solicitedServices
        return request.solicited.contains { solicited.contains($0) }
    }

    func report(_ device: Device) {
        let key = device.key
        if !request.allowsDuplicates, !reported.insert(key).inserted { return }
        heard(Sighting(key: key, advertisement: device.heardAdvertisement))
    }
}

extension Device {
    fileprivate var key: DeviceKey { DeviceKey(address, addressType) }

    /// What is known of the device's advertising, as a copy.
    fileprivate var heardAdvertisement: Advertisement {
        var copy = Advertisement()
        copy.name = name
        copy.rssi = rssi
        copy.txPower = txPower
        copy.services = advertisedServices
        copy.solicited = solicitedServices
        copy.appearance = appearance
        copy.flags = flags
        forEachServiceData { uuid, bytes in copy.serviceData.append(.init(uuid: uuid, data: Array(bytes))) }
        forEachManufacturerData { company, bytes in
            copy.manufacturerData.append(.init(company: company, data: Array(bytes)))
        }
        return copy
    }

    fileprivate func characteristic(_ handle: UInt16) throws -> GATTCharacteristic {
        for service in services {
            for characteristic in service.characteristics where characteristic.visibleHandle == handle {
                return characteristic
            }
        }
        throw RadioFailure(kind: .unknownAttribute, message: "The characteristic is gone.")
    }

    fileprivate func descriptor(_ handle: UInt16) throws -> GATTDescriptor {
        for characteristic in services.flatMap(\.characteristics) {
            for descriptor in characteristic.descriptors where descriptor.handle == handle { return descriptor }
        }
        throw RadioFailure(kind: .unknownAttribute, message: "The descriptor is gone.")
    }
}

// The battery service that BlueZ keeps to itself has no handle; here it gets one that no real table reaches.
extension GATTService {
    fileprivate var visibleHandle: UInt16 { handle == 0 ? 0xffff : handle }
}

extension GATTCharacteristic {
    fileprivate var visibleHandle: UInt16 { handle == 0 ? 0xfffe : handle }
}

extension RadioFailure {
    /// The engine's error in this library's words.
    init(_ error: any Error) {
        if let failure = error as? RadioFailure {
            self = failure
            return
        }
        guard let error = error as? CentralError else {
            self.init(kind: .other, message: "\(error)")
            return
        }
        let kind: Kind =
            switch error.code {
            case .attError: error.att.map { .attribute($0) } ?? .other
            case .notConnected: .notConnected
            case .cancelled: .cancelled
            case .timeout: .timeout
            case .notSupported: .notSupported
            case .connectionFailed, .pairingFailed: .connectionFailed
            case .adapterOff: .radioOff
            case .unknownAttribute, .ambiguousAttribute: .unknownAttribute
            case .tooLong: .tooLong
            case .busy: .busy
            // The peer wants an encrypted link: insufficient authentication, in ATT's numbers.
            case .notPermitted: .attribute(5)
            default: .other
            }
        self.init(kind: kind, message: error.message)
    }
}
