internal import BlueZ
internal import Bluetooth
internal import EventLoop
internal import Pattern

// What the mirror of org.bluez tells becomes the engine's adapters and devices here.
extension Central {
    func blueZ(didChange state: BlueZState) {
        switch state {
        case .stopped, .opening, .loading: break
        case .noBus(let error):
            counts.busLosses += 1
            adaptersAway(.resetting)
            change(to: .noBus(error.message))
        case .noBlueZ:
            if case .running = self.state { counts.blueZLosses += 1 }
            adaptersAway(.resetting)
            change(to: .noBlueZ)
        case .unauthorized(let error):
            for adapter in adapters { setState(.unauthorized, of: adapter) }
            change(to: .unauthorized(error.message))
        case .running:
            // All that there are have been told of before.
            adaptersAway(.unsupported)
            change(to: .running)
        }
    }

    /// Those that BlueZ does not show: gone with bluetoothd, which removes them first where it ends in order, or unplugged.
    private func adaptersAway(_ state: AdapterState) {
        for adapter in adapters where !adapter.isPresent { setState(state, of: adapter) }
    }

    // MARK: Adapters

    func blueZ(adapterDidAppear remote: RemoteAdapter) {
        guard let address = remote.address else { return }
        let adapter =
            adaptersByAddress[address]
            ?? Adapter(
                address: address, places: options.concurrentConnects, silence: options.silence ?? SilencePolicy())
        adaptersByAddress[address] = adapter
        adapter.remote = remote
        adapter.discovery.reset()
        remote.owner = adapter
        update(adapter, from: remote)
        for session in scanTable.sessions where session.request.adapter != nil { updateDiscovery(of: adapter) }
        updateDiscovery(of: adapter)
    }

    func blueZ(adapterDidChange remote: RemoteAdapter) {
        guard let adapter = remote.owner as? Adapter, adapter.remote === remote else { return }
        update(adapter, from: remote)
    }

    func blueZ(adapterDidDisappear remote: RemoteAdapter) {
        guard let adapter = remote.owner as? Adapter, adapter.remote === remote else { return }
        adapter.remote = nil
        adapter.discovery.reset()
        adapter.discoveryTimer?.cancel()
        adapter.renewTimer?.cancel()
        adapter.watchdog?.cancel()
        adapter.watchdog = nil
        adapter.powerTimer?.cancel()
        adapter.isPowerCycling = false
        watchSilence(of: adapter)
        adapter.monitor = nil
        adapter.queue.removeAll()
        adapter.isDiscovering = false
        adapter.lastReportedMethod = .none
        // Where bluetoothd itself went, the controller is still there and comes back.
        setState(bluez.isRunning ? .unsupported : .resetting, of: adapter, force: true)
    }

    func update(_ adapter: Adapter, from remote: RemoteAdapter) {
        let before = (adapter.systemName, adapter.name, adapter.isDiscovering, adapter.supportsMonitor)
        adapter.systemName = remote.systemName
        adapter.name = remote.alias
        adapter.isDiscovering = remote.isDiscovering || (adapter.discovery.isRenewing && adapter.isDiscovering)
        adapter.supportsMonitor = remote.supportsMonitor
        adapter.isSelected =
            options.adapters.isEmpty
            || options.adapters.contains {
                switch $0 {
                case .address(let address): address == adapter.address
                case .name(let name): name == remote.systemName || name == remote.alias
                }
            }
        let after = (adapter.systemName, adapter.name, adapter.isDiscovering, adapter.supportsMonitor)
        setState(remote.isPowered ? .poweredOn : .poweredOff, of: adapter, force: before != after)
        powerChanged(adapter, remote.isPowered)
        watchDiscovering(adapter)
    }

    func setState(_ state: AdapterState, of adapter: Adapter, force: Bool = false) {
        guard state != adapter.state || force else { return }
        adapter.state = state
        for observer in observers { observer.central(self, adapterDidChange: adapter) }
    }

    // MARK: Devices

    func blueZ(deviceDidAppear remote: RemoteDevice, isHeard: Bool) {
        let device = devicesByAddress[remote.address] ?? Device(address: remote.address)
        devicesByAddress[remote.address] = device
        remote.owner = device
        if let present = device.remote, present !== remote {
            device.others.append(remote)
            if isHeard { deviceHeard(device, remote, DeviceFields.heard) }
            return
        }
        device.remote = remote
        device.adapter = remote.adapter.owner as? Adapter
        device.addressType = remote.isRandomAddress ? .random : .public
        device.candidateGeneration = 0
        for observer in observers { observer.central(self, deviceDidAppear: device) }
        connectedChanged(device, remote)
        if isHeard { deviceHeard(device, remote, DeviceFields.heard) }
        if let link = device.link, link.phase == .sought { seek(device, link) }
    }

    func blueZ(device remote: RemoteDevice, didChange fields: DeviceFields) {
        guard let owner = remote.owner else { return }
        // Set by deviceDidAppear alone.
        let device = unsafeDowncast(owner, to: Device.self)
        if !fields.isDisjoint(with: .seldom) { seldomChanged(device, remote, fields) }
        if !fields.isDisjoint(with: .heard) { deviceHeard(device, remote, fields) }
    }

    func blueZ(deviceDidDisappear remote: RemoteDevice) {
        guard let device = remote.owner as? Device else { return }
        remote.owner = nil
        if device.remote !== remote {
            device.others.removeAll { $0 === remote }
            return
        }
        if device.isConnected || device.link?.isLinked == true || device.link?.phase == .connecting {
            linkEnded(device, bluez.isRunning ? "the device was removed" : "bluetoothd went away")
        } else if let link = device.link, link.phase == .queued {
            device.adapter?.queue.remove(device.address)
            link.phase = .idle
        }
        countConnection(of: device, remote, isConnected: false)
        device.remote = device.others.popLast()
        device.adapter = device.remote?.adapter.owner as? Adapter ?? device.adapter
        device.candidateGeneration = 0
        if device.remote != nil { return }
        for observer in observers { observer.central(self, deviceDidDisappear: device) }
        if let link = device.link, link.isWanted { return seek(device, link) }
        dropIfUnused(device)
    }

    func blueZ(treeDidChange remote: RemoteDevice) {
        guard let device = remote.owner as? Device, device.remote === remote else { return }
        if device.link?.phase == .up || (device.link == nil && device.isConnected) { buildTree(of: device) }
        // What is wanted may have been missing when the link came up.
        guard let link = device.link, link.phase == .up, device.isConnected else { return }
        endWithdrawn(link, device)
        for subscription in link.subscriptions.values where isThere(subscription.key, in: device) {
            resume(subscription, of: device)
        }
    }

    private func isThere(_ key: SubscriptionKey, in device: Device) -> Bool {
        (try? characteristic(device.address, service: key.service, characteristic: key.characteristic)) != nil
    }

    /// Lets go of a device that neither BlueZ, nor a holder, nor an observer needs.
    func dropIfUnused(_ device: Device) {
        guard device.remote == nil, device.attachment == nil, !device.isWanted else { return }
        if let link = device.link, link.subscriptions.values.contains(where: { !$0.holders.isEmpty }) { return }
        devicesByAddress[device.address] = nil
    }

    /// Forgets devices whose last attachment was taken away while BlueZ did not show them.
    public func releaseAttachment(of device: Device) {
        device.attachment = nil
        dropIfUnused(device)
    }

    private func seldomChanged(_ device: Device, _ remote: RemoteDevice, _ fields: DeviceFields) {
        if fields.contains(.name) || fields.contains(.services) || fields.contains(.advertisingData) {
            device.candidateGeneration = 0
        }
        guard device.remote === remote else { return }
        var changes: DeviceChanges = []
        if fields.contains(.name) { changes.insert(.name) }
        if fields.contains(.services) { changes.insert(.services) }
        if fields.contains(.security) { changes.insert(.pairing) }
        if fields.contains(.appearance) { changes.insert(.appearance) }
        if fields.contains(.withdrawn) { changes.insert(.signalLost) }
        if !changes.isEmpty {
            for observer in observers { observer.central(self, device: device, didChange: changes) }
        }
        if fields.contains(.connected) || fields.contains(.servicesResolved) { connectedChanged(device, remote) }
        if fields.contains(.battery) { batteryChanged(device, remote) }
    }

    // MARK: The hot path

    private func deviceHeard(_ device: Device, _ remote: RemoteDevice, _ fields: DeviceFields) {
        counts.advertisements &+= 1
        guard let adapterOwner = remote.adapter.owner else { return }
        // Set by adapterDidAppear alone.
        let adapter = unsafeDowncast(adapterOwner, to: Adapter.self)
        adapter.heardCount &+= 1
        let clock = clock
        let now = clock.now
        let wall = clock.wallNow
        device.noteSeen(at: now, wall: wall)
        if device.remote !== remote { takeOver(device, remote, adapter) }
        if let link = device.link { heardWhileWanted(device, link) }
        if device.candidateGeneration != scanTable.generation { findCandidates(device, remote) }
        var sessions = device.candidates.intersection(adapter.sessions)
        if sessions.isEmpty { return }
        sessions = scanTable.admit(sessions, rssi: remote.rssi, reported: device.reported)
        if sessions.isEmpty { return }
        let first = sessions.subtracting(device.reported)
        if !first.isEmpty {
            device.reported.formUnion(first)
            for session in scanTable.sessions where first.contains(session.set) { session.deviceCount += 1 }
        }
        counts.advertisementsMatched &+= 1
        let event = AdvertisementEvent(
            device: device, adapter: adapter, rssi: remote.rssi, time: now, wall: wall,
            changed: AdvertisementFields(rawValue: fields.rawValue & 0xff), sessions: sessions, firstFor: first)
        for observer in observers { observer.central(self, didReceive: event) }
    }

    private func findCandidates(_ device: Device, _ remote: RemoteDevice) {
        device.candidates = scanTable.candidates(
            name: remote.name, services: remote.services, solicited: remote.solicited)
        device.candidateGeneration = scanTable.generation
        for session in scanTable.sessions where !session.hasToldOfLimit {
            guard let pattern = session.filter.name, pattern.givenUp > 0 else { continue }
            session.hasToldOfLimit = true
            warn(
                .warning, "pattern_limit",
                "the name pattern '\(pattern.text)' takes too long on some names, which then do not match; simplify it")
        }
    }

    /// Another controller hears the device: it becomes the one to ask, unless a link holds the former.
    private func takeOver(_ device: Device, _ remote: RemoteDevice, _ adapter: Adapter) {
        if let link = device.link, link.phase != .idle, link.phase != .sought { return }
        if device.isConnected { return }
        guard let former = device.remote, let index = device.others.firstIndex(where: { $0 === remote }) else { return }
        device.others[index] = former
        device.remote = remote
        device.adapter = adapter
        device.candidateGeneration = 0
    }
}

extension DeviceFields {
    /// Fields that do not come with every advertisement.
    fileprivate static let seldom: DeviceFields = [
        .name, .services, .security, .appearance, .withdrawn, .connected, .servicesResolved, .battery, .identity,
        .advertisingData,
    ]
}

/// Passes on to the engine what the client of BlueZ tells, so that the engine's public face does not have to.
@EventLoopActor
final class Inlet: BlueZDelegate, PairingDelegate {
    weak var central: Central?

    func blueZ(didChange state: BlueZState) { central?.blueZ(didChange: state) }
    func blueZ(adapterDidAppear adapter: RemoteAdapter) { central?.blueZ(adapterDidAppear: adapter) }
    func blueZ(adapterDidChange adapter: RemoteAdapter) { central?.blueZ(adapterDidChange: adapter) }
    func blueZ(adapterDidDisappear adapter: RemoteAdapter) { central?.blueZ(adapterDidDisappear: adapter) }
    func blueZ(deviceDidAppear device: RemoteDevice, isHeard: Bool) {
        central?.blueZ(deviceDidAppear: device, isHeard: isHeard)
    }
    func blueZ(device: RemoteDevice, didChange fields: DeviceFields) {
        central?.blueZ(device: device, didChange: fields)
    }
    func blueZ(deviceDidDisappear device: RemoteDevice) { central?.blueZ(deviceDidDisappear: device) }
    func blueZ(treeDidChange device: RemoteDevice) { central?.blueZ(treeDidChange: device) }
    func passkey(for device: RemoteDevice) -> UInt32? { central?.passkey(for: device) }
    func passkeyIsMissing(for device: RemoteDevice) { central?.passkeyIsMissing(for: device) }
    func mayPair(_ device: RemoteDevice) -> Bool { central?.mayPair(device) ?? false }
    func display(passkey: String, for device: RemoteDevice) { central?.display(passkey: passkey, for: device) }
}
