internal import BlueZ
internal import EventLoop

// Discovery that runs and hears nothing any more is set right.
extension Central {
    /// Looks at the controller now and then while discovery runs on it; not at all where it does not.
    func watchSilence(of adapter: Adapter) {
        // A silence outlasts the power cycle that is to cure it.
        guard !adapter.isPowerCycling else { return }
        guard let policy = options.silence, adapter.discovery.isSought else {
            adapter.silenceTimer?.cancel()
            adapter.silenceTimer = nil
            adapter.silence.reset(count: adapter.heardCount)
            return
        }
        guard adapter.silenceTimer == nil else { return }
        adapter.silenceTimer = clock.scheduleUpkeep(after: policy.tick) { [weak self, weak adapter] in
            guard let self, let adapter else { return }
            adapter.silenceTimer = nil
            look(at: adapter)
            watchSilence(of: adapter)
        }
    }

    private func look(at adapter: Adapter) {
        // While a call is under way, or waits for its time, the machine is at it already.
        guard adapter.discovery.isRunning else { return adapter.silence.cureEnded(at: clock.now) }
        let usual = adapter.silence.usualQuiet.clampedMilliseconds / 1000
        let name = "\(adapter.systemName) (\(adapter.address))"
        switch adapter.silence.look(count: adapter.heardCount, at: clock.now) {
        case nil: return
        case .restart:
            counts.silences += 1
            warn(
                .warning, "scan_silent",
                "nothing is heard on \(name) any more, where something was every \(max(1, usual)) s; its discovery"
                    + " is restarted")
            perform(adapter.discovery.renew(), on: adapter)
        case .powerCycle:
            warn(.warning, "scan_silent", "still nothing is heard on \(name): it is switched off and on again")
            cyclePower(of: adapter)
        case .alarm(let silence):
            warn(
                .error, "scan_dead",
                "nothing was heard on \(name) for \(silence.clampedMilliseconds / 1000) s, and neither a restart of"
                    + " discovery\(options.silence?.allowsPowerCycle == true ? " nor of the adapter" : "") helped:"
                    + " plug the adapter in anew, unless there is no device near it any more")
        case .recovered:
            warn(.info, "scan_heard", "devices are heard on \(name) again")
        }
    }

    /// Off, and on again; the scan and the wanted links come back with the power.
    private func cyclePower(of adapter: Adapter) {
        guard let remote = adapter.remote else { return }
        adapter.isPowerCycling = true
        bluez.setPowered(false, remote) { [weak self, weak adapter, weak remote] _ in
            guard let self, let adapter, let remote else { return }
            powerOn(adapter, remote, after: .seconds(1))
        }
    }

    /// Tried until the controller is on: it was on before this engine took its power.
    private func powerOn(_ adapter: Adapter, _ remote: RemoteAdapter, after pause: Duration) {
        adapter.powerTimer?.cancel()
        adapter.powerTimer = clock.schedule(after: pause) { [weak self, weak adapter, weak remote] in
            guard let self, let adapter, let remote, adapter.remote === remote else { return }
            guard !remote.isPowered else {
                // Somebody else was faster, or it was not switched off at all.
                adapter.isPowerCycling = false
                adapter.silence.cureEnded(at: clock.now)
                return watchSilence(of: adapter)
            }
            bluez.setPowered(true, remote) { [weak self, weak adapter, weak remote] result in
                guard case .failure(let error) = result, let self, let adapter, let remote else { return }
                if pause == .seconds(1) {
                    let name = "\(adapter.systemName) (\(adapter.address))"
                    warn(.error, "adapter_off", "\(name) was switched off, and does not come on again: \(error)")
                }
                powerOn(adapter, remote, after: min(pause * 2, .seconds(30)))
            }
        }
    }
}
