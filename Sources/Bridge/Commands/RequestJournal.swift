internal import Configuration
public import EventLoop
internal import JSON

/// What a request with an `id` is known by.
public struct RequestKey: Hashable, Sendable {
    public let verb: String
    /// The id with a letter before it that tells texts (`s`) from numbers (`n`).
    public let id: String

    init(verb: String, id: String) {
        self.verb = verb
        self.id = id
    }

    /// The verb is left out: ids hardly ever repeat between verbs.
    public func hash(into hasher: inout Hasher) { hasher.combine(id) }

    /// Nil for a request without an id: it always runs.
    init?(verb: Verb, id: JSONValue) {
        switch id {
        case .string(let text): self.init(verb: verb.rawValue, id: "s" + text)
        case .int(let number): self.init(verb: verb.rawValue, id: "n\(number)")
        case .double(let number): self.init(verb: verb.rawValue, id: "n\(number)")
        default: return nil
        }
    }

    /// The id as it was sent.
    var json: JSONValue {
        let text = String(id.dropFirst())
        guard id.first == "n" else { return .string(text) }
        return Int64(text).map { .int($0) } ?? Double(text).map { .double($0) } ?? .null
    }
}

/// A request that changes something, as the journal keeps it.
public struct RecordedRequest: Sendable, Equatable {
    public var key: RequestKey
    public var payload: [UInt8]
    public var expires: WallTime
    /// Nil until it was answered.
    public var answer: [UInt8]?
}

/// Keeps requests that change something, so that each is acted on once, over the end of the process too.
@EventLoopActor
public protocol RequestJournal: AnyObject {
    /// What an earlier run left, in the order of expiry; the second time nothing.
    func takeRemembered() -> [RecordedRequest]
    /// Returns when the request is on the disk, or where there is none to rely on.
    func record(_ request: RecordedRequest) async
    func recordAnswer(_ answer: [UInt8], to key: RequestKey)
    func forget(_ key: RequestKey)
}

/// The journal in the bridge's file.
@EventLoopActor
final class StoredJournal: RequestJournal, StoreParticipant {
    private let store: StateStore
    private var remembered: [RecordedRequest]
    private var requests: [RecordedRequest] = []
    private var answers: [(RequestKey, [UInt8])] = []
    private var forgotten: [RequestKey] = []
    private var waiting: [Pending<Void>] = []
    /// Those whose commit runs.
    private var committing: [Pending<Void>] = []

    init(_ store: StateStore, remembered: [RecordedRequest]) {
        self.store = store
        self.remembered = remembered
        store.join(journal: self)
    }

    func takeRemembered() -> [RecordedRequest] {
        defer { remembered = [] }
        return remembered
    }

    func record(_ request: RecordedRequest) async {
        guard !store.isBroken else { return }
        let done = Pending<Void>()
        // In a commit the forgotten go last: it must not take a new request for the one whose key it has.
        forgotten.removeAll { $0 == request.key }
        answers.removeAll { $0.0 == request.key }
        requests.append(request)
        waiting.append(done)
        store.commitNow()
        _ = try? await done.value()
    }

    func recordAnswer(_ answer: [UInt8], to key: RequestKey) {
        guard !store.isBroken else { return }
        answers.append((key, answer))
        store.needCommit()
    }

    func forget(_ key: RequestKey) {
        guard !store.isBroken else { return }
        requests.removeAll { $0.key == key }
        answers.removeAll { $0.0 == key }
        forgotten.append(key)
        store.needCommit()
    }

    func collect(_ batch: inout StoreBatch, isTick: Bool) {
        batch.requests = requests
        batch.answers = answers
        batch.forgotten = forgotten
        requests = []
        answers = []
        forgotten = []
        committing = waiting
        waiting = []
    }

    func committed() {
        let done = committing
        committing = []
        for pending in done { pending.succeed(()) }
    }

    func failed() {
        requests = []
        answers = []
        forgotten = []
        let done = committing + waiting
        committing = []
        waiting = []
        for pending in done { pending.succeed(()) }
    }
}
