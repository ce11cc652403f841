internal import Bluetooth
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

    private final class Entry {
        let key: RequestKey
        private(set) var payload: [UInt8]
        let expires: MonotonicTime
        var routes: [AnswerRoute]
        var answer: [UInt8]?
        /// It stands in the journal too.
        var isRecorded = false
        /// It is in the ledger no more.
        private(set) var isGone = false

        init(key: RequestKey, payload: [UInt8], expires: MonotonicTime, route: AnswerRoute?) {
            self.key = key
            self.payload = payload
            self.expires = expires
            routes = route.map { [$0] } ?? []
        }

        var size: Int { payload.count + (answer?.count ?? 0) + 256 }

        func leave() {
            isGone = true
            payload = []
            answer = nil
        }
    }

    private var entries: [RequestKey: Entry] = [:]
    /// In the order of their expiry, which is that of their arrival. All before `oldest` are gone, and some behind it.
    private var order: [Entry] = []
    private var oldest = 0
    private var size = 0
    /// How long a request is remembered.
    static let window: Duration = .seconds(300)

    private let window: Duration
    private let limit: Int
    private let sizeLimit: Int
    private static let routesLimit = 16
    /// An entry that stands in the journal is forgotten.
    var onForget: (@EventLoopActor (RequestKey) -> Void)?

    init(window: Duration = RequestLedger.window, limit: Int = 1000, sizeLimit: Int = 4 << 20) {
        self.window = window
        self.limit = limit
        self.sizeLimit = sizeLimit
    }

    var count: Int { entries.count }

    /// Takes in what an earlier run of the bridge has recorded. What it began and did not answer has an unknown outcome.
    /// - Parameter requests: in the order of their expiry.
    func restore(_ requests: [RecordedRequest], at now: MonotonicTime, wall: WallTime) {
        for request in requests.suffix(limit) {
            // The wall clock may have jumped in between.
            let left = Duration.milliseconds(request.expires.milliseconds - wall.milliseconds)
            guard left > .zero, makeRoom(for: request.payload.count + 256) else {
                onForget?(request.key)
                continue
            }
            let entry = Entry(
                key: request.key, payload: request.payload, expires: now + min(left, window), route: nil)
            entry.isRecorded = true
            entry.answer = request.answer ?? Payloads.answer(id: request.key.json, .failure(Self.unknown))
            entries[request.key] = entry
            order.append(entry)
            size += entry.size
        }
    }

    private static let unknown = CommandError(
        .outcomeUnknown,
        "blueferry ended while it ran this: it may have been done or not; look, and give the next try another 'id'")

    /// The request is in the journal.
    func noteRecorded(_ key: RequestKey) { entries[key]?.isRecorded = true }

    func admit(_ key: RequestKey, payload: [UInt8], route: AnswerRoute, at now: MonotonicTime) -> Verdict {
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
    func finish(_ key: RequestKey, answer: [UInt8]) -> [AnswerRoute] {
        guard let entry = entries[key], entry.answer == nil else { return [] }
        size -= entry.size
        entry.answer = answer
        size += entry.size
        let routes = entry.routes
        entry.routes = []
        return routes
    }

    /// The request was refused for want of room and did nothing: it may come again.
    func drop(_ key: RequestKey) {
        if let entry = entries[key] { remove(entry) }
    }

    private func expire(at now: MonotonicTime) {
        // An entry that still runs stays: its answer has not been given.
        for index in oldest..<order.count {
            let entry = order[index]
            if entry.expires > now { break }
            if !entry.isGone, entry.answer != nil { remove(entry) }
        }
        trim()
    }

    /// Drops the oldest answered entries until another fits.
    private func makeRoom(for bytes: Int) -> Bool {
        var index = oldest
        while entries.count >= limit || size + bytes > sizeLimit {
            while index < order.count, order[index].isGone || order[index].answer == nil { index += 1 }
            guard index < order.count else { return false }
            remove(order[index])
        }
        trim()
        return true
    }

    private func remove(_ entry: Entry) {
        size -= entry.size
        entry.leave()
        entries[entry.key] = nil
        if entry.isRecorded { onForget?(entry.key) }
    }

    /// Lets go of what is gone, now and then.
    private func trim() {
        while oldest < order.count, order[oldest].isGone { oldest += 1 }
        // One that runs for long may stand before many that are gone.
        guard order.count > 2 * entries.count + 256 else { return }
        var kept: [Entry] = []
        for index in oldest..<order.count where !order[index].isGone { kept.append(order[index]) }
        order = kept
        oldest = 0
    }
}
