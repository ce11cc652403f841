import Glibc
import Store
import XCTest

final class StoreTests: XCTestCase {
    private var directory = ""
    private var path: String { directory + "/test.db" }

    override func setUpWithError() throws {
        var template = Array("\(NSTemporaryDirectory())/blueferry-store-XXXXXX".utf8CString)
        XCTAssertNotNil(mkdtemp(&template))
        directory = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    override func tearDown() {
        try? FileManager.default.removeItem(atPath: directory)
    }

    private func make() throws -> Database {
        let database = try Database(path: path)
        try database.perform { try $0.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, v)") }
        return database
    }

    func testValuesOfEveryTypeComeBack() throws {
        let database = try make()
        let values: [StoreValue] = [
            .null, .int(.min), .int(.max), .double(-0.5), .text("ü\0x"), .text(""), .blob([0, 255]), .blob([]),
        ]
        for value in values { try database.perform { try $0.execute("INSERT INTO t (v) VALUES (?1)", [value]) } }
        XCTAssertEqual(try database.perform { $0.lastInsertedRow }, Int64(values.count))
        XCTAssertEqual(try database.perform { try $0.rows("SELECT v FROM t ORDER BY id").map { $0[0] } }, values)
        database.close()
        let again = try Database(path: path)
        XCTAssertEqual(try again.perform { try $0.rows("SELECT v FROM t ORDER BY id").map { $0[0] } }, values)
        var seen: [Int64] = []
        try again.perform { connection in
            try connection.query("SELECT id, v FROM t WHERE id > ?1 ORDER BY id", [.int(2)]) { row in
                seen.append(row.int(0) ?? 0)
                XCTAssertEqual(row[7], .null)
                XCTAssertNil(row.text(0))
                return seen.count < 3
            }
        }
        XCTAssertEqual(seen, [3, 4, 5])
    }

    func testATransactionIsAllOrNothing() throws {
        struct Changed: Error {}
        let database = try make()
        try database.transaction { connection in
            for number in 1...3 { try connection.execute("INSERT INTO t (v) VALUES (?1)", [.int(Int64(number))]) }
        }
        XCTAssertThrowsError(
            try database.transaction { connection in
                try connection.execute("DELETE FROM t")
                XCTAssertEqual(connection.changes, 3)
                throw Changed()
            }
        ) { XCTAssertTrue($0 is Changed) }
        XCTAssertThrowsError(
            try database.transaction { connection in
                try connection.execute("DELETE FROM t WHERE id = 1")
                try connection.execute("INSERT INTO t (id, v) VALUES (2, 0)")
            }
        ) { XCTAssertEqual(($0 as? StoreError)?.code, .constraint) }
        XCTAssertEqual(try database.perform { try $0.rows("SELECT count(*) FROM t") }, [[.int(3)]])
        try database.transaction { try $0.execute("DELETE FROM t") }
        XCTAssertEqual(try database.perform { try $0.rows("SELECT count(*) FROM t") }, [[.int(0)]])
    }

    func testWhatIsCommittedIsThereWithoutClosing() throws {
        let database = try make()
        XCTAssertEqual(try database.perform { try $0.rows("PRAGMA journal_mode") }, [[.text("wal")]])
        XCTAssertEqual(try database.perform { try $0.rows("PRAGMA synchronous") }, [[.int(2)]])
        try database.transaction { try $0.execute("INSERT INTO t (v) VALUES (7)") }
        // A second look at the files, as after a crash of the first.
        let copy = directory + "/copy.db"
        for suffix in ["", "-wal"] {
            try FileManager.default.copyItem(atPath: path + suffix, toPath: copy + suffix)
        }
        let other = try Database(path: copy)
        XCTAssertEqual(try other.perform { try $0.rows("SELECT v FROM t") }, [[.int(7)]])
    }

    func testTheSchemaHasAVersion() throws {
        let database = try make()
        XCTAssertEqual(try database.perform { try $0.schemaVersion() }, 0)
        try database.perform { try $0.setSchemaVersion(3) }
        database.close()
        XCTAssertEqual(try Database(path: path).perform { try $0.schemaVersion() }, 3)
    }

    func testErrorsSayWhatAndWhere() throws {
        do {
            _ = try Database(path: directory + "/missing/x.db")
            XCTFail("opened")
        } catch {
            XCTAssertEqual(error.code, .cannotOpen)
            XCTAssertTrue(error.message.contains("/missing/x.db"), error.message)
            XCTAssertTrue(error.message.contains("must exist"), error.message)
        }
        let database = try make()
        let faults: [(String, [StoreValue])] = [("SELEKT", []), ("SELECT ?1", []), ("SELECT 1", [.int(1)]), ("", [])]
        for (sql, values) in faults {
            XCTAssertThrowsError(try database.perform { try $0.execute(sql, values) }, sql) {
                XCTAssertEqual(($0 as? StoreError)?.code, .misuse, sql)
            }
        }
        database.close()
        database.close()
        XCTAssertThrowsError(try database.perform { _ in }) { XCTAssertEqual(($0 as? StoreError)?.code, .misuse) }
    }

    func testOnlyTheOwnerCanReadTheFile() throws {
        let database = try make()
        var status = stat()
        XCTAssertEqual(stat(path, &status), 0)
        XCTAssertEqual(status.st_mode & 0o777, 0o600)
        database.close()
    }

    func testADamagedFileIsSetAside() throws {
        let good = try Database.openSettingAside(path: path)
        XCTAssertNil(good.damaged)
        try good.database.perform { try $0.execute("CREATE TABLE t (v)") }
        for number in 0..<500 {
            try good.database.perform { try $0.execute("INSERT INTO t VALUES (?1)", [.text("row \(number)")]) }
        }
        good.database.close()
        // Its pages are overwritten from the third on: the head still looks sound.
        var bytes = try Array(Data(contentsOf: URL(fileURLWithPath: path)))
        XCTAssertGreaterThan(bytes.count, 12_288)
        for index in 4_096..<bytes.count { bytes[index] = 0x55 }
        try Data(bytes).write(to: URL(fileURLWithPath: path))
        let mended = try Database.openSettingAside(path: path)
        XCTAssertEqual(mended.damaged, path + ".damaged")
        XCTAssertEqual(try mended.database.perform { try $0.rows("SELECT count(*) FROM sqlite_master") }, [[.int(0)]])
        XCTAssertEqual(try Array(Data(contentsOf: URL(fileURLWithPath: path + ".damaged"))), bytes)
        mended.database.close()
        // No SQLite file at all.
        try Data(repeating: 0x41, count: 5_000).write(to: URL(fileURLWithPath: path))
        XCTAssertEqual(try Database.openSettingAside(path: path).damaged, path + ".damaged")
    }

    func testAFileThatAnotherHoldsIsBusy() throws {
        let first = try make()
        let second = try Database(path: path)
        try second.perform { try $0.execute("PRAGMA busy_timeout=1") }
        try first.transaction { connection in
            try connection.execute("INSERT INTO t (v) VALUES (1)")
            XCTAssertThrowsError(try second.transaction { _ in }) { XCTAssertEqual(($0 as? StoreError)?.code, .busy) }
        }
        XCTAssertNoThrow(try second.transaction { try $0.execute("INSERT INTO t (v) VALUES (2)") })
    }
}
