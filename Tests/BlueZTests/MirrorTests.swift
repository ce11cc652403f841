import Bluetooth
import EventLoop
import XCTest

@testable import BlueZ
@testable import DBus

/// The same where the arguments are read from their bytes, as those of signals are.
final class WireMirrorTests: MirrorTests {
    override var isWire: Bool { true }
}

/// Signals of org.bluez in every order, given to the mirror as messages; no bus is needed.
class MirrorTests: XCTestCase {
    override class func setUp() { EventLoop.shared.startThread() }

    var isWire: Bool { false }

    private typealias Properties = [(String, DBusValue)]
    private static let adapter = "/org/bluez/hci0"
    private static let device = "/org/bluez/hci0/dev_AA_BB_CC_00_00_01"
    private static let service = device + "/service0010"
    private static let characteristic = service + "/char0011"
    private static let descriptor = characteristic + "/desc0013"

    private static let interfaces: [String: [(String, Properties)]] = [
        adapter: [("org.bluez.Adapter1", [("Address", .string("00:1A:7D:DA:71:13")), ("Powered", .bool(true))])],
        device: [
            (
                "org.bluez.Device1",
                [
                    ("Address", .string("AA:BB:CC:00:00:01")), ("AddressType", .string("random")),
                    ("Alias", .string("AA-BB-CC-00-00-01")), ("RSSI", .int16(-60)),
                ]
            )
        ],
        service: [
            (
                "org.bluez.GattService1",
                [
                    ("UUID", .string("0000180f-0000-1000-8000-00805f9b34fb")), ("Primary", .bool(false)),
                    ("Includes", .array(of: "o", [.objectPath(device + "/service0020")])),
                ]
            )
        ],
        characteristic: [
            (
                "org.bluez.GattCharacteristic1",
                [
                    ("UUID", .string("00002a19-0000-1000-8000-00805f9b34fb")),
                    ("Flags", .array(of: "s", [.string("read"), .string("notify"), .string("encrypt-read")])),
                    ("MTU", .uint16(185)),
                ]
            )
        ],
        descriptor: [("org.bluez.GattDescriptor1", [("UUID", .string("00002902-0000-1000-8000-00805f9b34fb"))])],
    ]

    @EventLoopActor
    private final class Listener: BlueZDelegate {
        var log: [String] = []
        var fields: [DeviceFields] = []
        func blueZ(didChange state: BlueZState) {}
        func blueZ(adapterDidAppear adapter: RemoteAdapter) { log.append("adapter") }
        func blueZ(adapterDidChange adapter: RemoteAdapter) {}
        func blueZ(adapterDidDisappear adapter: RemoteAdapter) { log.append("no adapter") }
        func blueZ(deviceDidAppear device: RemoteDevice, isHeard: Bool) { log.append(isHeard ? "heard" : "device") }
        func blueZ(device: RemoteDevice, didChange fields: DeviceFields) { self.fields.append(fields) }
        func blueZ(deviceDidDisappear device: RemoteDevice) { log.append("no device") }
        func blueZ(treeDidChange device: RemoteDevice) {}
    }

    @EventLoopActor
    private final class Bench {
        let mirror = Mirror()
        let listener = Listener()

        private let isWire: Bool

        init(_ isWire: Bool) {
            self.isWire = isWire
            mirror.delegate = listener
        }

        private func give(
            _ body: (inout MessageWriter) -> Void, to take: @EventLoopActor (any ArgumentReader) -> Void
        ) {
            let message = DBusMessage(signal: "/", interface: "a.b", member: "C")
            var writer = message.writer()
            body(&writer)
            guard isWire else { return take(message.reader()) }
            guard let copy = MarshalledMessage(message.pointer) else { return XCTFail("no bytes") }
            defer { copy.free() }
            let signature = Array(message.signature.utf8)
            signature.withUnsafeBytes { take(WireReader(copy.arguments, signature: $0)) }
        }

        private func value(_ path: String) -> DBusValue {
            .dictionary("sa{sv}", (interfaces[path] ?? []).map { (.string($0.0), .properties($0.1)) })
        }

        func load(_ paths: [String]) {
            give {
                $0.append(.dictionary("oa{sa{sv}}", paths.map { (.objectPath($0), value($0)) }))
            } to: {
                mirror.load($0)
            }
        }

        func add(_ path: String) { added(path, value(path)) }

        func added(_ path: String, _ interfaces: DBusValue) {
            give {
                $0.append(objectPath: path)
                $0.append(interfaces)
            } to: {
                mirror.interfacesAdded($0)
            }
        }

        func remove(_ path: String, _ name: String) {
            give {
                $0.append(objectPath: path)
                $0.append(.array(of: "s", [.string(name)]))
            } to: {
                mirror.interfacesRemoved($0)
            }
        }

        func change(_ path: String, _ body: (inout MessageWriter) -> Void) {
            give(body) { reader in
                var path = path
                path.withUTF8 { mirror.propertiesChanged(path: UnsafeRawBufferPointer($0), reader) }
            }
        }

        var device: RemoteDevice? { mirror.object(at: MirrorTests.device) as? RemoteDevice }

        func checkTree(_ file: StaticString = #filePath, _ line: UInt = #line) {
            guard let device, let service = device.gatt.first, let item = service.characteristics.first else {
                return XCTFail("no tree", file: file, line: line)
            }
            XCTAssertEqual(device.gatt.count, 1, file: file, line: line)
            XCTAssertEqual(service.characteristics.count, 1, file: file, line: line)
            XCTAssertEqual(item.descriptors.map(\.handle), [0x13], file: file, line: line)
            XCTAssertEqual([service.handle, item.handle], [0x10, 0x11], file: file, line: line)
            XCTAssertEqual(service.includes, [0x20], file: file, line: line)
            XCTAssertFalse(service.isPrimary, file: file, line: line)
            XCTAssertEqual(item.uuid, BluetoothUUID(0x2a19), file: file, line: line)
            XCTAssertEqual(item.flags, [.read, .notify], file: file, line: line)
            XCTAssertEqual(item.mtu, 185, file: file, line: line)
        }
    }

    @EventLoopActor
    func testEveryOrderGivesTheSameTree() async {
        let paths = [Self.adapter, Self.device, Self.service, Self.characteristic, Self.descriptor]
        var orders: [[String]] = [[]]
        for path in paths {
            orders = orders.flatMap { order in
                (0...order.count).map { place in
                    var order = order
                    order.insert(path, at: place)
                    return order
                }
            }
        }
        XCTAssertEqual(orders.count, 120)
        for order in orders {
            let bench = Bench(isWire)
            for path in order { bench.add(path) }
            for path in order { bench.add(path) }
            bench.checkTree()
            XCTAssertEqual(bench.listener.log.sorted(), ["adapter", "heard"])
            let loaded = Bench(isWire)
            loaded.load(order)
            loaded.checkTree()
            XCTAssertEqual(loaded.listener.log, ["adapter", "device"])
        }
    }

    @EventLoopActor
    func testTheSnapshotIsTheTruth() async {
        let bench = Bench(isWire)
        for path in [Self.adapter, Self.device, Self.service, Self.characteristic, Self.descriptor] { bench.add(path) }
        let device = bench.device
        bench.load([Self.adapter])
        XCTAssertNil(bench.device)
        XCTAssertEqual(device?.isGone, true)
        XCTAssertNil(bench.mirror.object(at: Self.descriptor))
        XCTAssertEqual(bench.listener.log, ["adapter", "heard", "no device"])
    }

    @EventLoopActor
    func testRemovals() async {
        let bench = Bench(isWire)
        bench.load([Self.adapter, Self.device, Self.service, Self.characteristic, Self.descriptor])
        bench.remove(Self.characteristic, "org.bluez.GattCharacteristic1")
        bench.remove(Self.characteristic, "org.bluez.GattCharacteristic1")
        XCTAssertEqual(bench.device?.gatt.first?.characteristics.count, 0)
        bench.remove(Self.device, "org.bluez.Unknown1")
        XCTAssertNotNil(bench.device)
        // A controller that goes takes its devices with it.
        bench.remove(Self.adapter, "org.bluez.Adapter1")
        XCTAssertNil(bench.device)
        XCTAssertEqual(bench.listener.log, ["adapter", "device", "no device", "no adapter"])
        bench.mirror.clear()
        XCTAssertEqual(bench.listener.log.count, 4)
    }

    @EventLoopActor
    func testAdvertisedFields() async {
        let bench = Bench(isWire)
        bench.load([Self.adapter, Self.device])
        let company = DBusValue.dictionary("qv", [(.uint16(0x0499), .variant(.bytes([1, 2])))])
        let uuid = "0000fcd2-0000-1000-8000-00805f9b34fb"
        let services = DBusValue.dictionary("sv", [(.string(uuid), .variant(.bytes([3])))])
        let structures = DBusValue.dictionary(
            "yv",
            [(.byte(0x14), .variant(.bytes([0x0f, 0x18, 0x02, 0x18, 0x99]))), (.byte(0x24), .variant(.bytes([1])))])
        bench.change(Self.device) {
            $0.append(string: "org.bluez.Device1")
            $0.append(
                .properties([
                    ("ManufacturerData", company), ("ServiceData", services), ("TxPower", .int16(4)),
                    ("AdvertisingFlags", .bytes([6])), ("AdvertisingData", structures),
                ]))
            $0.append(.array(of: "s", [.string("RSSI")]))
        }
        guard let device = bench.device, let fields = bench.listener.fields.first else { return XCTFail("no change") }
        XCTAssertTrue(fields.isSuperset(of: [.manufacturerData, .serviceData, .txPower, .withdrawn, .services]))
        XCTAssertNil(device.rssi)
        XCTAssertEqual(device.txPower, 4)
        XCTAssertEqual(device.advertisingFlags, 6)
        XCTAssertEqual(device.solicited, [BluetoothUUID(0x180f), BluetoothUUID(0x1802)])
        var seen: [String] = []
        device.manufacturerData.forEachCompany { seen.append("\($0) \(Array($1))") }
        device.serviceData.forEachService { seen.append("\($0) \(Array($1))") }
        XCTAssertEqual(seen, ["1177 [1, 2]", "\(uuid) [3]"])
    }

    @EventLoopActor
    func testNothingOfAFormerDeviceOrValueStays() async {
        let bench = Bench(isWire)
        bench.load([Self.adapter, Self.device])
        func advertise(_ bytes: [UInt8], _ company: UInt16, name: String? = nil) {
            let data = DBusValue.dictionary("qv", [(.uint16(company), .variant(.bytes(bytes)))])
            bench.change(Self.device) {
                $0.append(string: "org.bluez.Device1")
                $0.append(.properties([("ManufacturerData", data)] + (name.map { [("Name", .string($0))] } ?? [])))
                $0.append(.array(of: "s", []))
            }
        }
        func seen() -> [String] {
            var seen: [String] = []
            bench.device?.manufacturerData.forEachCompany { seen.append("\($0) \(Array($1))") }
            return seen
        }
        advertise([1, 2, 3, 4, 5], 7, name: "first")
        advertise([9], 8)
        XCTAssertEqual(seen(), ["8 [9]"])
        XCTAssertEqual(bench.device?.name, Array("first".utf8))
        bench.change(Self.device) {
            $0.append(string: "org.bluez.Device1")
            $0.append(.properties([]))
            $0.append(.array(of: "s", [.string("ManufacturerData"), .string("Name")]))
        }
        XCTAssertEqual(seen(), [])
        XCTAssertEqual(bench.device?.name, [])
        advertise([1, 2, 3], 7, name: "second")
        let former = bench.device
        bench.remove(Self.device, "org.bluez.Device1")
        advertise([4], 7)
        XCTAssertNil(bench.device)
        // Another device may stand at the path.
        bench.add(Self.device)
        XCTAssertFalse(bench.device === former)
        XCTAssertEqual(seen(), [])
        XCTAssertEqual(bench.device?.name, [])
        advertise([5], 7)
        XCTAssertEqual(seen(), ["7 [5]"])
    }

    @EventLoopActor
    func testWrongTypesChangeNothing() async {
        let bench = Bench(isWire)
        bench.load([Self.adapter, Self.device])
        for wrong: DBusValue in [.string("x"), .bytes([]), .array(of: "s", []), .uint64(.max), .structure([.byte(1)])] {
            for name in [
                "RSSI", "TxPower", "ManufacturerData", "ServiceData", "Connected", "Name", "UUIDs", "Address",
                "AdvertisingData", "AdvertisingFlags", "Appearance",
            ] where !(name == "Name" && wrong == .string("x")) {
                bench.change(Self.device) {
                    $0.append(string: "org.bluez.Device1")
                    $0.append(.properties([(name, wrong)]))
                    $0.append(.array(of: "s", []))
                }
            }
            bench.change(Self.device) { $0.append(wrong) }
        }
        bench.change("/org/bluez/hci0/dev_none") { $0.append(string: "org.bluez.Device1") }
        bench.change(Self.device) { _ in }
        XCTAssertEqual(bench.device?.address, BluetoothAddress(value: 0xaabb_cc00_0001))
        XCTAssertEqual(bench.device?.isConnected, false)
        XCTAssertEqual(bench.device?.name, [])
    }

    @EventLoopActor
    func testWhatBlueZWithdrawsIsGone() async {
        let bench = Bench(isWire)
        bench.load([Self.adapter, Self.device, Self.service, Self.characteristic])
        bench.change(Self.device) {
            $0.append(string: "org.bluez.Device1")
            $0.append(
                .properties([
                    ("AdvertisingFlags", .bytes([6])), ("Appearance", .uint16(833)),
                    ("AdvertisingData", .dictionary("yv", [(.byte(0x14), .variant(.bytes([0x0f, 0x18])))])),
                ]))
            $0.append(.array(of: "s", []))
        }
        XCTAssertEqual(bench.device?.solicited, [BluetoothUUID(0x180f)])
        bench.change(Self.device) {
            $0.append(string: "org.bluez.Device1")
            $0.append(.properties([]))
            $0.append(.array(of: "s", ["AdvertisingFlags", "Appearance", "AdvertisingData"].map { .string($0) }))
        }
        XCTAssertEqual(bench.device?.solicited, [])
        XCTAssertNil(bench.device?.advertisingFlags)
        XCTAssertNil(bench.device?.appearance)
        XCTAssertTrue(bench.listener.fields.last?.isSuperset(of: [.withdrawn, .services, .appearance]) == true)
        // The MTU goes with the link.
        bench.change(Self.characteristic) {
            $0.append(string: "org.bluez.GattCharacteristic1")
            $0.append(.properties([("Notifying", .bool(true))]))
            $0.append(.array(of: "s", [.string("MTU")]))
        }
        let characteristic = bench.device?.gatt.first?.characteristics.first
        XCTAssertEqual(characteristic?.mtu, 0)
        XCTAssertEqual(characteristic?.isNotifying, true)
    }

    @EventLoopActor
    func testADeviceThatNobodyWasToldOfDoesNotChange() async {
        let bench = Bench(isWire)
        let battery = DBusValue.dictionary(
            "sa{sv}", [(.string("org.bluez.Battery1"), .properties([("Percentage", .byte(70))]))])
        bench.added(Self.device, battery)
        bench.change(Self.device) {
            $0.append(string: "org.bluez.Device1")
            $0.append(.properties([("Connected", .bool(true))]))
            $0.append(.array(of: "s", []))
        }
        XCTAssertTrue(bench.listener.fields.isEmpty)
        XCTAssertEqual(bench.listener.log, [])
        bench.load([Self.adapter, Self.device])
        XCTAssertEqual(bench.listener.log, ["adapter", "device"])
        XCTAssertEqual(bench.device?.battery, 70)
        bench.change(Self.device) {
            $0.append(string: "org.bluez.Battery1")
            $0.append(.properties([]))
            $0.append(.array(of: "s", [.string("Percentage")]))
        }
        XCTAssertNil(bench.device?.battery)
    }

    func testUUIDsReadInPlaceAreThoseReadUsually() {
        for text in [
            "0000180f-0000-1000-8000-00805f9b34fb", "F0E1D2C3-B4A5-9687-7869-5a4b3c2d1e0f", "180f", "",
            "0000180f-0000-1000-8000-00805f9b34f", "0000180f-0000-1000-8000-00805f9b34fg",
            "0000180f00000-1000-8000-00805f9b34fb", "------------------------------------",
        ] {
            var copy = text
            let read = copy.withUTF8 { BluetoothUUID(text: UnsafeRawBufferPointer($0)) }
            XCTAssertEqual(read, BluetoothUUID(parsing: text), text)
        }
    }
}
