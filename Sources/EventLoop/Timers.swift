/// A body that runs once at its deadline, unless cancelled before.
@EventLoopActor
public final class LoopTimer {
    private var body: (@EventLoopActor () -> Void)?
    public nonisolated let deadline: MonotonicTime

    /// For clocks: the loop's and the manual one of tests.
    public init(deadline: MonotonicTime, _ body: @escaping @EventLoopActor () -> Void) {
        self.deadline = deadline
        self.body = body
    }

    public var isPending: Bool { body != nil }

    /// The body will not run. Harmless once it has run.
    public func cancel() {
        body = nil
    }

    /// Runs the body, if it is still due. For clocks.
    public func fire() {
        let due = body
        body = nil
        due?()
    }
}

/// A binary heap of timers by deadline; equal deadlines come out in the order they were added.
@EventLoopActor
struct TimerQueue {
    private struct Entry {
        let deadline: UInt64
        let order: UInt64
        let timer: LoopTimer

        static func < (left: Entry, right: Entry) -> Bool {
            (left.deadline, left.order) < (right.deadline, right.order)
        }
    }

    private var heap: [Entry] = []
    private var added: UInt64 = 0
    private var compactAt = 64

    nonisolated init() {}

    mutating func add(_ timer: LoopTimer) {
        if heap.count >= compactAt { dropCancelled() }
        added &+= 1
        heap.append(Entry(deadline: timer.deadline.nanoseconds, order: added, timer: timer))
        siftUp(heap.count - 1)
    }

    /// Takes out what is due, in order. The caller fires it, so that a body may add and cancel timers.
    mutating func popDue(at now: MonotonicTime) -> [LoopTimer] {
        guard let first = heap.first, first.deadline <= now.nanoseconds else { return [] }
        var due: [LoopTimer] = []
        while let first = heap.first, first.deadline <= now.nanoseconds || !first.timer.isPending {
            if first.timer.isPending { due.append(first.timer) }
            removeFirst()
        }
        return due
    }

    var nextDeadline: MonotonicTime? {
        mutating get {
            while let first = heap.first, !first.timer.isPending { removeFirst() }
            return heap.first?.timer.deadline
        }
    }

    /// The time to the next timer in whole milliseconds, rounded up, for `epoll_wait(2)`; -1 without one.
    mutating func millisecondsToNext(from now: MonotonicTime) -> Int32 {
        nextDeadline?.millisecondsRoundedUp(from: now) ?? -1
    }

    /// Cancelled timers stay in the heap until their deadline; where they have become many, they go at once.
    private mutating func dropCancelled() {
        var kept = 0
        for index in heap.indices where heap[index].timer.isPending {
            if kept < index { heap.swapAt(kept, index) }
            kept += 1
        }
        heap.removeLast(heap.count - kept)
        for parent in stride(from: kept / 2 - 1, through: 0, by: -1) { siftDown(parent) }
        compactAt = max(64, heap.count * 2)
    }

    private mutating func removeFirst() {
        let last = heap.removeLast()
        guard !heap.isEmpty else { return }
        heap[0] = last
        siftDown(0)
    }

    private mutating func siftDown(_ start: Int) {
        var parent = start
        while true {
            var least = parent
            for child in 2 * parent + 1..<2 * parent + 3 where child < heap.count && heap[child] < heap[least] {
                least = child
            }
            if least == parent { return }
            heap.swapAt(parent, least)
            parent = least
        }
    }

    private mutating func siftUp(_ start: Int) {
        var child = start
        while child > 0, heap[child] < heap[(child - 1) / 2] {
            heap.swapAt(child, (child - 1) / 2)
            child = (child - 1) / 2
        }
    }
}

extension MonotonicTime {
    /// Whole milliseconds until then, for a wait that must not end before it; 0 where it has passed.
    func millisecondsRoundedUp(from now: MonotonicTime) -> Int32 {
        self > now ? Int32(clamping: (nanoseconds - now.nanoseconds - 1) / 1_000_000 + 1) : 0
    }
}
