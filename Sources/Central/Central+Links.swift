internal import BlueZ
internal import Bluetooth
internal import EventLoop

// How a wanted link comes about, stays and ends.
extension Central {
    /// The longest that one attempt may keep its place while others wait.
    private static let attemptLimit = Duration.seconds(15)
    private static let connectDeadline = Duration.seconds(60)
    private static let resolveDeadline = Duration.seconds(40)

    func link(of device: Device) -> Link {
        if let link = device.link { return link }
        let link = Link(seed: .random(in: 0...(.max)))
        device.link = link
        if device.remote?.isConnected == true { link.phase = device.remote?.isResolved == true ? .up : .resolving }
        return link
    }

    /// Takes the next step towards the link that is wanted.
    func seek(_ device: Device, _ link: Link) {
        guard isStarted, link.isWanted else { return abandon(device, link) }
        switch link.phase {
        case .idle, .sought, .pausing: break
        case .queued, .connecting, .resolving, .up, .disconnecting: return
        }
        link.timer?.cancel()
        link.refusal = nil
        choose(link.selector, for: device)
        guard let remote = device.remote, let adapter = remote.adapter.owner as? Adapter, adapter.state == .poweredOn,
            adapter.isSelected, suits(adapter, link.selector)
        else { return awaitDevice(device, link) }
        setSeeking(link, false)
        if remote.isConnected { return linked(device, link, isOurs: false) }
        link.phase = .queued
        setConnection(of: device, .connecting)
        adapter.queue.add(device.address, isHeard: isHeardLately(device))
        startConnects(on: adapter)
    }

    /// Nothing can be done before the device is heard or a controller is there: discovery runs until then.
    private func awaitDevice(_ device: Device, _ link: Link) {
        link.phase = .sought
        setConnection(of: device, .connecting)
        setSeeking(link, true)
    }

    func setSeeking(_ link: Link, _ isSeeking: Bool) {
        guard link.isSeeking != isSeeking else { return }
        link.isSeeking = isSeeking
        soughtDidChange()
    }

    private func soughtDidChange() {
        for adapter in adaptersByAddress.values {
            adapter.soughtCount = devicesByAddress.values.reduce(0) { count, device in
                guard let link = device.link, link.isSeeking, adapter.isSelected, suits(adapter, link.selector) else {
                    return count
                }
                return count + 1
            }
            updateDiscovery(of: adapter)
        }
    }

    func suits(_ adapter: Adapter, _ selector: AdapterSelector?) -> Bool {
        switch selector {
        case nil: true
        case .address(let address): adapter.address == address
        case .name(let name): adapter.systemName == name || adapter.name == name
        }
    }

    /// Brings the object on the asked controller to the front.
    private func choose(_ selector: AdapterSelector?, for device: Device) {
        guard let remote = device.remote, let selector else { return }
        if let adapter = remote.adapter.owner as? Adapter, suits(adapter, selector) { return }
        guard
            let index = device.others.firstIndex(where: { other in
                (other.adapter.owner as? Adapter).map { suits($0, selector) } ?? false
            })
        else { return }
        let chosen = device.others[index]
        device.others[index] = remote
        device.remote = chosen
        device.adapter = chosen.adapter.owner as? Adapter
    }

    private func isHeardLately(_ device: Device) -> Bool {
        guard let heard = device.lastSeen else { return false }
        return clock.now - heard < .seconds(30)
    }

    /// An advertisement of a device with a link object: it may be what a wanted link waits for.
    func heardWhileWanted(_ device: Device, _ link: Link) {
        switch link.phase {
        case .sought: seek(device, link)
        case .pausing:
            // It came into reach: that is news, where it failed for being away. One that was heard all along and fails
            // nevertheless is left in peace for the whole pause.
            if link.failedUnheard, let failedAt = link.failedAt, clock.now - failedAt > .seconds(1) {
                seek(device, link)
            }
        case .queued:
            guard let adapter = device.adapter else { return }
            adapter.queue.add(device.address, isHeard: true)
            startConnects(on: adapter)
        default: return
        }
    }

    /// A controller came on: what waits for one goes on.
    func resumeLinks(on adapter: Adapter) {
        for device in Array(devicesByAddress.values) {
            guard let link = device.link else { continue }
            if link.phase == .queued, device.adapter === adapter, !adapter.queue.contains(device.address) {
                link.phase = .idle
            }
            if link.phase == .sought || link.phase == .idle, link.isWanted { seek(device, link) }
        }
    }

    func startConnects(on adapter: Adapter) {
        while let key = adapter.queue.next() {
            guard let device = devicesByAddress[key],
                let link = device.link, link.phase == .queued, let remote = device.remote
            else {
                adapter.queue.remove(key)
                continue
            }
            attempt(device, link, remote, adapter)
        }
    }

    private func attempt(_ device: Device, _ link: Link, _ remote: RemoteDevice, _ adapter: Adapter) {
        link.phase = .connecting
        link.generation += 1
        let generation = link.generation
        device.connection.attempts += 1
        setConnection(of: device, .connecting)
        armAttemptLimit(device, link, remote, adapter)
        bluez.connect(remote, timeout: Self.connectDeadline) { [weak self, weak device, weak adapter] result in
            guard let self, let device, let adapter else { return }
            if let link = device.link, link.generation == generation {
                attemptEnded(result, device, link, adapter)
            } else {
                adapter.queue.remove(device.address)
            }
            startConnects(on: adapter)
        }
    }

    /// An attempt on a device that is out of range gives its place to those that wait.
    private func armAttemptLimit(_ device: Device, _ link: Link, _ remote: RemoteDevice, _ adapter: Adapter) {
        let generation = link.generation
        link.timer = clock.schedule(after: Self.attemptLimit) { [weak self, weak device, weak link, weak remote] in
            guard let self, let device, let link, let remote, link.generation == generation,
                link.phase == .connecting
            else { return }
            if adapter.queue.hasWaiting {
                // Disconnect is how BlueZ cancels a Connect under way, which then fails.
                bluez.disconnect(remote) { _ in }
            } else {
                armAttemptLimit(device, link, remote, adapter)
            }
        }
    }

    private func attemptEnded(_ result: Result<Void, BlueZError>, _ device: Device, _ link: Link, _ adapter: Adapter) {
        adapter.queue.remove(device.address)
        guard link.phase == .connecting else { return }
        link.timer?.cancel()
        switch result {
        case .success: linked(device, link, isOurs: true)
        case .failure(let error) where error.kind == .alreadyConnected:
            linked(device, link, isOurs: device.remote?.isConnected == false)
        case .failure(let error): attemptFailed(error, device, link)
        }
    }

    private func attemptFailed(_ error: BlueZError, _ device: Device, _ link: Link) {
        counts.connectFailures += 1
        link.failedAt = clock.now
        link.failedUnheard = !(device.lastSeen.map { clock.now - $0 < .seconds(5) } ?? false)
        link.phase = .idle
        device.connection.reason = error.message.isEmpty ? error.name : error.message
        switch error.kind {
        case .doesNotExist, .notReady, .noBlueZ, .busLost: return awaitDevice(device, link)
        case .accessDenied, .notSupported, .invalidArguments:
            return refuse(CentralError(error, .connect, "connecting \(device.address)"), device, link)
        default: break
        }
        guard link.isWanted else { return abandon(device, link) }
        if error.kind == .authenticationFailed { link.lacksPasskey = options.passkeys[device.address] == nil }
        pause(device, link, after: RetryClass(error))
    }

    /// The next attempt, later: how much later depends on what went wrong, and on how often.
    private func pause(_ device: Device, _ link: Link, after kind: RetryClass) {
        link.phase = .pausing
        link.currentPause = link.pause.next(kind)
        setConnection(of: device, .connecting)
        link.timer = clock.schedule(after: link.currentPause) { [weak self, weak device] in
            guard let self, let device, let link = device.link, link.phase == .pausing else { return }
            seek(device, link)
        }
    }

    /// BlueZ refuses in a way that no repetition mends.
    private func refuse(_ error: CentralError, _ device: Device, _ link: Link) {
        warn(.error, "connect_refused", error.message, device.address)
        link.holders.removeAll()
        link.finishWaiters(.failure(error))
        link.refusal = error.message
        abandon(device, link)
    }

    // MARK: Up

    /// The radio link is up, by our call or found so.
    func linked(_ device: Device, _ link: Link, isOurs: Bool) {
        link.isOurs = isOurs
        mark(device, link)
        link.generation += 1
        link.phase = .resolving
        device.adapter?.queue.remove(device.address)
        guard let remote = device.remote else { return linkEnded(device, "the device was removed") }
        if remote.isResolved { return linkUp(device, link) }
        let generation = link.generation
        link.timer?.cancel()
        link.timer = clock.schedule(after: Self.resolveDeadline) { [weak self, weak device] in
            guard let self, let device, let link = device.link, link.generation == generation else { return }
            guard link.phase == .resolving else { return }
            device.connection.reason = "the services were not resolved in time"
            if let remote = device.remote, link.isOurs { bluez.disconnect(remote) { _ in } }
            linkEnded(device, "the services were not resolved in time")
        }
    }

    private func linkUp(_ device: Device, _ link: Link) {
        link.phase = .up
        link.timer?.cancel()
        link.failedAt = nil
        link.lacksPasskey = false
        link.upSince = clock.now
        counts.connects += 1
        device.connection.reason = nil
        buildTree(of: device)
        guard let remote = device.remote else { return announce(device, link) }
        let generation = link.generation
        bluez.refreshMTU(of: remote) { [weak self, weak device] in
            guard let self, let device, let link = device.link, link.generation == generation, link.phase == .up
            else { return }
            announce(device, link)
        }
    }

    private func announce(_ device: Device, _ link: Link) {
        setConnection(of: device, .connected)
        link.finishWaiters(.success(()))
        for subscription in link.subscriptions.values { resume(subscription, of: device) }
        endUnwantedSessions(of: device)
    }

    /// Device1.Connected or ServicesResolved changed, or the device came with them set.
    func connectedChanged(_ device: Device, _ remote: RemoteDevice) {
        guard device.remote === remote else { return }
        countConnection(of: device, remote, isConnected: remote.isConnected)
        guard remote.isConnected else {
            if device.connection.state == .connected || device.link?.isLinked == true {
                // The signal of an end that we asked for comes before the reply.
                let isOurs = device.link?.phase == .disconnecting
                linkEnded(device, isOurs ? "disconnected by us" : remote.disconnectReason)
            }
            return
        }
        guard let link = device.link else {
            // A link of others, or one left up by a former run: shown, not ours.
            if remote.isResolved { buildTree(of: device) }
            return setConnection(of: device, .connected)
        }
        switch link.phase {
        case .idle, .sought, .pausing, .queued:
            setSeeking(link, false)
            linked(device, link, isOurs: false)
            if !link.isWanted { setConnection(of: device, .connected) }
        case .resolving:
            if remote.isResolved { linkUp(device, link) }
        case .connecting, .up, .disconnecting: break
        }
    }

    /// Keeps each controller's count of links in step with one device.
    func countConnection(of device: Device, _ remote: RemoteDevice, isConnected: Bool) {
        let former = device.countedOn
        let next = isConnected ? remote.adapter.owner as? Adapter : nil
        guard former !== next else { return }
        device.countedOn = next
        for (adapter, change) in [(former, -1), (next, 1)] {
            guard let adapter else { continue }
            adapter.connectionCount += change
            for observer in observers { observer.central(self, adapterDidChange: adapter) }
        }
    }

    // MARK: Down

    /// What stands for a reason where BlueZ tells none.
    private static let unknownReason = "unknown"

    /// The link is gone, whoever ended it: calls fail now, and what keeps is sought again.
    func linkEnded(_ device: Device, _ reason: String?) {
        let wasUp = device.connection.state == .connected
        // No read is answered any more whose echo they might be.
        for characteristic in device.services.lazy.flatMap(\.characteristics) { release(characteristic) }
        device.services = []
        guard let link = device.link else {
            device.connection.reason = reason ?? Self.unknownReason
            return setConnection(of: device, .disconnected)
        }
        if wasUp, link.phase != .disconnecting { counts.linksLost += 1 }
        let wasIntended = link.phase == .disconnecting
        // A device that drops each link at once is sought ever more seldom.
        if let upSince = link.upSince, clock.now - upSince > .seconds(10) {
            link.pause.reset()
            device.connection.attempts = 0
        }
        link.upSince = nil
        link.phase = .idle
        link.isOurs = false
        link.marker = nil
        link.generation += 1
        link.timer?.cancel()
        device.adapter?.queue.remove(device.address)
        device.connection.reason = reason ?? Self.unknownReason
        let text = reason.map { ": \($0)" } ?? ""
        link.failCalls(CentralError(.notConnected, "the connection to \(device.address) ended\(text)"))
        for subscription in link.subscriptions.values {
            subscription.lost()
            subscription.finish(
                .failure(CentralError(.notConnected, "the connection to \(device.address) ended\(text)")))
        }
        // Those who wanted it once have had it; those who still wait for it go on waiting.
        if wasUp || wasIntended {
            let waiting = Set(link.waiters.map(\.holder))
            link.holders = link.holders.filter { $0.value == .keep || waiting.contains($0.key) }
        }
        setConnection(of: device, .disconnected)
        link.finishEndings()
        guard isStarted, link.isWanted else {
            dropIfUnused(device)
            return
        }
        pause(device, link, after: link.lacksPasskey ? .security : .peer)
    }

    /// Nobody wants the link any more: stops what is under way and ends the link that is ours.
    func abandon(_ device: Device, _ link: Link) {
        setSeeking(link, false)
        switch link.phase {
        case .idle, .sought, .pausing, .queued:
            device.adapter?.queue.remove(device.address)
            link.timer?.cancel()
            link.phase = .idle
            if device.remote?.isConnected != true { setConnection(of: device, .disconnected) }
            link.finishEndings()
            dropIfUnused(device)
        case .connecting, .resolving, .up:
            link.marker = nil
            guard link.isOurs || link.phase == .connecting, let remote = device.remote else { return }
            // Another program of this machine holds it too; it ends the link when it is the last.
            if !LinkMarker.standing(prefix: markerPrefix(device)).isEmpty { return }
            disconnect(device, link, remote)
        case .disconnecting: break
        }
    }

    /// Shows other programs that this one holds the link. A link that one of them made is as good as made here.
    func mark(_ device: Device, _ link: Link) {
        guard link.isWanted, link.marker == nil else { return }
        let prefix = markerPrefix(device)
        if !link.isOurs { link.isOurs = LinkMarker.standing(prefix: prefix).contains(true) }
        link.marker = LinkMarker(prefix: prefix, isOurs: link.isOurs)
    }

    private func markerPrefix(_ device: Device) -> String {
        LinkMarker.prefix(bus: options.busAddress, device.address)
    }

    /// Another living program that uses this engine holds the link too.
    func isShared(_ device: Device) -> Bool {
        LinkMarker.standing(prefix: markerPrefix(device)).count > (device.link?.marker == nil ? 0 : 1)
    }

    func disconnect(_ device: Device, _ link: Link, _ remote: RemoteDevice) {
        link.phase = .disconnecting
        link.generation += 1
        let generation = link.generation
        link.timer?.cancel()
        setConnection(of: device, .disconnecting)
        let isGone: (Link) -> Bool = { $0.generation == generation && $0.phase == .disconnecting }
        bluez.disconnect(remote) { [weak self, weak device] result in
            guard let self, let device, let link = device.link, isGone(link) else { return }
            // The signal that the link is down may come after the reply, or never where it was not up.
            if case .failure = result { return linkEnded(device, "disconnected by us") }
            if device.remote?.isConnected != true { linkEnded(device, "disconnected by us") }
        }
        link.timer = clock.schedule(after: .seconds(10)) { [weak self, weak device] in
            guard let self, let device, let link = device.link, isGone(link) else { return }
            linkEnded(device, "disconnected by us; BlueZ did not confirm it")
        }
    }

    func setConnection(of device: Device, _ state: ConnectionState) {
        var next = device.connection
        if next.state != state { next.since = clock.wallNow }
        next.state = state
        if state == .connected { next.reason = nil }
        next.adapter = state == .disconnected ? nil : device.adapter?.address
        next.mtu = state == .connected ? device.services.lazy.flatMap(\.characteristics).compactMap(\.mtu).first : nil
        guard next != device.lastSnapshot else { return }
        device.connection = next
        device.lastSnapshot = next
        for observer in observers { observer.central(self, connectionDidChange: device) }
    }
}
