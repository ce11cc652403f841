import EventLoop
import Sandbox
import XCTest

@testable import DBus

/// What libdbus and epoll do with the bus's socket.
final class WatchTests: BusTestCase {
    /// Messages that are let go of on another thread; only one at a time has it.
    private final class Holder: @unchecked Sendable {
        var messages: [DBusMessage] = []
    }

    @EventLoopActor
    func testASocketThatCannotBeWatchedIsNotOpened() async throws {
        try await withBus { bus in
            let register = WatchSet.register
            defer { WatchSet.register = register }
            WatchSet.register = { _, _, _ in nil }
            let error = await errorOf { try await open(bus) }
            XCTAssertEqual(error?.code, .disconnected)
            XCTAssertEqual(error?.message, "the event loop cannot watch the bus's socket, or memory is out")
            WatchSet.register = register
            let connection = try await open(bus)
            connection.close()
        }
    }

    /// While messages of more than 63 MiB are kept, libdbus reads no more, and has no watch that wants anything.
    @EventLoopActor
    func testAHangUpThatNobodyMayReadDoesNotSpin() async throws {
        try await withBus { bus in
            let server = try await open(bus)
            let client = try await open(bus)
            try await serve(server)
            let lost = Pending<Void>()
            client.onDisconnect = { lost.succeed(()) }
            let holder = Holder()
            let counter = Counter(goal: 63)
            let megabyte = [UInt8](repeating: 7, count: 1 << 20)
            for _ in 0..<80 {
                client.call(call("Echo") { $0.append(bytes: megabyte) }, timeout: .seconds(60)) { result in
                    guard let reply = try? result.get() else { return }
                    holder.messages.append(reply)
                    counter.add()
                }
            }
            try await counter.reached.value(timeout: .seconds(30))
            await bus.killDaemon()
            var turns = 0
            EventLoop.shared.addBatchHook { turns += 1 }
            let window = Pending<Void>()
            _ = EventLoop.shared.schedule(at: .now + .milliseconds(100)) { window.succeed(()) }
            try await window.value(timeout: .seconds(5))
            XCTAssertLessThan(turns, 100)
            XCTAssertFalse(lost.isFinished, "libdbus read on, so this shows nothing")
            await Task.detached { holder.messages = [] }.value
            try await lost.value(timeout: .seconds(5))
            server.close()
        }
    }
}
