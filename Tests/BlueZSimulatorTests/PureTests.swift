import Bluetooth
import EventLoop
import XCTest
import YAML

@testable import BlueZSimulator

final class FleetFileTests: XCTestCase {
    private static let fleet = """
        seed: 7
        adapters:
          - { name: hci0, address: "00:1A:7D:DA:71:13", alias: lab }
          - { name: hci1, address: "00:1A:7D:DA:71:14", duplicate_filter: data }
        devices:
          - id: ruuvi
            address: "CB:B8:33:4C:88:4F"
            manufacturer_data: { 0499: 0512fc5394c37c0004fffc040cac364200cdcbb8334c884f }
            sequence: manufacturer_data/0499/18
            adapters: [hci1]
          - id: node
            count: 3
            name: "node-{n}"
            address: "C0:00:00:00:01:FE"
            gatt:
              - uuid: 180f
                characteristics:
                  - { uuid: 2a19, properties: [read, notify], value: 64, descriptors: [{ uuid: 2901, text: Level }] }
          - { id: phone, rotate: 15000 }
        """

    func testReadsAllKindsOfDevices() throws {
        let fleet = try FleetFile.parse(Self.fleet)
        XCTAssertEqual(fleet.seed, 7)
        XCTAssertEqual(fleet.adapters.map(\.duplicateFilter), [.none, .data])
        XCTAssertEqual(fleet.devices.map(\.id), ["ruuvi", "node-0", "node-1", "node-2", "phone"])
        XCTAssertEqual(fleet.devices[2].name, "node-1")
        XCTAssertEqual(fleet.devices[3].address, BluetoothAddress(parsing: "C0:00:00:00:02:00"))
        XCTAssertEqual(fleet.devices[0].counter, .init(place: .manufacturerData(0x0499), offset: 18))
        XCTAssertEqual(fleet.devices[0].adapters, ["hci1"])
        let level = fleet.devices[1].gatt[0].characteristics[0]
        XCTAssertEqual(level.value, [0x64])
        XCTAssertEqual(level.properties, [.read, .notify])
        XCTAssertEqual(level.descriptors[0].value, Array("Level".utf8))
    }

    func testReadsTheFleetOfTheRepository() throws {
        let root = #filePath.split(separator: "/", omittingEmptySubsequences: false).dropLast(3).joined(separator: "/")
        let fleet = try FleetFile.load(root + "/config/fleet.yaml")
        XCTAssertGreaterThan(fleet.devices.count, 20)
        XCTAssertNotNil(fleet.devices.first { $0.id == "strap" })
    }

    func testErrorsNameThePlace() {
        let wrong: [(String, String)] = [
            ("devices:\n  - { id: a }", "a device needs an address, or rotate"),
            ("devices:\n  - { id: a, address: nonsense }", "not an address"),
            ("devices:\n  - { id: a, rotate: 1000, intervall: 5 }", "intervall"),
            ("devices:\n  - { id: a, rotate: 1000, interval: 1 }", "5"),
            ("devices:\n  - { id: a, rotate: 1000 }\n  - { id: a, rotate: 1000 }", "already a device"),
            ("devices:\n  - { id: a, rotate: 1000, adapters: [hci9] }", "no adapter 'hci9'"),
            ("devices:\n  - { id: a, rotate: 1000, manufacturer_data: { 0499: 1 } }", "hex digits in pairs"),
            (
                "devices:\n  - { id: a, rotate: 1000, manufacturer_data: { 0499: 01 }, sequence: manufacturer_data/0499/0 }",
                "no two bytes"
            ),
            (
                "devices:\n  - { id: a, rotate: 1000, name: a name that is far too long for a scan response }",
                "does not fit"
            ),
            ("devices:\n  - { id: a, rotate: 1000, gatt: [{ uuid: 180f, id: x, includes: [x] }] }", "includes itself"),
            (
                "devices:\n  - { id: a, rotate: 1000, gatt: ["
                    + (0..<40).map { "{ uuid: 180f, id: s\($0), includes: [s\($0 + 1)] }" }.joined(separator: ", ")
                    + ", { uuid: 180f, id: s40 }] }",
                "32 levels deep"
            ),
            (
                "devices:\n  - { id: a, rotate: 1000, gatt: [{ uuid: 180f, includes: [y] }] }",
                "no service with the id 'y'"
            ),
            ("adapters: [{ name: eth0, address: \"00:1A:7D:DA:71:13\" }]", "not a name such as hci0"),
        ]
        for (text, expected) in wrong {
            XCTAssertThrowsError(try FleetFile.parse(text, file: "f.yaml")) { error in
                let description = "\(error)"
                XCTAssertTrue(description.hasPrefix("f.yaml:") && description.contains(expected), description)
            }
        }
    }
}

final class AdvertisedContentTests: XCTestCase {
    private func device(_ change: (inout Fleet.Device) -> Void) -> Fleet.Device {
        var device = Fleet.Device(id: "d", address: BluetoothAddress(value: 0xc000_0000_0001))
        change(&device)
        return device
    }

    func testWhatIsPackedIsWhatIsRead() throws {
        let content = try XCTUnwrap(
            AdvertisedContent(
                device {
                    $0.name = "HR strap"
                    $0.txPower = -4
                    $0.appearance = 0x0341
                    $0.services = [BluetoothUUID(0x180d), BluetoothUUID(0x180f)]
                    $0.solicited = [BluetoothUUID(0x1812)]
                    $0.manufacturerData = [.init(company: 0x0499, data: [1, 2, 3])]
                }))
        var read = Advertisement()
        read.merge(advertisingData: content.structures)
        XCTAssertEqual(read, content.advertisement)
    }

    func testACounterCountsInBothForms() throws {
        var content = try XCTUnwrap(
            AdvertisedContent(
                device {
                    $0.manufacturerData = [
                        .init(company: 0x0001, data: [9]), .init(company: 0x0499, data: [5, 0, 0xff, 7]),
                    ]
                    $0.counter = .init(place: .manufacturerData(0x0499), offset: 1)
                }))
        for expected in [[5, 0, 0xff, 7], [5, 1, 0, 7], [5, 1, 1, 7]] as [[UInt8]] {
            content.countUp()
            XCTAssertEqual(content.advertisement.manufacturerData[1].data, expected)
            var read = Advertisement()
            read.merge(advertisingData: content.structures)
            XCTAssertEqual(read.manufacturerData, content.advertisement.manufacturerData)
        }
    }

    func testWhatDoesNotFitIsRefused() {
        XCTAssertNil(AdvertisedContent(device { $0.name = String(repeating: "x", count: 30) }))
        XCTAssertNotNil(AdvertisedContent(device { $0.name = String(repeating: "x", count: 29) }))
        XCTAssertNil(
            AdvertisedContent(
                device { $0.manufacturerData = [.init(company: 1, data: .init(repeating: 0, count: 28))] }))
    }
}

final class ScheduleWheelTests: XCTestCase {
    func testEntriesComeOnceAtTheirTick() {
        var wheel = ScheduleWheel(entries: 4, slots: 8)
        wheel.add(0, at: 3)
        wheel.add(1, at: 3 + 8)  // the same slot, a turn later
        wheel.add(2, at: 100)
        wheel.add(3, at: 0)
        var seen: [[Int]] = []
        for tick in 0...100 as ClosedRange<UInt64> {
            var due: [Int] = []
            wheel.take(upTo: tick, into: &due)
            if !due.isEmpty { seen.append([Int(tick)] + due) }
        }
        XCTAssertEqual(seen, [[0, 3], [3, 0], [11, 1], [100, 2]])
    }

    func testALateTurnTakesAllThatIsDue() {
        var wheel = ScheduleWheel(entries: 100, slots: 16)
        for entry in 0..<100 { wheel.add(entry, at: UInt64(entry)) }
        var due: [Int] = []
        wheel.take(upTo: 99, into: &due)
        XCTAssertEqual(due, Array(0..<100))
        wheel.add(5, at: 2)  // long past: due at the next turn
        due = []
        wheel.take(upTo: 100, into: &due)
        XCTAssertEqual(due, [5])
    }

    func testAnEntryIsScheduledOnce() {
        var wheel = ScheduleWheel(entries: 1)
        wheel.add(0, at: 1)
        wheel.add(0, at: 5)
        wheel.add(7, at: 1)  // there is none
        var due: [Int] = []
        wheel.take(upTo: 10, into: &due)
        XCTAssertEqual(due, [0])
    }
}

final class AttributeDatabaseTests: XCTestCase {
    override class func setUp() { EventLoop.shared.startThread() }

    private static func twins() throws -> Fleet.Device {
        try FleetFile.parse(
            """
            devices:
              - id: d
                address: "C0:00:00:00:00:01"
                gatt:
                  - uuid: 1802
                    includes: [battery]
                    characteristics:
                      - { uuid: 2a06, properties: [read, write, notify], value: "00" }
                      - { uuid: 2a06, properties: [write-without-response], length: 300 }
                  - uuid: 180f
                    id: battery
                    characteristics:
                      - { uuid: 2a19, properties: [read], encrypted: true, value: "64", descriptors: [{ uuid: 2901, text: x }] }
            """
        ).devices[0]
    }

    @EventLoopActor
    func testHandlesFollowTheOrderOfAServer() async throws {
        let database = AttributeDatabase(try Self.twins())
        // 1800 at 1 (two characteristics), 1801 at 6 (one, with a configuration), then the included service first.
        XCTAssertEqual(database.services.map(\.uuid.topicForm), ["1800", "1801", "180f", "1802"])
        XCTAssertEqual(database.services.map(\.handle), [1, 6, 10, 14])
        XCTAssertEqual(database.services[3].characteristics.map(\.handle), [16, 19])
        XCTAssertEqual(database.services[3].characteristics[0].descriptors.map(\.handle), [18])
        XCTAssertEqual(database.characteristics.map(\.name).suffix(3), ["180f/2a19", "1802/2a06#0", "1802/2a06#1"])
        let (first, last) = database.change()
        XCTAssertEqual([first, last], [21, 23])
        XCTAssertEqual(database.services.count, 5)
        _ = database.change()
        XCTAssertEqual(database.services.count, 4)
    }

    @EventLoopActor
    func testReadsAndWritesAnswerAsAPeerDoes() async throws {
        let database = AttributeDatabase(try Self.twins())
        let all = database.characteristics
        let (battery, first, long) = (all[all.count - 3], all[all.count - 2], all[all.count - 1])
        XCTAssertEqual(database.read(battery, offset: 0, mtu: 23, isEncrypted: false), .error(0x05))
        XCTAssertEqual(database.read(battery, offset: 0, mtu: 23, isEncrypted: true), .value([0x64]))
        XCTAssertEqual(database.read(battery, offset: 1, mtu: 23, isEncrypted: true), .error(0x0b))
        XCTAssertEqual(database.read(battery, offset: 2, mtu: 23, isEncrypted: true), .error(0x07))
        XCTAssertEqual(database.read(long, offset: 0, mtu: 23, isEncrypted: false), .error(0x02))
        XCTAssertEqual(database.write([1, 2], to: first, offset: 0, isEncrypted: false), .value([]))
        XCTAssertEqual(first.value, [1, 2])
        XCTAssertEqual(database.write([9], to: first, offset: 1, isEncrypted: false), .value([]))
        XCTAssertEqual(first.value, [1, 9])
        XCTAssertEqual(database.write([9], to: first, offset: 3, isEncrypted: false), .error(0x07))
        XCTAssertEqual(
            database.write(.init(repeating: 0, count: 513), to: first, offset: 0, isEncrypted: false), .error(0x0d))
        XCTAssertEqual(database.write([1], to: long, offset: 0, isEncrypted: false), .error(0x03))
        XCTAssertTrue(database.command([7], to: long, isEncrypted: false))
        XCTAssertFalse(database.command([7], to: first, isEncrypted: false))
        first.attError = 0x80
        XCTAssertEqual(database.read(first, offset: 0, mtu: 23, isEncrypted: false), .error(0x80))
        database.answers = false
        XCTAssertEqual(database.read(first, offset: 0, mtu: 23, isEncrypted: false), .silence)
    }

    @EventLoopActor
    func testCountedValuesAreNumberedAndPadded() async throws {
        let database = AttributeDatabase(try Self.twins())
        let characteristic = database.characteristics[0]
        XCTAssertEqual(characteristic.counted(4), [0, 0, 0, 0])
        XCTAssertEqual(characteristic.counted(6), [1, 0, 0, 0, 0, 0])
    }

    @EventLoopActor
    func testMonitorPatternsMatchTheirPlace() async {
        let structures: [UInt8] = [2, 1, 6, 5, 0xff, 0x99, 0x04, 1, 2]
        func matches(_ start: Int, _ type: UInt8, _ bytes: [UInt8]) -> Bool {
            MonitorManager.matches([.init(start: start, type: type, bytes: bytes)], structures)
        }
        XCTAssertTrue(matches(0, 1, [6]))
        XCTAssertTrue(matches(0, 0xff, [0x99, 0x04]))
        XCTAssertTrue(matches(2, 0xff, [1, 2]))
        XCTAssertFalse(matches(2, 0xff, [1, 2, 3]))
        XCTAssertFalse(matches(1, 1, [6]))
        XCTAssertFalse(MonitorManager.matches([.init(start: 0, type: 1, bytes: [6])], [9, 1, 6]))
    }
}
