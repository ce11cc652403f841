import DBus
import EventLoop
import Glibc
import JSON
import XCTest

@testable import BlueZSimulator

final class GATTTests: XCTestCase {
    override class func setUp() { EventLoop.shared.startThread() }

    private static let address = "C0:00:00:00:00:01"
    private static let device = Bench.device(address)
    private static let fleet = """
        devices:
          - id: strap
            name: HR strap
            address: "\(address)"
            interval: 10
            gatt:
              - uuid: 180d
                includes: [bat]
                characteristics:
                  - { uuid: 2a37, properties: [notify] }
                  - { uuid: 2a38, properties: [read, write], value: "01", descriptors: [{ uuid: 2901, text: Place }] }
                  - { uuid: 2a39, properties: [write-without-response], value: "00" }
                  - { uuid: ff01, properties: [indicate] }
                  - { uuid: ff02, properties: [read], att_error: 128 }
                  - { uuid: ff03, properties: [read], answers: false }
                  - { uuid: ff04, properties: [read, write], length: 512 }
              - uuid: 180f
                id: bat
                characteristics:
                  - { uuid: 2a19, properties: [read, notify], value: "64" }
          - id: other
            address: "C0:00:00:00:00:02"
            interval: 10
        """
    private static let interface = "org.bluez.GattCharacteristic1"
    private static let none = DBusValue.properties([])

    @EventLoopActor
    func testConnectingShowsTheAttributesAndThenSaysSo() async throws {
        let bench = try await Bench.start(Self.fleet)
        try await bench.connect(Self.address)
        let order = bench.signals.map { signal -> String in
            if signal.member == "InterfacesAdded", signal.subject.hasPrefix(Self.device + "/service") { return "added" }
            if signal.path == Self.device, signal["ServicesResolved"] == .bool(true) { return "resolved" }
            if signal.path == Self.device, signal["Connected"] == .bool(true) { return "connected" }
            return ""
        }
        let resolved = try XCTUnwrap(order.firstIndex(of: "resolved"))
        XCTAssertLessThan(
            try XCTUnwrap(order.firstIndex(of: "connected")), try XCTUnwrap(order.firstIndex(of: "added")))
        XCTAssertLessThan(try XCTUnwrap(order.lastIndex(of: "added")), resolved)

        let objects = try await bench.objects()
        let services = objects.values.compactMap {
            $0.member("org.bluez.GattService1")?.member("UUID")?.plainText?.prefix(8)
        }
        XCTAssertEqual(
            services.sorted(), ["00001801", "0000180d", "0000180f"], "the generic access service is bluetoothd's")
        let heart = try XCTUnwrap(
            objects.values.first {
                $0.member("org.bluez.GattService1")?.member("UUID")?.plainText?.hasPrefix("0000180d") ?? false
            })
        XCTAssertEqual(heart.member("org.bluez.GattService1")?.member("Includes")?.texts.count, 1)
        let rate = try await bench.characteristic(Self.address, "00002a37")
        XCTAssertEqual(objects[rate]?.member(Self.interface)?.member("Flags")?.texts, ["notify"])
        XCTAssertEqual(objects[rate]?.member(Self.interface)?.member("MTU"), .uint16(247))
        XCTAssertNil(objects[rate]?.member(Self.interface)?.member("Handle"), "BlueZ 5.66 has no handles on the bus")
        let uuids = try await bench.property(Self.device, "org.bluez.Device1", "UUIDs")
        XCTAssertEqual(uuids?.texts.map { $0.dropFirst(4).prefix(4) }, ["1800", "1801", "180d", "180f"])
        try await bench.wait("the battery") { $0.member == "InterfacesAdded" && $0["org.bluez.Battery1"] != nil }
        let level = try await bench.property(Self.device, "org.bluez.Battery1", "Percentage")
        XCTAssertEqual(level, .byte(100))
        await bench.stop()
    }

    @EventLoopActor
    func testValuesAreReadAndWritten() async throws {
        let bench = try await Bench.start(Self.fleet)
        try await bench.connect(Self.address)
        let place = try await bench.characteristic(Self.address, "00002a38")
        let start = bench.signals.count
        var values = try await bench.call(place, Self.interface, "ReadValue", [Self.none])
        XCTAssertEqual(values, [.bytes([1])])
        try await bench.waitChange(place, "Value", .bytes([1]), from: start)
        try await bench.call(place, Self.interface, "WriteValue", [.bytes([7, 8]), Self.none])
        values = try await bench.call(place, Self.interface, "ReadValue", [Self.none])
        XCTAssertEqual(values, [.bytes([7, 8])])

        let long = try await bench.characteristic(Self.address, "0000ff04")
        values = try await bench.call(long, Self.interface, "ReadValue", [.properties([("offset", .uint16(500))])])
        XCTAssertEqual(values, [.bytes(Array(244...255))])
        let big = [UInt8](repeating: 5, count: 512)
        try await bench.call(long, Self.interface, "WriteValue", [.bytes(big), Self.none])
        values = try await bench.call(long, Self.interface, "ReadValue", [Self.none])
        XCTAssertEqual(values, [.bytes(big)])

        let command = try await bench.characteristic(Self.address, "00002a39")
        try await bench.call(
            command, Self.interface, "WriteValue", [.bytes([2]), .properties([("type", .string("command"))])])
        let log = try await bench.order(#"{"op":"log","device":"strap"}"#).arrayValue ?? []
        XCTAssertTrue(
            log.contains {
                $0["event"] == .string("write") && $0["characteristic"] == .string("180d/2a39")
                    && $0["value"] == .string("02") && $0["kind"] == .string("command")
            })
        XCTAssertTrue(
            log.contains {
                $0["event"] == .string("write") && $0["value"] == .string("0708")
                    && $0["kind"] == .string("request")
            })
        await bench.stop()
    }

    @EventLoopActor
    func testErrorsAreThoseOfBlueZ() async throws {
        let bench = try await Bench.start(Self.fleet)
        try await bench.connect(Self.address)
        let cases: [(String, String, [DBusValue], String, String)] = [
            ("00002a37", "ReadValue", [Self.none], "org.bluez.Error.NotPermitted", "Read not permitted"),
            (
                "00002a37", "WriteValue", [.bytes([1]), Self.none], "org.bluez.Error.NotSupported",
                "Operation is not supported"
            ),
            ("0000ff02", "ReadValue", [Self.none], "org.bluez.Error.Failed", "Operation failed with ATT error: 0x80"),
            ("00002a38", "StartNotify", [], "org.bluez.Error.NotSupported", "Operation is not supported"),
            ("00002a38", "StopNotify", [], "org.bluez.Error.Failed", "No notify session started"),
            ("00002a38", "AcquireWrite", [Self.none], "org.bluez.Error.NotSupported", "Operation is not supported"),
            (
                "00002a38", "ReadValue", [.properties([("offset", .uint16(9))])], "org.bluez.Error.InvalidArguments",
                "Invalid offset"
            ),
            (
                "00002a38", "ReadValue", [.properties([("offset", .string("x"))])], "org.bluez.Error.InvalidArguments",
                "Invalid arguments in method call"
            ),
            (
                "00002a39", "WriteValue",
                [.bytes(.init(repeating: 0, count: 245)), .properties([("type", .string("command"))])],
                "org.bluez.Error.Failed", "Failed to initiate write"
            ),
            (
                "0000ff04", "WriteValue", [.bytes(.init(repeating: 0, count: 513)), Self.none],
                "org.bluez.Error.InvalidArguments",
                "Invalid Length"
            ),
        ]
        for (uuid, member, arguments, name, text) in cases {
            let path = try await bench.characteristic(Self.address, uuid)
            let failure = await bench.failure(path, Self.interface, member, arguments)
            XCTAssertEqual(failure?.name, name, "\(member) \(uuid)")
            XCTAssertEqual(failure?.message, text, "\(member) \(uuid)")
        }
        await bench.stop()
    }

    @EventLoopActor
    func testNotificationsComeInOrderAndIndicationsToo() async throws {
        let bench = try await Bench.start(Self.fleet)
        try await bench.connect(Self.address)
        let unsubscribed = try await bench.refusal(#"{"op":"notify","device":"strap","characteristic":"180d/2a37"}"#)
        XCTAssertTrue(unsubscribed.contains("nobody has subscribed"), unsubscribed)
        for (uuid, operation) in [("2a37", "notify"), ("ff01", "indicate")] {
            let path = try await bench.characteristic(Self.address, "0000" + uuid)
            let start = bench.signals.count
            try await bench.call(path, Self.interface, "StartNotify")
            try await bench.waitChange(path, "Notifying", .bool(true), from: start)
            let order = #"{"op":"\#(operation)","device":"strap","characteristic":"180d/\#(uuid)","count":50,"size":6}"#
            let sent = try await bench.order(order)
            XCTAssertEqual(sent["first"], .int(0))
            XCTAssertEqual(sent["last"], .int(49))
            try await bench.waitChange(path, "Value", .bytes([49, 0, 0, 0, 0, 0]), from: start)
            let values = bench.signals.dropFirst(start).filter { $0.path == path }.compactMap { $0["Value"] }
            XCTAssertEqual(values, (0..<50).map { .bytes([$0, 0, 0, 0, 0, 0]) })
            try await bench.call(path, Self.interface, "StopNotify")
            try await bench.waitChange(path, "Notifying", .bool(false), from: start)
        }
        await bench.stop()
    }

    @EventLoopActor
    func testAcquiredSocketsCarryValuesAndShutOthersOut() async throws {
        let bench = try await Bench.start(Self.fleet)
        try await bench.connect(Self.address)
        let path = try await bench.characteristic(Self.address, "00002a37")
        try await bench.call(path, Self.interface, "StartNotify")
        var failure = await bench.failure(path, Self.interface, "AcquireNotify", [Self.none])
        XCTAssertEqual(failure?.name, "org.bluez.Error.InProgress")
        try await bench.call(path, Self.interface, "StopNotify")

        let (descriptor, mtu) = try await acquire(bench, path, "AcquireNotify")
        XCTAssertEqual(mtu, 247)
        failure = await bench.failure(path, Self.interface, "StartNotify")
        XCTAssertEqual(failure?.name, "org.bluez.Error.NotPermitted")
        try await bench.order(#"{"op":"notify","device":"strap","characteristic":"180d/2a37","value":"0102"}"#)
        var bytes = [UInt8](repeating: 0, count: 512)
        XCTAssertEqual(recv(descriptor, &bytes, bytes.count, 0), 2)
        XCTAssertEqual(bytes[..<2], [1, 2])
        let start = bench.signals.count
        close(descriptor)
        try await bench.waitChange(path, "NotifyAcquired", .bool(false), from: start)

        let command = try await bench.characteristic(Self.address, "00002a39")
        let (writer, _) = try await acquire(bench, command, "AcquireWrite")
        failure = await bench.failure(command, Self.interface, "WriteValue", [.bytes([1]), Self.none])
        XCTAssertEqual(failure?.message, "Write acquired")
        XCTAssertEqual(send(writer, [UInt8(9)], 1, 0), 1)
        let end = bench.signals.count
        close(writer)
        try await bench.waitChange(command, "WriteAcquired", .bool(false), from: end)
        let log = try await bench.order(#"{"op":"log","device":"strap"}"#).arrayValue ?? []
        XCTAssertTrue(log.contains { $0["value"] == .string("09") && $0["kind"] == .string("command") })
        await bench.stop()
    }

    /// As BlueZ 5.66 has it: src/gatt-client.c, notify_client_disconnect.
    @EventLoopActor
    func testASocketWhoseAskerLeftBeforeThePeerAnsweredIsNobodysForEver() async throws {
        var timing = Bench.quick
        timing.exchange = .milliseconds(60)
        let bench = try await Bench.start(Self.fleet, timing: timing)
        try await bench.connect(Self.address)
        let path = try await bench.characteristic(Self.address, "00002a37")
        let message = bench.message(path, Self.interface, "AcquireNotify", [Self.none])
        XCTAssertNil(bench.client.send(message))
        try await bench.reconnect()
        for member in ["AcquireNotify", "StartNotify"] {
            let arguments = member == "AcquireNotify" ? [Self.none] : []
            let failure = await bench.failure(path, Self.interface, member, arguments)
            XCTAssertEqual(failure?.message, "Notify acquired")
        }
        let start = bench.signals.count
        try await bench.order(#"{"op":"disconnect","device":"strap"}"#)
        try await bench.waitChange(Self.device, "Connected", .bool(false), from: start)
        try await bench.deviceCall(Self.address, "Connect")
        try await bench.waitChange(Self.device, "ServicesResolved", .bool(true), from: start)
        let failure = await bench.failure(path, Self.interface, "AcquireNotify", [Self.none])
        XCTAssertEqual(failure?.message, "Notify acquired")
        await bench.stop()
    }

    /// The same, register_notify_io_cb: neither the end of the link nor a refusal is answered, and to give it back is fatal.
    @EventLoopActor
    func testASocketThatThePeerDidNotGrantEndsBluetoothdWhereItIsGivenBack() async throws {
        for isRefused in [false, true] {
            let bench = try await Bench.start(Self.fleet)
            try await bench.connect(Self.address)
            let path = try await bench.characteristic(Self.address, "00002a37")
            let fault = isRefused ? #""op":"att_error","code":14"# : #""op":"hang","on":true"#
            try await bench.order(#"{"device":"strap","characteristic":"180d/2a37",\#(fault)}"#)
            XCTAssertNil(bench.client.send(bench.message(path, Self.interface, "AcquireNotify", [Self.none])))
            // It has come when a later call has.
            var failure = await bench.failure(path, Self.interface, "StartNotify")
            XCTAssertEqual(failure?.message, "Notify acquired")
            let start = bench.signals.count
            try await bench.order(#"{"op":"disconnect","device":"strap"}"#)
            try await bench.waitChange(Self.device, "Connected", .bool(false), from: start)
            failure = await bench.failure(path, Self.interface, "StartNotify")
            XCTAssertEqual(failure?.message, "Notify acquired")
            failure = await bench.failure(path, Self.interface, "StopNotify")
            XCTAssertEqual(failure?.name, "org.freedesktop.DBus.Error.NoReply")
            await bench.stop()
        }
    }

    /// The descriptor of an acquired socket; nothing else holds it.
    @EventLoopActor
    private func acquire(_ bench: Bench, _ path: String, _ member: String) async throws -> (Int32, UInt16?) {
        let message = bench.message(path, Self.interface, member, [Self.none])
        var reader = try await bench.client.call(message, timeout: .seconds(5)).reader()
        let descriptor = try XCTUnwrap(reader.takeDescriptor())
        reader.next()
        return (descriptor, reader.uint16())
    }

    @EventLoopActor
    func testARequestWithoutAnswerEndsTheLink() async throws {
        let bench = try await Bench.start(Self.fleet)
        try await bench.connect(Self.address)
        let path = try await bench.characteristic(Self.address, "0000ff03")
        let start = bench.signals.count
        let failure = await bench.failure(path, Self.interface, "ReadValue", [Self.none])
        XCTAssertEqual(failure?.message, "Operation failed with ATT error: 0x0e")
        let change = try await bench.waitChange(Self.device, "Connected", .bool(false), from: start)
        XCTAssertEqual(change["ServicesResolved"], .bool(false))
        let later = await bench.failure(path, Self.interface, "ReadValue", [Self.none])
        XCTAssertEqual(later?.message, "Not connected")
        await bench.stop()
    }

    @EventLoopActor
    func testSubscriptionsOutliveALink() async throws {
        let bench = try await Bench.start(Self.fleet)
        try await bench.connect(Self.address)
        let path = try await bench.characteristic(Self.address, "00002a37")
        try await bench.call(path, Self.interface, "StartNotify")
        var start = bench.signals.count
        try await bench.order(#"{"op":"disconnect","device":"strap"}"#)
        let change = try await bench.waitChange(Self.device, "Connected", .bool(false), from: start)
        XCTAssertEqual(change["ServicesResolved"], .bool(false), "a peer's disconnect is one signal")
        start = bench.signals.count
        try await bench.deviceCall(Self.address, "Connect")
        try await bench.waitChange(Self.device, "ServicesResolved", .bool(true), from: start)
        XCTAssertFalse(bench.signals.dropFirst(start).contains { $0.member == "InterfacesAdded" && $0.subject == path })
        try await bench.order(#"{"op":"notify","device":"strap","characteristic":"180d/2a37","value":"aa"}"#)
        try await bench.waitChange(path, "Value", .bytes([0xaa]), from: start)
        await bench.stop()
    }

    @EventLoopActor
    func testServicesComeAndGo() async throws {
        let bench = try await Bench.start(Self.fleet)
        try await bench.connect(Self.address)
        let start = bench.signals.count
        try await bench.order(#"{"op":"services_changed","device":"strap"}"#)
        let added = try await bench.wait("a service", from: start) { $0["org.bluez.GattService1"] != nil }
        try await bench.order(#"{"op":"services_changed","device":"strap"}"#)
        try await bench.waitRemoved(added.subject, from: start)
        await bench.stop()
    }

    @EventLoopActor
    func testABatteryWithoutAServiceIsAnInterfaceOfTheDevice() async throws {
        let bench = try await Bench.start(
            """
            devices:
              - id: mouse
                address: "\(Self.address)"
                interval: 10
                battery1: true
                gatt: [{ uuid: 180f, characteristics: [{ uuid: 2a19, properties: [read, notify], value: "64" }] }]
            """)
        try await bench.connect(Self.address)
        try await bench.wait("the battery") { $0["org.bluez.Battery1"]?.member("Percentage") == .byte(100) }
        let objects = try await bench.objects()
        let batteries = objects.values.filter {
            $0.member("org.bluez.GattService1")?.member("UUID")?.plainText?.hasPrefix("0000180f") ?? false
        }
        XCTAssertEqual(batteries.count, 0)
        let start = bench.signals.count
        // The device answers in order: after this answer it has the subscription that bluetoothd made before.
        let changed = try await bench.characteristic(Self.address, "00002a05")
        _ = await bench.failure(changed, Self.interface, "ReadValue", [Self.none])
        try await bench.order(#"{"op":"notify","device":"mouse","characteristic":"180f/2a19","value":"2a"}"#)
        try await bench.waitChange(Self.device, "Percentage", .byte(42), from: start)
        await bench.stop()
    }
}
