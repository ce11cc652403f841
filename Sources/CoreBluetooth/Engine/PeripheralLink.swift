internal import Bluetooth
internal import EventLoop
internal import Foundation

/// The loop's side of one ``CBPeripheral``: its connection, and its operations, one after another.
@EventLoopActor
final class PeripheralLink {
    private enum Phase: Equatable {
        case idle
        case waiting(RadioHolder)
        case up(RadioHolder)
    }

    let key: DeviceKey
    let reference: PeripheralReference
    /// Let go of by ``ManagerSession/close()``, which forgets its links; what still runs may need it until then.
    private let session: ManagerSession
    private var phase = Phase.idle
    private var attempt = 0
    private var reconnects = false
    private var releasing: Task<Void, Never>?

    private var operations: [LinkOperation] = []
    private var current: LinkOperation?
    private var isRunning = false
    /// Counts the links: a runner of an older one ends without touching the newer one's operations.
    private var epoch = 0

    private var notifying: Set<UInt16> = []
    /// Values that came between the request to notify and its answer; they follow the answer.
    private var early: [UInt16: [[UInt8]]] = [:]
    /// The attributes as they were when the program was last told of them.
    private var tree: [RemoteService] = []

    private static var holders = 0

    init(key: DeviceKey, reference: PeripheralReference, session: ManagerSession) {
        self.key = key
        self.reference = reference
        self.session = session
    }

    var isUp: Bool { if case .up = phase { true } else { false } }
    var radio: any Radio { session.radio }

    // MARK: Connecting

    func connect(_ request: ConnectRequest) {
        attempt = request.attempt
        reconnects = request.reconnects
        switch phase {
        case .up: deliverConnected()
        case .waiting: break
        case .idle: wait(request.delay)
        }
    }

    /// Bluetooth went off while the request was on its way.
    func refuse(_ request: ConnectRequest) {
        attempt = request.attempt
        deliverFailed(CBError(.connectionFailed, "Bluetooth is not powered on"))
    }

    private func wait(_ delay: Duration?) {
        Self.holders += 1
        let holder = RadioHolder(number: Self.holders)
        phase = .waiting(holder)
        Task { [self, radio, key, releasing] in
            await releasing?.value
            if let delay { try? await SystemClock.shared.sleep(for: delay) }
            guard phase == .waiting(holder) else { return }
            do {
                try await radio.connect(key, for: holder)
                guard phase == .waiting(holder) else { return }
                phase = .up(holder)
                tree = radio.services(of: key)
                deliverConnected()
                if !radio.isConnected(key) { linkWentDown(.byPeer) }
            } catch {
                guard phase == .waiting(holder) else { return }
                phase = .idle
                deliverFailed(RadioFailure.visible(error))
            }
        }
    }

    private func deliverConnected() {
        let attempt = attempt
        let limit = radio.commandLength(of: key)
        let name = radio.name(of: key)
        deliver { manager, peripheral in
            guard peripheral.adoptConnected(attempt, commandLength: limit) else { return }
            if let name, peripheral.adopt(name: name) { peripheral.delegate?.peripheralDidUpdateName(peripheral) }
            manager.delegate?.centralManager(manager, didConnect: peripheral)
        }
    }

    private func deliverFailed(_ error: any Error) {
        let attempt = attempt
        deliver { manager, peripheral in
            peripheral.adoptDisconnected(attempt, isReconnecting: false)
            manager.restoration?.changed(manager)
            manager.delegate?.centralManager(manager, didFailToConnect: peripheral, error: error)
        }
    }

    private func deliverDisconnected(_ error: (any Error)?, isReconnecting: Bool = false) {
        let attempt = attempt
        let time = Date().timeIntervalSinceReferenceDate
        deliver { manager, peripheral in
            peripheral.adoptDisconnected(attempt, isReconnecting: isReconnecting)
            manager.restoration?.changed(manager)
            manager.delegate?.centralManager(
                manager, didDisconnectPeripheral: peripheral, timestamp: time, isReconnecting: isReconnecting,
                error: error)
        }
    }

    // MARK: Ends

    func cancel() {
        guard let holder else { return }
        endOperations(nil)
        phase = .idle
        // Told only once the link is down, or left to others, so that what the program does next finds it so.
        release(holder) { link in link.deliverDisconnected(nil) }
    }

    func abandon() {
        guard let holder else { return }
        endOperations(nil)
        phase = .idle
        release(holder)
    }

    func linkWentDown(_ reason: LinkEnd) {
        guard case .up(let holder) = phase else { return }
        let error =
            switch reason {
            case .byPeer: CBError(.peripheralDisconnected, "The peripheral has ended the connection.")
            case .silence: CBError(.connectionTimeout, "The connection was lost: the peripheral does not answer.")
            case .radioOff: CBError(.peripheralDisconnected, "Bluetooth has gone off.")
            }
        endOperations(error)
        phase = .idle
        release(holder)
        let again = reconnects && reason != .radioOff
        deliverDisconnected(error, isReconnecting: again)
        if again { wait(nil) }
    }

    func radioWentOff() {
        guard let holder else { return }
        if isUp { return linkWentDown(.radioOff) }
        phase = .idle
        release(holder)
        deliverFailed(CBError(.connectionFailed, "Bluetooth has gone off."))
    }

    private var holder: RadioHolder? {
        switch phase {
        case .idle: nil
        case .waiting(let holder), .up(let holder): holder
        }
    }

    private func release(_ holder: RadioHolder, then body: (@EventLoopActor (PeripheralLink) -> Void)? = nil) {
        let former = releasing
        radio.keep()
        releasing = Task { [self, radio, key] in
            await former?.value
            await radio.release(key, for: holder)
            body?(self)
            radio.letGo()
        }
    }

    // MARK: Operations

    private func endOperations(_ error: (any Error)?) {
        let open = (current.map { [$0] } ?? []) + operations
        operations = []
        current = nil
        isRunning = false
        epoch += 1
        notifying = []
        early = [:]
        for operation in open { operation.end(error) }
    }

    /// Queues an operation. `finish` runs on the manager's queue with the result; it is dropped where the program itself
    /// ended the connection first.
    func enqueue<Value: Sendable>(
        _ perform: @escaping @EventLoopActor (any Radio, DeviceKey) async throws -> Value,
        then follow: (@EventLoopActor (Bool) -> Void)? = nil,
        _ finish: @escaping @Sendable (CBPeripheral, Result<Value, any Error>) -> Void
    ) {
        let operation = LinkOperation()
        let epoch = epoch
        operation.fail = { [self] error in
            deliver { _, peripheral in finish(peripheral, .failure(error)) }
        }
        operation.perform = { [self, radio, key] in
            do {
                let value = try await perform(radio, key)
                guard self.epoch == epoch, operation.finish() else { return }
                deliver { _, peripheral in finish(peripheral, .success(value)) }
                follow?(true)
            } catch {
                guard self.epoch == epoch, operation.finish() else { return }
                let visible = RadioFailure.visible(error)
                deliver { _, peripheral in finish(peripheral, .failure(visible)) }
                follow?(false)
            }
        }
        operations.append(operation)
        run()
    }

    private func run() {
        guard !isRunning else { return }
        isRunning = true
        let epoch = epoch
        Task { [self] in
            var next = 0
            while self.epoch == epoch, next < operations.count {
                let operation = operations[next]
                operations[next] = .finished
                next += 1
                // Taken away in batches: removing the first of a long array each time would cost its length.
                if next == operations.count || next == 64 {
                    operations.removeFirst(next)
                    next = 0
                }
                current = operation
                await operation.perform?()
            }
            guard self.epoch == epoch else { return }
            current = nil
            isRunning = false
        }
    }

    // MARK: Values

    func received(_ value: [UInt8], _ characteristic: UInt16) {
        guard isUp else { return }
        if early[characteristic] != nil {
            early[characteristic]?.append(value)
        } else if notifying.contains(characteristic) {
            deliverValue(value, characteristic)
        }
    }

    private func deliverValue(_ value: [UInt8], _ handle: UInt16) {
        deliver { _, peripheral in
            guard let characteristic = peripheral.characteristic(handle) else { return }
            characteristic.storage.withLock { $0.value = Data(value) }
            peripheral.delegate?.peripheral(peripheral, didUpdateValueFor: characteristic, error: nil)
        }
    }

    func setNotify(_ on: Bool, _ characteristic: CBCharacteristic) {
        guard case .up(let holder) = phase else { return }
        let handle = characteristic.handle
        enqueue { [self] radio, key in
            guard on != notifying.contains(handle) else { return }
            if on {
                early[handle] = []
                try await radio.subscribe(handle, of: key, for: holder)
            } else {
                try await radio.unsubscribe(handle, of: key, for: holder)
            }
        } then: { [self] succeeded in
            if succeeded { if on { notifying.insert(handle) } else { notifying.remove(handle) } }
            let values = early.removeValue(forKey: handle) ?? []
            if succeeded { for value in values { deliverValue(value, handle) } }
        } _: { peripheral, result in
            if case .success = result { characteristic.storage.withLock { $0.isNotifying = on } }
            peripheral.delegate?.peripheral(
                peripheral, didUpdateNotificationStateFor: characteristic, error: result.failure)
        }
    }

    func servicesChanged() {
        guard isUp else { return }
        let services = radio.services(of: key)
        guard services != tree else { return }
        tree = services
        deliver { _, peripheral in
            guard let invalidated = peripheral.adoptChanged(services) else { return }
            peripheral.delegate?.peripheral(peripheral, didModifyServices: invalidated)
        }
    }

    private func deliver(_ body: @escaping @Sendable (CBCentralManager, CBPeripheral) -> Void) {
        let reference = reference
        session.deliver { manager in
            guard let peripheral = reference.peripheral else { return }
            body(manager, peripheral)
        }
    }
}

/// One operation of a link, from its queueing to its one result.
@EventLoopActor
final class LinkOperation {
    var perform: (@EventLoopActor () async -> Void)?
    var fail: (@EventLoopActor (any Error) -> Void)?
    private var isFinished = false

    static let finished = LinkOperation()

    /// True for the first result only. What the operation holds is let go of.
    func finish() -> Bool {
        perform = nil
        fail = nil
        defer { isFinished = true }
        return !isFinished
    }

    /// The link has ended: with an error where the program did not ask for it, else in silence.
    func end(_ error: (any Error)?) {
        let fail = fail
        guard finish(), let error else { return }
        fail?(error)
    }
}

extension Result {
    var failure: (any Error)? {
        if case .failure(let error) = self { error } else { nil }
    }
}
