internal import Bluetooth
internal import EventLoop

/// One GATT call of the bridge at a time for each device, in the order in which they came; so many wait and no more.
/// ATT itself is one request at a time, and two writes must arrive in order.
@EventLoopActor
final class DeviceLanes {
    static let limit = 32

    private final class Turn {
        let deadline: MonotonicTime
        var timer: LoopTimer?
        var body: (@EventLoopActor (Result<Duration, CommandError>) -> Void)?

        init(deadline: MonotonicTime, _ body: @escaping @EventLoopActor (Result<Duration, CommandError>) -> Void) {
            self.deadline = deadline
            self.body = body
        }
    }

    /// Those that wait for each device that a call is under way on.
    private var lanes: [BluetoothAddress: [Turn]] = [:]
    private let clock: any LoopClock

    init(clock: any LoopClock) {
        self.clock = clock
    }

    /// Runs `body` when the calls before it on this device have ended, with what is left of the timeout.
    func run<Value: Sendable>(
        _ address: BluetoothAddress, timeout: Duration,
        _ body: @EventLoopActor (Duration) async throws(CommandError) -> Value
    ) async throws(CommandError) -> Value {
        if lanes[address] == nil {
            lanes[address] = []
            defer { leave(address) }
            return try await body(timeout)
        }
        let turn = await withCheckedContinuation { continuation in
            enter(address, timeout: timeout) { continuation.resume(returning: $0) }
        }
        let left = try turn.get()
        defer { leave(address) }
        return try await body(left)
    }

    /// Calls `body` once: when the calls before it on this device have ended, with what is left of the timeout, and then
    /// it has the lane until ``leave(_:)``; or with why that will not be.
    func enter(
        _ address: BluetoothAddress, timeout: Duration,
        _ body: @escaping @EventLoopActor (Result<Duration, CommandError>) -> Void
    ) {
        guard let waiting = lanes[address] else {
            lanes[address] = []
            return body(.success(timeout))
        }
        guard waiting.count < Self.limit else {
            return body(
                .failure(
                    CommandError(.busy, "\(waiting.count) calls wait for \(address) already; send fewer at once")))
        }
        let turn = Turn(deadline: clock.now + timeout, body)
        turn.timer = clock.schedule(after: timeout) { [weak self] in
            self?.lanes[address]?.removeAll { $0 === turn }
            self?.end(turn, .failure(Self.late(timeout)))
        }
        lanes[address, default: []].append(turn)
    }

    func leave(_ address: BluetoothAddress) {
        guard let turn = lanes[address]?.first else {
            lanes[address] = nil
            return
        }
        lanes[address]?.removeFirst()
        end(turn, .success(max(turn.deadline - clock.now, .milliseconds(1))))
    }

    private func end(_ turn: Turn, _ result: Result<Duration, CommandError>) {
        guard let body = turn.body else { return }
        turn.body = nil
        turn.timer?.cancel()
        body(result)
    }

    private static func late(_ timeout: Duration) -> CommandError {
        CommandError(.timeout, "no answer from the device within \(timeout.clampedMilliseconds) ms")
    }
}
