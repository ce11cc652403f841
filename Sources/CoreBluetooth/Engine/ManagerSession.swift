internal import Bluetooth
internal import Dispatch
internal import EventLoop
internal import Foundation

/// The loop's side of one ``CBCentralManager``: it turns the engine's events into callbacks on the manager's queue.
@EventLoopActor
final class ManagerSession: RadioObserver {
    typealias Delegate = any CBCentralManagerDelegate

    nonisolated let radio: any Radio
    nonisolated let queue: DispatchQueue
    nonisolated let owner = ManagerReference()
    private var links: [DeviceKey: PeripheralLink] = [:]
    private var scan: (any RadioScan)?
    private var state = CBManagerState.unknown
    private var isAttached = false
    private var deferred: [@EventLoopActor () -> Void] = []
    private var eventFilter: ConnectionEventFilter?
    private let waitingDiscoveries = Locked(0)
    private var hasWarnedOfFlood = false

    /// Discoveries that may wait for the program's queue. A program that stands still must not fill the memory.
    private static let discoveryLimit = 4096

    nonisolated init(radio: any Radio, queue: DispatchQueue) {
        self.radio = radio
        self.queue = queue
    }

    func open() {
        isAttached = true
        radio.attach(self)
        radioDidChangeState(radio.state)
    }

    /// The manager is gone: nothing of it stays on the air.
    func close() {
        isAttached = false
        deferred = []
        scan?.stop()
        scan = nil
        for link in links.values { link.abandon() }
        links = [:]
        radio.detach(self)
    }

    // MARK: Callbacks

    /// Runs `body` on the manager's queue, where the manager still lives.
    nonisolated func deliver(_ body: @escaping @Sendable (CBCentralManager) -> Void) {
        let owner = owner
        queue.async {
            guard let manager = owner.manager else { return }
            body(manager)
        }
    }

    func radioDidChangeState(_ new: CBManagerState) {
        guard isAttached, new != state else { return }
        let wasOn = state == .poweredOn
        state = new
        if wasOn {
            scan?.stop()
            scan = nil
        }
        deliver { manager in
            manager.adopt(state: new)
            manager.delegate?.centralManagerDidUpdateState(manager)
        }
        if wasOn {
            for link in links.values { link.radioWentOff() }
        } else if new == .poweredOn {
            let due = deferred
            deferred = []
            for body in due { body() }
        }
    }

    func radio(didRename key: DeviceKey, to name: String?) {
        guard let name else { return }
        deliver { manager in
            guard let peripheral = manager.existingPeripheral(key), peripheral.adopt(name: name) else { return }
            peripheral.delegate?.peripheralDidUpdateName(peripheral)
        }
    }

    func radio(linkDidComeUp key: DeviceKey, services: [BluetoothUUID]) {
        reportEvent(.peerConnected, key, services)
    }

    func radio(linkDidGoDown key: DeviceKey, reason: LinkEnd) {
        links[key]?.linkWentDown(reason)
        reportEvent(.peerDisconnected, key, nil)
    }

    func radio(servicesDidChange key: DeviceKey) {
        links[key]?.servicesChanged()
    }

    func radio(didNotify value: [UInt8], characteristic: UInt16, of key: DeviceKey) {
        links[key]?.received(value, characteristic)
    }

    // MARK: Scanning

    /// - Parameter isRestored: begins later, where Bluetooth is not on yet and no other scan took its place.
    func startScan(_ request: RadioScanRequest, generation: Int, isRestored: Bool = false) {
        scan?.stop()
        scan = nil
        guard state == .poweredOn else {
            guard isRestored else { return }
            return deferred.append { [weak self] in
                guard let self, owner.manager?.isScanning(generation) == true else { return }
                startScan(request, generation: generation)
            }
        }
        scan = radio.startScan(request) { [weak self] sighting in self?.heard(sighting, generation) }
    }

    func stopScan() {
        scan?.stop()
        scan = nil
    }

    private func heard(_ sighting: Sighting, _ generation: Int) {
        let waiting = waitingDiscoveries
        let isTooMuch = waiting.withLock { count in
            guard count < Self.discoveryLimit else { return true }
            count += 1
            return false
        }
        if isTooMuch {
            if !hasWarnedOfFlood {
                hasWarnedOfFlood = true
                Misuse.warn("the delegate's queue stands still: advertisements are dropped while 4096 wait for it")
            }
            return
        }
        queue.async { [owner] in
            waiting.withLock { $0 -= 1 }
            guard let manager = owner.manager, manager.isScanning(generation) else { return }
            let peripheral = manager.peripheral(for: sighting.key)
            if let name = sighting.advertisement.name, peripheral.adopt(name: name) {
                peripheral.delegate?.peripheralDidUpdateName(peripheral)
            }
            let rssi = NSNumber(value: sighting.advertisement.rssi.map(Int.init) ?? 127)
            manager.delegate?.centralManager(
                manager, didDiscover: peripheral, advertisementData: sighting.advertisement.dictionary, rssi: rssi)
        }
    }

    // MARK: Connections

    func connect(_ request: ConnectRequest) {
        let key = request.key
        let link: PeripheralLink
        if let known = links[key], known.reference === request.reference {
            link = known
        } else {
            links[key]?.abandon()
            link = PeripheralLink(key: key, reference: request.reference, session: self)
            links[key] = link
        }
        if request.isRestored, state != .poweredOn {
            deferred.append { link.connect(request) }
        } else if state == .poweredOn {
            link.connect(request)
        } else {
            link.refuse(request)
        }
    }

    func cancel(_ key: DeviceKey, _ reference: PeripheralReference) {
        guard let link = links[key], link.reference === reference else { return }
        link.cancel()
    }

    /// The program has let go of its last reference to the peripheral.
    func forget(_ key: DeviceKey, _ reference: PeripheralReference) {
        guard let link = links[key], link.reference === reference else { return }
        link.abandon()
        links[key] = nil
    }

    /// Runs `body` with the link of a peripheral that is connected; an operation that comes too late is dropped, since
    /// didDisconnect is on its way.
    func withLink(_ key: DeviceKey, _ reference: PeripheralReference, _ body: (PeripheralLink) -> Void) {
        guard let link = links[key], link.reference === reference, link.isUp else { return }
        body(link)
    }

    func learnName(_ key: DeviceKey) {
        guard let name = radio.name(of: key) else { return }
        deliver { manager in _ = manager.existingPeripheral(key)?.adopt(name: name) }
    }

    // MARK: Connection events

    func registerForEvents(_ filter: ConnectionEventFilter) {
        eventFilter = filter
        // What is up already is no news, but its end will be.
        for (key, record) in radio.connected.offering(nil) { eventFilter?.seen[key] = Array(record.services) }
    }

    private func reportEvent(_ event: CBConnectionEvent, _ key: DeviceKey, _ services: [BluetoothUUID]?) {
        guard let eventFilter, eventFilter.matches(key, services ?? eventFilter.seen[key] ?? []) else { return }
        let isKnown = eventFilter.seen[key] != nil
        self.eventFilter?.seen[key] = services
        if event == .peerConnected, isKnown { return }
        deliver { manager in
            manager.delegate?.centralManager(
                manager, connectionEventDidOccur: event, for: manager.peripheral(for: key))
        }
    }
}

/// What ``CBCentralManager/connect(_:options:)`` asks for.
struct ConnectRequest: Sendable {
    var key: DeviceKey
    var reference: PeripheralReference
    /// Counts the attempts of one peripheral, so that a callback of an older one changes nothing.
    var attempt: Int
    var delay: Duration?
    var reconnects = false
    var isRestored = false
}

/// Which links a manager wants to hear of.
struct ConnectionEventFilter: Sendable {
    var services: Set<BluetoothUUID>?
    var peripherals: Set<DeviceKey>?
    /// The services of the links that were reported, or up before: those of a link that is down are not known any more.
    var seen: [DeviceKey: [BluetoothUUID]] = [:]

    func matches(_ key: DeviceKey, _ offered: [BluetoothUUID]) -> Bool {
        if let peripherals, !peripherals.contains(key) { return false }
        if let services { return offered.contains { services.contains($0) } }
        return true
    }
}
