internal import BlueZ
internal import Bluetooth
internal import EventLoop

/// A call on an attribute: it ends once, with its reply, its deadline or the link, whichever comes first. What BlueZ
/// refuses because an earlier call on the attribute has not ended is asked again.
@EventLoopActor
final class AttributeCall<Value: Sendable>: LinkCall {
    typealias Completion = @EventLoopActor (Result<Value, CentralError>) -> Void
    /// Sends the call to BlueZ.
    typealias Attempt = @EventLoopActor (@escaping @EventLoopActor (Result<Value, BlueZError>) -> Void) -> Void

    private static var pause: Duration { .milliseconds(50) }

    private let subject: () -> String
    private let link: Link
    private let timeout: Duration
    private let clock: any LoopClock
    private let attempt: Attempt
    private var completion: Completion?
    private var deadline: LoopTimer?
    private var retry: LoopTimer?
    /// The link knows of it.
    private var isBegun = false

    init(
        subject: @escaping () -> String, link: Link, timeout: Duration, clock: any LoopClock,
        _ attempt: @escaping Attempt, _ completion: @escaping Completion
    ) {
        self.subject = subject
        self.link = link
        self.timeout = timeout
        self.clock = clock
        self.attempt = attempt
        self.completion = completion
    }

    /// Starts a call and waits for its end; ends at once where the task is cancelled.
    static func result(
        _ start: @EventLoopActor (@escaping Completion) -> AttributeCall?
    ) async throws(CentralError) -> Value {
        let slot = AttributeCallSlot<Value>()
        let result: Result<Value, CentralError> = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                slot.call = start { continuation.resume(returning: $0) }
                if Task.isCancelled { slot.call?.cancel() }
            }
        } onCancel: {
            Task { @EventLoopActor in slot.call?.cancel() }
        }
        return try result.get()
    }

    func start() {
        deadline = clock.schedule(after: timeout) { self.expire() }
        send()
    }

    func cancel() { finish(.failure(CentralError(.cancelled, "\(subject()): cancelled"))) }

    private func expire() {
        finish(
            .failure(
                CentralError(.timeout, "\(subject()): no answer within \(timeout.clampedMilliseconds) ms")))
    }

    private func send() {
        guard completion != nil else { return }
        isBegun = true
        link.begin(self)
        attempt { self.answered($0) }
    }

    private func answered(_ result: Result<Value, BlueZError>) {
        guard completion != nil else { return }
        let error: BlueZError
        switch result {
        case .success(let value): return finish(.success(value))
        case .failure(let failure): error = failure
        }
        leaveLink()
        if error.kind == .att(ATTError.unlikely) {
            // BlueZ gives up what is under way with an error of its own, and tells of the end of the link a little later.
            deadline?.cancel()
            let generation = link.generation
            retry = clock.schedule(after: Link.endPause) { [self] in
                let isOver = link.generation != generation || link.phase != .up
                finish(
                    .failure(
                        isOver
                            ? CentralError(
                                .notConnected, "\(subject()): the connection ended", bluezName: error.name)
                            : CentralError(error, .gatt, subject())))
            }
            return
        }
        guard error.kind == .inProgress || error.isAcquired, link.phase == .up else {
            return finish(.failure(CentralError(error, .gatt, subject())))
        }
        // Where its time ends before, its last word is the refusal.
        guard let deadline, clock.now + Self.pause < deadline.deadline else {
            return finish(.failure(CentralError(error, .gatt, subject())))
        }
        retry = clock.schedule(after: Self.pause) { self.send() }
    }

    private func leaveLink() {
        guard isBegun else { return }
        isBegun = false
        link.end(self)
    }

    func linkEnded(_ error: CentralError) { finish(.failure(error)) }

    private func finish(_ result: Result<Value, CentralError>) {
        guard let completion else { return }
        self.completion = nil
        leaveLink()
        deadline?.cancel()
        retry?.cancel()
        completion(result)
    }
}

@EventLoopActor
private final class AttributeCallSlot<Value: Sendable> {
    var call: AttributeCall<Value>?

    nonisolated init() {}
}
