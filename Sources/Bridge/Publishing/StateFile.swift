internal import EventLoop
internal import Glibc
internal import Store

/// The bridge's file: messages that wait for the broker, and the requests of the last minutes. Its calls block, and run
/// on a worker.
struct StateFile: Sendable {
    static let schema: Int64 = 1
    /// What is read back at once.
    static let pageCount = 256
    static let pageBytes = 256 << 10
    /// Answers that pass other messages, at most.
    static let promptLimit = 1000

    let database: Database
    /// Held for as long as the file is used; SQLite's own locks would let another process in between.
    let lock: FileLock?
    /// Notes each commit outside of the database; nil where that cannot be.
    var counters: CounterFile?

    var path: String { database.path }

    /// What is in a file when it is opened.
    struct Contents: Sendable {
        /// Messages of the ordered lane, and their size.
        var count = 0
        var bytes = 0
        /// The newest id of all.
        var newestID: UInt64 = 0
        /// Answers that are still of use.
        var prompt: [(id: UInt64, message: OutboxMessage)] = []
        var requests: [RecordedRequest] = []
    }

    init(database: Database, lock: FileLock? = nil) throws {
        self.database = database
        self.lock = lock
        try database.perform { connection in
            let version = try connection.schemaVersion()
            guard version != Self.schema else { return }
            guard version == 0 else {
                throw StoreError(
                    code: .other, message: "\(database.path) was made by a newer blueferry (schema \(version))",
                    result: 0)
            }
            // There is nothing to lose yet; the first commit brings this to the disk with it.
            try connection.execute("PRAGMA synchronous=OFF")
            // What an outage took of the disk is given back after it.
            try connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            try connection.execute("VACUUM")
            try connection.execute(
                """
                CREATE TABLE messages (id INTEGER PRIMARY KEY, lane INTEGER NOT NULL, topic BLOB NOT NULL,
                payload BLOB NOT NULL, correlation BLOB, expires INTEGER)
                """)
            try connection.execute(
                """
                CREATE TABLE requests (verb TEXT NOT NULL, id TEXT NOT NULL, payload BLOB NOT NULL,
                expires INTEGER NOT NULL, answer BLOB, PRIMARY KEY (verb, id)) WITHOUT ROWID
                """)
            try connection.execute(Self.commitsTable)
            try connection.setSchemaVersion(Int32(Self.schema))
            try connection.execute("PRAGMA synchronous=FULL")
        }
        try database.perform { connection in
            try connection.execute("PRAGMA journal_size_limit=4194304")
            // Files of former versions lack it.
            try connection.execute(Self.commitsTable)
        }
    }

    /// Has one row, from the first commit on.
    private static let commitsTable = "CREATE TABLE IF NOT EXISTS commits (number INTEGER NOT NULL)"

    /// Commits of ever that are in the file; it wraps around.
    func commits() throws -> UInt32 {
        var number: Int64 = 0
        try database.perform { connection in
            try connection.query("SELECT number FROM commits") { row in
                number = row.int(0) ?? 0
                return false
            }
        }
        return UInt32(truncatingIfNeeded: number)
    }

    func contents(at now: WallTime) throws -> Contents {
        try database.transaction { connection in
            var contents = Contents()
            try connection.execute("DELETE FROM requests WHERE expires <= ?1", [.int(now.milliseconds)])
            try connection.execute("DELETE FROM messages WHERE expires <= ?1", [.int(now.milliseconds)])
            try connection.query(
                """
                SELECT count(*), total(length(topic) + length(payload) + ifnull(length(correlation), 0)), max(id)
                FROM messages WHERE lane = 0
                """
            ) { row in
                contents.count = Int(row.int(0) ?? 0)
                if case .double(let bytes) = row[1] {
                    contents.bytes = Int(bytes) + contents.count * OutboxMessage.size(topic: 0, payload: 0)
                }
                contents.newestID = UInt64(clamping: row.int(2) ?? 0)
                return false
            }
            try connection.query(
                """
                SELECT id, topic, payload, correlation, expires, lane FROM messages WHERE lane = 1 ORDER BY id LIMIT ?1
                """, [.int(Int64(Self.promptLimit))]
            ) { row in
                if let entry = Self.message(row) { contents.prompt.append(entry) }
                return true
            }
            contents.newestID = max(contents.newestID, contents.prompt.last?.id ?? 0)
            try connection.query("SELECT verb, id, payload, expires, answer FROM requests ORDER BY expires") { row in
                guard let verb = row.text(0), let id = row.text(1), let payload = row.blob(2), let expires = row.int(3)
                else { return true }
                contents.requests.append(
                    RecordedRequest(
                        key: RequestKey(verb: verb, id: id), payload: payload,
                        expires: WallTime(milliseconds: expires), answer: row.blob(4)))
                return true
            }
            return contents
        }
    }

    /// The oldest messages of the ordered lane between two ids, a page of them.
    func page(after id: UInt64, below end: UInt64) throws -> [(id: UInt64, OutboxMessage)] {
        try database.perform { connection in
            var page: [(id: UInt64, OutboxMessage)] = []
            var size = 0
            try connection.query(
                """
                SELECT id, topic, payload, correlation, expires, lane FROM messages
                WHERE id > ?1 AND id < ?2 AND lane = 0 ORDER BY id LIMIT ?3
                """, [.int(Int64(clamping: id)), .int(Int64(clamping: end)), .int(Int64(Self.pageCount))]
            ) { row in
                guard let entry = Self.message(row) else { return true }
                page.append(entry)
                size += entry.message.size
                return size < Self.pageBytes
            }
            return page
        }
    }

    private static func message(_ row: Row) -> (id: UInt64, message: OutboxMessage)? {
        guard let id = row.int(0), let topic = row.blob(1), topic.last == 0, let payload = row.blob(2) else {
            return nil
        }
        let lane = row.int(5).flatMap { OutboxMessage.Lane(rawValue: Int($0)) } ?? .ordered
        return (
            UInt64(clamping: id),
            OutboxMessage(
                topicBytes: topic, payload: payload, responseCorrelation: row.blob(3),
                expires: row.int(4).map { WallTime(milliseconds: $0) }, lane: lane)
        )
    }

    /// One transaction: it is on the disk when this returns.
    /// Noted after it, so that a process that is killed in between has noted one too few, and never one too many.
    func apply(_ batch: StoreBatch) throws {
        let number = try commits() &+ 1
        try database.transaction { connection in
            try connection.execute("UPDATE commits SET number = ?1", [.int(Int64(number))])
            if connection.changes == 0 {
                try connection.execute("INSERT INTO commits VALUES (?1)", [.int(Int64(number))])
            }
            for (id, message) in batch.messages {
                try connection.execute(
                    "INSERT OR REPLACE INTO messages VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                    [
                        .int(Int64(clamping: id)), .int(Int64(message.lane.rawValue)), .blob(message.topic),
                        .blob(message.payload), message.responseCorrelation.map { .blob($0) } ?? .null,
                        message.expires.map { .int($0.milliseconds) } ?? .null,
                    ])
            }
            if let floor = batch.deletedBelow {
                try connection.execute(
                    "DELETE FROM messages WHERE id < ?1 AND lane = 0", [.int(Int64(clamping: floor))])
            }
            for id in batch.deleted {
                try connection.execute("DELETE FROM messages WHERE id = ?1", [.int(Int64(clamping: id))])
            }
            for request in batch.requests {
                try connection.execute(
                    "INSERT OR REPLACE INTO requests VALUES (?1, ?2, ?3, ?4, NULL)",
                    [
                        .text(request.key.verb), .text(request.key.id), .blob(request.payload),
                        .int(request.expires.milliseconds),
                    ])
            }
            for (key, answer) in batch.answers {
                try connection.execute(
                    "UPDATE requests SET answer = ?3 WHERE verb = ?1 AND id = ?2",
                    [.text(key.verb), .text(key.id), .blob(answer)])
            }
            for key in batch.forgotten {
                try connection.execute(
                    "DELETE FROM requests WHERE verb = ?1 AND id = ?2", [.text(key.verb), .text(key.id)])
            }
        }
        try? counters?.note(commits: number)
        if batch.isEmptied { try database.perform { try $0.execute("PRAGMA incremental_vacuum") } }
    }
}

/// What one commit changes.
struct StoreBatch: Sendable {
    var messages: [(id: UInt64, OutboxMessage)] = []
    /// Messages of the ordered lane below this id go.
    var deletedBelow: UInt64?
    var deleted: [UInt64] = []
    var requests: [RecordedRequest] = []
    var answers: [(RequestKey, [UInt8])] = []
    var forgotten: [RequestKey] = []
    /// Nothing waits any more after much did: the file may shrink.
    var isEmptied = false

    var isEmpty: Bool {
        messages.isEmpty && deletedBelow == nil && deleted.isEmpty && requests.isEmpty && answers.isEmpty
            && forgotten.isEmpty
    }
}
