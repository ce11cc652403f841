internal import CSQLite

/// What a column holds. Source: sqlite.org/datatype3.html.
public enum StoreValue: Sendable, Equatable {
    case null
    case int(Int64)
    case double(Double)
    case text(String)
    case blob([UInt8])
}

/// Statements on an open file, within ``Database/perform(_:)``.
public final class Connection {
    private let path: String
    private let handle: OpaquePointer
    private var statements: [String: OpaquePointer] = [:]

    init(path: String) throws(StoreError) {
        self.path = path
        var opened: OpaquePointer?
        // One thread at a time, which the database's mutex sees to.
        let flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE
        let status = sqlite3_open_v2(path, &opened, flags, nil)
        guard status == SQLITE_OK, let opened else {
            let error = Self.error(path, opened, status)
            sqlite3_close_v2(opened)
            throw error
        }
        handle = opened
        sqlite3_busy_timeout(handle, 5_000)
        try execute("PRAGMA journal_mode=WAL")
        try execute("PRAGMA synchronous=FULL")
        try execute("PRAGMA foreign_keys=ON")
    }

    deinit {
        for statement in statements.values { sqlite3_finalize(statement) }
        sqlite3_close_v2(handle)
    }

    /// Runs one statement for its effect. Statements are prepared once and kept: values go in as parameters, `?1`….
    /// - Throws: ``StoreError``.
    public func execute(_ sql: String, _ values: [StoreValue] = []) throws(StoreError) {
        let statement = try prepare(sql, values)
        defer { sqlite3_reset(statement) }
        while true {
            let status = sqlite3_step(statement)
            if status == SQLITE_DONE { return }
            guard status == SQLITE_ROW else { throw Self.error(path, handle, status) }
        }
    }

    /// Runs a query and gives each row to `body`, until it returns false. No other statement with the same text may run
    /// within.
    /// - Throws: ``StoreError``, or what `body` throws.
    public func query(_ sql: String, _ values: [StoreValue] = [], _ body: (Row) throws -> Bool) throws {
        let statement = try prepare(sql, values)
        defer { sqlite3_reset(statement) }
        while true {
            let status = sqlite3_step(statement)
            if status == SQLITE_DONE { return }
            guard status == SQLITE_ROW else { throw Self.error(path, handle, status) }
            guard try body(Row(statement)) else { return }
        }
    }

    /// All rows of a query.
    public func rows(_ sql: String, _ values: [StoreValue] = []) throws(StoreError) -> [[StoreValue]] {
        let statement = try prepare(sql, values)
        defer { sqlite3_reset(statement) }
        var result: [[StoreValue]] = []
        while true {
            let status = sqlite3_step(statement)
            if status == SQLITE_DONE { return result }
            guard status == SQLITE_ROW else { throw Self.error(path, handle, status) }
            let row = Row(statement)
            result.append((0..<row.count).map { row[$0] })
        }
    }

    func firstText(_ sql: String) throws(StoreError) -> String? {
        guard case .text(let text) = try rows(sql).first?.first else { return nil }
        return text
    }

    /// The row identifier of the last insertion. Source: `sqlite3_last_insert_rowid`.
    public var lastInsertedRow: Int64 { sqlite3_last_insert_rowid(handle) }
    /// How many rows the last statement changed. Source: `sqlite3_changes`.
    public var changes: Int { Int(sqlite3_changes(handle)) }

    var isInTransaction: Bool { sqlite3_get_autocommit(handle) == 0 }

    /// A number that the owner gives its schema; 0 in a new file. Source: PRAGMA user_version.
    public func schemaVersion() throws(StoreError) -> Int64 {
        guard case .int(let version) = try rows("PRAGMA user_version").first?.first else { return 0 }
        return version
    }

    public func setSchemaVersion(_ version: Int32) throws(StoreError) {
        // A pragma takes no parameters.
        try execute("PRAGMA user_version=\(version)")
    }

    private func prepare(_ sql: String, _ values: [StoreValue]) throws(StoreError) -> OpaquePointer {
        let statement: OpaquePointer
        if let known = statements[sql] {
            statement = known
        } else {
            var prepared: OpaquePointer?
            let status = sqlite3_prepare_v3(handle, sql, -1, UInt32(SQLITE_PREPARE_PERSISTENT), &prepared, nil)
            guard status == SQLITE_OK else { throw Self.error(path, handle, status) }
            guard let prepared else {
                throw StoreError(code: .misuse, message: "\(path): '\(sql)' is no statement", result: SQLITE_MISUSE)
            }
            statement = prepared
            statements[sql] = prepared
        }
        sqlite3_clear_bindings(statement)
        let wanted = Int(sqlite3_bind_parameter_count(statement))
        guard wanted == values.count else {
            let message = "\(path): '\(sql)' takes \(wanted) values, not \(values.count)"
            throw StoreError(code: .misuse, message: message, result: SQLITE_MISUSE)
        }
        for (index, value) in values.enumerated() {
            let status = bind(statement, Int32(index + 1), value)
            guard status == SQLITE_OK else { throw Self.error(path, handle, status) }
        }
        return statement
    }

    private func bind(_ statement: OpaquePointer, _ index: Int32, _ value: StoreValue) -> Int32 {
        switch value {
        case .null: return sqlite3_bind_null(statement, index)
        case .int(let number): return sqlite3_bind_int64(statement, index, number)
        case .double(let number): return sqlite3_bind_double(statement, index, number)
        case .text(let text):
            let length = text.utf8.count
            guard let length = Int32(exactly: length) else { return SQLITE_TOOBIG }
            return csqlite_bind_text(statement, index, text, length)
        case .blob(let bytes):
            guard let length = Int32(exactly: bytes.count) else { return SQLITE_TOOBIG }
            return csqlite_bind_blob(statement, index, bytes, length)
        }
    }

    private static func error(_ path: String, _ handle: OpaquePointer?, _ status: Int32) -> StoreError {
        let extended = handle.map { sqlite3_extended_errcode($0) } ?? status
        let words = handle.map { String(cString: sqlite3_errmsg($0)) } ?? String(cString: sqlite3_errstr(status))
        let (code, advice): (StoreError.Code, String) =
            switch status & 0xff {
            case SQLITE_CANTOPEN, SQLITE_PERM, SQLITE_AUTH:
                (.cannotOpen, "; its directory must exist and be writable for the user that runs blueferry")
            case SQLITE_READONLY:
                (.readOnly, "; the file and its directory must be writable for the user that runs blueferry")
            case SQLITE_BUSY, SQLITE_LOCKED: (.busy, "; another process uses it")
            case SQLITE_FULL: (.diskFull, "; make room on its file system")
            case SQLITE_CORRUPT, SQLITE_NOTADB: (.corrupt, "")
            case SQLITE_IOERR: (.inputOutput, "")
            case SQLITE_CONSTRAINT: (.constraint, "")
            case SQLITE_ERROR, SQLITE_MISUSE, SQLITE_MISMATCH, SQLITE_RANGE: (.misuse, "")
            default: (.other, "")
            }
        return StoreError(code: code, message: "\(path): \(words)\(advice)", result: extended)
    }
}

/// A row of a query, valid within the call that it is given to.
public struct Row {
    private let statement: OpaquePointer
    public let count: Int

    fileprivate init(_ statement: OpaquePointer) {
        self.statement = statement
        count = Int(sqlite3_column_count(statement))
    }

    /// The value of a column, from 0; null beyond the last.
    public subscript(_ column: Int) -> StoreValue {
        guard (0..<count).contains(column) else { return .null }
        let index = Int32(column)
        switch sqlite3_column_type(statement, index) {
        case SQLITE_INTEGER: return .int(sqlite3_column_int64(statement, index))
        case SQLITE_FLOAT: return .double(sqlite3_column_double(statement, index))
        case SQLITE_TEXT: return .text(String(decoding: bytes(index), as: UTF8.self))
        case SQLITE_BLOB: return .blob(Array(bytes(index)))
        default: return .null
        }
    }

    /// An integer column; nil where it is null or something else.
    public func int(_ column: Int) -> Int64? {
        if case .int(let value) = self[column] { value } else { nil }
    }

    public func text(_ column: Int) -> String? {
        if case .text(let value) = self[column] { value } else { nil }
    }

    public func blob(_ column: Int) -> [UInt8]? {
        if case .blob(let value) = self[column] { value } else { nil }
    }

    private func bytes(_ index: Int32) -> UnsafeRawBufferPointer {
        // The pointer first, then the length: the order that SQLite asks for.
        let start = sqlite3_column_blob(statement, index)
        let count = Int(sqlite3_column_bytes(statement, index))
        return UnsafeRawBufferPointer(start: start, count: start == nil ? 0 : count)
    }
}
