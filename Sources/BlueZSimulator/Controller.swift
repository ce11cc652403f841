internal import Bluetooth
internal import EventLoop

/// One advertisement as a controller hears it.
struct Heard {
    let address: BluetoothAddress
    let type: AddressType
    let isConnectable: Bool
    let advertisement: Advertisement
    /// The AD structures of advertisement and scan response.
    let structures: [UInt8]
    let rssi: Int8
}

/// Why a connection attempt failed.
enum AttemptFailure: Error {
    case refused, timeout, tooMany, cancelled, poweredOff
}

/// What listens to a controller: an adapter of bluetoothd.
@EventLoopActor
protocol ControllerListener: AnyObject {
    /// Whether advertisements are wanted now.
    var isScanning: Bool { get }
    var hasActiveMonitor: Bool { get }
    func heard(_ heard: Heard, from peripheral: Peripheral?)
}

/// The controller of an adapter with the kernel's part of its work. It outlives bluetoothd.
@EventLoopActor
final class Controller {
    private final class Attempt {
        let address: BluetoothAddress
        let type: AddressType
        let completion: @EventLoopActor (Result<Link, AttemptFailure>) -> Void
        var timer: LoopTimer?

        init(
            _ address: BluetoothAddress, _ type: AddressType,
            _ completion: @escaping @EventLoopActor (Result<Link, AttemptFailure>) -> Void
        ) {
            self.address = address
            self.type = type
            self.completion = completion
        }
    }

    let spec: Fleet.Adapter
    /// hciN; another after it was plugged in again under another name.
    var name: String
    var isPlugged: Bool
    /// It reports nothing, though it scans, until it is cured.
    var silence: Silence?

    /// What makes a controller report again that fell silent.
    enum Silence: String, CaseIterable {
        /// A discovery that begins.
        case restart
        case power
        case none
    }
    var isPowered = false
    /// The kernel goes on discovering for a bluetoothd that was killed, until then.
    var orphanedUntil: MonotonicTime?
    weak var listener: (any ControllerListener)?
    private(set) var links: [Link] = []

    private var attempts: [Attempt] = []
    private var setup: Attempt?
    private var filterEnds = MonotonicTime(nanoseconds: 0)
    private var passed: [UInt64: UInt64] = [:]
    private let clock: any LoopClock
    private let timing: SimulatorTiming

    init(_ spec: Fleet.Adapter, clock: any LoopClock, timing: SimulatorTiming) {
        self.spec = spec
        name = spec.name
        isPlugged = spec.isPlugged
        self.clock = clock
        self.timing = timing
    }

    // MARK: Hearing

    /// True where someone listens, so that the advertisement was handed on.
    var isListening: Bool { isPlugged && isPowered && (listener?.isScanning ?? false) }

    /// One advertisement on the air. True where it was handed to bluetoothd.
    func hear(_ heard: Heard, from peripheral: Peripheral?) -> Bool {
        guard isPlugged, isPowered else { return false }
        if let peripheral, heard.isConnectable, !attempts.isEmpty { beginSetup(with: peripheral, at: heard.address) }
        guard silence == nil, let listener, listener.isScanning,
            passesFilter(heard, hasMonitor: listener.hasActiveMonitor)
        else {
            return false
        }
        listener.heard(heard, from: peripheral)
        return true
    }

    /// The duplicate filter, which an active monitor switches off.
    private func passesFilter(_ heard: Heard, hasMonitor: Bool) -> Bool {
        guard spec.duplicateFilter != .none, !hasMonitor else { return true }
        let now = clock.now
        if now >= filterEnds {
            filterEnds = now + timing.filterTurn
            passed.removeAll(keepingCapacity: true)
        }
        var data: UInt64 = 0
        if spec.duplicateFilter == .data {
            data = heard.structures.reduce(0xcbf2_9ce4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
        }
        let key = heard.address.value | (heard.type == .public ? 1 << 48 : 0)
        if passed[key] == data { return false }
        passed[key] = data
        return true
    }

    /// The filter forgets, as it does when a scan begins.
    func renewFilter() { filterEnds = MonotonicTime(nanoseconds: 0) }

    // MARK: Connecting

    /// Waits for the device to advertise, and makes the link then; one after another.
    func connect(
        _ address: BluetoothAddress, _ type: AddressType,
        _ completion: @escaping @EventLoopActor (Result<Link, AttemptFailure>) -> Void
    ) {
        let attempt = Attempt(address, type, completion)
        guard isPlugged, isPowered else { return fail(attempt, .poweredOff) }
        guard attempts.count < timing.mostAttempts else {
            clock.schedule(after: timing.linkSetup) { [weak self] in self?.fail(attempt, .tooMany) }
            return
        }
        attempts.append(attempt)
        attempt.timer = clock.schedule(after: timing.connectTimeout) { [weak self, weak attempt] in
            if let attempt { self?.fail(attempt, .timeout) }
        }
    }

    /// Gives up the attempt at an address.
    func cancelConnect(_ address: BluetoothAddress) {
        for attempt in attempts where attempt.address == address { fail(attempt, .cancelled) }
    }

    private func fail(_ attempt: Attempt, _ failure: AttemptFailure) {
        remove(attempt)
        attempt.completion(.failure(failure))
    }

    private func remove(_ attempt: Attempt) {
        attempt.timer?.cancel()
        attempts.removeAll { $0 === attempt }
        if setup === attempt { setup = nil }
    }

    private func beginSetup(with peripheral: Peripheral, at address: BluetoothAddress) {
        guard setup == nil,
            let attempt = attempts.first(where: { $0.address == address && $0.type == peripheral.spec.addressType })
        else { return }
        setup = attempt
        clock.schedule(after: timing.linkSetup) { [weak self, weak attempt] in
            guard let self, let attempt, setup === attempt else { return }
            finishSetup(attempt, with: peripheral)
        }
    }

    private func finishSetup(_ attempt: Attempt, with peripheral: Peripheral) {
        guard peripheral.link == nil, peripheral.address == attempt.address else {
            setup = nil  // someone else was faster, or it moved on: the attempt goes on
            return
        }
        guard peripheral.accepts() else { return fail(attempt, .refused) }
        remove(attempt)
        let link = Link(peripheral, clock: clock, timing: timing)
        links.append(link)
        peripheral.connected(link, by: spec.address)
        attempt.completion(.success(link))
    }

    func forget(_ link: Link) { links.removeAll { $0 === link } }

    // MARK: Faults

    /// Ends everything on the air.
    func stopRadio() {
        for attempt in attempts { fail(attempt, .poweredOff) }
        for link in links { link.lose() }
        links.removeAll()
        orphanedUntil = nil
        passed.removeAll()
    }

    /// bluetoothd is gone without a word: the kernel drops its attempts at once and its links a little later.
    func abandon(wasDiscovering: Bool) {
        listener = nil
        for attempt in attempts { attempt.timer?.cancel() }
        attempts.removeAll()
        setup = nil
        if wasDiscovering { orphanedUntil = clock.now + timing.orphanedDiscovery }
        let abandoned = links
        links.removeAll()
        for link in abandoned {
            link.onClose = nil
            link.onValue = nil
            clock.schedule(after: timing.orphanedLinks) { link.end() }
        }
    }
}
