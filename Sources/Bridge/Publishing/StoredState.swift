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
            let advice = isHeld ? "give each bridge its own outbox.path" : Self.advice
            let outbox = MemoryOutbox(
                limit: limit, sizeLimit: min(sizeLimit, MemoryOutbox.sizeLimit),
                problem: "\(error); what waits for the broker is kept in memory only; \(advice)")
            return StoredState(outbox: outbox, journal: nil, isHeldElsewhere: isHeld)
        }
    }

    private nonisolated static let advice = "set outbox.path to a file in a directory that this user may write"

    /// Why nothing could be kept at a path, and what to do; nil where it can, as far as it shows without trying.
    nonisolated static func obstacle(at path: String) -> String? {
        let directory = self.directory(of: path)
        var place = path
        if access(directory, W_OK | X_OK) == 0 {
            guard access(path, F_OK) == 0, access(path, R_OK | W_OK) != 0 else { return nil }
        } else {
            // It is made at the start, where only the last level is missing.
            if errno == ENOENT, access(self.directory(of: directory), W_OK | X_OK) == 0 { return nil }
            place = directory
        }
        let reason = String(cString: strerror(errno))
        return "\(place) cannot be used: \(reason); what waits for the broker would be kept in memory only; \(advice)"
    }

    nonisolated static func directory(of path: String) -> String {
        guard let slash = path.lastIndex(of: "/") else { return "." }
        return slash == path.startIndex ? "/" : String(path[..<slash])
    }

    private nonisolated static func opened(_ path: String, at now: WallTime) throws -> Opened {
        // A first start by hand has no directory yet.
        mkdir(directory(of: path), 0o700)
        let lock = try FileLock(path: path + ".lock")
        let (database, damaged) = try Database.openSettingAside(path: path)
        let file = try StateFile(database: database, lock: lock)
        // Before anything is written there: what was damaged otherwise is found in here.
        let commits = try file.commits()
        var opened = Opened(file: file, contents: try file.contents(at: now))
        if let damaged {
            opened.warnings.append(
                "\(path) was damaged; it is kept as \(damaged), what waited in it is lost, and a new one is made")
        }
        do {
            var counters = try CounterFile(path: path + ".sequences", isNew: damaged != nil)
            let lost = counters.commits &- commits
            if lost > 0, lost < 1 << 31 {
                opened.warnings.append(
                    "\(path) lacks its last \(lost) commit\(lost == 1 ? "" : "s"): it, or \(path)-wal, was damaged,"
                        + " replaced or removed. What waited there for the broker may be lost, and commands that are"
                        + " asked again may run again; the sequences of values begin anew, under a new epoch")
                counters = try CounterFile(path: path + ".sequences", isNew: true)
            }
            opened.counters = counters
            opened.file.counters = counters
        } catch {
            opened.warnings.append("\(error); the sequences of values begin anew, under a new epoch, with each start")
        }
        return opened
    }
}
