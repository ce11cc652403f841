import DBus
import EventLoop
import Glibc
import Sandbox
import XCTest

final class ConnectionTests: BusTestCase {
    @EventLoopActor
    func testValuesOfEachTypeComeBackAsTheyWent() async throws {
        try await withBus { bus in
            let server = try await open(bus)
            let client = try await open(bus)
            try await serve(server)
            let values: [DBusValue] = [
                .byte(7), .bool(true), .int16(-5), .uint16(65535), .int32(-1), .uint32(9), .int64(.min), .uint64(.max),
                .double(2.5), .string("a/b é"), .objectPath("/a/b"), .bytes([0, 255]), .bytes([]),
                .array(of: "s", [.string("x")]), .array(of: "u", []),
                .dictionary("qv", [(.uint16(0x499), .variant(.bytes([1, 2])))]),
                .structure([.byte(1), .string("two")]), .variant(.variant(.bool(false))),
            ]
            let reply = try await client.call(
                call("Echo") { writer in for value in values { writer.append(value) } }, timeout: .seconds(5))
            var reader = reply.reader()
            for value in values {
                XCTAssertEqual(reader.value(), value)
                reader.next()
            }
            XCTAssertTrue(reader.isAtEnd)
            XCTAssertNil(reader.value())
            client.close()
            server.close()
        }
    }

    @EventLoopActor
    func testReadingTheWrongTypeGivesNil() async throws {
        let message = call("Echo") { writer in
            writer.append(string: "text")
            writer.append(.array(of: "s", [.string("x")]))
        }
        var reader = message.reader()
        XCTAssertNil(reader.byte())
        XCTAssertNil(reader.uint32())
        XCTAssertNil(reader.bytes())
        XCTAssertNil(reader.takeDescriptor())
        XCTAssertTrue(reader.enter().isAtEnd)
        XCTAssertTrue(reader.equals("text"))
        XCTAssertFalse(reader.equals("texts"))
        reader.next()
        XCTAssertNil(reader.string())
        XCTAssertNil(reader.bytes())
        XCTAssertEqual(reader.enter().string(), "x")
        reader.next()
        reader.next()
        XCTAssertTrue(reader.isAtEnd)
        XCTAssertNil(reader.string())
    }

    @EventLoopActor
    func testErrorsKeepTheirNameAndMessage() async throws {
        try await withBus { bus in
            let server = try await open(bus)
            let client = try await open(bus)
            try await serve(server)
            for (member, name, text) in [
                ("Fail", "org.blueferry.Error.Custom", "as asked"),
                ("BadErrorName", "org.freedesktop.DBus.Error.Failed", "text"),
                ("Nothing", "org.freedesktop.DBus.Error.UnknownMethod", "no such method"),
            ] {
                do {
                    _ = try await client.call(call(member), timeout: .seconds(5))
                    XCTFail("\(member) did not fail")
                } catch let error as DBusError {
                    XCTAssertEqual(error, DBusError(code: .remote, name: name, message: text))
                }
            }
            let absent = DBusMessage(call: "org.absent", path: "/", interface: "a.b", member: "C")
            do {
                _ = try await client.call(absent, timeout: .seconds(5))
                XCTFail("a call to nobody did not fail")
            } catch let error as DBusError {
                XCTAssertEqual(error.name, "org.freedesktop.DBus.Error.ServiceUnknown")
            }
            let owner = try await client.nameOwner(of: Self.name)
            XCTAssertEqual(owner, server.uniqueName)
            let nobody = try await client.nameOwner(of: "org.absent")
            XCTAssertNil(nobody)
            client.close()
            server.close()
        }
    }

    @EventLoopActor
    func testHungCallEndsAtItsDeadlineAndHoldsNobody() async throws {
        try await withBus { bus in
            let server = try await open(bus)
            let client = try await open(bus)
            try await serve(server)
            let hung = Pending<DBusError.Code?>()
            client.call(call("Hang"), timeout: .milliseconds(300)) { result in
                if case .failure(let error) = result { hung.succeed(error.code) } else { hung.succeed(nil) }
            }
            let reply = try await client.call(call("Echo") { $0.append(byte: 1) }, timeout: .seconds(5))
            XCTAssertEqual(reply.reader().byte(), 1)
            XCTAssertFalse(hung.isFinished)
            let code = try await hung.value(timeout: .seconds(5))
            XCTAssertEqual(code, .timeout)
            XCTAssertEqual(client.callsInFlight, 0)
            client.close()
            server.close()
        }
    }

    @EventLoopActor
    func testThousandCallsAtOnceAreAllAnsweredWithFewOnTheBus() async throws {
        try await withBus { bus in
            let server = try await open(bus)
            let client = try await open(bus)
            try await serve(server)
            let counter = Counter(goal: 1000)
            var most = 0
            for number in 0..<1000 {
                client.call(call("Echo") { $0.append(uint32: UInt32(number)) }, timeout: .seconds(30)) { result in
                    if case .success(let reply) = result, reply.reader().uint32() == UInt32(number) { counter.add() }
                }
                most = max(most, client.callsInFlight)
            }
            try await counter.reached.value(timeout: .seconds(30))
            XCTAssertEqual(most, 90)
            client.close()
            server.close()
        }
    }

    @EventLoopActor
    func testEverySignalOfAFloodArrivesInOrder() async throws {
        try await withBus { bus in
            let sender = try await open(bus)
            let receiver = try await open(bus)
            try await receiver.addMatch(MatchRule(interface: Self.name, member: "Tick"))
            let counter = Counter(goal: 20_000)
            var isInOrder = true
            receiver.addSignalHandler { view in
                guard view.memberEquals("Tick") else { return }
                if view.reader().uint32() != UInt32(counter.count) { isInOrder = false }
                counter.add()
            }
            for number in 0..<20_000 {
                let signal = DBusMessage(signal: "/object", interface: Self.name, member: "Tick")
                var writer = signal.writer()
                writer.append(uint32: UInt32(number))
                sender.send(signal)
            }
            try await counter.reached.value(timeout: .seconds(30))
            XCTAssertTrue(isInOrder)
            sender.close()
            receiver.close()
        }
    }

    @EventLoopActor
    func testDescriptorsCross() async throws {
        try await withBus { bus in
            let server = try await open(bus)
            let client = try await open(bus)
            try await server.requestName(Self.name)
            var ends: [Int32] = [-1, -1]
            XCTAssertEqual(pipe(&ends), 0)
            server.export(path: "/object", subtree: false) { message in
                let reply = message.reply()
                var writer = reply.writer()
                writer.append(descriptor: ends[1])
                return reply
            }
            let reply = try await client.call(call("Get"), timeout: .seconds(5))
            let received = try XCTUnwrap(reply.reader().takeDescriptor())
            var byte: UInt8 = 42
            XCTAssertEqual(write(received, &byte, 1), 1)
            byte = 0
            XCTAssertEqual(read(ends[0], &byte, 1), 1)
            XCTAssertEqual(byte, 42)
            for descriptor in [received, ends[0], ends[1]] { Glibc.close(descriptor) }
            client.close()
            server.close()
        }
    }

    @EventLoopActor
    func testBusKilledFailsPendingCallsAndTellsOnce() async throws {
        try await withBus { bus in
            let server = try await open(bus)
            let client = try await open(bus)
            try await serve(server)
            let failed = Pending<DBusError.Code?>()
            let told = Pending<Void>()
            var times = 0
            client.onDisconnect = {
                times += 1
                told.succeed(())
            }
            client.call(call("Hang"), timeout: .seconds(60)) { result in
                if case .failure(let error) = result { failed.succeed(error.code) } else { failed.succeed(nil) }
            }
            await bus.killDaemon()
            let code = try await failed.value(timeout: .seconds(5))
            XCTAssertEqual(code, .disconnected)
            try await told.value(timeout: .seconds(5))
            do {
                _ = try await client.call(call("Echo"), timeout: .seconds(5))
                XCTFail("a call without a bus did not fail")
            } catch let error as DBusError { XCTAssertEqual(error.code, .disconnected) }
            client.close()
            XCTAssertEqual(times, 1)
            server.close()
            do {
                _ = try await open(bus)
                XCTFail("a bus that is gone was opened")
            } catch let error as DBusError { XCTAssertEqual(error.code, .disconnected) }
        }
    }

    @EventLoopActor
    func testSecondOwnerOfANameIsRefused() async throws {
        try await withBus { bus in
            let first = try await open(bus)
            let second = try await open(bus)
            try await first.requestName(Self.name)
            do {
                try await second.requestName(Self.name)
                XCTFail("two owners of one name")
            } catch let error as DBusError { XCTAssertEqual(error.name, "org.freedesktop.DBus.Error.NameExists") }
            first.close()
            let gone = Pending<Void>()
            second.addSignalHandler { view in if view.memberEquals("NameAcquired") { gone.succeed(()) } }
            // The daemon handles the leave in order with what comes after on another connection only once it saw it.
            var isTaken = false
            while !isTaken {
                do {
                    try await second.requestName(Self.name)
                    isTaken = true
                } catch { continue }
            }
            second.close()
        }
    }

    func testMatchRulesQuoteTheirValues() {
        XCTAssertEqual(
            MatchRule(sender: "org.bluez", member: "X", arg0: "it's").text,
            "type='signal',sender='org.bluez',member='X',arg0='it'\\''s'")
    }
}
