public import EventLoop
internal import Glibc
internal import Store

/// What the bridge keeps over its own end: the outbox and the journal of requests, in one file; the numbers of values in
/// another beside it. Where they cannot be used, memory takes their place.
@EventLoopActor
public struct StoredState {
    public let outbox: any Outbox
    /// Nil where nothing can be kept.
    public let journal: (any RequestJournal)?
    /// True where another process has the file.
    public let isHeldElsewhere: Bool

    private struct Opened: Sendable {
        var file: StateFile
        var contents: StateFile.Contents
        var counters: CounterFile?
        var warnings: [String] = []
    }

    /// Opens the file at a path, or makes it. It never fails: what is wrong is told by the outbox's warning.
    /// - Parameter limit: messages that may wait.
    /// - Parameter sizeLimit: their bytes.
    public static func open(
        path: String, limit: Int, sizeLimit: Int, clock: any LoopClock = SystemClock.shared
    ) async -> StoredState {
        let now = clock.wallNow
        switch await StateStore.run({ try Self.opened(path, at: now) }) {
        case .success(let opened):
            let store = StateStore(opened.file, clock: clock)
            for warning in opened.warnings { store.warn("outbox", warning) }
            let outbox = StoredOutbox(
                store, counters: opened.counters, contents: opened.contents, limit: limit, sizeLimit: sizeLimit)
            let journal = StoredJournal(store, remembered: opened.contents.requests)
            return StoredState(outbox: outbox, journal: journal, isHeldElsewhere: false)
        case .failure(let error):
            let isHeld = (error as? StoreError)?.code == .busy
            let advice = isHeld ? "give each bridge its own outbox.path" : "see outbox.path"
            let outbox = MemoryOutbox(
                limit: limit, sizeLimit: min(sizeLimit, MemoryOutbox.sizeLimit),
                problem: "\(error); what waits for the broker is kept in memory only: \(advice)")
            return StoredState(outbox: outbox, journal: nil, isHeldElsewhere: isHeld)
        }
    }

    private nonisolated static func opened(_ path: String, at now: WallTime) throws -> Opened {
        // A first start by hand has no directory yet.
        if let slash = path.lastIndex(of: "/"), slash != path.startIndex { mkdir(String(path[..<slash]), 0o700) }
        let lock = try FileLock(path: path + ".lock")
        let (database, damaged) = try Database.openSettingAside(path: path)
        let file = try StateFile(database: database, lock: lock)
        var opened = Opened(file: file, contents: try file.contents(at: now))
        if let damaged {
            opened.warnings.append(
                "\(path) was damaged; it is kept as \(damaged), what waited in it is lost, and a new one is made")
        }
        do {
            opened.counters = try CounterFile(path: path + ".sequences", isNew: damaged != nil)
        } catch {
            opened.warnings.append("\(error); the sequences of values begin anew, under a new epoch, with each start")
        }
        return opened
    }
}
