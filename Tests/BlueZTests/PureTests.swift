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

final class AdvertisedBytesTests: XCTestCase {
    func testCompaniesAndServices() {
        let writer = RecordWriter()
        [1, 2, 3].withUnsafeBytes { (bytes: UnsafeRawBufferPointer) in
            writer.append(company: 0x0499, UnsafeRawBufferPointer(rebasing: bytes[..<3]))
            writer.append(company: 0x004c, UnsafeRawBufferPointer(rebasing: bytes[..<0]))
        }
        var seen: [UInt16: Int] = [:]
        Records(bytes: writer.bytes).forEachCompany { seen[$0] = $1.count }
        XCTAssertEqual(seen, [0x0499: 3, 0x004c: 0])
        writer.removeAll()
        XCTAssertTrue(Records(bytes: writer.bytes).isEmpty)
        let uuid = BluetoothUUID(0xfcd2)
        [UInt8](repeating: 7, count: 40).withUnsafeBytes { writer.append(uuid: uuid, $0) }
        var count = 0
        Records(bytes: writer.bytes).forEachService {
            XCTAssertEqual($0, uuid)
            XCTAssertEqual(Array($1), [UInt8](repeating: 7, count: 40))
            count += 1
        }
        XCTAssertEqual(count, 1)
    }

    func testWhatIsLongerThanAnyAdvertisementIsLeftOut() {
        let writer = RecordWriter()
        for size in [AdvertisedBytes.limit - 3, 100_000, 1] {
            [UInt8](repeating: 1, count: size).withUnsafeBytes { writer.append(company: 1, $0) }
        }
        var seen: [Int] = []
        Records(bytes: writer.bytes).forEachCompany { seen.append($1.count) }
        XCTAssertEqual(seen, [1])
    }

    func testPartsGrowAndShrinkBesideEachOther() {
        var random = SeededRandom(seed: 7)
        var block = AdvertisedBytes()
        var expected: [[UInt8]] = [[], [], []]
        for _ in 0..<2_000 {
            let index = Int.random(in: 0..<3, using: &random)
            let longest = Int.random(in: 0..<50, using: &random) == 0 ? 9_000 : 60
            let bytes = (0..<Int.random(in: 0...longest, using: &random)).map { _ in UInt8.random(in: 0...255) }
            let parts: [AdvertisedBytes.Part] = [.name, .manufacturerData, .serviceData]
            bytes.withUnsafeBytes { block.set(parts[index], to: $0) }
            expected[index] = Array(bytes.prefix(AdvertisedBytes.limit))
            for (part, bytes) in zip(parts, expected) { XCTAssertEqual(Array(block[part]), bytes) }
        }
    }
}

final class DevicePathTests: XCTestCase {
    private func device(_ path: String, below adapter: String = "/org/bluez/hci0") -> RemoteDevice {
        Array(adapter.utf8).withUnsafeBytes { adapter in
            Array(path.utf8).withUnsafeBytes { RemoteDevice(path: $0, adapter: RemoteAdapter(path: adapter)) }
        }
    }

    func testEachPathIsGivenBackAndFoundAsItIs() {
        let paths = [
            "/org/bluez/hci0/dev_A4_C1_38_5E_07_D3", "/org/bluez/hci0/dev_a4_C1_38_5E_07_D3",
            "/org/bluez/hci0/dev_A4_C1_38_5E_07_D", "/org/bluez/hci0/dev_A4_C1_38_5E_07-D3",
            "/org/bluez/hci0/dev.A4_C1_38_5E_07_D3", "/org/bluez/hci0/deb_A4_C1_38_5E_07_D3",
            "/org/bluez/hci1/dev_A4_C1_38_5E_07_D3", "/org/bluez/hci0/x/dev_A4_C1_38_5E_07_D3",
            "/org/bluez/hci00dev_A4_C1_38_5E_07_D3", "/dev_A4_C1_38_5E_07_D3", "/", "",
        ]
        for path in paths {
            let made = device(path)
            XCTAssertEqual(made.path, path)
            XCTAssertEqual(made.pathBytes, Array(path.utf8) + [0])
            for other in paths {
                let isFound = Array(other.utf8).withUnsafeBytes { made.hasPath($0) }
                XCTAssertEqual(isFound, other == path, "\(path) \(other)")
            }
        }
        XCTAssertEqual(device(paths[0]).pathAddress, 0xa4c1_385e_07d3)
    }
}
