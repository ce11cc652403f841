/// Messages in the order of their ids, which ascend and may have gaps. Taking from the front and adding to the end cost
/// a constant time, finding one a binary search.
struct MessageQueue {
    private struct Entry {
        let id: UInt64
        /// Nil once it was removed.
        var message: OutboxMessage?
    }

    private var entries: [Entry] = []
    private var head = 0
    private(set) var count = 0
    private(set) var bytes = 0

    var isEmpty: Bool { count == 0 }

    /// The oldest. What stands at the front was never removed.
    var first: (id: UInt64, message: OutboxMessage)? {
        guard head < entries.count, let message = entries[head].message else { return nil }
        return (entries[head].id, message)
    }

    var firstID: UInt64? { head < entries.count ? entries[head].id : nil }

    mutating func append(_ id: UInt64, _ message: OutboxMessage) {
        entries.append(Entry(id: id, message: message))
        count += 1
        bytes += message.size
    }

    /// The oldest after `id`; after nil, the oldest of all.
    func next(after id: UInt64?) -> (id: UInt64, message: OutboxMessage)? {
        var index = id.map { $0 < .max ? self.index(from: $0 + 1) : entries.count } ?? head
        while index < entries.count {
            if let message = entries[index].message { return (entries[index].id, message) }
            index += 1
        }
        return nil
    }

    /// Those of a range of ids, in order.
    func forEach(in ids: ClosedRange<UInt64>, _ body: (UInt64, OutboxMessage) -> Void) {
        for entry in entries[index(from: ids.lowerBound)...] {
            guard entry.id <= ids.upperBound else { return }
            if let message = entry.message { body(entry.id, message) }
        }
    }

    /// True where it was there.
    mutating func remove(_ id: UInt64) -> Bool {
        let index = index(from: id)
        guard index < entries.count, entries[index].id == id, let message = entries[index].message else { return false }
        entries[index].message = nil
        count -= 1
        bytes -= message.size
        trim()
        return true
    }

    mutating func popFirst() -> (id: UInt64, message: OutboxMessage)? {
        guard let first else { return nil }
        _ = remove(first.id)
        return first
    }

    /// The first index with at least this id.
    private func index(from id: UInt64) -> Int {
        var low = head
        var high = entries.count
        // Acknowledgements come in order: it is the first one, or the search is short.
        if low < high, entries[low].id >= id { return low }
        while low < high {
            let middle = (low + high) / 2
            if entries[middle].id < id { low = middle + 1 } else { high = middle }
        }
        return low
    }

    private mutating func trim() {
        while head < entries.count, entries[head].message == nil { head += 1 }
        if head == entries.count {
            entries.removeAll(keepingCapacity: entries.capacity <= 4096)
            head = 0
        } else if head >= 1024, head > entries.count / 2 {
            entries.removeFirst(head)
            head = 0
        }
    }
}
