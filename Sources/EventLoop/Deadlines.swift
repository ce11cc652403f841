/// A value that arrives once, later: the bridge from callbacks to `await`, with a deadline. Only the first result counts.
@EventLoopActor
public final class Pending<Value> {
    private var result: Result<Value, any Error>?
    private var waiters: [CheckedContinuation<Void, Never>] = []
    private var timers: [LoopTimer] = []

    public nonisolated init() {}

    public var isFinished: Bool { result != nil }

    /// Gives the result; later ones are dropped.
    public func finish(_ result: Result<Value, any Error>) {
        guard self.result == nil else { return }
        self.result = result
        for timer in timers { timer.cancel() }
        timers = []
        let waiting = waiters
        waiters = []
        for waiter in waiting { waiter.resume() }
    }

    public func succeed(_ value: Value) { finish(.success(value)) }
    public func fail(_ error: any Error) { finish(.failure(error)) }

    /// Waits for the result. The first `timeout` of a waiter that passes makes it ``DeadlineExceeded``, and the first
    /// waiting task that is cancelled makes it `CancellationError`, for all of them.
    public func value(timeout: Duration? = nil, clock: any LoopClock = SystemClock.shared) async throws -> Value {
        if let result { return try result.get() }
        if let timeout {
            let timer = clock.schedule(after: timeout) { [weak self] in self?.fail(DeadlineExceeded(after: timeout)) }
            timers.append(timer)
        }
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                guard !Task.isCancelled else {
                    finish(.failure(CancellationError()))
                    return continuation.resume()
                }
                waiters.append(continuation)
            }
        } onCancel: {
            Task { @EventLoopActor in self.fail(CancellationError()) }
        }
        guard let result else { throw CancellationError() }
        return try result.get()
    }
}

/// The time allowed for something has passed.
public struct DeadlineExceeded: Error, CustomStringConvertible, Sendable {
    public let after: Duration
    public init(after: Duration) { self.after = after }
    public var description: String { "no answer within \(after.clampedMilliseconds) ms" }
}
