internal import BlueZ
internal import Bluetooth
internal import EventLoop

extension Central {
    /// Starts a scan. It goes on over every fault until it is stopped, and begins when a controller is there.
    /// - Throws: ``CentralError``: `bad_request` (a name that is no pattern, a timeout of 0), `busy` (64 scans run),
    ///   `unknown_adapter`.
    public func startScan(_ request: ScanRequest) throws(CentralError) -> ScanSession {
        let filter = try ScanFilter(request)
        if let selector = request.adapter, adapter(selector) == nil {
            let known = adapters.map { "\($0.systemName) \($0.address)" }.joined(separator: ", ")
            // A configured adapter may come later; a person's mistake is told at once.
            if request.kind == .commanded {
                throw CentralError(
                    .unknownAdapter, "there is no adapter \(selector); there are: \(known.isEmpty ? "none" : known)")
            }
        }
        if request.kind != .library, let former = scanTable.sessions.first(where: { $0.request.kind == request.kind }) {
            end(former, .replaced)
        }
        guard let slot = scanTable.freeSlot else { throw CentralError(.busy, "64 scans run already; stop one first") }
        let id = Hex.encode(UInt64.random(in: 0...(.max)), digits: 8)
        let session = ScanSession(
            id: id, slot: slot, request: request, filter: filter, central: self, now: clock.wallNow)
        for device in devicesByAddress.values { device.reported.remove(session.set) }
        scanTable.add(session)
        if let timeout = request.timeout {
            session.timer = clock.schedule(after: timeout) { [weak self, weak session] in
                guard let self, let session else { return }
                end(session, .timeout)
            }
        }
        for observer in observers { observer.central(self, scanDidStart: session) }
        updateDiscovery()
        return session
    }

    public func stopScan(_ session: ScanSession) {
        end(session, .stopped)
    }

    /// The scans that run.
    public var scans: [ScanSession] { scanTable.sessions }

    func end(_ session: ScanSession, _ reason: ScanEndReason) {
        guard session.isActive else { return }
        session.isActive = false
        session.timer?.cancel()
        scanTable.remove(session)
        for observer in observers { observer.central(self, scanDidEnd: session, reason: reason) }
        updateDiscovery()
    }

    /// Has every controller do what the scans and the sought devices ask for now.
    func updateDiscovery() {
        for adapter in adaptersByAddress.values { updateDiscovery(of: adapter) }
    }

    func updateDiscovery(of adapter: Adapter) {
        var set: ScanSessionSet = []
        for session in scanTable.sessions where adapter.isSelected {
            if let selector = session.request.adapter, self.adapter(selector) !== adapter { continue }
            set.insert(session.set)
        }
        adapter.sessions = set
        adapter.discovery.isWanted = isStarted && (!set.isEmpty || adapter.soughtCount > 0)
        perform(adapter.discovery.update(), on: adapter)
    }

    func powerChanged(_ adapter: Adapter, _ isPowered: Bool) {
        if isPowered, adapter.isPowerCycling, adapter.powerTimer?.isPending == false {
            adapter.isPowerCycling = false
            adapter.silence.cureEnded(at: clock.now)
        }
        let supportsMonitor = options.usesMonitor && adapter.supportsMonitor
        perform(adapter.discovery.powerChanged(isPowered, supportsMonitor: supportsMonitor), on: adapter)
        if isPowered { resumeLinks(on: adapter) } else { adapter.queue.removeAll() }
    }

    /// Makes the call that the machine asks for; its end goes back into the machine.
    func perform(_ action: DiscoveryMachine.Action?, on adapter: Adapter) {
        defer {
            reportMethod(adapter)
            watchSilence(of: adapter)
        }
        guard let action, let remote = adapter.remote else { return }
        let ended: @EventLoopActor (Result<Void, BlueZError>) -> Void = { [weak self, weak adapter, weak remote] in
            guard let self, let adapter, let remote, adapter.remote === remote else { return }
            discoveryCallEnded(action, $0, on: adapter)
        }
        switch action {
        case .registerMonitor:
            adapter.monitor = bluez.registerMonitor(on: remote, ended) { [weak self, weak adapter] in
                guard let self, let adapter else { return }
                adapter.discovery.monitorReleased()
                armRenewal(of: adapter)
                reportMethod(adapter)
            }
        case .unregisterMonitor:
            guard let monitor = adapter.monitor else { return ended(.success(())) }
            adapter.monitor = nil
            bluez.unregister(monitor, on: remote, ended)
        case .setFilter: bluez.setDiscoveryFilter(on: remote, ended)
        case .startDiscovery: bluez.startDiscovery(on: remote, ended)
        case .stopDiscovery: bluez.stopDiscovery(on: remote, ended)
        case .wait(let pause):
            adapter.discoveryTimer?.cancel()
            adapter.discoveryTimer = clock.schedule(after: jittered(pause)) { [weak self, weak adapter] in
                guard let self, let adapter else { return }
                perform(adapter.discovery.waited(), on: adapter)
            }
        }
    }

    /// Between half and the whole of a pause, so that nothing that failed together is tried again together.
    private func jittered(_ pause: Duration) -> Duration {
        pause / 2 + pause / 2 * Double.random(in: 0...1)
    }

    private func discoveryCallEnded(
        _ action: DiscoveryMachine.Action, _ result: Result<Void, BlueZError>, on adapter: Adapter
    ) {
        var failure: DiscoveryMachine.Failure?
        if case .failure(let error) = result {
            failure =
                switch error.kind {
                case .inProgress: .inProgress
                case .notReady, .noBlueZ, .busLost: .notReady
                case .timeout: .noAnswer
                default: .other
                }
            tell(error, of: action, on: adapter)
        }
        if action == .startDiscovery {
            if failure == nil { discoveryStarted(adapter) } else { counts.scanFailures += 1 }
        }
        let wasRenewing = adapter.discovery.isRenewing
        perform(adapter.discovery.ended(failure), on: adapter)
        armRenewal(of: adapter)
        if wasRenewing, !adapter.discovery.isRenewing { renewalEnded(on: adapter) }
    }

    /// Meanwhile the old state was kept in sight.
    private func renewalEnded(on adapter: Adapter) {
        if adapter.discovery.isRunning {
            watchDiscovering(adapter)
        } else if let remote = adapter.remote {
            update(adapter, from: remote)
        }
    }

    private func discoveryStarted(_ adapter: Adapter) {
        counts.scanStarts += 1
        if adapter.warnedOfFailures {
            warn(.info, "scan_resumed", "the scan on \(adapter.systemName) (\(adapter.address)) runs again")
        }
        adapter.warnedOfFailures = false
    }

    /// One warning for each series of failures, at the second: the first often mends itself.
    private func tell(_ error: BlueZError, of action: DiscoveryMachine.Action, on adapter: Adapter) {
        guard action == .startDiscovery || action == .setFilter else { return }
        if error.kind == .accessDenied { setState(.unauthorized, of: adapter) }
        guard adapter.discovery.failures >= 1, !adapter.warnedOfFailures else { return }
        adapter.warnedOfFailures = true
        warn(
            .warning, "scan_failed",
            "the scan on \(adapter.systemName) (\(adapter.address)) does not start and is tried again: \(error)")
    }

    private func reportMethod(_ adapter: Adapter) {
        guard adapter.method != adapter.lastReportedMethod else { return }
        adapter.lastReportedMethod = adapter.method
        for observer in observers { observer.central(self, adapterDidChange: adapter) }
    }

    /// Without a monitor the controller may report a device only once in about 11 s; a restart makes it forget.
    private func armRenewal(of adapter: Adapter) {
        adapter.renewTimer?.cancel()
        adapter.renewTimer = nil
        guard adapter.discovery.isRunning, !adapter.discovery.isMonitoring, let interval = options.renewInterval else {
            return
        }
        adapter.renewTimer = clock.scheduleUpkeep(after: interval) { [weak self, weak adapter] in
            guard let self, let adapter else { return }
            perform(adapter.discovery.renew(), on: adapter)
        }
    }

    /// BlueZ says that it does not discover although we asked it to. It pauses by itself for 5 s now and then; what
    /// lasts longer is a fault.
    func watchDiscovering(_ adapter: Adapter) {
        guard adapter.discovery.isRunning, let remote = adapter.remote, !remote.isDiscovering else {
            adapter.watchdog?.cancel()
            adapter.watchdog = nil
            return
        }
        guard adapter.watchdog == nil else { return }
        adapter.watchdog = clock.schedule(after: .seconds(8)) { [weak self, weak adapter] in
            guard let self, let adapter else { return }
            adapter.watchdog = nil
            guard adapter.discovery.isRunning, let remote = adapter.remote, !remote.isDiscovering else { return }
            // A renewal may have kept the old state in sight.
            if adapter.isDiscovering { update(adapter, from: remote) }
            perform(adapter.discovery.renew(), on: adapter)
        }
    }
}

extension ScanSession {
    /// Whether the device suits the conditions on what it says of itself; false where BlueZ does not show it now.
    public func admits(_ device: Device) -> Bool {
        guard let remote = device.remote else { return false }
        return filter.admits(name: remote.name, services: remote.services, solicited: remote.solicited)
    }
}
