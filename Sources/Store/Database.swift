internal import CSQLite
internal import Glibc
internal import Synchronization

/// A SQLite file: write-ahead log, and every commit on the disk before it returns (`synchronous=FULL`).
///
/// Calls block, on the disk and on each other: they belong on a `BlockingWorker`.
public final class Database: Sendable {
    public let path: String
    private let state: Mutex<State>

    /// `@unchecked Sendable`: the connection is used only under the mutex.
    private struct State: @unchecked Sendable {
        var connection: Connection?
    }

    /// Opens a file, or makes it, readable for its owner alone. `":memory:"` is a store that ends with its process.
    /// - Throws: ``StoreError`` where the file cannot be opened, is damaged, or is held by another process for 5 s.
    public init(path: String) throws(StoreError) {
        // SQLite would make it readable for all; what is wrong with the path is its to tell.
        let made = path == ":memory:" ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        if made >= 0 { Glibc.close(made) }
        self.path = path
        state = Mutex(State(connection: try Connection(path: path)))
    }

    /// Opens a file and checks it; a damaged one is set aside, under its name with `.damaged` added, and a new one made.
    /// - Returns: the store, and where the damaged file went, if there was one.
    public static func openSettingAside(path: String) throws(StoreError) -> (database: Database, damaged: String?) {
        do throws(StoreError) {
            let database = try Database(path: path)
            do throws(StoreError) {
                try database.check()
                return (database, nil)
            } catch {
                database.close()
                throw error
            }
        } catch {
            guard error.code == .corrupt else { throw error }
        }
        let aside = path + ".damaged"
        guard rename(path, aside) == 0 else {
            throw StoreError(
                code: .cannotOpen,
                message: "\(path) is damaged and cannot be renamed to \(aside): \(String(cString: strerror(errno)))",
                result: SQLITE_CORRUPT)
        }
        // Their content belongs to the damaged file.
        for suffix in ["-wal", "-shm"] { unlink(path + suffix) }
        return (try Database(path: path), aside)
    }

    private func check() throws(StoreError) {
        let problem: Result<String, StoreError> = state.withLock { state in
            guard let connection = state.connection else { return .failure(Self.closed(path)) }
            do throws(StoreError) {
                return .success(try connection.firstText("PRAGMA quick_check(1)") ?? "no answer")
            } catch {
                return .failure(error)
            }
        }
        let text = try problem.get()
        guard text == "ok" else {
            throw StoreError(code: .corrupt, message: "\(path) is damaged: \(text)", result: SQLITE_CORRUPT)
        }
    }

    /// Runs `body` with the file for itself; each statement commits on its own.
    public func perform<Result: Sendable>(_ body: (Connection) throws -> Result) throws -> Result {
        try state.withLock { state in
            guard let connection = state.connection else { throw Self.closed(path) }
            return try body(connection)
        }
    }

    /// Runs `body` as one transaction: all of it is on the disk when this returns, or, where it throws, nothing is.
    public func transaction<Result: Sendable>(_ body: (Connection) throws -> Result) throws -> Result {
        try perform { connection in
            try connection.execute("BEGIN IMMEDIATE")
            do {
                let result = try body(connection)
                try connection.execute("COMMIT")
                return result
            } catch {
                // SQLite has rolled back by itself after some errors.
                if connection.isInTransaction { try? connection.execute("ROLLBACK") }
                throw error
            }
        }
    }

    /// Closes the file; later calls throw. Harmless once closed.
    public func close() {
        state.withLock { $0.connection = nil }
    }

    private static func closed(_ path: String) -> StoreError {
        StoreError(code: .misuse, message: "\(path) is closed", result: SQLITE_MISUSE)
    }
}
