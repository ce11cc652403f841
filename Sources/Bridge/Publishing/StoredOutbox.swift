public import EventLoop
internal import Store

/// An outbox on the disk: what the broker does not acknowledge soon is committed, and survives the process.
///
/// A message goes out from memory at once. Of a long queue the oldest part (`head`) is in memory, ready to be sent, and
/// the newest (`tail`) until it is committed; what lies between them (`gap`) is on the disk alone, and is read back in
/// pages. Where the disk fails, all that comes stays in memory.
@EventLoopActor
public final class StoredOutbox: Outbox {
    /// Messages and bytes that are ready to be sent, at most.
    static let window = 1024
    static let windowBytes = 1 << 20

    /// Messages that are on the disk alone, all of them newer than the head and older than the tail.
    private struct Gap {
        var count = 0
        var bytes = 0
        /// Those that were read last ended here.
        var after: UInt64 = 0
        /// The oldest so many are to be dropped when they come.
        var skip = 0
    }

    let store: StateStore
    private var counters: CounterFile?
    private let limit: Int
    private let sizeLimit: Int
    private let memoryLimit: Int

    @exclusivity(unchecked) private var head = MessageQueue()
    @exclusivity(unchecked) private var gap = Gap()
    @exclusivity(unchecked) private var tail = MessageQueue()
    @exclusivity(unchecked) private var prompt = MessageQueue()
    private var isReading = false
    @exclusivity(unchecked) public private(set) var newestID: UInt64
    public private(set) var dropped: UInt64 = 0
    public private(set) var epoch: UInt32

    /// Ids from here on were never given to a commit; so many of them are still of use.
    @exclusivity(unchecked) private var firstUncommitted: UInt64
    @exclusivity(unchecked) private var uncommitted = 0
    /// The newest id at the last tick.
    private var mark: UInt64
    /// The commit that runs.
    private var committing: ClosedRange<UInt64>?
    /// Removed while they were being written.
    private var late: [UInt64] = []
    /// Written, and of no use any more; of the ordered lane only whether there are some.
    private var stale: [UInt64] = []
    private var isFloorStale = false
    @exclusivity(unchecked) private var largest = 0

    public var onReady: (@EventLoopActor () -> Void)?
    public var onWarning: (@EventLoopActor (_ code: String, _ message: String) -> Void)? {
        get { store.onWarning }
        set { store.onWarning = newValue }
    }

    init(
        _ store: StateStore, counters: CounterFile?, contents: StateFile.Contents, limit: Int, sizeLimit: Int,
        memoryLimit: Int = MemoryOutbox.sizeLimit
    ) {
        self.store = store
        self.counters = counters
        self.limit = max(1, limit)
        self.sizeLimit = sizeLimit
        self.memoryLimit = memoryLimit
        epoch = counters?.epoch ?? .random(in: 0...(.max))
        newestID = contents.newestID
        mark = newestID
        firstUncommitted = newestID + 1
        gap.count = contents.count
        gap.bytes = contents.bytes
        largest = contents.count
        for (id, message) in contents.prompt { prompt.append(id, message) }
        store.join(outbox: self)
        trim()
        settle()
    }

    public var count: Int { head.count + gap.count + tail.count + prompt.count }
    public var bytes: Int { memory + gap.bytes }
    public var problem: String? { store.problem }
    /// Bytes of what is in memory.
    var memory: Int { head.bytes + tail.bytes + prompt.bytes }

    // MARK: Messages

    public func enqueue(_ message: OutboxMessage) {
        newestID += 1
        if message.lane == .prompt, prompt.count < StateFile.promptLimit {
            prompt.append(newestID, message)
        } else {
            // An answer beyond those that pass waits like all others, on the disk too.
            var message = message
            message.lane = .ordered
            if gap.count == 0, tail.isEmpty, headHasRoom {
                head.append(newestID, message)
            } else {
                tail.append(newestID, message)
            }
        }
        if !store.isBroken {
            uncommitted += 1
            store.needCommit()
        }
        let count = count
        let memory = memory
        if count > limit || memory + gap.bytes > sizeLimit || memory > memoryLimit {
            trim()
            largest = max(largest, self.count)
        } else if count > largest {
            largest = count
        }
        if gap.count > 0 { settle() }
    }

    public func next(after id: UInt64?, in lane: OutboxMessage.Lane) -> (id: UInt64, message: OutboxMessage)? {
        switch lane {
        case .ordered: head.next(after: id)
        case .prompt: prompt.next(after: id)
        }
    }

    public func remove(_ id: UInt64) {
        if head.remove(id) {
            forget(id, .ordered)
        } else if prompt.remove(id) {
            forget(id, .prompt)
        }
        if !tail.isEmpty || gap.count > 0 { settle() }
    }

    private var headHasRoom: Bool {
        store.isBroken || (head.count < Self.window && head.bytes < Self.windowBytes)
    }

    /// What is not in memory any more is to go from the disk too.
    private func forget(_ id: UInt64, _ lane: OutboxMessage.Lane) {
        guard !store.isBroken else { return }
        if id >= firstUncommitted {
            uncommitted -= 1
        } else if committing?.contains(id) == true {
            late.append(id)
        } else {
            switch lane {
            case .ordered: isFloorStale = true
            case .prompt: stale.append(id)
            }
            store.needCommit()
        }
    }

    private func trim() {
        while count > limit || ((bytes > sizeLimit || memory > memoryLimit) && count > 1) {
            dropped += 1
            if let (id, _) = head.popFirst() {
                forget(id, .ordered)
            } else if gap.count > 0 {
                gap.bytes -= gap.bytes / gap.count
                gap.count -= 1
                gap.skip += 1
            } else if let (id, _) = tail.popFirst() {
                forget(id, .ordered)
            } else if let (id, _) = prompt.popFirst() {
                forget(id, .prompt)
            }
        }
    }

    // MARK: Memory and disk

    /// Moves messages between memory and disk until what is next is ready, and what need not be in memory is not.
    private func settle() {
        while gap.count == 0, headHasRoom, let (id, message) = tail.popFirst() { head.append(id, message) }
        while !store.isBroken, let id = tail.firstID, id < firstUncommitted, committing?.contains(id) != true,
            let (_, message) = tail.popFirst()
        {
            if gap.count == 0 { gap = Gap(after: id - 1) }
            gap.count += 1
            gap.bytes += message.size
        }
        if gap.count > 0, head.count < Self.window / 2, !isReading { read() }
    }

    private func read() {
        isReading = true
        let file = store.file
        let after = gap.after
        let end = tail.firstID ?? newestID + 1
        let expected = gap.count
        Task { @EventLoopActor in
            switch await StateStore.run({ try file.page(after: after, below: end) }) {
            case .success(let page): self.take(page, of: expected, below: end)
            case .failure(let error): self.lose(error)
            }
        }
    }

    /// - Parameters:
    ///   - expected: messages that were in the gap when the page was asked for.
    ///   - end: all of those have lower ids; what came into the gap since then has not.
    private func take(_ page: [(id: UInt64, OutboxMessage)], of expected: Int, below end: UInt64) {
        isReading = false
        if page.isEmpty {
            let lost = min(expected, gap.count)
            gap.bytes -= gap.count > 0 ? gap.bytes / gap.count * lost : 0
            gap.count -= lost
            gap.after = end - 1
            gap.skip = 0
            dropped += UInt64(lost)
            if lost > 0 { store.warn("outbox", "\(store.file.path): \(lost) messages that were in it are gone") }
        }
        for (id, message) in page {
            gap.after = id
            if gap.skip > 0 {
                gap.skip -= 1
                isFloorStale = true
            } else if gap.count > 0 {
                gap.count -= 1
                gap.bytes -= message.size
                head.append(id, message)
            }
        }
        if gap.count == 0 { gap.bytes = 0 }
        if isFloorStale { store.needCommit() }
        settle()
        onReady?()
    }

    private func lose(_ error: any Error) {
        isReading = false
        let lost = gap.count
        gap = Gap()
        dropped += UInt64(lost)
        if store.isBroken {
            store.warn("outbox", "\(error); \(lost) messages that wait there cannot be read and are lost")
        } else {
            store.fail(error, lost: lost)
        }
        settle()
        onReady?()
    }

    // MARK: Numbers

    public func renewEpoch() {
        guard let counters else {
            epoch &+= 1
            return
        }
        do {
            try counters.renew()
            epoch = counters.epoch
        } catch {
            numbersFailed(error)
        }
    }

    public func nextNumber(of channel: ValueChannel) -> ValueNumber {
        do {
            if channel.epoch != epoch {
                let known = try counters?.counter(channel.topic)
                channel.epoch = epoch
                channel.sequence = known?.value ?? 0
                channel.slot = known?.slot
            }
            if let slot = channel.slot { try counters?.set(slot, to: channel.sequence &+ 1) }
        } catch {
            // Nothing of the old epoch may be used twice: the value goes under a new one, which nothing keeps.
            numbersFailed(error)
            channel.epoch = epoch
            channel.sequence = 0
            channel.slot = nil
        }
        defer { channel.sequence &+= 1 }
        return ValueNumber(epoch: epoch, sequence: channel.sequence)
    }

    private func numbersFailed(_ error: any Error) {
        counters = nil
        epoch = .random(in: 0...(.max))
        store.warn("outbox", "\(error); the sequences of values begin anew, under a new epoch, with each start")
    }

    public func close(within limit: Duration) async {
        let counters = counters
        self.counters = nil
        _ = await store.close(within: limit) { counters?.close() }
    }
}

extension StoredOutbox: StoreParticipant {
    func collect(_ batch: inout StoreBatch, isTick: Bool) {
        guard isTick else { return }
        let through = store.isClosing ? newestID : mark
        mark = newestID
        if uncommitted > 0, through >= firstUncommitted {
            let ids = firstUncommitted...through
            for queue in [prompt, head, tail] { queue.forEach(in: ids) { batch.messages.append(($0, $1)) } }
            committing = ids
            firstUncommitted = through + 1
            uncommitted -= batch.messages.count
        }
        if isFloorStale || !stale.isEmpty {
            if isFloorStale { batch.deletedBelow = floor }
            batch.deleted = stale
            isFloorStale = false
            stale = []
            if count == 0, largest > Self.window {
                batch.isEmptied = true
                largest = 0
            }
        }
        if uncommitted > 0 { store.needCommit() }
    }

    /// No message of the ordered lane that is still of use has a lower id.
    private var floor: UInt64 {
        head.firstID ?? (gap.count > 0 || gap.skip > 0 ? gap.after + 1 : tail.firstID ?? newestID + 1)
    }

    func committed() {
        committing = nil
        if !late.isEmpty {
            // Of either lane: by their ids.
            stale += late
            late = []
            store.needCommit()
        }
        settle()
    }

    func failed() {
        committing = nil
        settle()
        onReady?()
    }
}
