internal import Bluetooth
internal import EventLoop

/// A link between an adapter and a device. Requests are answered one after another, as the attribute protocol has it.
@EventLoopActor
final class Link {
    private struct Request {
        let exchanges: Int
        let perform: @EventLoopActor () -> ATTAnswer
        let completion: @EventLoopActor (ATTAnswer) -> Void
    }

    let peripheral: Peripheral
    let mtu: Int
    var isEncrypted = false
    private(set) var isOpen = true
    /// A value that the device sent.
    var onValue: (@EventLoopActor (PeerCharacteristic, [UInt8]) -> Void)?
    /// The end of the link, told after the requests that it cut short. The reason is HCI's, as the adapter sees it.
    var onClose: (@EventLoopActor (UInt8) -> Void)?

    private let clock: any LoopClock
    private let timing: SimulatorTiming
    private var queue: [Request] = []
    private var current: Request?
    private var timer: LoopTimer?

    /// - Parameter ownMTU: what this side can take; the smaller of both counts.
    init(_ peripheral: Peripheral, ownMTU: Int = 517, clock: any LoopClock, timing: SimulatorTiming) {
        self.peripheral = peripheral
        mtu = min(ownMTU, peripheral.spec.mtu)
        self.clock = clock
        self.timing = timing
    }

    /// Queues a request.
    /// - Parameters:
    ///   - exchanges: how many requests and answers it takes, where a value goes in parts.
    ///   - perform: what the device does with it.
    ///   - completion: called once, with ``ATTAnswer/unlikely`` where the link ended first.
    func request(
        exchanges: Int = 1, _ perform: @escaping @EventLoopActor () -> ATTAnswer,
        completion: @escaping @EventLoopActor (ATTAnswer) -> Void
    ) {
        guard isOpen else { return completion(.unlikely) }
        queue.append(Request(exchanges: exchanges, perform: perform, completion: completion))
        next()
    }

    private func next() {
        guard isOpen, current == nil, !queue.isEmpty else { return }
        let request = queue.removeFirst()
        current = request
        timer = clock.schedule(after: timing.exchange * max(1, request.exchanges)) { [weak self] in self?.answer() }
    }

    private func answer() {
        guard isOpen, let request = current else { return }
        let answer = request.perform()
        if answer == .silence {
            peripheral.record("unanswered")
            timer = clock.schedule(after: timing.attTimeout) { [weak self] in
                self?.close(adapterReason: 0x16, peerReason: 0x13)
            }
            return
        }
        current = nil
        request.completion(answer)
        next()
    }

    func deliver(_ value: [UInt8], of characteristic: PeerCharacteristic) {
        if isOpen { onValue?(characteristic, value) }
    }

    /// The device ends the link.
    func drop() { close(adapterReason: 0x13, peerReason: 0x16) }

    /// The adapter ends the link.
    func end() { close(adapterReason: 0x16, peerReason: 0x13) }

    /// The adapter is gone from the air.
    func lose() { close(adapterReason: 0x08, peerReason: 0x08) }

    private func close(adapterReason: UInt8, peerReason: UInt8) {
        guard isOpen else { return }
        isOpen = false
        timer?.cancel()
        let cut = (current.map { [$0] } ?? []) + queue
        current = nil
        queue = []
        peripheral.disconnected(reason: peerReason)
        for request in cut { request.completion(.unlikely) }
        let closed = onClose
        onClose = nil
        onValue = nil
        closed?(adapterReason)
    }
}
