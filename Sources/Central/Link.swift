internal import BlueZ
internal import Bluetooth
internal import EventLoop

/// The connection session of one device: who wants it, how far it is, and what waits for it.
@EventLoopActor
final class Link {
    /// BlueZ tells of the end of a link so much later than of the calls that it gives up for it.
    static let endPause = Duration.milliseconds(100)

    enum Phase {
        /// Nothing is under way and no link is up.
        case idle
        /// Wanted, but there is no device object or no powered controller yet.
        case sought
        case queued
        case connecting
        /// The link is up, the GATT tree is not complete.
        case resolving
        case up
        case disconnecting
        /// Between two attempts.
        case pausing
    }

    struct Waiter {
        let holder: HolderID
        let pending: Pending<Void>
    }

    var phase = Phase.idle
    var holders: [HolderID: ConnectPolicy] = [:]
    var selector: AdapterSelector?
    var waiters: [Waiter] = []
    /// Waits for the link to go down.
    var endings: [Pending<Void>] = []
    var subscriptions: [SubscriptionKey: Subscription] = [:]
    /// We called Connect for the link that is up: then it is ours to end.
    var isOurs = false
    /// Stands while a holder has the link.
    var marker: LinkMarker?
    /// Raised with each attempt and each end, so that late replies are known as such.
    var generation = 0
    var timer: LoopTimer?
    var pause: RetryPause
    var failedAt: MonotonicTime?
    /// The last attempt failed on a device that was not heard just before.
    var failedUnheard = false
    /// The pause that runs, or ran last.
    var currentPause = Duration.zero
    /// Why BlueZ refuses it for good; until it is asked for again.
    var refusal: String?
    /// The device asked for a passkey that nobody has given.
    var lacksPasskey = false
    var upSince: MonotonicTime?
    var isSeeking = false
    /// Those under way on the link: few.
    private var calls: [any LinkCall] = []

    init(seed: UInt64) {
        pause = RetryPause(seed: seed)
    }

    var isWanted: Bool { !holders.isEmpty }
    var isLinked: Bool { phase == .resolving || phase == .up || phase == .disconnecting }

    /// Remembers a call that is to fail at once where the link ends.
    func begin(_ call: any LinkCall) { calls.append(call) }

    func end(_ call: any LinkCall) {
        for index in calls.indices where calls[index] === call {
            calls.remove(at: index)
            return
        }
    }

    func failCalls(_ error: CentralError) {
        let failing = calls
        calls.removeAll()
        for call in failing { call.linkEnded(error) }
    }

    func finishWaiters(_ result: Result<Void, any Error>, of holder: HolderID? = nil) {
        let finished = waiters.filter { holder == nil || $0.holder == holder }
        waiters.removeAll { holder == nil || $0.holder == holder }
        for waiter in finished { waiter.pending.finish(result) }
    }

    func finishEndings() {
        let finished = endings
        endings.removeAll()
        for ending in finished { ending.succeed(()) }
    }
}

/// A call that does not outlive its link.
@EventLoopActor
protocol LinkCall: AnyObject {
    func linkEnded(_ error: CentralError)
}

/// Which characteristic is subscribed, over all connections of a device.
struct SubscriptionKey: Hashable {
    let service: AttributeSelector
    let characteristic: AttributeSelector
}

/// The notifications of one characteristic: wanted over reconnects, running on one link.
@EventLoopActor
final class Subscription {
    enum State {
        case idle
        case starting
        /// `Value` signals.
        case signals
        /// A socket from AcquireNotify.
        case socket(NotifySocket)
        /// Battery1, which needs no call.
        case battery
        case stopping
    }

    let key: SubscriptionKey
    var holders: Set<HolderID> = []
    var state = State.idle
    /// Values that come while it starts belong to it, unless a socket is asked for.
    var takesSignals = false
    /// What it runs on.
    weak var subject: GATTCharacteristic?
    /// What it was started on by StartNotify.
    weak var remote: RemoteCharacteristic?
    /// Values of a link that is not announced yet, so many at most.
    var early: [[UInt8]] = []
    static let mostEarly = 256
    var waiters: [Pending<Void>] = []
    var failures = 0
    var timer: LoopTimer?
    /// Of the start that is under way or was last; a later reply is one of the past.
    var attempt = 0

    init(key: SubscriptionKey) {
        self.key = key
    }

    var isActive: Bool {
        switch state {
        case .signals, .socket, .battery: true
        case .idle, .starting, .stopping: false
        }
    }

    func finish(_ result: Result<Void, any Error>) {
        let finished = waiters
        waiters.removeAll()
        for waiter in finished { waiter.finish(result) }
    }

    /// What it runs on is gone, with the link or alone: nothing has to be told to BlueZ.
    func lost() {
        if case .socket(let socket) = state { socket.close() }
        state = .idle
        // BlueZ brings its session back with the next link, and values may come before that is announced.
        takesSignals = !holders.isEmpty && remote?.hasSession == true && remote?.isGone == false
        early = []
        failures = 0
        attempt += 1
        timer?.cancel()
        timer = nil
    }
}
