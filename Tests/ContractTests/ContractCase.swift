import EventLoop
import JSON
import MQTT
import TestKit
import XCTest

/// A contract test: the real program between a real broker and a radio, the simulator's or the lab's. What holds on the
/// one must hold on the other.
class ContractCase: XCTestCase {
    override class func setUp() {
        EventLoop.shared.startThread()
    }

    @EventLoopActor
    func inWorld(
        _ settings: String = "", _ body: @EventLoopActor (World) async throws -> Void
    ) async throws {
        let world = try await World.start()
        do {
            try await world.startBridge(settings)
            try await body(world)
        } catch {
            XCTFail("\(error)\n\(world.logs)")
        }
        await world.stop()
    }

    static let strap = "C0:00:00:00:00:01"
    static let bulb = "C0:00:00:00:00:02"
    static let tag = "C0:00:00:00:00:03"
    static let lock = "C0:00:00:00:00:04"
    static let safe = "C0:00:00:00:00:06"
    static let twins = "C0:00:00:00:00:08"
    static let mute = "C0:00:00:00:00:0A"
    static let stubborn = "C0:00:00:00:00:0B"
    static let large = "C0:00:00:00:00:0E"
    static let thermometer = "C0:00:00:00:00:10"

    static func node(_ number: Int) -> String {
        "C0:00:00:00:01:" + (number < 16 ? "0" : "") + String(number, radix: 16, uppercase: true)
    }

    static func topicForm(_ address: String) -> String { address.lowercased().split(separator: ":").joined() }

    /// Parameters of a command on a characteristic.
    static func at(
        _ device: String, _ service: String, _ characteristic: String, _ more: [String: JSONValue] = [:]
    ) -> [String: JSONValue] {
        var parameters: [String: JSONValue] = [
            "device": .string(device), "service": .string(service), "characteristic": .string(characteristic),
        ]
        parameters.merge(more) { $1 }
        return parameters
    }

    /// Hears a device and connects to it.
    @EventLoopActor
    func connect(_ world: World, _ device: String) async throws {
        try await world.hear(device)
        try await link(world, device)
    }

    /// The same for a device that the bridge may connect by itself: who is linked does not advertise any more.
    @EventLoopActor
    func link(_ world: World, _ device: String) async throws {
        try await world.ask("connect", ["device": .string(device), "timeout": .int(30_000)], within: .seconds(40))
    }

    /// What a peer saw written: `svc/chr` and the bytes.
    @EventLoopActor
    func writes(_ world: World, _ id: String) async throws -> [JSONValue] {
        let log = try await world.radio.send("log", ["device": .string(id)]).arrayValue ?? []
        return log.filter { $0["event"] == .string("write") }
    }

    /// Waits until the newest that a peer saw of its subscriptions is `event`: `subscribe`, `unsubscribe`, `disconnected`.
    /// The radio tells no one by itself, so it is asked again and again, until a deadline.
    @EventLoopActor
    func waitForPeer(_ world: World, _ id: String, toSee event: String) async throws {
        let events = ["subscribe", "unsubscribe", "disconnected", "unanswered"]
        let deadline = MonotonicTime.now + .seconds(30)
        while true {
            let log = try await world.radio.send("log", ["device": .string(id)]).arrayValue ?? []
            if log.compactMap({ $0["event"]?.stringValue }).last(where: events.contains) == event { return }
            guard MonotonicTime.now < deadline else { throw Expired(message: "\(id) did not see \(event)") }
        }
    }
}
