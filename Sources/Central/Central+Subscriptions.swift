internal import BlueZ
public import Bluetooth
internal import EventLoop

extension Central {
    /// Subscribes to notifications or indications, as the characteristic has them. It is kept over reconnects until the
    /// last holder lets go.
    /// Source: BlueZ org.bluez.GattCharacteristic(5), AcquireNotify and StartNotify.
    /// - Throws: ``CentralError``: `not_connected`, `not_supported`, `not_permitted`, `att_error`, `timeout`.
    public func subscribe(
        _ characteristic: GATTCharacteristic, holder: HolderID, timeout: Duration? = nil
    ) async throws(CentralError) {
        guard let device = characteristic.device, device.isConnected, let service = characteristic.service else {
            throw CentralError(.notConnected, "the connection that this characteristic belongs to ended")
        }
        let subject = "subscribing to \(characteristic.text) of \(device.address)"
        guard !characteristic.properties.isDisjoint(with: [.notify, .indicate]) else {
            throw CentralError(.notSupported, "\(subject): it has neither the property notify nor indicate")
        }
        let link = link(of: device)
        let subscription = characteristic.subscription ?? find(characteristic, service, link)
        // Who has it already keeps it, also where this time nothing comes of it.
        let isNew = subscription.holders.insert(holder).inserted
        characteristic.subscription = subscription
        if subscription.isActive { return }
        let pending = Pending<Void>()
        subscription.waiters.append(pending)
        resume(subscription, of: device)
        do {
            try await pending.value(timeout: timeout ?? options.callTimeout, clock: clock)
        } catch let error as CentralError {
            if isNew { subscription.holders.remove(holder) }
            throw error
        } catch {
            if isNew { subscription.holders.remove(holder) }
            subscription.waiters.removeAll { $0 === pending }
            throw CentralError(late(error), "\(subject): \(error)")
        }
    }

    private func find(_ characteristic: GATTCharacteristic, _ service: GATTService, _ link: Link) -> Subscription {
        // The key a person would write, so that a configured and a commanded subscription are one.
        let key = SubscriptionKey(
            service: AttributeSelector(parsing: service.key) ?? AttributeSelector(uuid: service.uuid),
            characteristic: AttributeSelector(parsing: characteristic.key)
                ?? AttributeSelector(uuid: characteristic.uuid))
        let subscription = link.subscriptions[key] ?? Subscription(key: key)
        link.subscriptions[key] = subscription
        return subscription
    }

    /// Lets go; the notifications end where nobody else wants them.
    public func unsubscribe(_ characteristic: GATTCharacteristic, holder: HolderID) async throws(CentralError) {
        guard let subscription = characteristic.subscription else { return }
        subscription.holders.remove(holder)
        guard subscription.holders.isEmpty else { return }
        let characteristic = subscription.subject ?? characteristic
        guard let device = characteristic.device else {
            subscription.early = []
            return
        }
        let pending = Pending<Void>()
        end(subscription, characteristic) { pending.finish($0.mapError { $0 }) }
        do {
            try await pending.value(timeout: options.callTimeout, clock: clock)
        } catch let error as BlueZError where error.kind == .notConnected || error.kind == .doesNotExist {
            return
        } catch let error as BlueZError {
            throw CentralError(error, .gatt, "unsubscribing from \(characteristic.text) of \(device.address)")
        } catch {
            throw CentralError(late(error), "unsubscribing from \(characteristic.text) of \(device.address): \(error)")
        }
    }

    /// Wants notifications at each connection of a device, now or later.
    public func wantSubscription(
        _ address: BluetoothAddress, service: AttributeSelector, characteristic: AttributeSelector, holder: HolderID
    ) {
        let device = deviceOrNew(address)
        let link = link(of: device)
        let key = SubscriptionKey(service: service, characteristic: characteristic)
        let subscription = link.subscriptions[key] ?? Subscription(key: key)
        subscription.holders.insert(holder)
        link.subscriptions[key] = subscription
        if link.phase == .up { resume(subscription, of: device) }
    }

    func dropSubscriptions(of holder: HolderID, _ device: Device, _ link: Link) {
        for (key, subscription) in link.subscriptions where subscription.holders.contains(holder) {
            subscription.holders.remove(holder)
            guard subscription.holders.isEmpty else { continue }
            let characteristics = device.services.flatMap(\.characteristics)
            let characteristic = characteristics.first { $0.subscription === subscription }
            if let characteristic { end(subscription, characteristic) { _ in } }
            // One that is under way is still the characteristic's, and of whoever wants it next.
            guard case .idle = subscription.state else { continue }
            link.subscriptions[key] = nil
            characteristic?.subscription = nil
        }
    }

    // MARK: Starting

    /// Starts what is wanted and does not run, on a link that is up.
    func resume(_ subscription: Subscription, of device: Device) {
        guard case .idle = subscription.state, !subscription.holders.isEmpty else { return }
        let characteristic: GATTCharacteristic
        do throws(CentralError) {
            characteristic = try self.characteristic(
                device.address, service: subscription.key.service, characteristic: subscription.key.characteristic)
        } catch {
            warn(.warning, "subscribe_failed", error.message, device.address)
            return subscription.finish(.failure(error))
        }
        characteristic.subscription = subscription
        subscription.subject = characteristic
        guard let remote = characteristic.remote else {
            subscription.state = .battery
            return started(subscription, characteristic)
        }
        subscription.state = .starting
        guard options.usesNotifySockets, characteristic.properties.contains(.notify) else {
            return startSignals(subscription, characteristic, remote)
        }
        subscription.attempt += 1
        let attempt = subscription.attempt
        bluez.acquireNotify(remote) { [weak self, weak characteristic] result in
            guard let self, let characteristic, attempt == subscription.attempt else {
                if case .success(let socket) = result { socket.close() }
                return
            }
            acquired(result, subscription, characteristic, remote)
        }
    }

    private func acquired(
        _ result: Result<NotifySocket, BlueZError>, _ subscription: Subscription, _ characteristic: GATTCharacteristic,
        _ remote: RemoteCharacteristic
    ) {
        guard case .starting = subscription.state, characteristic.device?.isConnected == true else {
            if case .success(let socket) = result { socket.close() }
            return
        }
        switch result {
        case .success(let socket):
            let isWatched = socket.start { [weak self, weak characteristic] event in
                guard let self, let characteristic else { return }
                switch event {
                case .value(let value): deliver(value, of: characteristic, .notify)
                case .end: socketEnded(subscription, characteristic)
                }
            }
            guard isWatched else {
                socket.close()
                return startSignals(subscription, characteristic, remote)
            }
            subscription.state = .socket(socket)
            started(subscription, characteristic)
        case .failure(let error) where error.kind == .notConnected || error.kind == .busLost || error.isAcquired:
            // StartNotify is refused too for as long as somebody has the socket.
            failed(error, subscription, characteristic)
        case .failure: startSignals(subscription, characteristic, remote)
        }
    }

    private func startSignals(
        _ subscription: Subscription, _ characteristic: GATTCharacteristic, _ remote: RemoteCharacteristic
    ) {
        // From here on: the first values may come before the reply.
        subscription.takesSignals = true
        subscription.remote = remote
        remote.valueHandler = subscription
        let early = subscription.early
        subscription.early = []
        for value in early { deliver(value, of: characteristic, .notify) }
        subscription.attempt += 1
        let attempt = subscription.attempt
        let isBroughtBack = remote.hasSession
        bluez.startNotify(remote) { [weak self, weak characteristic] result in
            // What an earlier link's call is answered is no news of this one.
            guard let self, let characteristic, attempt == subscription.attempt,
                case .starting = subscription.state
            else { return }
            switch result {
            case .success:
                subscription.state = .signals
                if isBroughtBack { confirm(subscription, characteristic, remote) }
                started(subscription, characteristic)
            case .failure(let error):
                // BlueZ gives each client one session; where ours still stands, it is what was asked for.
                if error.kind == .inProgress, remote.isNotifying {
                    subscription.state = .signals
                    confirm(subscription, characteristic, remote)
                    return started(subscription, characteristic)
                }
                refused(error, subscription, characteristic)
            }
        }
    }

    private func refused(_ error: BlueZError, _ subscription: Subscription, _ characteristic: GATTCharacteristic) {
        subscription.state = .starting
        subscription.takesSignals = false
        guard error.kind == .att(ATTError.unlikely) else { return failed(error, subscription, characteristic) }
        // As with any call: perhaps the end of the link, of which BlueZ tells a little later.
        let attempt = subscription.attempt
        subscription.timer = clock.schedule(after: Link.endPause) { [weak self] in
            guard attempt == subscription.attempt, case .starting = subscription.state else { return }
            self?.failed(error, subscription, characteristic)
        }
    }

    /// Longer than a peer usually takes to answer.
    private static let confirmation = Duration.seconds(5)

    /// Of a session that it has from an earlier link BlueZ says at once that it stands, and nothing where the peer then
    /// refuses: it only forgets the session. Asked once more, BlueZ says so at once again, or begins a new one.
    /// Source: BlueZ `src/gatt-client.c`, register_notify_cb.
    private func confirm(
        _ subscription: Subscription, _ characteristic: GATTCharacteristic, _ remote: RemoteCharacteristic
    ) {
        let attempt = subscription.attempt
        subscription.timer?.cancel()
        subscription.timer = clock.schedule(after: Self.confirmation) { [weak self, weak characteristic] in
            guard let self, attempt == subscription.attempt, case .signals = subscription.state else { return }
            bluez.startNotify(remote) { [weak self] result in
                guard let self, let characteristic, attempt == subscription.attempt,
                    case .signals = subscription.state, case .failure(let error) = result, error.kind != .inProgress
                else { return }
                refused(error, subscription, characteristic)
                tellSubscription(of: characteristic)
            }
        }
    }

    func tellSubscription(of characteristic: GATTCharacteristic) {
        for observer in observers { observer.central(self, subscriptionDidChange: characteristic) }
    }

    private func started(_ subscription: Subscription, _ characteristic: GATTCharacteristic) {
        subscription.failures = 0
        tellSubscription(of: characteristic)
        subscription.finish(.success(()))
        if subscription.holders.isEmpty { end(subscription, characteristic) { _ in } }
    }

    private func failed(_ error: BlueZError, _ subscription: Subscription, _ characteristic: GATTCharacteristic) {
        subscription.state = .idle
        subscription.failures += 1
        let address = characteristic.device?.address
        let subject = "subscribing to \(characteristic.text) of \(address.map(\.description) ?? "a device")"
        let failure = CentralError(error, .gatt, subject)
        if error.isAcquired {
            taken(subscription, characteristic, failure)
        } else if subscription.waiters.isEmpty, !subscription.holders.isEmpty,
            error.kind != .notConnected || subscription.failures > 1
        {
            // bluetoothd may know of the end of a link before it tells: the end is news enough.
            warn(.warning, "subscribe_failed", failure.message, address)
        }
        subscription.finish(.failure(failure))
        guard !subscription.holders.isEmpty else { return }
        switch error.kind {
        case .notPermitted where error.isAcquired:
            restart(subscription, characteristic, after: Self.pause(afterTaken: subscription.failures))
        case .busLost, .notSupported, .notPermitted, .doesNotExist: return
        default: restart(subscription, characteristic, after: .seconds(1 << min(subscription.failures, 6)))
        }
    }

    /// A program that has just ended still has the socket for so many attempts, in 4 s; from then on it is news.
    private static let handover = 6

    /// At most 1 s for as long as the socket may be on its way from one program to the next, then twice the former up to a
    /// minute.
    private static func pause(afterTaken failures: Int) -> Duration {
        switch failures {
        case ...1: .milliseconds(250)
        case 2: .milliseconds(500)
        default: .seconds(min(60, 1 << max(0, min(failures - handover + 1, 6))))
        }
    }

    /// Somebody else has the notify socket. BlueZ does not tell who, and has a single one for each characteristic.
    private func taken(_ subscription: Subscription, _ characteristic: GATTCharacteristic, _ failure: CentralError) {
        guard subscription.failures == Self.handover, let device = characteristic.device else { return }
        let holder =
            isShared(device)
            ? "another program of this machine that holds the link receives its values"
            : "another program receives its values; or bluetoothd keeps it for a program that was killed while it"
                + " subscribed, which only a restart of bluetoothd ends (systemctl restart bluetooth)"
        warn(
            .warning, "subscribe_failed", "\(failure.message); \(holder). It is tried again, at least once a minute",
            device.address)
    }

    private func restart(
        _ subscription: Subscription, _ characteristic: GATTCharacteristic, after pause: Duration
    ) {
        subscription.timer?.cancel()
        subscription.timer = clock.schedule(after: pause) { [weak self, weak characteristic] in
            guard let self, let device = characteristic?.device, device.link?.phase == .up else { return }
            resume(subscription, of: device)
        }
    }

    // MARK: Ending

    /// BlueZ brings the sessions of an earlier link back by itself, also those that nobody wants any more since.
    func endUnwantedSessions(of device: Device) {
        for characteristic in device.services.lazy.flatMap(\.characteristics) {
            guard let remote = characteristic.remote, remote.hasSession,
                characteristic.subscription?.holders.isEmpty != false
            else { continue }
            bluez.stopNotify(remote) { _ in }
        }
    }

    /// BlueZ takes characteristics away where the services changed, with the sessions on them, of which it says nothing.
    func endWithdrawn(_ link: Link, _ device: Device) {
        for subscription in link.subscriptions.values {
            if case .idle = subscription.state { continue }
            let subject = subscription.subject
            let isThere = device.services.contains { $0.characteristics.contains { $0 === subject } }
            guard !isThere else { continue }
            subscription.lost()
            subject?.subscription = nil
        }
    }

    /// BlueZ closed the socket: the link ends, or the service changed. Where the link stays, it is asked for again.
    private func socketEnded(_ subscription: Subscription, _ characteristic: GATTCharacteristic) {
        guard case .socket(let socket) = subscription.state else { return }
        socket.close()
        subscription.state = .idle
        tellSubscription(of: characteristic)
        restart(subscription, characteristic, after: .milliseconds(500))
    }

    /// Somebody, or BlueZ, ended the notifications that come as signals.
    func notifyingChanged(of characteristic: GATTCharacteristic) {
        guard let subscription = characteristic.subscription, case .signals = subscription.state,
            characteristic.remote?.isNotifying == false, characteristic.device?.link?.phase == .up
        else { return }
        subscription.state = .idle
        subscription.takesSignals = false
        tellSubscription(of: characteristic)
        restart(subscription, characteristic, after: .milliseconds(500))
    }

    private func end(
        _ subscription: Subscription, _ characteristic: GATTCharacteristic,
        _ done: @escaping @EventLoopActor (Result<Void, BlueZError>) -> Void
    ) {
        let wasActive = subscription.isActive
        defer { if wasActive { tellSubscription(of: characteristic) } }
        switch subscription.state {
        case .starting, .stopping:
            // Its own reply ends it: there is no holder any more.
            return done(.success(()))
        case .signals:
            guard let remote = characteristic.remote else { break }
            subscription.timer?.cancel()
            subscription.state = .stopping
            subscription.takesSignals = false
            let attempt = subscription.attempt
            return bluez.stopNotify(remote) { [weak self, weak characteristic] result in
                // What an earlier link's call is answered is no news of this one.
                if attempt == subscription.attempt, case .stopping = subscription.state {
                    subscription.state = .idle
                    if let self, let device = characteristic?.device { resume(subscription, of: device) }
                }
                done(result)
            }
        case .socket(let socket):
            // Closing it is how BlueZ is told.
            socket.close()
        case .battery, .idle: break
        }
        subscription.timer?.cancel()
        subscription.takesSignals = false
        subscription.early = []
        subscription.state = .idle
        done(.success(()))
    }
}

extension Subscription: CharacteristicValueHandler {
    func characteristic(_ characteristic: RemoteCharacteristic, didSignal value: UnsafeRawBufferPointer) {
        if case .idle = state {
            if takesSignals, !holders.isEmpty, early.count < Self.mostEarly { early.append(Array(value)) }
        } else if let subject {
            subject.central?.signalled(value, of: subject)
        }
    }

    func characteristicDidChangeNotifying(_ characteristic: RemoteCharacteristic) {
        guard let subject else { return }
        subject.central?.notifyingChanged(of: subject)
    }
}
