/// The connects of one controller, without I/O: few at a time, devices that were heard first. A device that is out of
/// range holds its place for many seconds, so one place is always left for those that were heard.
///
/// Source: 60 Connect calls at once made 22 fail with `le-connection-abort-by-local` (BlueZ 5.66).
struct ConnectQueue<Key: Hashable> {
    private struct Entry {
        let key: Key
        var isHeard: Bool
    }

    let places: Int
    private var waiting: [Entry] = []
    private var active: [Key: Bool] = [:]

    init(places: Int) {
        self.places = max(1, places)
    }

    var activeCount: Int { active.count }
    var waitingCount: Int { waiting.count }
    var hasWaiting: Bool { !waiting.isEmpty }

    func isActive(_ key: Key) -> Bool { active[key] != nil }
    func contains(_ key: Key) -> Bool { active[key] != nil || waiting.contains { $0.key == key } }

    /// Puts a device in line; one that is there already only has its word updated.
    mutating func add(_ key: Key, isHeard: Bool) {
        guard active[key] == nil else { return }
        if let index = waiting.firstIndex(where: { $0.key == key }) {
            waiting[index].isHeard = waiting[index].isHeard || isHeard
            return
        }
        waiting.append(Entry(key: key, isHeard: isHeard))
    }

    mutating func remove(_ key: Key) {
        active[key] = nil
        waiting.removeAll { $0.key == key }
    }

    /// How many are under way, or wait before this one.
    func position(of key: Key) -> Int {
        active.count + (waiting.firstIndex { $0.key == key } ?? 0)
    }

    mutating func removeAll() {
        active.removeAll()
        waiting.removeAll()
    }

    /// The next device whose turn it is, now taking a place.
    mutating func next() -> Key? {
        guard active.count < places else { return nil }
        var index = waiting.firstIndex { $0.isHeard }
        if index == nil {
            let unheard = active.values.filter { !$0 }.count
            if unheard < max(1, places - 1) { index = waiting.isEmpty ? nil : 0 }
        }
        guard let index else { return nil }
        let entry = waiting.remove(at: index)
        active[entry.key] = entry.isHeard
        return entry.key
    }
}

/// What went wrong with an attempt, as far as it decides when the next one is worth while.
enum RetryClass {
    /// Our own side was too busy, or took the attempt back.
    case local
    /// The peer could not be reached, refused, or dropped the link.
    case peer
    /// bluetoothd did not answer, or failed in a way of its own.
    case daemon
    /// The peer wants a security that it does not get: a person has to do something.
    case security

    fileprivate var first: Duration {
        switch self {
        case .local, .peer: .milliseconds(250)
        case .daemon: .seconds(1)
        case .security: .seconds(5)
        }
    }

    var longest: Duration {
        switch self {
        case .local: .seconds(5)
        case .peer: .seconds(30)
        case .daemon: .seconds(60)
        case .security: .seconds(300)
        }
    }
}

/// Growing pauses with jitter between attempts.
struct RetryPause {
    private var attempt = 0
    private var random: UInt64

    init(seed: UInt64) {
        random = seed | 1
    }

    mutating func reset() { attempt = 0 }

    /// From the first pause of its class, doubled with each fault of whatever class, to the longest of its class; each
    /// between half and the whole of it.
    mutating func next(_ kind: RetryClass) -> Duration {
        let whole = min(kind.first * (1 << min(attempt, 10)), kind.longest)
        attempt += 1
        random ^= random << 13
        random ^= random >> 7
        random ^= random << 17
        return whole / 2 + (whole / 2) * (Double(random >> 40) / Double(1 << 24))
    }
}
