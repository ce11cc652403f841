import Glibc
import XCTest

@testable import Store

final class CounterFileTests: XCTestCase {
    private var directory = ""
    private var path: String { directory + "/counters" }
    private let boot = Array("0f3c0000-0000-4000-8000-000000000001".utf8)

    override func setUpWithError() throws {
        var template = Array("\(NSTemporaryDirectory())/blueferry-counters-XXXXXX".utf8CString)
        XCTAssertNotNil(mkdtemp(&template))
        directory = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    override func tearDown() {
        try? FileManager.default.removeItem(atPath: directory)
    }

    func testCountersGoOnWithoutAClose() throws {
        let first = try CounterFile(path: path, boot: boot)
        let a = try first.counter(Array("a".utf8))
        XCTAssertEqual(a.value, 0)
        try first.set(a.slot, to: 7)
        let long = [UInt8](repeating: 0x78, count: 400)
        let b = try first.counter(long)
        try first.set(b.slot, to: .max)
        // As another process finds it after a kill.
        let second = try CounterFile(path: path, boot: boot)
        XCTAssertEqual(second.epoch, first.epoch)
        XCTAssertEqual(try second.counter(Array("a".utf8)).value, 7)
        XCTAssertEqual(try second.counter(long).value, .max)
        XCTAssertEqual(try second.counter(Array("c".utf8)).value, 0)
    }

    func testValuesThatAreWrittenAndValuesThatAreMappedAreTheSame() throws {
        for isMapped in [true, false, true] {
            let file = try CounterFile(path: path, boot: boot, isMapped: isMapped)
            // Over several pages.
            for number in 0..<500 {
                let counter = try file.counter([UInt8](repeating: 0x61, count: 60) + Array("\(number)".utf8))
                try file.set(counter.slot, to: counter.value + UInt64(number))
            }
        }
        let last = try CounterFile(path: path, boot: boot)
        for number in 0..<500 {
            let counter = try last.counter([UInt8](repeating: 0x61, count: 60) + Array("\(number)".utf8))
            XCTAssertEqual(counter.value, UInt64(3 * number))
        }
    }

    func testMoreFilesThanAreMappedGoOnByThemselves() throws {
        let files = try (0..<7).map { try CounterFile(path: "\(path)\($0)", boot: boot) }
        let slots = try files.map { try $0.counter([1]).slot }
        for (number, file) in files.enumerated() { try file.set(slots[number], to: UInt64(number) + 1) }
        for number in files.indices {
            XCTAssertEqual(try CounterFile(path: "\(path)\(number)", boot: boot).counter([1]).value, UInt64(number) + 1)
        }
        for file in files { file.close() }
    }

    func testAFileThatIsCutOffWhileItIsUsedIsAnError() throws {
        for isLong in [false, true] {
            let file = try CounterFile(path: path, boot: boot)
            var slot = try file.counter([1]).slot
            if isLong {
                for number in 0..<200 { slot = try file.counter([UInt8](repeating: UInt8(number), count: 100)).slot }
            }
            try file.set(slot, to: 1)
            XCTAssertEqual(truncate(path, 0), 0)
            XCTAssertThrowsError(try file.set(slot, to: 2)) { error in
                XCTAssertEqual((error as? StoreError)?.code, .inputOutput, "\(error)")
            }
            // What is used from then on is another file.
            let next = try CounterFile(path: path, boot: boot)
            XCTAssertNotEqual(next.epoch, file.epoch)
            XCTAssertEqual(try next.counter([1]).value, 0)
        }
    }

    func testNothingIsWrittenWhereNoCounterStands() throws {
        let file = try CounterFile(path: path, boot: boot)
        let slot = try file.counter([1]).slot
        for place in [0, 8, slot - 8, slot + 4, slot + 16, slot + 4096, .max, -8] {
            XCTAssertThrowsError(try file.set(place, to: 1), "\(place)")
        }
        try file.renew()
        XCTAssertThrowsError(try file.set(slot, to: 1))
    }

    func testAfterAPowerCutTheyBeginAnewAndAfterACloseTheyGoOn() throws {
        let other = Array("0f3c0000-0000-4000-8000-000000000002".utf8)
        let first = try CounterFile(path: path, boot: boot)
        try first.set(try first.counter([1]).slot, to: 9)
        let cut = try CounterFile(path: path, boot: other)
        XCTAssertNotEqual(cut.epoch, first.epoch)
        let counter = try cut.counter([1])
        XCTAssertEqual(counter.value, 0)
        try cut.set(counter.slot, to: 5)
        cut.close()
        XCTAssertThrowsError(try cut.set(counter.slot, to: 6))
        let next = try CounterFile(path: path, boot: boot)
        XCTAssertEqual(next.epoch, cut.epoch)
        XCTAssertEqual(try next.counter([1]).value, 5)
        // Opened again and not closed: the mark of the close does not hold for ever.
        let third = try CounterFile(path: path, boot: other)
        XCTAssertNotEqual(third.epoch, next.epoch)
        // Where the boot is not known, no number is used twice.
        let unknown = try CounterFile(path: path, boot: [])
        XCTAssertNotEqual(unknown.epoch, third.epoch)
        let again = try CounterFile(path: path, boot: [])
        XCTAssertNotEqual(again.epoch, unknown.epoch)
    }

    func testTheNumberOfCommitsOutlivesAKillAndARenewalAndNoPowerCut() throws {
        let first = try CounterFile(path: path, boot: boot)
        XCTAssertEqual(first.commits, 0)
        try first.note(commits: .max)
        _ = try first.counter([1])
        let second = try CounterFile(path: path, boot: boot)
        XCTAssertEqual(second.commits, .max)
        try second.renew()
        XCTAssertEqual(second.commits, .max)
        XCTAssertEqual(try CounterFile(path: path, boot: boot).commits, .max)
        XCTAssertEqual(try CounterFile(path: path, boot: Array(boot.reversed())).commits, 0)
    }

    func testARenewalForgetsAll() throws {
        let file = try CounterFile(path: path, boot: boot)
        let epoch = file.epoch
        try file.set(try file.counter([1]).slot, to: 5)
        try file.renew()
        XCTAssertNotEqual(file.epoch, epoch)
        XCTAssertEqual(try file.counter([1]).value, 0)
        let again = try CounterFile(path: path, boot: boot)
        XCTAssertEqual(again.epoch, file.epoch)
        XCTAssertEqual(try again.counter([1]).value, 0)
        XCTAssertNotEqual(try CounterFile(path: path, isNew: true, boot: boot).epoch, again.epoch)
    }

    func testAnyFileIsTaken() throws {
        var random = SystemRandomNumberGenerator()
        let file = try CounterFile(path: path, boot: boot)
        for number in 0..<20 { try file.set(try file.counter([UInt8](repeating: 1, count: number + 1)).slot, to: 3) }
        let sound = try Data(contentsOf: URL(fileURLWithPath: path))
        for round in 0..<90 {
            var bytes = Array(sound)
            switch round % 3 {
            case 0: bytes = Array(bytes.prefix(Int.random(in: 0..<bytes.count, using: &random)))
            case 1: for _ in 0..<20 { bytes[Int.random(in: 0..<bytes.count, using: &random)] = .random(in: 0...255) }
            default: bytes = (0..<200).map { _ in .random(in: 0...255) }
            }
            try Data(bytes).write(to: URL(fileURLWithPath: path))
            let opened = try CounterFile(path: path, boot: boot)
            let counter = try opened.counter([1])
            try opened.set(counter.slot, to: 44)
            XCTAssertEqual(try CounterFile(path: path, boot: boot).counter([1]).value, 44, "round \(round)")
        }
        XCTAssertThrowsError(try CounterFile(path: directory, boot: boot)) {
            XCTAssertTrue("\($0)".contains(directory), "\($0)")
        }
        // Full from the first byte on.
        XCTAssertThrowsError(try CounterFile(path: "/dev/full", boot: boot))
    }

    func testALockIsHeldOnceAndNamesItsHolder() throws {
        var lock: FileLock? = try FileLock(path: path)
        XCTAssertNotNil(lock)
        XCTAssertThrowsError(try FileLock(path: path)) {
            XCTAssertEqual(($0 as? StoreError)?.code, .busy)
            XCTAssertTrue("\($0)".contains("(\(getpid()))"), "\($0)")
        }
        lock = nil
        XCTAssertNoThrow(try FileLock(path: path))
        XCTAssertThrowsError(try FileLock(path: directory + "/no/lock")) {
            XCTAssertEqual(($0 as? StoreError)?.code, .cannotOpen)
        }
    }
}
