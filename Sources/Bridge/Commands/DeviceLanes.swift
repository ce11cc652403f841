internal import Bluetooth
internal import EventLoop

/// One GATT call of the bridge at a time for each device, in the order in which they came; so many wait and no more.
/// ATT itself is one request at a time, and two writes must arrive in order.
@EventLoopActor
final class DeviceLanes {
    static let limit = 32

    fileprivate final class Turn {
        let lane: Lane
        let deadline: MonotonicTime
        var timer: LoopTimer?
        var body: (@EventLoopActor (Lane, Result<Duration, CommandError>) -> Void)?

        init(
            _ lane: Lane, deadline: MonotonicTime,
            _ body: @escaping @EventLoopActor (Lane, Result<Duration, CommandError>) -> Void
        ) {
            self.lane = lane
            self.deadline = deadline
            self.body = body
        }
    }

    /// A device's calls.
    final class Lane {
        fileprivate var isBusy = false
        fileprivate var waiting: [Turn] = []
    }

    private var lanes: [BluetoothAddress: Lane] = [:]
    /// Lanes without a call are kept up to so many.
    private static let mostLanes = 256
    private let clock: any LoopClock

    init(clock: any LoopClock) {
        self.clock = clock
    }

    /// Runs `body` when the calls before it on this device have ended, with what is left of the timeout.
    func run<Value: Sendable>(
        _ address: BluetoothAddress, timeout: Duration,
        _ body: @EventLoopActor (Duration) async throws(CommandError) -> Value
    ) async throws(CommandError) -> Value {
        let lane = lane(of: address)
        if !lane.isBusy {
            lane.isBusy = true
            defer { leave(lane) }
            return try await body(timeout)
        }
        let turn = await withCheckedContinuation { continuation in
            enter(address, timeout: timeout) { _, turn in continuation.resume(returning: turn) }
        }
        let left = try turn.get()
        defer { leave(lane) }
        return try await body(left)
    }

    /// Calls `body` once: when the calls before it on this device have ended, with what is left of the timeout, and then
    /// it has the lane until ``leave(_:)``; or with why that will not be.
    func enter(
        _ address: BluetoothAddress, timeout: Duration,
        _ body: @escaping @EventLoopActor (Lane, Result<Duration, CommandError>) -> Void
    ) {
        let lane = lane(of: address)
        guard lane.isBusy else {
            lane.isBusy = true
            return body(lane, .success(timeout))
        }
        guard lane.waiting.count < Self.limit else {
            return body(
                lane,
                .failure(
                    CommandError(.busy, "\(lane.waiting.count) calls wait for \(address) already; send fewer at once")))
        }
        let turn = Turn(lane, deadline: clock.now + timeout, body)
        turn.timer = clock.schedule(after: timeout) { [weak self] in
            lane.waiting.removeAll { $0 === turn }
            self?.end(turn, .failure(Self.late(timeout)))
        }
        lane.waiting.append(turn)
    }

    func leave(_ lane: Lane) {
        guard let turn = lane.waiting.first else {
            lane.isBusy = false
            return
        }
        lane.waiting.removeFirst()
        end(turn, .success(max(turn.deadline - clock.now, .milliseconds(1))))
    }

    private func lane(of address: BluetoothAddress) -> Lane {
        if let lane = lanes[address] { return lane }
        if lanes.count >= Self.mostLanes { lanes = lanes.filter { $0.value.isBusy } }
        let lane = Lane()
        lanes[address] = lane
        return lane
    }

    private func end(_ turn: Turn, _ result: Result<Duration, CommandError>) {
        guard let body = turn.body else { return }
        turn.body = nil
        turn.timer?.cancel()
        body(turn.lane, result)
    }

    private static func late(_ timeout: Duration) -> CommandError {
        CommandError(.timeout, "no answer from the device within \(timeout.clampedMilliseconds) ms")
    }
}
