import DBus
import EventLoop
import Glibc
import JSON
import Sandbox
import TestKit
import XCTest

@testable import BlueZSimulator

final class FaultTests: XCTestCase {
    override class func setUp() { EventLoop.shared.startThread() }

    private static let fleet = """
        adapters:
          - { name: hci0, address: "00:1A:7D:DA:71:13" }
          - { name: hci1, address: "00:1A:7D:DA:71:14" }
        devices:
          - { id: one, name: One, address: "C0:00:00:00:00:01", interval: 10, manufacturer_data: { ffff: 01 } }
        """
    private static let device = Bench.device("C0:00:00:00:00:01")

    @EventLoopActor
    func testAKilledDaemonSaysNothingAndItsDiscoveryLingers() async throws {
        let bench = try await Bench.start(Self.fleet)
        try await bench.connect("C0:00:00:00:00:01")
        var start = bench.signals.count
        try await bench.order(#"{"op":"daemon_kill"}"#)
        try await bench.wait("the name to go", from: start) { $0.member == "NameOwnerChanged" }
        XCTAssertEqual(bench.signals.dropFirst(start).filter { $0.member == "InterfacesRemoved" }.count, 0)
        XCTAssertEqual(bench.simulator.air.byID["one"]?.link == nil, false, "the kernel keeps the link for a while")
        start = bench.signals.count
        try await bench.order(#"{"op":"daemon_start"}"#)
        try await bench.waitPowered()
        try await bench.waitAdded(Self.device, from: start)
        let stored = try await bench.objects()[Self.device]?.member("org.bluez.Device1")
        XCTAssertEqual(stored?.member("Connected"), .bool(false))
        XCTAssertEqual(stored?.member("Name"), .string("One"))
        XCTAssertNil(stored?.member("RSSI"))
        let failure = await bench.failure(Bench.adapter, "org.bluez.Adapter1", "StartDiscovery")
        XCTAssertEqual(failure?.name, "org.bluez.Error.InProgress")
        let other = await bench.failure("/org/bluez/hci1", "org.bluez.Adapter1", "StartDiscovery")
        XCTAssertNil(other, "only the adapter that was discovering is busy")
        await bench.stop()
    }

    @EventLoopActor
    func testAStoppedDaemonTakesEverythingDownInOrder() async throws {
        let bench = try await Bench.start(Self.fleet)
        try await bench.connect("C0:00:00:00:00:01")
        let start = bench.signals.count
        try await bench.order(#"{"op":"daemon_stop"}"#)
        try await bench.wait("the name to go", from: start) { $0.member == "NameOwnerChanged" }
        let events = bench.signals.dropFirst(start)
        func index(_ condition: (Bench.Signal) -> Bool) -> Int? { events.firstIndex(where: condition) }
        let disconnected = try XCTUnwrap(index { $0.path == Self.device && $0["Connected"] == .bool(false) })
        let off = try XCTUnwrap(index { $0.path == Bench.adapter && $0["Powered"] == .bool(false) })
        let gone = try XCTUnwrap(index { $0.member == "InterfacesRemoved" && $0.subject == Self.device })
        let adapter = try XCTUnwrap(index { $0.member == "InterfacesRemoved" && $0.subject == Bench.adapter })
        let name = try XCTUnwrap(index { $0.member == "NameOwnerChanged" })
        XCTAssertEqual([disconnected, off, gone, adapter, name], [disconnected, off, gone, adapter, name].sorted())
        let failure = await bench.failure(Bench.adapter, "org.bluez.Adapter1", "StartDiscovery")
        XCTAssertEqual(failure?.name, "org.freedesktop.DBus.Error.ServiceUnknown")
        await bench.stop()
    }

    @EventLoopActor
    func testAFrozenDaemonAnswersAfterwards() async throws {
        let bench = try await Bench.start(Self.fleet)
        try await bench.order(#"{"op":"daemon_freeze"}"#)
        let frozen = await bench.call(within: .milliseconds(100))
        XCTAssertEqual(frozen?.code, .timeout)
        let result = Pending<DBusError?>()
        Task { @EventLoopActor in result.succeed(await bench.call(within: .seconds(5))) }
        try await bench.order(#"{"op":"daemon_thaw"}"#)
        let failure = try await result.value(timeout: .seconds(5))
        XCTAssertNil(failure)
        await bench.stop()
    }

    @EventLoopActor
    func testAnAdapterGoesAndComesUnderAnotherName() async throws {
        let bench = try await Bench.start(Self.fleet)
        try await bench.discover()
        try await bench.waitAdded(Self.device)
        let start = bench.signals.count
        try await bench.order(#"{"op":"adapter_remove","adapter":"hci0"}"#)
        try await bench.waitRemoved(Self.device, from: start)
        try await bench.waitRemoved(Bench.adapter, from: start)
        try await bench.order(#"{"op":"adapter_add","adapter":"hci0","name":"hci2"}"#)
        let added = try await bench.waitAdded("/org/bluez/hci2", from: start)
        XCTAssertEqual(added["org.bluez.Adapter1"]?.member("Address"), .string("00:1A:7D:DA:71:13"))
        try await bench.waitChange("/org/bluez/hci2", "Powered", .bool(true), from: start)
        let taken = try await bench.refusal(#"{"op":"adapter_add","adapter":"hci1"}"#)
        XCTAssertTrue(taken.contains("plugged already"), taken)
        await bench.stop()
    }

    /// As the kernel numbers them; the fleet's names go on naming them.
    @EventLoopActor
    func testAnAdapterTakesTheLowestFreeNumber() async throws {
        let fleet = """
            adapters:
              - { name: hci0, address: "00:1A:7D:DA:71:13" }
              - { name: hci1, address: "00:1A:7D:DA:71:14", plugged: false }
            """
        let bench = try await Bench.start(fleet)
        let start = bench.signals.count
        try await bench.order(#"{"op":"adapter_remove","adapter":"hci0"}"#)
        try await bench.waitRemoved(Bench.adapter, from: start)
        try await bench.order(#"{"op":"adapter_add","adapter":"hci1"}"#)
        let other = try await bench.waitAdded("/org/bluez/hci0", from: start)
        XCTAssertEqual(other["org.bluez.Adapter1"]?.member("Address"), .string("00:1A:7D:DA:71:14"))
        try await bench.order(#"{"op":"adapter_add","adapter":"hci0"}"#)
        let first = try await bench.waitAdded("/org/bluez/hci1", from: start)
        XCTAssertEqual(first["org.bluez.Adapter1"]?.member("Address"), .string("00:1A:7D:DA:71:13"))
        try await bench.order(#"{"op":"adapter_remove","adapter":"hci1"}"#)
        try await bench.waitRemoved("/org/bluez/hci0", from: start)
        await bench.stop()
    }

    @EventLoopActor
    func testASilentAdapterIsCuredAsOrdered() async throws {
        let bench = try await Bench.start(Self.fleet)
        let wrong = try await bench.refusal(#"{"op":"silence","adapter":"hci0","cure":"prayer"}"#)
        XCTAssertTrue(wrong.contains("restart"), wrong)
        try await bench.order(#"{"op":"silence","adapter":"hci0","cure":"restart"}"#)
        try await bench.discover()
        try await bench.waitAdded(Self.device)
        try await bench.order(#"{"op":"silence","adapter":"hci0","cure":"power"}"#)
        let start = bench.signals.count
        try await bench.order(#"{"op":"power","adapter":"hci0","on":false}"#)
        try await bench.order(#"{"op":"power","adapter":"hci0","on":true}"#)
        try await bench.discover()
        try await bench.waitChange(Self.device, "RSSI", from: start)
        await bench.stop()
    }

    @EventLoopActor
    func testPowerIsTakenByCommand() async throws {
        let bench = try await Bench.start(Self.fleet)
        try await bench.connect("C0:00:00:00:00:01")
        let start = bench.signals.count
        try await bench.order(#"{"op":"power","adapter":"hci0","on":false}"#)
        try await bench.waitChange(Self.device, "Connected", .bool(false), from: start)
        let change = try await bench.waitChange(Bench.adapter, "Powered", .bool(false), from: start)
        XCTAssertEqual(change["Discovering"], .bool(false))
        try await bench.order(#"{"op":"power","adapter":"hci0","on":true}"#)
        try await bench.waitChange(Bench.adapter, "Powered", .bool(true), from: start)
        await bench.stop()
    }

    @EventLoopActor
    func testCallsFailHangAndWaitAsOrdered() async throws {
        let bench = try await Bench.start(Self.fleet)
        try await bench.order(
            #"{"op":"error","method":"Adapter1.StartDiscovery","name":"org.bluez.Error.InProgress","message":"x","times":2}"#
        )
        for _ in 0..<2 {
            let failure = await bench.failure(Bench.adapter, "org.bluez.Adapter1", "StartDiscovery")
            XCTAssertEqual(failure?.name, "org.bluez.Error.InProgress")
        }
        try await bench.order(#"{"op":"hang_call","method":"Adapter1.GetDiscoveryFilters","times":1}"#)
        var answer = await bench.call(within: .milliseconds(100))
        XCTAssertEqual(answer?.code, .timeout)
        try await bench.order(#"{"op":"delay","method":"Adapter1.GetDiscoveryFilters","ms":200,"times":1}"#)
        answer = await bench.call(within: .milliseconds(50))
        XCTAssertEqual(answer?.code, .timeout)
        answer = await bench.call(within: .seconds(5))
        XCTAssertNil(answer)
        await bench.stop()
    }

    @EventLoopActor
    func testSignalsAreRepeatedAndLate() async throws {
        let bench = try await Bench.start(Self.fleet)
        try await bench.order(#"{"op":"duplicate_signals","on":true}"#)
        try await bench.discover()
        try await bench.waitAdded(Self.device)
        try await bench.monitor.wait("the same again") {
            bench.signals.filter { $0.member == "InterfacesAdded" && $0.subject == Self.device }.count == 2
        }
        try await bench.order(#"{"op":"duplicate_signals","on":false}"#)
        try await bench.order(#"{"op":"late_signals","ms":100}"#)
        let start = bench.signals.count
        try await bench.adapterCall("StopDiscovery")
        XCTAssertFalse(
            bench.signals.dropFirst(start).contains { $0["Discovering"] != nil }, "the reply overtakes the signal")
        try await bench.waitChange(Bench.adapter, "Discovering", .bool(false), from: start)
        await bench.stop()
    }

    @EventLoopActor
    func testTheSocketAnswersLineByLine() async throws {
        let directory = try TemporaryDirectory()
        let path = directory.file("radio")
        let bench = try await Bench.start(Self.fleet, control: path)
        let descriptor = try Self.connect(path)
        defer { close(descriptor) }
        let text =
            "{\"op\":\"devices\"}\nnonsense\n{\"op\":\"nonsense\"}\n{\"op\":\"power\",\"adapter\":\"hci0\"}\n[]\n"
        XCTAssertEqual(write(descriptor, text, text.utf8.count), text.utf8.count)
        let lines = Pending<[String]>()
        var received: [UInt8] = []
        let registration = try EventLoop.shared.register(descriptor, .read) { _ in
            var chunk = [UInt8](repeating: 0, count: 4096)
            let count = read(descriptor, &chunk, chunk.count)
            received += chunk.prefix(max(0, count))
            let parts = received.split(separator: 0x0a)
            if parts.count == 5 { lines.succeed(parts.map { String(decoding: $0, as: UTF8.self) }) }
        }
        defer { registration.cancel() }
        let answers = try await lines.value(timeout: .seconds(5))
        XCTAssertTrue(answers[0].hasPrefix(#"{"ok":[{"id":"one","address":"C0:00:00:00:00:01""#), answers[0])
        XCTAssertTrue(answers[1].hasPrefix(#"{"error":"line 1"#), answers[1])
        XCTAssertEqual(answers[2], #"{"error":"unknown op 'nonsense'"}"#)
        XCTAssertEqual(answers[3], #"{"error":"on is missing"}"#)
        XCTAssertEqual(answers[4], #"{"error":"a request is a JSON object"}"#)
        await bench.stop()
        XCTAssertEqual(access(path, F_OK), -1)
    }

    private static func connect(_ path: String) throws -> Int32 {
        let descriptor = socket(AF_UNIX, Int32(bitPattern: SOCK_STREAM.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: Array(path.utf8)) }
        let status = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Glibc.connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        XCTAssertEqual(status, 0)
        return descriptor
    }

    @EventLoopActor
    func testAnOrderThatIsWrongChangesNothing() async throws {
        let bench = try await Bench.start(Self.fleet)
        for (order, expected) in [
            (#"{"op":"set","device":"one","manufacturer_data":{"ffff":"zz"}}"#, "hex digits"),
            (#"{"op":"set","device":"one","name":"a name that is far too long for a scan response"}"#, "does not fit"),
            (#"{"op":"advertise","device":"two","on":true}"#, "no device 'two'"),
            (#"{"op":"att_error","device":"one","characteristic":"180d","code":1}"#, "is not service/characteristic"),
            (#"{"op":"hang","device":"one","characteristic":"180d/2a37","on":true}"#, "no characteristic 180d/2a37"),
            (#"{"op":"flood","rate":-1,"seconds":1}"#, "rate is not between"),
            (#"{"op":"adapter_remove","adapter":"hci9"}"#, "no adapter 'hci9'"),
            (#"{"op":"disconnect","device":"one"}"#, "not connected"),
        ] {
            let refusal = try await bench.refusal(order)
            XCTAssertTrue(refusal.contains(expected), refusal)
        }
        try await bench.order(#"{"op":"set","device":"one","manufacturer_data":{"0499":"0a0b"},"rssi":-33}"#)
        try await bench.discover()
        let added = try await bench.waitAdded(Self.device)
        XCTAssertEqual(added["org.bluez.Device1"]?.member("RSSI"), .int16(-33))
        XCTAssertEqual(
            added["org.bluez.Device1"]?.member("ManufacturerData"),
            .dictionary("qv", [(.uint16(0x0499), .variant(.bytes([0x0a, 0x0b])))]))
        await bench.stop()
    }
}

extension Bench {
    /// A call that needs nothing but an answer.
    fileprivate func call(within timeout: Duration) async -> DBusError? {
        do throws(DBusError) {
            try await call(Self.adapter, "org.bluez.Adapter1", "GetDiscoveryFilters", timeout: timeout)
            return nil
        } catch {
            return error
        }
    }
}
