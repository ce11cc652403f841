import Bluetooth
import XCTest

@testable import BlueZ

final class BlueZErrorTests: XCTestCase {
    func testATTCodesInMessages() {
        XCTAssertEqual(BlueZError.attCode(in: "Operation failed with ATT error: 0x80 (Application error)"), 0x80)
        XCTAssertEqual(BlueZError.attCode(in: "Operation failed with ATT error: 0x0e"), 0x0e)
        XCTAssertNil(BlueZError.attCode(in: "Operation failed with ATT error: 0x"))
        XCTAssertNil(BlueZError.attCode(in: "Operation failed with ATT error: 0xzz"))
        XCTAssertNil(BlueZError.attCode(in: "Operation failed"))
        XCTAssertNil(BlueZError.attCode(in: ""))
    }

    func testKinds() {
        XCTAssertEqual(BlueZError(name: "org.bluez.Error.NotReady", message: "x").kind, .notReady)
        XCTAssertEqual(
            BlueZError(name: "org.bluez.Error.Failed", message: "le-connection-abort-by-local").kind, .connectionFailed)
        XCTAssertEqual(BlueZError(name: "org.bluez.Error.Failed", message: "Not connected").kind, .notConnected)
        XCTAssertEqual(BlueZError(name: "org.freedesktop.DBus.Error.ServiceUnknown", message: "x").kind, .noBlueZ)
        XCTAssertEqual(BlueZError(name: "com.example.Odd", message: "x").kind, .failed)
    }
}

final class PathTableTests: XCTestCase {
    private func object(_ path: String) -> RemoteObject {
        var path = path
        return path.withUTF8 { RemoteAdapter(path: UnsafeRawBufferPointer($0)) }
    }

    func testThousandsComeAndGo() {
        var table = PathTable()
        let paths = (0..<3000).map { "/org/bluez/hci0/dev_AA_BB_CC_00_\($0 / 256)_\($0 % 256)" }
        var objects: [String: RemoteObject] = [:]
        for path in paths {
            let object = object(path)
            objects[path] = object
            table.insert(object)
        }
        XCTAssertEqual(table.count, 3000)
        for path in paths { XCTAssertTrue(table.find(path) === objects[path]) }
        for path in paths.enumerated().filter({ $0.offset % 3 != 0 }).map(\.element) {
            guard let object = objects.removeValue(forKey: path) else { return XCTFail(path) }
            table.remove(object)
        }
        XCTAssertEqual(table.count, 1000)
        for path in paths { XCTAssertTrue(table.find(path) === objects[path], path) }
        XCTAssertNil(table.find("/org/bluez/hci0"))
        XCTAssertNil(table.find(""))
    }

    func testRemovingWhatIsNotThereIsHarmless() {
        var table = PathTable()
        table.insert(object("/a"))
        table.remove(object("/b"))
        XCTAssertEqual(table.count, 1)
    }
}

final class RecordBufferTests: XCTestCase {
    func testCompaniesAndServices() {
        var records = RecordBuffer()
        [1, 2, 3].withUnsafeBytes { (bytes: UnsafeRawBufferPointer) in
            records.append(company: 0x0499, UnsafeRawBufferPointer(rebasing: bytes[..<3]))
            records.append(company: 0x004c, UnsafeRawBufferPointer(rebasing: bytes[..<0]))
        }
        var seen: [UInt16: Int] = [:]
        records.forEachCompany { seen[$0] = $1.count }
        XCTAssertEqual(seen, [0x0499: 3, 0x004c: 0])
        records.removeAll()
        XCTAssertTrue(records.isEmpty)
        let uuid = BluetoothUUID(0xfcd2)
        [UInt8](repeating: 7, count: 40).withUnsafeBytes { records.append(uuid: uuid, $0) }
        var count = 0
        records.forEachService {
            XCTAssertEqual($0, uuid)
            XCTAssertEqual(Array($1), [UInt8](repeating: 7, count: 40))
            count += 1
        }
        XCTAssertEqual(count, 1)
    }
}
