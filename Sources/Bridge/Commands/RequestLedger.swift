internal import EventLoop
internal import JSON

/// The requests of the last five minutes: a repeat gets the first answer and acts once. Bounded in number and bytes.
@EventLoopActor
final class RequestLedger {
    /// What to do with a request.
    enum Verdict: Equatable {
        /// It is new: run it, and give its answer to ``finish(_:answer:)``.
        case run
        /// It runs already; its answer will go to this route too.
        case joined
        /// It has been answered: with this.
        case answered([UInt8])
        /// The id stands for another request.
        case reused
        /// Too many requests wait.
        case full
    }

    struct Key: Hashable {
        let verb: String
        let id: String
    }

    private final class Entry {
        let key: Key
        let payload: [UInt8]
        let expires: MonotonicTime
        var routes: [AnswerRoute]
        var answer: [UInt8]?

        init(key: Key, payload: [UInt8], expires: MonotonicTime, route: AnswerRoute) {
            self.key = key
            self.payload = payload
            self.expires = expires
            routes = [route]
        }

        var size: Int { payload.count + (answer?.count ?? 0) + 256 }
    }

    private var entries: [Key: Entry] = [:]
    /// In the order of their expiry, which is that of their arrival.
    private var order: [Entry] = []
    private var size = 0
    private let window: Duration
    private let limit: Int
    private let sizeLimit: Int
    private static let routesLimit = 16

    init(window: Duration = .seconds(300), limit: Int = 1000, sizeLimit: Int = 4 << 20) {
        self.window = window
        self.limit = limit
        self.sizeLimit = sizeLimit
    }

    var count: Int { entries.count }

    /// The ledger's key of an id; nil for none, and such a request always runs.
    static func key(verb: Verb, id: JSONValue) -> Key? {
        switch id {
        case .string(let text): Key(verb: verb.rawValue, id: "s" + text)
        case .int(let number): Key(verb: verb.rawValue, id: "n\(number)")
        case .double(let number): Key(verb: verb.rawValue, id: "n\(number)")
        default: nil
        }
    }

    func admit(_ key: Key, payload: [UInt8], route: AnswerRoute, at now: MonotonicTime) -> Verdict {
        expire(at: now)
        if let entry = entries[key] {
            guard entry.payload == payload else { return .reused }
            if let answer = entry.answer { return .answered(answer) }
            guard entry.routes.count < Self.routesLimit else { return .full }
            if !entry.routes.contains(route) { entry.routes.append(route) }
            return .joined
        }
        guard makeRoom(for: payload.count + 256) else { return .full }
        let entry = Entry(key: key, payload: payload, expires: now + window, route: route)
        entries[key] = entry
        order.append(entry)
        size += entry.size
        return .run
    }

    /// Keeps the answer for repeats; gives back every route that waits for it.
    func finish(_ key: Key, answer: [UInt8]) -> [AnswerRoute] {
        guard let entry = entries[key], entry.answer == nil else { return [] }
        size -= entry.size
        entry.answer = answer
        size += entry.size
        let routes = entry.routes
        entry.routes = []
        return routes
    }

    private func expire(at now: MonotonicTime) {
        // An entry that still runs stays: its answer has not been given.
        var kept: [Entry] = []
        var isChanged = false
        for entry in order {
            if entry.expires > now { break }
            isChanged = true
            if entry.answer == nil {
                kept.append(entry)
            } else {
                remove(entry)
            }
        }
        guard isChanged else { return }
        order = kept + order.drop { $0.expires <= now }
    }

    /// Drops the oldest answered entries until another fits.
    private func makeRoom(for bytes: Int) -> Bool {
        while entries.count >= limit || size + bytes > sizeLimit {
            guard let index = order.firstIndex(where: { $0.answer != nil }) else { return false }
            remove(order.remove(at: index))
        }
        return true
    }

    private func remove(_ entry: Entry) {
        size -= entry.size
        entries[entry.key] = nil
    }
}
