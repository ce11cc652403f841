public import CoreBluetooth

/// Hears of connections. All have defaults that do nothing.
public protocol BluetoothDeviceConnectionManagerDelegate: AnyObject {
    func connectionManager(_ manager: BluetoothDeviceConnectionManager, didConnect peripheral: CBPeripheral)
    /// The link is down. `willReconnect` says whether it is tried again.
    func connectionManager(
        _ manager: BluetoothDeviceConnectionManager, didDisconnect peripheral: CBPeripheral, error: (any Error)?,
        willReconnect: Bool)
    /// The strategy's tries are used up; nothing more is tried.
    func connectionManager(
        _ manager: BluetoothDeviceConnectionManager, didGiveUp peripheral: CBPeripheral, attempts: Int)
}

extension BluetoothDeviceConnectionManagerDelegate {
    public func connectionManager(
        _ manager: BluetoothDeviceConnectionManager, didConnect peripheral: CBPeripheral
    ) {}
    public func connectionManager(
        _ manager: BluetoothDeviceConnectionManager, didDisconnect peripheral: CBPeripheral, error: (any Error)?,
        willReconnect: Bool
    ) {}
    public func connectionManager(
        _ manager: BluetoothDeviceConnectionManager, didGiveUp peripheral: CBPeripheral, attempts: Int
    ) {}
}

/// Connects, and connects again after a loss by a ``ReconnectionStrategy``. It holds the peripherals it is asked to
/// connect until ``disconnect(_:)``, or until it has given up.
///
/// `@unchecked Sendable`: what changes is behind a lock.
public final class BluetoothDeviceConnectionManager: NSObject, @unchecked Sendable {
    private struct Wish {
        let peripheral: CBPeripheral
        let strategy: ReconnectionStrategy
        let attemptTimeout: TimeInterval
        var attempt = 0
        /// Counts what was begun, so that a timer of something older does nothing.
        var step = 0
        var isEnding = false
    }

    private struct State {
        weak var delegate: (any BluetoothDeviceConnectionManagerDelegate)?
        var wishes: [UUID: Wish] = [:]
    }

    private let central: CBCentralManager
    private let queue: DispatchQueue
    private let registry: BluetoothDeviceRegistry
    private let variables = Locked(State())

    init(_ central: CBCentralManager, _ queue: DispatchQueue, _ registry: BluetoothDeviceRegistry) {
        self.central = central
        self.queue = queue
        self.registry = registry
    }

    public weak var delegate: (any BluetoothDeviceConnectionManagerDelegate)? {
        get { variables.withLock { $0.delegate } }
        set { variables.withLock { $0.delegate = newValue } }
    }

    /// The peripherals that are held, connected or not.
    public var peripherals: [CBPeripheral] { variables.withLock { $0.wishes.values.map(\.peripheral) } }

    /// Connects.
    /// - Parameters:
    ///   - strategy: what follows a loss or a try that failed.
    ///   - attemptTimeout: seconds after which a try has failed. With the strategy `none` a try waits for ever.
    /// - Returns: false where Bluetooth is off.
    @discardableResult
    public func connect(
        _ peripheral: CBPeripheral, strategy: ReconnectionStrategy = .none, attemptTimeout: TimeInterval = 20
    ) -> Bool {
        guard central.state == .poweredOn else { return false }
        variables.withLock { state in
            let step = (state.wishes[peripheral.identifier]?.step ?? 0) + 1
            var wish = Wish(peripheral: peripheral, strategy: strategy, attemptTimeout: attemptTimeout)
            wish.step = step
            state.wishes[peripheral.identifier] = wish
        }
        attempt(peripheral.identifier)
        return true
    }

    /// Connects the device that was connected last; false where there is none, or Bluetooth is off.
    @discardableResult
    public func connectLastDevice(strategy: ReconnectionStrategy = .none) -> Bool {
        guard let last = registry.lastConnected,
            let peripheral = central.retrievePeripherals(withIdentifiers: [last.identifier]).first
        else { return false }
        return connect(peripheral, strategy: strategy)
    }

    /// Ends the connection, or the tries for one.
    public func disconnect(_ peripheral: CBPeripheral) {
        let isWaiting = variables.withLock { state -> Bool in
            guard state.wishes[peripheral.identifier] != nil else { return false }
            state.wishes[peripheral.identifier]?.isEnding = true
            state.wishes[peripheral.identifier]?.step += 1
            return peripheral.state == .disconnected
        }
        if isWaiting { variables.withLock { $0.wishes[peripheral.identifier] = nil } }
        central.cancelPeripheralConnection(peripheral)
    }

    private func attempt(_ identifier: UUID) {
        guard let wish = variables.withLock({ $0.wishes[identifier] }), !wish.isEnding else { return }
        central.connect(wish.peripheral)
        guard wish.strategy != .none, wish.attemptTimeout > 0, wish.attemptTimeout < 31_536_000 else { return }
        let step = wish.step
        queue.asyncAfter(deadline: .now() + wish.attemptTimeout) { [weak self] in
            guard let self, let now = variables.withLock({ $0.wishes[identifier] }), now.step == step else { return }
            guard now.peripheral.state == .connecting else { return }
            central.cancelPeripheralConnection(now.peripheral)
        }
    }

    // MARK: On the queue

    func connected(_ peripheral: CBPeripheral) {
        let isHeld = variables.withLock { state -> Bool in
            guard state.wishes[peripheral.identifier] != nil else { return false }
            state.wishes[peripheral.identifier]?.attempt = 0
            state.wishes[peripheral.identifier]?.step += 1
            return true
        }
        guard isHeld else { return }
        registry.connected(peripheral)
        delegate?.connectionManager(self, didConnect: peripheral)
    }

    func failed(_ peripheral: CBPeripheral, _ error: (any Error)?) { ended(peripheral, error) }

    func disconnected(_ peripheral: CBPeripheral, _ error: (any Error)?) { ended(peripheral, error) }

    private enum Next {
        case ended
        case again(TimeInterval, step: Int)
        case gaveUp(Int)
    }

    private func ended(_ peripheral: CBPeripheral, _ error: (any Error)?) {
        let identifier = peripheral.identifier
        let next = variables.withLock { state -> Next? in
            guard var wish = state.wishes[identifier] else { return nil }
            if wish.isEnding || wish.strategy == .none {
                state.wishes[identifier] = nil
                return .ended
            }
            wish.attempt += 1
            wish.step += 1
            guard let delay = wish.strategy.delay(beforeAttempt: wish.attempt) else {
                state.wishes[identifier] = nil
                return .gaveUp(wish.attempt - 1)
            }
            state.wishes[identifier] = wish
            return .again(delay, step: wish.step)
        }
        switch next {
        case nil: return
        case .ended: tellDisconnected(peripheral, error, false)
        case .gaveUp(let attempts):
            tellDisconnected(peripheral, error, false)
            delegate?.connectionManager(self, didGiveUp: peripheral, attempts: attempts)
        case .again(let delay, let step):
            tellDisconnected(peripheral, error, true)
            queue.asyncAfter(deadline: .now() + delay) { [weak self] in
                guard let self, variables.withLock({ $0.wishes[identifier]?.step }) == step else { return }
                // Off now: the change of state tries again.
                if central.state == .poweredOn { attempt(identifier) }
            }
        }
    }

    private func tellDisconnected(_ peripheral: CBPeripheral, _ error: (any Error)?, _ willReconnect: Bool) {
        delegate?.connectionManager(self, didDisconnect: peripheral, error: error, willReconnect: willReconnect)
    }

    /// Bluetooth is on again: what is held and has a strategy is connected again.
    func stateChanged() {
        guard central.state == .poweredOn else { return }
        let waiting = variables.withLock { state in
            state.wishes.values.filter { $0.strategy != .none && $0.peripheral.state == .disconnected }
        }
        for wish in waiting { attempt(wish.peripheral.identifier) }
    }
}
