internal import BlueZ
public import Bluetooth
internal import EventLoop

extension Central {
    /// Connects, and waits until the GATT tree is resolved. A link that is up already is shared.
    ///
    /// The device need not have been heard: discovery runs until it is. Source: BlueZ org.bluez.Device(5), Connect.
    /// - Parameters:
    ///   - timeout: nil: pending until it succeeds or is cancelled. At the timeout the holder no longer wants the link.
    ///   - policy: whether a link that ends later is sought again for this holder.
    /// - Throws: ``CentralError``: `timeout`, `cancelled`, `connection_failed`, `not_permitted`, `unknown_adapter`.
    public func connect(
        _ address: BluetoothAddress, adapter: AdapterSelector? = nil, timeout: Duration? = nil,
        policy: ConnectPolicy = .once, holder: HolderID
    ) async throws(CentralError) -> Device {
        if let adapter, self.adapter(adapter) == nil, !adaptersByAddress.isEmpty {
            throw CentralError(.unknownAdapter, "there is no adapter \(adapter)")
        }
        let device = deviceOrNew(address)
        let link = link(of: device)
        link.holders[holder] = policy
        link.refusal = nil
        if let adapter { link.selector = adapter }
        if link.phase == .up { return device }
        let pending = Pending<Void>()
        link.waiters.append(Link.Waiter(holder: holder, pending: pending))
        seek(device, link)
        do {
            try await pending.value(timeout: timeout, clock: clock)
            return device
        } catch let error as CentralError {
            throw error
        } catch {
            link.waiters.removeAll { $0.pending === pending }
            if !link.waiters.contains(where: { $0.holder == holder }) { link.holders[holder] = nil }
            let reason = device.connection.reason.map { "; the last attempt: \($0)" } ?? ""
            let heard = device.lastSeen == nil ? "; it was not heard" : ""
            let obstacle = obstacle(to: address)
            if !link.isWanted { abandon(device, link) }
            if let obstacle, obstacle.isOurs, !(error is CancellationError) {
                throw CentralError(.adapterOff, "connecting \(address): \(error); \(obstacle)")
            }
            throw CentralError(late(error), "connecting \(address): \(error)\(heard)\(reason)")
        }
    }

    /// Keeps a device connected from now on, without waiting: ``ConnectPolicy/keep``.
    public func keepConnected(_ address: BluetoothAddress, adapter: AdapterSelector? = nil, holder: HolderID) {
        let device = deviceOrNew(address)
        let link = link(of: device)
        link.holders[holder] = .keep
        if let adapter { link.selector = adapter }
        seek(device, link)
    }

    /// Takes back a connect that is under way: those of this holder that wait get `cancelled`.
    public func cancelConnect(_ address: BluetoothAddress, holder: HolderID) {
        guard let device = devicesByAddress[address], let link = device.link, link.phase != .up else { return }
        cancel(device, link, holder)
    }

    private func cancel(_ device: Device, _ link: Link, _ holder: HolderID) {
        link.holders[holder] = nil
        let error = CentralError(.cancelled, "connecting \(device.address) was cancelled")
        link.finishWaiters(.failure(error), of: holder)
        if !link.isWanted { abandon(device, link) }
    }

    /// Lets go of the link, and ends it where nobody else holds it and it was brought up by this process.
    /// - Parameter force: ends it in any case, and drops every holder.
    /// - Returns: true where the link is down; false where it was left.
    public func disconnect(
        _ address: BluetoothAddress, holder: HolderID, force: Bool = false
    ) async throws(CentralError) -> Bool {
        guard let device = devicesByAddress[address] else {
            throw CentralError(.unknownDevice, "\(address) was not heard; scan, or connect it first")
        }
        let link = link(of: device)
        let others = force ? Array(link.holders.keys) : []
        for holder in others + [holder] { cancel(device, link, holder) }
        if !force { dropSubscriptions(of: holder, device, link) }
        if link.isWanted { return false }
        if force, let remote = device.remote, remote.isConnected, link.phase != .disconnecting {
            disconnect(device, link, remote)
        }
        guard link.phase == .disconnecting else { return device.remote?.isConnected != true }
        let pending = Pending<Void>()
        link.endings.append(pending)
        do { try await pending.value(timeout: .seconds(12), clock: clock) } catch {
            throw CentralError(late(error), "disconnecting \(address): \(error)")
        }
        return true
    }

    public func connectionSnapshot(_ address: BluetoothAddress) -> ConnectionSnapshot {
        devicesByAddress[address]?.connection ?? ConnectionSnapshot()
    }

    func deviceOrNew(_ address: BluetoothAddress) -> Device {
        if let device = devicesByAddress[address] { return device }
        let device = Device(address: address)
        devicesByAddress[address] = device
        return device
    }

    // MARK: Pairing

    /// Pairs, and connects for it where need be. A passkey comes from ``CentralOptions/passkeys``.
    /// Source: BlueZ org.bluez.Device(5), Pair and CancelPairing.
    public func pair(_ address: BluetoothAddress, timeout: Duration? = nil) async throws(CentralError) {
        let device = try present(address)
        guard let remote = device.remote else { throw gone(address) }
        if remote.isPaired { return }
        guard pairing.insert(address).inserted else {
            throw CentralError(.busy, "\(address) is being paired already")
        }
        defer { pairing.remove(address) }
        let pending = Pending<Void>()
        bluez.pair(remote, timeout: .seconds(120)) { pending.finish($0.mapError { $0 }) }
        do {
            try await pending.value(timeout: timeout ?? .seconds(60), clock: clock)
        } catch let error as BlueZError where error.kind == .alreadyExists {
            return
        } catch let error as BlueZError {
            throw CentralError(error, .pair, "pairing \(address)")
        } catch {
            bluez.cancelPairing(remote) { _ in }
            throw CentralError(late(error), "pairing \(address): \(error)")
        }
    }

    /// Removes the bond. BlueZ knows no way but to remove the device; a wanted link is sought again.
    public func unpair(_ address: BluetoothAddress) async throws(CentralError) {
        let device = try present(address)
        guard device.isPaired || device.isBonded else {
            throw CentralError(.notPermitted, "\(address) is not paired")
        }
        try await removeFromBlueZ(device)
    }

    /// Removes the device from BlueZ, with its bond, every holder and every subscription.
    public func forget(_ address: BluetoothAddress) async throws(CentralError) {
        guard let device = devicesByAddress[address] else {
            throw CentralError(.unknownDevice, "\(address) was not heard; scan, or connect it first")
        }
        if let link = device.link {
            link.subscriptions.removeAll()
            for holder in Array(link.holders.keys) { cancel(device, link, holder) }
        }
        try await removeFromBlueZ(device)
        dropIfUnused(device)
    }

    /// Source: BlueZ org.bluez.Adapter(5), RemoveDevice.
    private func removeFromBlueZ(_ device: Device) async throws(CentralError) {
        for remote in [device.remote].compactMap({ $0 }) + device.others {
            let pending = Pending<Void>()
            bluez.remove(remote) { pending.finish($0.mapError { $0 }) }
            do {
                try await pending.value()
                // BlueZ answers before it tells that the device is gone.
                let deadline = clock.now + .seconds(1)
                while !remote.isGone, clock.now < deadline { try await clock.sleep(for: .milliseconds(10)) }
            } catch let error as BlueZError {
                if error.kind == .doesNotExist { continue }
                throw CentralError(error, .other, "removing \(device.address)")
            } catch {
                throw CentralError(.internal, "removing \(device.address): \(error)")
            }
        }
    }

    func present(_ address: BluetoothAddress) throws(CentralError) -> Device {
        guard let device = devicesByAddress[address], device.remote != nil else { throw gone(address) }
        return device
    }

    private func gone(_ address: BluetoothAddress) -> CentralError {
        CentralError(.unknownDevice, "\(address) is not known to BlueZ now; scan until it is heard, or connect it")
    }

    /// RSSI of the live link, by the management socket. Needs CAP_NET_ADMIN.
    /// Source: BlueZ doc/mgmt-api, Get Connection Information Command (0x0031).
    public func rssi(_ address: BluetoothAddress) async throws(CentralError) -> Int8 {
        guard let device = devicesByAddress[address], device.isConnected, let remote = device.remote else {
            throw CentralError(.notConnected, "\(address) is not connected; connect it first")
        }
        let pending = Pending<Int8>()
        bluez.linkRSSI(of: remote) { pending.finish($0.mapError { $0 }) }
        do {
            return try await pending.value(timeout: .seconds(5), clock: clock)
        } catch let error as BlueZError {
            throw CentralError(error, .gatt, "reading the RSSI of \(address)")
        } catch {
            throw CentralError(late(error), "reading the RSSI of \(address): \(error)")
        }
    }
}

// What BlueZ asks while a device is paired.
extension Central {
    func passkey(for device: RemoteDevice) -> UInt32? { options.passkeys[device.address] }

    func passkeyIsMissing(for device: RemoteDevice) {
        devicesByAddress[device.address]?.link?.lacksPasskey = true
        warn(
            .warning, "passkey_missing",
            "\(device.address) asks for a passkey to pair; give it as devices[].passkey in the settings", device.address
        )
    }

    func mayPair(_ device: RemoteDevice) -> Bool {
        // Our own request, or a device that is wanted here and asks for security.
        pairing.contains(device.address) || devicesByAddress[device.address]?.isWanted == true
    }

    func display(passkey: String, for device: RemoteDevice) {
        warn(.info, "passkey", "enter \(passkey) on \(device.address) to pair it", device.address)
    }
}
