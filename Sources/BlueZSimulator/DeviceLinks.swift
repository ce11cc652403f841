internal import Bluetooth
internal import DBus
internal import EventLoop

/// Connecting and disconnecting.
extension DeviceObject {
    func handle(_ call: MethodCall) -> Bool {
        guard call.interface == Interface.device else { return false }
        switch call.member {
        case "Connect", "ConnectProfile": connect(call)
        case "Disconnect", "DisconnectProfile": disconnect(call)
        case "Pair": beginPairing(call)
        case "CancelPairing": cancelPairing(call)
        default: return false
        }
        return true
    }

    /// Source: dev_connect and att_connect_cb.
    private func connect(_ call: MethodCall) {
        if link != nil { return call.reply() }
        if isConnecting { return call.fail(.failed("Operation already in progress")) }
        setTemporary(false)
        guard adapter.isPowered else { return call.fail(.failed("Input/output error")) }
        connectCall = call
        openLink { [weak self] isUp in
            guard let self, let call = connectCall else { return }
            connectCall = nil
            call.finish(isUp ? nil : .abortedByLocal)
        }
    }

    /// Makes the link. `Connected` is told before the completion.
    func openLink(_ completion: @escaping @EventLoopActor (Bool) -> Void) {
        adapter.controller.connect(address, addressType) { [weak self] result in
            guard let self else { return }
            guard case .success(let link) = result else { return completion(false) }
            opened(link)
            completion(true)
        }
    }

    private func opened(_ link: Link) {
        self.link = link
        peripheral = link.peripheral
        link.isEncrypted = isPaired && link.peripheral.isBonded
        link.onClose = { [weak self] reason in self?.closed(link, reason: reason) }
        link.onValue = { [weak self] characteristic, value in self?.gatt.received(value, of: characteristic) }
        bus.changed(path, Interface.device, [("Connected", .bool(true))])
        gatt.linkOpened(link)
        resolve(link)
    }

    /// Discovers the services. A device that was discovered before takes less.
    private func resolve(_ link: Link) {
        let database = link.peripheral.database
        let count = database.services.count * 2 + database.characteristics.count
        link.request(exchanges: gatt.isExported ? 3 : 6 + count) {
            database.answers ? .value([]) : .silence
        } completion: { [weak self] answer in
            guard let self, self.link === link, case .value = answer else { return }
            resolved(link)
        }
    }

    private func resolved(_ link: Link) {
        let database = link.peripheral.database
        gatt.synchronise(with: database)
        let services = Set(database.services.filter(\.isPrimary).map(\.uuid)).sorted()
        setResolved(true, services: services)
        forgetAdvertisedServices()
        bus.changed(path, Interface.device, [servicesProperty, ("ServicesResolved", .bool(true))])
        pairing?.servicesResolved()
        gatt.startBattery()
    }

    /// The device's attributes changed while the link is up.
    func servicesChanged() {
        guard let link, isResolved else { return }
        link.request(exchanges: 6) {
            link.peripheral.database.answers ? .value([]) : .silence
        } completion: { [weak self] answer in
            guard let self, self.link === link, case .value = answer else { return }
            let database = link.peripheral.database
            gatt.synchronise(with: database)
            setResolved(true, services: Set(database.services.filter(\.isPrimary).map(\.uuid)).sorted())
            bus.changed(path, Interface.device, [servicesProperty])
        }
    }

    /// Source: device_request_disconnect.
    func disconnect(_ call: MethodCall, removing: Bool = false) {
        pairing?.cancel()
        if removing { isRemovedAtEnd = true }
        cancelAttempt()
        guard link != nil else { return call.reply() }
        disconnectCalls.append(call)
        scheduleDisconnect()
    }

    /// The attempt to connect is given up.
    func cancelAttempt() {
        guard let waiting = connectCall else { return }
        connectCall = nil
        adapter.controller.cancelConnect(address)
        waiting.fail(.cancelled)
    }

    func scheduleDisconnect() {
        guard disconnectTimer == nil else { return }
        disconnectTimer = daemon.clock.schedule(after: daemon.timing.disconnect) { [weak self] in
            self?.disconnectTimer = nil
            self?.link?.end()
        }
    }

    var isDisconnecting: Bool { disconnectTimer != nil }

    /// Source: device_remove_connection.
    private func closed(_ closedLink: Link, reason: UInt8) {
        adapter.controller.forget(closedLink)
        guard link === closedLink else { return }
        link = nil
        disconnectTimer?.cancel()
        disconnectTimer = nil
        lastSeen = daemon.clock.now
        pairing?.linkClosed()
        gatt.linkClosed()
        forgetAdvertisedServices()
        let wasResolved = isResolved
        setResolved(false)
        let calls = disconnectCalls
        disconnectCalls = []
        var changes: Properties = wasResolved ? [("ServicesResolved", .bool(false))] : []
        if !calls.isEmpty {
            // A reply flushes the changes before it.
            bus.changed(path, Interface.device, changes)
            changes = []
            for call in calls { call.reply() }
        }
        changes.append(("Connected", .bool(false)))
        bus.changed(path, Interface.device, changes)
        if isRemovedAtEnd { adapter.remove(self) }
    }

    func clientLeft(_ owner: String) {
        madeGATT?.clientLeft(owner)
        if pairing?.owner == owner { pairing?.cancel() }
    }
}
