internal import CLinux
internal import Glibc
internal import Synchronization

/// One thread that waits in `epoll_wait(2)` and runs all of the engine: descriptors, timers, and the jobs of
/// ``EventLoopActor``, whose executor it is.
///
/// `@unchecked Sendable`: what other threads may touch is `inbox` (behind its mutex), `hasJobs` and `loopThread`
/// (atomic) and `wakeUp` (immutable); everything else is read and written by the loop's thread alone.
public final class EventLoop: SerialExecutor, @unchecked Sendable {
    /// The loop of this process. It does nothing until ``run()`` or ``startThread()`` is called.
    public static let shared = EventLoop()

    private struct Inbox {
        var jobs: [UnownedJob] = []
        var isWakeUpPending = false
        var hasThread = false
    }

    private let inbox = Mutex(Inbox())
    /// There is something in the inbox: written behind its mutex, and looked at without it. Who comes from another thread
    /// wakes the loop up afterwards.
    private let hasJobs = Atomic<Bool>(false)
    private let loopThread = Atomic<UInt>(0)
    private let epoll: Int32
    private let wakeUp: Int32
    @exclusivity(unchecked) private var running: [UnownedJob] = []
    @exclusivity(unchecked) private var isStopped = false
    private var exitCode: Int32 = 0

    private struct Slot {
        var generation: UInt32 = 0
        var handler: (@EventLoopActor (IOEvents) -> Void)?
    }

    @exclusivity(unchecked) private var slots: [Slot] = []
    private var freeSlots: [Int] = []
    @exclusivity(unchecked) private var timers = TimerQueue()
    @exclusivity(unchecked) private var looseTimers = TimerQueue()
    @exclusivity(unchecked) private var batchHooks: [@EventLoopActor () -> Void] = []

    private init() {
        epoll = epoll_create1(clinux_epoll_cloexec)
        wakeUp = eventfd(0, clinux_efd_flags)
        // Without these two descriptors nothing can run; the process has no more to lose.
        precondition(epoll >= 0 && wakeUp >= 0, "epoll_create1 or eventfd failed: too many open files")
        let added = clinux_epoll_ctl(epoll, EPOLL_CTL_ADD, wakeUp, EPOLLIN.rawValue, Self.wakeUpData)
        precondition(added == 0, "epoll_ctl failed on the wake-up descriptor")
    }

    private static let wakeUpData = UInt64.max

    /// True on the loop's own thread.
    public var isOnLoop: Bool {
        loopThread.load(ordering: .relaxed) == UInt(pthread_self())
    }

    // MARK: Executor

    public func enqueue(_ job: consuming ExecutorJob) {
        add(UnownedJob(job))
    }

    func add(_ job: UnownedJob) {
        let mustWake = inbox.withLock { inbox in
            inbox.jobs.append(job)
            hasJobs.store(true, ordering: .relaxed)
            if inbox.isWakeUpPending || isOnLoop { return false }
            inbox.isWakeUpPending = true
            return true
        }
        if mustWake { wake() }
    }

    public func asUnownedSerialExecutor() -> UnownedSerialExecutor {
        UnownedSerialExecutor(ordinary: self)
    }

    public func checkIsolated() {
        precondition(isOnLoop, "expected to run on the event loop")
    }

    private func wake() {
        var one: UInt64 = 1
        while write(wakeUp, &one, 8) < 0, errno == EINTR {}
    }

    // MARK: Running

    /// Runs the loop on the calling thread until ``stop(exitCode:)``; gives back its code.
    public func run() -> Int32 {
        let isFirst = inbox.withLock { inbox in
            defer { inbox.hasThread = true }
            return !inbox.hasThread
        }
        precondition(isFirst, "the event loop runs already")
        loopThread.store(UInt(pthread_self()), ordering: .relaxed)
        // From here on this is the actor's thread. The isolation is part of the closure's type only, not of its
        // representation.
        let turns: @EventLoopActor () -> Int32 = { self.turn() }
        return unsafeBitCast(turns, to: (() -> Int32).self)()
    }

    @EventLoopActor
    private func turn() -> Int32 {
        var events = [epoll_event](repeating: epoll_event(), count: 256)
        while true {
            runJobs()
            fireTimers()
            if isStopped { break }
            runBatchHooks()
            let count = waitForEvents(&events)
            for index in 0..<count { dispatch(events[index]) }
        }
        return exitCode
    }

    /// Runs the loop on a thread of its own, for a process that has its main thread for itself. Later calls do nothing.
    public func startThread() {
        let isFirst = inbox.withLock { inbox in
            defer { inbox.hasThread = true }
            return !inbox.hasThread
        }
        guard isFirst else { return }
        let started = DetachedThread.start(name: "blueferry-loop") {
            EventLoop.shared.inbox.withLock { $0.hasThread = false }
            _ = EventLoop.shared.run()
        }
        precondition(started, "no thread could be started for the event loop")
    }

    /// Makes the calling thread the loop's without waiting for anything, for a thread that another library holds, as
    /// libFuzzer does; what is enqueued then waits for ``runJobs()``.
    func adoptThread() {
        inbox.withLock { $0.hasThread = true }
        loopThread.store(UInt(pthread_self()), ordering: .relaxed)
    }

    /// Ends ``run()`` after the current turn.
    @EventLoopActor
    public func stop(exitCode: Int32) {
        guard !isStopped else { return }
        self.exitCode = exitCode
        isStopped = true
    }

    func runJobs() {
        guard hasJobs.load(ordering: .relaxed) else { return }
        // Jobs that a job enqueues wait for the next round, so that descriptors are never starved.
        inbox.withLock { inbox in
            hasJobs.store(false, ordering: .relaxed)
            swap(&inbox.jobs, &running)
            inbox.isWakeUpPending = false
        }
        let executor = asUnownedSerialExecutor()
        for job in running { job.runSynchronously(on: executor) }
        running.removeAll(keepingCapacity: true)
    }

    @EventLoopActor
    private func runBatchHooks() {
        for hook in batchHooks { hook() }
    }

    @EventLoopActor
    private func fireTimers() {
        let now = MonotonicTime.now
        for timer in timers.popDue(at: now) { timer.fire() }
        for timer in looseTimers.popDue(at: now) { timer.fire() }
    }

    @EventLoopActor
    private func waitForEvents(_ events: inout [epoll_event]) -> Int {
        // From here on only other threads enqueue, and they write the wake-up descriptor.
        let timeout = hasJobs.load(ordering: .relaxed) || isStopped ? 0 : millisecondsToNextTimer()
        let count = epoll_wait(epoll, &events, Int32(events.count), timeout)
        if count >= 0 { return Int(count) }
        precondition(errno == EINTR, "epoll_wait failed")
        return 0
    }

    /// As `epoll_wait(2)` takes it; -1 without a timer.
    @EventLoopActor
    private func millisecondsToNextTimer() -> Int32 {
        let now = MonotonicTime.now
        let exact = timers.millisecondsToNext(from: now)
        guard let loose = looseTimers.nextDeadline else { return exact }
        let latest = (loose + Self.looseness).millisecondsRoundedUp(from: now)
        return exact < 0 ? latest : min(exact, latest)
    }

    @EventLoopActor
    private func dispatch(_ event: epoll_event) {
        var event = event
        let data = clinux_epoll_data(&event)
        if data == Self.wakeUpData {
            var count: UInt64 = 0
            _ = read(wakeUp, &count, 8)
            return
        }
        let index = Int(data & 0xffff_ffff)
        guard index < slots.count, slots[index].generation == UInt32(data >> 32), let handler = slots[index].handler
        else { return }  // a stale event of a descriptor that was closed in this batch
        handler(IOEvents(rawValue: event.events))
    }

    // MARK: Descriptors

    /// Watches a descriptor, level-triggered, and calls `handler` on the loop for each report. The caller owns the
    /// descriptor and cancels the registration before it closes it.
    /// - Throws: ``LoopError`` with errno where epoll refuses the descriptor (`epoll_ctl(2)`).
    @EventLoopActor
    public func register(
        _ descriptor: Int32, _ events: IOEvents, _ handler: @escaping @EventLoopActor (IOEvents) -> Void
    ) throws(LoopError) -> IORegistration {
        let index = freeSlots.popLast() ?? slots.count
        if index == slots.count { slots.append(Slot()) }
        slots[index].generation &+= 1
        if slots[index].generation == .max { slots[index].generation = 1 }
        let data = UInt64(slots[index].generation) << 32 | UInt64(index)
        guard clinux_epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, events.rawValue, data) == 0 else {
            freeSlots.append(index)
            throw LoopError(call: "epoll_ctl", errno: clinux_errno())
        }
        slots[index].handler = handler
        return IORegistration(loop: self, descriptor: descriptor, events: events, slot: index, data: data)
    }

    @EventLoopActor
    fileprivate func update(_ registration: IORegistration, to events: IOEvents) {
        _ = clinux_epoll_ctl(epoll, EPOLL_CTL_MOD, registration.descriptor, events.rawValue, registration.data)
    }

    @EventLoopActor
    fileprivate func remove(_ registration: IORegistration) {
        _ = clinux_epoll_ctl(epoll, EPOLL_CTL_DEL, registration.descriptor, 0, 0)
        slots[registration.slot].handler = nil
        slots[registration.slot].generation &+= 1
        freeSlots.append(registration.slot)
    }

    /// Calls `hook` before each wait, after a batch of events was handled: the place to flush what a batch gathered.
    @EventLoopActor
    public func addBatchHook(_ hook: @escaping @EventLoopActor () -> Void) {
        batchHooks.append(hook)
    }

    // MARK: Timers

    /// Calls `body` on the loop once `deadline` has passed.
    @EventLoopActor
    public func schedule(at deadline: MonotonicTime, _ body: @escaping @EventLoopActor () -> Void) -> LoopTimer {
        let timer = LoopTimer(deadline: deadline, body)
        timers.add(timer)
        return timer
    }

    /// A loose timer takes part in the next turn after its deadline, and has a turn of its own only so much later.
    public static let looseness: Duration = .milliseconds(5)

    /// The same where a little later does not matter: the loop does not wake up for it alone before ``looseness`` has
    /// passed too.
    @EventLoopActor
    public func scheduleLoosely(at deadline: MonotonicTime, _ body: @escaping @EventLoopActor () -> Void) -> LoopTimer {
        let timer = LoopTimer(deadline: deadline, body)
        looseTimers.add(timer)
        return timer
    }
}

/// What epoll reports of a descriptor. Source: `epoll_ctl(2)`.
public struct IOEvents: OptionSet, Sendable {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    public static let read = IOEvents(rawValue: EPOLLIN.rawValue)
    public static let write = IOEvents(rawValue: EPOLLOUT.rawValue)
    public static let hangUp = IOEvents(rawValue: EPOLLHUP.rawValue)
    public static let error = IOEvents(rawValue: EPOLLERR.rawValue)
    public static let readHangUp = IOEvents(rawValue: EPOLLRDHUP.rawValue)
}

/// A watched descriptor. It is watched until ``cancel()``.
@EventLoopActor
public final class IORegistration {
    private let loop: EventLoop
    fileprivate let descriptor: Int32
    fileprivate let slot: Int
    fileprivate let data: UInt64
    /// The events that are waited for; setting an equal value costs nothing.
    public var events: IOEvents {
        didSet { if events != oldValue, !isCancelled { loop.update(self, to: events) } }
    }
    private var isCancelled = false

    fileprivate init(loop: EventLoop, descriptor: Int32, events: IOEvents, slot: Int, data: UInt64) {
        self.loop = loop
        self.descriptor = descriptor
        self.events = events
        self.slot = slot
        self.data = data
    }

    /// Ends the watch; a report already read from the kernel is dropped. Later calls do nothing.
    public func cancel() {
        guard !isCancelled else { return }
        isCancelled = true
        loop.remove(self)
    }
}

/// A system call that the loop needed and that failed.
public struct LoopError: Error, CustomStringConvertible, Sendable {
    public let call: String
    public let errno: Int32
    public var description: String { "\(call): \(String(cString: strerror(errno)))" }
}
