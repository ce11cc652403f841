internal import EventLoop

/// The discovery of one controller, without I/O: takes what happened and says which call comes next. One call is under
/// way at a time; what is wanted may change meanwhile and is looked at again when it ends.
///
/// Sources: BlueZ org.bluez.Adapter(5); the order SetDiscoveryFilter before StartDiscovery, and InProgress after a crash
/// of bluetoothd, as measured on BlueZ 5.66.
struct DiscoveryMachine {
    enum Action: Equatable {
        /// RegisterMonitor; a refusal is no hindrance.
        case registerMonitor
        case unregisterMonitor
        case setFilter
        case startDiscovery
        case stopDiscovery
        case wait(Duration)
    }

    enum State: Equatable {
        case idle
        case registering
        case filtering
        case starting
        case running
        case stopping(restart: Bool)
        case unregistering
        case waiting
    }

    enum Failure: Equatable {
        case inProgress
        /// The controller is off or goes; the machine hears of it by ``powerChanged(_:)`` too.
        case notReady
        /// Whether BlueZ did it or not is unknown: a session of ours may be there.
        case noAnswer
        case other
    }

    private(set) var state = State.idle
    private(set) var isMonitoring = false
    /// A running discovery was stopped only to start again at once, which changes nothing for those who look on.
    private(set) var isRenewing = false
    /// Attempts that failed since discovery last ran.
    private(set) var failures = 0
    private(set) var restarts = 0
    var isWanted = false
    private var isPowered = false
    private var supportsMonitor = false
    private var mayHaveSession = false

    var isRunning: Bool { state == .running }
    /// Runs, or is on its way.
    var isSought: Bool { isWanted && isPowered }

    /// Looks at what is wanted; to be called after each change of it.
    mutating func update() -> Action? {
        switch state {
        case .idle: return isSought ? begin() : release()
        case .running: return isSought ? nil : stop(restart: false)
        case .waiting where !isSought:
            state = .idle
            return release()
        default: return nil
        }
    }

    /// The controller was switched, or came with this state. Off ends the discovery in BlueZ without a call.
    mutating func powerChanged(_ isPowered: Bool, supportsMonitor: Bool) -> Action? {
        self.supportsMonitor = supportsMonitor
        let wasPowered = self.isPowered
        self.isPowered = isPowered
        if wasPowered, !isPowered, state == .running || state == .waiting {
            state = .idle
            mayHaveSession = true
        }
        if !isPowered { isRenewing = false }
        if !wasPowered, isPowered { failures = 0 }
        return update()
    }

    /// bluetoothd or the controller is gone, and with it every call and session.
    mutating func reset() {
        state = .idle
        isMonitoring = false
        isRenewing = false
        isPowered = false
        mayHaveSession = false
        failures = 0
    }

    /// BlueZ let go of the monitor by itself.
    mutating func monitorReleased() {
        isMonitoring = false
    }

    /// Discovery does not run any more although nobody asked for that, or its duplicate filter has to be renewed.
    mutating func renew() -> Action? {
        guard state == .running, isSought else { return nil }
        restarts += 1
        isRenewing = true
        return stop(restart: true)
    }

    /// The call that the last action stands for has ended.
    mutating func ended(_ failure: Failure?) -> Action? {
        switch state {
        case .registering:
            isMonitoring = failure == nil
            return isSought ? setFilter() : backToIdle()
        case .filtering:
            if let failure { return failed(failure) }
            if !isSought { return backToIdle() }
            state = .starting
            return .startDiscovery
        case .starting:
            if let failure { return failed(failure) }
            state = .running
            isRenewing = false
            failures = 0
            return update()
        case .stopping(let restart):
            mayHaveSession = false
            if restart, isSought {
                // After a fault the stop only clears what BlueZ may still hold; the pause comes after it.
                return failures > 0 ? pause() : setFilter()
            }
            return backToIdle()
        case .unregistering:
            isMonitoring = false
            return backToIdle()
        case .idle, .running, .waiting: return nil
        }
    }

    /// The time of ``Action/wait(_:)`` has passed.
    mutating func waited() -> Action? {
        guard state == .waiting else { return nil }
        state = .idle
        return update()
    }

    private mutating func backToIdle() -> Action? {
        state = .idle
        isRenewing = false
        return update()
    }

    private mutating func begin() -> Action {
        if supportsMonitor, !isMonitoring {
            state = .registering
            return .registerMonitor
        }
        return setFilter()
    }

    private mutating func setFilter() -> Action {
        state = .filtering
        return .setFilter
    }

    private mutating func stop(restart: Bool) -> Action {
        state = .stopping(restart: restart)
        return .stopDiscovery
    }

    private mutating func release() -> Action? {
        guard isMonitoring, !isWanted else { return nil }
        state = .unregistering
        return .unregisterMonitor
    }

    private mutating func failed(_ failure: Failure) -> Action? {
        failures += 1
        isRenewing = false
        if failure == .noAnswer { mayHaveSession = true }
        guard isSought else { return backToIdle() }
        // A session of ours that BlueZ still holds would be refused for ever: stop it before the next attempt.
        if failure == .inProgress, mayHaveSession || failures % 3 == 0 { return stop(restart: true) }
        return pause(failure)
    }

    /// 0.25 s, doubled at each failure, at most 2 s where BlueZ is busy or not ready, since the scan is to be back
    /// within 5 s of BlueZ accepting it; at most 30 s after a refusal that time alone hardly mends.
    private mutating func pause(_ failure: Failure = .inProgress) -> Action {
        state = .waiting
        let longest = failure == .other ? 30_000 : 2000
        return .wait(.milliseconds(min(longest, 250 << min(failures - 1, 7))))
    }
}
