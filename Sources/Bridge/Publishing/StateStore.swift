internal import EventLoop
internal import Store

/// Has a part of each commit.
@EventLoopActor
protocol StoreParticipant: AnyObject {
    /// Adds to a commit what waits for one.
    /// - Parameter isTick: false for a commit that came early for the sake of something urgent.
    func collect(_ batch: inout StoreBatch, isTick: Bool)
    /// What was collected last is on the disk.
    func committed()
    /// Nothing is written any more.
    func failed()
}

/// Commits to the bridge's file in groups, off the loop. The loop wakes for it only while there is something to commit.
@EventLoopActor
final class StateStore {
    /// What is collected was received one to two of these before; so it is on the disk 50 ms after its receipt, and what
    /// the broker acknowledges within the first is never written.
    static let tick: Duration = .milliseconds(20)
    private static let retryInterval: Duration = .seconds(1)
    /// One thread for all commits of the process: there is one file.
    private static let worker = BlockingWorker(name: "store")

    let file: StateFile
    private let clock: any LoopClock
    private weak var outbox: (any StoreParticipant)?
    private weak var journal: (any StoreParticipant)?
    private var timer: LoopTimer?
    private var isCommitting = false
    private var tickWaits = false
    private var urgentWaits = false
    private var flushes: [Pending<Void>] = []
    private(set) var isClosing = false
    /// Why nothing is written any more; nil while all is well.
    private(set) var problem: String?
    private var isBusyTold = false
    private(set) var commits = 0
    private(set) var messagesWritten = 0
    private var untold: [(code: String, message: String)] = []
    var onWarning: (@EventLoopActor (_ code: String, _ message: String) -> Void)? {
        didSet {
            let waiting = untold
            untold = []
            for warning in waiting { warn(warning.code, warning.message) }
        }
    }

    init(_ file: StateFile, clock: any LoopClock) {
        self.file = file
        self.clock = clock
    }

    func join(outbox: any StoreParticipant) { self.outbox = outbox }
    func join(journal: any StoreParticipant) { self.journal = journal }

    var isBroken: Bool { problem != nil }
    /// The loop will wake up for a commit.
    var isArmed: Bool { timer?.isPending == true }

    func warn(_ code: String, _ message: String) {
        if let onWarning { onWarning(code, message) } else { untold.append((code, message)) }
    }

    /// Runs `body` on the worker, behind the commits that were begun before.
    static func run<Value: Sendable>(
        _ body: @escaping @Sendable () throws -> Value
    ) async -> Result<Value, any Error> {
        await worker.run { Result { try body() } }
    }

    // MARK: Commits

    /// There is something to commit, soon.
    func needCommit() {
        guard timer == nil, !tickWaits, !isClosing, !isBroken else { return }
        timer = clock.scheduleLoosely(after: Self.tick) { [weak self] in
            guard let self else { return }
            self.timer = nil
            self.commit(isTick: true)
        }
    }

    /// There is something to commit that is waited for.
    func commitNow() {
        guard !isBroken else { return }
        commit(isTick: false)
    }

    private func commit(isTick: Bool) {
        guard !isBroken else { return }
        guard !isCommitting else {
            if isTick { tickWaits = true } else { urgentWaits = true }
            return
        }
        var batch = StoreBatch()
        outbox?.collect(&batch, isTick: isTick)
        journal?.collect(&batch, isTick: isTick)
        guard !batch.isEmpty else { return }
        isCommitting = true
        write(batch)
    }

    private func write(_ batch: StoreBatch) {
        let file = file
        Task { @EventLoopActor in
            switch await Self.run({ try file.apply(batch) }) {
            case .success: self.succeeded(batch)
            case .failure(let error): self.failed(error, batch)
            }
        }
    }

    private func succeeded(_ batch: StoreBatch) {
        isCommitting = false
        commits += 1
        messagesWritten += batch.messages.count
        outbox?.committed()
        journal?.committed()
        let isTick = tickWaits || isClosing
        if isTick || urgentWaits {
            tickWaits = false
            urgentWaits = false
            commit(isTick: isTick)
        }
        if !isCommitting { finishFlushes() }
    }

    private func failed(_ error: any Error, _ batch: StoreBatch) {
        guard !isBroken else { return }
        if let error = error as? StoreError, error.code == .busy, !isClosing {
            // Someone looks into the file; that ends.
            if !isBusyTold { warn("outbox", "\(error); it is tried again each second") }
            isBusyTold = true
            clock.schedule(after: Self.retryInterval) { [weak self] in self?.write(batch) }
            return
        }
        isCommitting = false
        fail(error)
    }

    /// From here on nothing is written; what waits stays in memory.
    /// - Parameter lost: messages on the disk that cannot be read.
    func fail(_ error: any Error, lost: Int = 0) {
        guard !isBroken else { return }
        let isDamaged = (error as? StoreError)?.code == .corrupt
        let loss = lost > 0 ? "; \(lost) messages that wait there cannot be read and are lost" : ""
        problem =
            "\(error)\(loss); what waits for the broker, and the ids of commands, are kept in memory only until blueferry"
            + (isDamaged ? " starts again, which sets the file aside and makes a new one" : " starts again")
        timer?.cancel()
        timer = nil
        warn("outbox", problem ?? "")
        outbox?.failed()
        journal?.failed()
        finishFlushes()
    }

    // MARK: The end

    /// Commits everything and closes the file, within `limit`. True where all of it is on the disk.
    func close(within limit: Duration, _ last: @escaping @Sendable () -> Void) async -> Bool {
        guard !isClosing else { return !isBroken }
        isClosing = true
        timer?.cancel()
        timer = nil
        commit(isTick: true)
        let done = Pending<Void>()
        if isCommitting { flushes.append(done) } else { done.succeed(()) }
        let isFlushed = (try? await done.value(timeout: limit, clock: clock)) != nil && !isBroken
        let file = file
        let closed = Pending<Void>()
        Task { @EventLoopActor in
            _ = await Self.run {
                last()
                file.database.close()
                file.lock?.unlock()
            }
            closed.succeed(())
        }
        _ = try? await closed.value(timeout: limit, clock: clock)
        return isFlushed
    }

    private func finishFlushes() {
        let waiting = flushes
        flushes = []
        for flush in waiting { flush.succeed(()) }
    }
}
