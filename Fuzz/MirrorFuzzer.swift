internal import DBus
internal import EventLoop

@testable internal import BlueZ

/// A program of signals: each byte chooses what comes next, so that the input is always a well-formed series of messages,
/// with every name in every place and values of every type.
@EventLoopActor
enum MirrorFuzzer {
    private nonisolated static let device = "/org/bluez/hci0/dev_C0_00_00_00_00_01"
    private nonisolated static let paths = [
        "/org/bluez/hci0", "/org/bluez/hci1", device, "/org/bluez/hci1/dev_C0_00_00_00_00_02", device + "/service0010",
        device + "/service0010/char0011", device + "/service0010/char0011/desc0013", "/", "/org/bluez", "/a/b/c/d/e",
        device + "/service0010/char0011/desc0013/x",
    ]
    private nonisolated static let interfaces = [
        "org.bluez.Adapter1", "org.bluez.Device1", "org.bluez.GattService1", "org.bluez.GattCharacteristic1",
        "org.bluez.GattDescriptor1", "org.bluez.Battery1", "org.bluez.AdvertisementMonitorManager1", "org.example.X1",
    ]
    private nonisolated static let names = [
        "Address", "AddressType", "Name", "Alias", "RSSI", "TxPower", "ManufacturerData", "ServiceData",
        "AdvertisingData", "AdvertisingFlags", "UUIDs", "Connected", "ServicesResolved", "Paired", "Bonded", "Trusted",
        "Blocked", "Appearance", "Powered", "Discovering", "PowerState", "SupportedMonitorTypes", "UUID", "Primary",
        "Handle", "Includes", "Flags", "Notifying", "MTU", "Value", "Percentage", "Unknown",
    ]

    static func run(_ input: UnsafeRawBufferPointer) {
        var program = Program(rest: Array(input)[...])
        let mirror = Mirror()
        while let code = program.next() {
            let message = DBusMessage(signal: "/", interface: "a.b", member: "C")
            var writer = message.writer()
            var path = program.pick(paths)
            switch code % 6 {
            case 0:
                let objects = (0..<program.count(4)).map { _ in
                    (DBusValue.objectPath(program.pick(paths)), program.interfaces())
                }
                writer.append(.dictionary("oa{sa{sv}}", objects))
                mirror.load(message.reader())
            case 1, 2:
                writer.append(.objectPath(path))
                writer.append(program.interfaces())
                mirror.interfacesAdded(message.reader())
            case 3:
                writer.append(.objectPath(path))
                writer.append(.array(of: "s", (0..<program.count(3)).map { _ in .string(program.pick(interfaces)) }))
                mirror.interfacesRemoved(message.reader())
            case 4:
                writer.append(.string(program.pick(interfaces)))
                writer.append(program.properties())
                writer.append(.array(of: "s", (0..<program.count(3)).map { _ in .string(program.pick(names)) }))
                path.withUTF8 { mirror.propertiesChanged(path: UnsafeRawBufferPointer($0), message.reader()) }
            default:
                if code & 0x40 == 0 { mirror.clear() }
            }
            mirror.checkIntegrity()
        }
    }

    private struct Program {
        var rest: ArraySlice<UInt8>

        mutating func next() -> UInt8? { rest.popFirst() }

        mutating func count(_ limit: Int) -> Int { Int(next() ?? 0) % (limit + 1) }

        mutating func pick(_ texts: [String]) -> String { texts[Int(next() ?? 0) % texts.count] }

        mutating func bytes() -> [UInt8] {
            let bytes = Array(rest.prefix(count(20)))
            rest = rest.dropFirst(bytes.count)
            return bytes
        }

        mutating func interfaces() -> DBusValue {
            .dictionary(
                "sa{sv}", (0..<count(3)).map { _ in (.string(pick(MirrorFuzzer.interfaces)), properties()) })
        }

        mutating func properties() -> DBusValue {
            .properties((0..<count(4)).map { _ in (pick(names), value()) })
        }

        mutating func value() -> DBusValue {
            switch (next() ?? 0) % 12 {
            case 0: .string(text())
            case 1: .bool((next() ?? 0) & 1 == 1)
            case 2: .int16(Int16(bitPattern: UInt16(next() ?? 0) << 8 | UInt16(next() ?? 0)))
            case 3: .uint16(UInt16(next() ?? 0) << 8 | UInt16(next() ?? 0))
            case 4: .byte(next() ?? 0)
            case 5: .bytes(bytes())
            case 6: .array(of: "s", (0..<count(3)).map { _ in .string(text()) })
            case 7: .array(of: "o", (0..<count(3)).map { _ in .objectPath(pick(paths)) })
            case 8:
                .dictionary(
                    "qv", (0..<count(3)).map { _ in (.uint16(UInt16(next() ?? 0)), .variant(.bytes(bytes()))) })
            case 9: .dictionary("sv", (0..<count(3)).map { _ in (.string(text()), .variant(.bytes(bytes()))) })
            case 10: .dictionary("yv", (0..<count(3)).map { _ in (.byte(next() ?? 0), .variant(.bytes(bytes()))) })
            default: .structure([.uint64(UInt64(next() ?? 0)), .double(0)])
            }
        }

        mutating func text() -> String {
            switch (next() ?? 0) % 6 {
            case 0: "C0:00:00:00:00:01"
            case 1: "0000180f-0000-1000-8000-00805f9b34fb"
            case 2: "random"
            case 3: "notify"
            case 4: "or_patterns"
            // D-Bus text has no NUL.
            default: String(decoding: bytes().filter { $0 != 0 }, as: UTF8.self)
            }
        }
    }
}
