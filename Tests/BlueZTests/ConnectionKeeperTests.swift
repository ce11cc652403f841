import DBus
import EventLoop
import Glibc
import Sandbox
import XCTest

@testable import BlueZ

final class ConnectionKeeperTests: XCTestCase {
    override class func setUp() { EventLoop.shared.startThread() }

    /// What a killed process leaves: its connection closed on our side, with the keeper alone to hold it.
    @EventLoopActor
    func testTheConnectionOutlivesItsOwnerAndWhatIsSentToItIsLetGo() async throws {
        let bus = try await PrivateBus.start()
        let daemon = try await DBusConnection.open(.address(bus.address))
        let client = try await DBusConnection.open(.address(bus.address))
        let name = client.uniqueName
        let departure = Departure()
        daemon.addSignalHandler { view in departure.note(view.memberEquals("NameOwnerChanged")) }
        try await daemon.addMatch(MatchRule(member: "NameOwnerChanged", arg0: name))

        let keeper = try XCTUnwrap(ConnectionKeeper(bus: try XCTUnwrap(client.descriptor)))
        XCTAssertTrue(keeper.isRunning)
        keeper.begin()
        client.close()
        XCTAssertNil(client.descriptor)
        // As the bus closes no connection without reading its end: an answer of the bus is later than that.
        let owner = try await daemon.nameOwner(of: name)
        XCTAssertEqual(owner, name)

        // A descriptor that is on its way to the dead is closed before the bus tells of the death.
        var ends: [Int32] = [-1, -1]
        XCTAssertEqual(pipe(&ends), 0)
        send(ends[1], to: name, daemon)
        close(ends[1])
        keeper.close()
        let end = Pending<Void>()
        let watch = try EventLoop.shared.register(ends[0], .read) { _ in end.succeed(()) }
        try await end.value(timeout: .seconds(10))
        watch.cancel()
        XCTAssertFalse(departure.hasCome)
        try await departure.wait()
        close(ends[0])
        daemon.close()
        await bus.stop()
    }

    /// The message has a duplicate of the descriptor for as long as it lives.
    @EventLoopActor
    private func send(_ descriptor: Int32, to name: String, _ connection: DBusConnection) {
        let message = DBusMessage(call: name, path: "/", interface: "org.example", member: "Take")
        var writer = message.writer()
        writer.append(descriptor: descriptor)
        XCTAssertNil(connection.send(message))
    }

    @EventLoopActor
    func testAKeeperEndsWithTheConnectionAndIsReaped() async throws {
        let bus = try await PrivateBus.start()
        let client = try await DBusConnection.open(.address(bus.address))
        let keeper = try XCTUnwrap(ConnectionKeeper(bus: try XCTUnwrap(client.descriptor)))
        let end = Pending<Void>()
        let watch = try ProcessWatch(keeper.process) { end.succeed(()) }
        keeper.begin()
        keeper.end()
        XCTAssertEqual(kill(keeper.process, SIGTERM), 0, "it does not end by what ends its service")
        client.close()
        keeper.close()
        try await end.value(timeout: .seconds(10))
        watch.cancel()
        await bus.stop()
    }

    @EventLoopActor
    func testWithoutABusThereIsNoKeeper() async {
        XCTAssertNil(ConnectionKeeper(bus: -1))
    }
}

/// Waits for a name to leave the bus.
@EventLoopActor
private final class Departure {
    private let pending = Pending<Void>()
    private(set) var hasCome = false

    func note(_ isIt: Bool) {
        guard isIt else { return }
        hasCome = true
        pending.succeed(())
    }

    func wait() async throws { try await pending.value(timeout: .seconds(10)) }
}
