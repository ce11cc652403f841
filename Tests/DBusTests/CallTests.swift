import DBus
import EventLoop
import Sandbox
import XCTest

/// Calls whose replies come late, never, or are not wanted any more.
final class CallTests: BusTestCase {
    /// Makes `count` calls that hang, and waits until each has timed out.
    @EventLoopActor
    private func abandon(_ count: Int, on client: DBusConnection) async throws {
        let counter = Counter(goal: count)
        for _ in 0..<count {
            client.call(call("Hang"), timeout: .milliseconds(200)) { result in
                guard case .failure(let error) = result else { return XCTFail("a hung call was answered") }
                XCTAssertEqual(error.code, .timeout)
                XCTAssertEqual(error.message, "no reply within 200 ms")
                counter.add()
            }
        }
        try await counter.reached.value(timeout: .seconds(10))
        XCTAssertEqual(client.callsInFlight, 0)
    }

    @EventLoopActor
    func testCallsThatTimedOutCountUntilTheyAreAnswered() async throws {
        try await withBus { bus in
            let server = try await open(bus)
            let client = try await open(bus)
            try await serve(server)
            try await abandon(90, on: client)
            try await abandon(30, on: client)
            // dbus-daemon refuses the 129th: this one is never sent.
            let held = await errorOf { try await client.call(call("Accept"), timeout: .milliseconds(200)) }
            XCTAssertEqual(held?.code, .timeout)
            XCTAssertEqual(held?.message, "no turn, since too many calls are unanswered, within 200 ms")
            let owner = try await client.nameOwner(of: Self.name)
            XCTAssertEqual(owner, server.uniqueName, "the bus itself is asked all the same")
            let order = Counter(goal: 2)
            for number in 0..<2 {
                client.call(call("Echo") { $0.append(int32: Int32(number)) }, timeout: .seconds(10)) { result in
                    XCTAssertEqual(try? result.get().reader().int32(), Int32(order.count))
                    order.add()
                }
            }
            XCTAssertEqual(hung.count, 120)
            server.send(hung[0].reply())
            try await order.reached.value(timeout: .seconds(5))
            for message in hung.dropFirst() { server.send(message.reply()) }
            for _ in 0..<200 { _ = try await client.call(call("Accept"), timeout: .seconds(5)) }
            client.close()
            server.close()
        }
    }

    @EventLoopActor
    func testCallsThatTimedOutCountNoLongerOnceTheirPeerIsGone() async throws {
        try await withBus { bus in
            let server = try await open(bus)
            let client = try await open(bus)
            try await serve(server)
            try await abandon(90, on: client)
            try await abandon(30, on: client)
            let waiting = Pending<DBusError?>()
            client.call(call("Accept"), timeout: .seconds(30)) { result in
                if case .failure(let error) = result { waiting.succeed(error) } else { waiting.succeed(nil) }
            }
            server.close()
            let error = try await waiting.value(timeout: .seconds(5))
            XCTAssertEqual(error?.name, "org.freedesktop.DBus.Error.ServiceUnknown")
            client.close()
        }
    }

    @EventLoopActor
    func testAReplyAfterItsDeadlineIsDropped() async throws {
        try await withBus { bus in
            let server = try await open(bus)
            let client = try await open(bus)
            try await serve(server)
            let late = Counter(goal: 1)
            client.call(call("Hang"), timeout: .milliseconds(50)) { result in
                if case .success = result { XCTFail("the reply came after its deadline") }
                late.add()
            }
            try await late.reached.value(timeout: .seconds(5))
            for message in hung { server.send(message.reply()) }
            // What the bus brings behind the late reply.
            let echo = try await client.call(call("Echo") { $0.append(int32: 7) }, timeout: .seconds(5))
            XCTAssertEqual(echo.reader().int32(), 7)
            XCTAssertEqual(late.count, 1)
            client.close()
            server.close()
        }
    }

    /// The bus of the tests lets everybody send replies that nobody has asked for.
    @EventLoopActor
    func testAReplyOfSomebodyElseIsNotTaken() async throws {
        try await withBus { bus in
            let server = try await open(bus)
            let client = try await open(bus)
            let stranger = try await open(bus)
            try await serve(server)
            client.setOwner(try await client.nameOwner(of: Self.name), of: Self.name)
            let isHung = Pending<Void>()
            onHang = { isHung.succeed(()) }
            let signalled = Pending<Void>()
            client.addSignalHandler { if $0.memberEquals("Behind") { signalled.succeed(()) } }
            try await client.addMatch(MatchRule(interface: Self.name, member: "Behind"))
            let ended = Pending<DBusError?>()
            client.call(call("Hang"), timeout: .seconds(30)) { result in
                if case .failure(let error) = result { ended.succeed(error) } else { ended.succeed(nil) }
            }
            try await isHung.value(timeout: .seconds(5))
            let message = try XCTUnwrap(hung.first)
            XCTAssertNil(stranger.send(message.reply()))
            stranger.send(DBusMessage(signal: "/object", interface: Self.name, member: "Behind"))
            try await signalled.value(timeout: .seconds(5))
            XCTAssertFalse(ended.isFinished, "a stranger's reply was taken")
            server.send(message.error("org.blueferry.Error.Custom", "of the callee"))
            let error = try await ended.value(timeout: .seconds(5))
            XCTAssertEqual(error?.name, "org.blueferry.Error.Custom")
            client.close()
            server.close()
            stranger.close()
        }
    }

    @EventLoopActor
    func testOfManyCallsNoMoreThanTheBusTakesAreUnderWay() async throws {
        try await withBus { bus in
            let server = try await open(bus)
            let client = try await open(bus)
            try await serve(server)
            let isFull = Counter(goal: 90)
            onHang = { isFull.add() }
            let done = Counter(goal: 200)
            var most = 0
            for _ in 0..<200 {
                client.call(call("Hang"), timeout: .seconds(30)) { result in
                    if case .failure(let error) = result { XCTFail("\(error)") }
                    most = max(most, client.callsInFlight)
                    done.add()
                }
            }
            try await isFull.reached.value(timeout: .seconds(10))
            XCTAssertEqual(client.callsInFlight, 90)
            XCTAssertEqual(hung.count, 90)
            onHang = { [self] in if let last = hung.last { server.send(last.reply()) } }
            for message in hung { server.send(message.reply()) }
            try await done.reached.value(timeout: .seconds(10))
            XCTAssertLessThanOrEqual(most, 90)
            client.close()
            server.close()
        }
    }

    @EventLoopActor
    func testACancelledTaskWaitsNoLonger() async throws {
        try await withBus { bus in
            let server = try await open(bus)
            let client = try await open(bus)
            try await serve(server)
            let isHung = Pending<Void>()
            onHang = { isHung.succeed(()) }
            let message = call("Hang")
            let ended = Pending<DBusError?>()
            let task = Task { @EventLoopActor in
                ended.succeed(await errorOf { try await client.call(message, timeout: .seconds(600)) })
            }
            try await isHung.value(timeout: .seconds(5))
            XCTAssertEqual(client.callsInFlight, 1)
            task.cancel()
            let error = try await ended.value(timeout: .seconds(5))
            XCTAssertEqual(error?.code, .cancelled)
            XCTAssertEqual(client.callsInFlight, 0)
            for message in hung { server.send(message.reply()) }
            _ = try await client.call(call("Accept"), timeout: .seconds(5))
            client.close()
            server.close()
        }
    }

    @EventLoopActor
    func testATaskThatIsCancelledAlreadyDoesNotWait() async throws {
        try await withBus { bus in
            let server = try await open(bus)
            let client = try await open(bus)
            try await serve(server)
            let message = call("Hang")
            let ended = Pending<DBusError?>()
            let task = Task { @EventLoopActor in
                XCTAssertTrue(Task.isCancelled)
                ended.succeed(await errorOf { try await client.call(message, timeout: .seconds(600)) })
            }
            task.cancel()
            let error = try await ended.value(timeout: .seconds(5))
            XCTAssertEqual(error?.code, .cancelled)
            client.close()
            server.close()
        }
    }
}
