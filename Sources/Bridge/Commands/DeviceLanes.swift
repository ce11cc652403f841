internal import Bluetooth
internal import EventLoop

/// One GATT call of the bridge at a time for each device, in the order in which they came; so many wait and no more.
/// ATT itself is one request at a time, and two writes must arrive in order.
@EventLoopActor
final class DeviceLanes {
    static let limit = 32

    private final class Lane {
        var waiting: [Pending<Void>] = []
    }

    private var lanes: [BluetoothAddress: Lane] = [:]
    private let clock: any LoopClock

    init(clock: any LoopClock) {
        self.clock = clock
    }

    /// Runs `body` when the calls before it on this device have ended, with what is left of the timeout.
    func run<Value: Sendable>(
        _ address: BluetoothAddress, timeout: Duration,
        _ body: @EventLoopActor (Duration) async throws(CommandError) -> Value
    ) async throws(CommandError) -> Value {
        let deadline = clock.now + timeout
        try await enter(address, timeout: timeout)
        defer { leave(address) }
        let left = deadline - clock.now
        guard left > .zero else { throw Self.late(timeout) }
        return try await body(left)
    }

    private static func late(_ timeout: Duration) -> CommandError {
        CommandError(.timeout, "no answer from the device within \(timeout.clampedMilliseconds) ms")
    }

    private func enter(_ address: BluetoothAddress, timeout: Duration) async throws(CommandError) {
        guard let lane = lanes[address] else {
            lanes[address] = Lane()
            return
        }
        guard lane.waiting.count < Self.limit else {
            throw CommandError(
                .busy, "\(lane.waiting.count) calls wait for \(address) already; send fewer at once")
        }
        let turn = Pending<Void>()
        lane.waiting.append(turn)
        do {
            try await turn.value(timeout: timeout, clock: clock)
        } catch {
            lane.waiting.removeAll { $0 === turn }
            throw Self.late(timeout)
        }
    }

    private func leave(_ address: BluetoothAddress) {
        guard let lane = lanes[address] else { return }
        while !lane.waiting.isEmpty {
            let next = lane.waiting.removeFirst()
            // One whose time has passed is not woken a second time.
            guard !next.isFinished else { continue }
            next.succeed(())
            return
        }
        lanes[address] = nil
    }
}
