import DBus
import EventLoop
import Sandbox
import XCTest

@EventLoopActor
final class Counter {
    var count = 0
    let reached = Pending<Void>()
    let goal: Int

    init(goal: Int) { self.goal = goal }

    func add() {
        count += 1
        if count == goal { reached.succeed(()) }
    }
}

/// A bus of its own for each test, and a server on it.
class BusTestCase: XCTestCase {
    override class func setUp() {
        EventLoop.shared.startThread()
    }

    @EventLoopActor
    func withBus(_ body: @EventLoopActor (PrivateBus) async throws -> Void) async throws {
        let bus = try await PrivateBus.start()
        do { try await body(bus) } catch {
            await bus.stop()
            throw error
        }
        await bus.stop()
    }

    @EventLoopActor
    func open(_ bus: PrivateBus) async throws -> DBusConnection {
        try await DBusConnection.open(.address(bus.address))
    }

    /// The calls of `Hang` that the server was given, and who wants to know of each.
    @EventLoopActor var hung: [DBusMessage] = []
    @EventLoopActor var onHang: (@EventLoopActor () -> Void)?

    static let name = "org.blueferry.Test"

    @EventLoopActor
    func call(_ member: String, path: String = "/object", _ fill: (inout MessageWriter) -> Void = { _ in })
        -> DBusMessage
    {
        let message = DBusMessage(call: Self.name, path: path, interface: Self.name, member: member)
        var writer = message.writer()
        fill(&writer)
        return message
    }

    @EventLoopActor
    func serve(_ connection: DBusConnection) async throws {
        try await connection.requestName(Self.name)
        connection.export(path: "/", subtree: true) { [self] message in
            switch message.member {
            case "Echo":
                let reply = message.reply()
                var writer = reply.writer()
                var reader = message.reader()
                while !reader.isAtEnd {
                    if let value = reader.value() { writer.append(value) }
                    reader.next()
                }
                return reply
            case "Fail": return message.error("org.blueferry.Error.Custom", "as asked")
            case "BadErrorName": return message.error("not a name", "text")
            case "Hang":
                hung.append(message)
                onHang?()
                return nil
            case "Accept": return message.reply()
            default: return message.error("org.freedesktop.DBus.Error.UnknownMethod", "no such method")
            }
        }
    }

    /// The error that `body` throws; a failure where it throws none.
    @EventLoopActor
    func errorOf<Value>(
        _ body: @EventLoopActor () async throws -> Value, file: StaticString = #filePath, line: UInt = #line
    ) async -> DBusError? {
        do {
            _ = try await body()
            XCTFail("nothing was thrown", file: file, line: line)
            return nil
        } catch {
            return error as? DBusError
        }
    }
}
