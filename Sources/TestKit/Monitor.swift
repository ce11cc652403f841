public import EventLoop

/// Waits for something to become true, without polling: whoever changes what conditions look at says so.
@EventLoopActor
public final class Monitor {
    /// A class, since a closure in a tuple gets another wrapper each time it moves from one array to the next.
    @EventLoopActor
    private final class Waiter {
        let isTrue: @EventLoopActor () -> Bool
        let pending = Pending<Void>()

        init(_ isTrue: @escaping @EventLoopActor () -> Bool) { self.isTrue = isTrue }
    }

    private var waiters: [Waiter] = []

    public nonisolated init() {}

    /// Looks at all conditions again.
    public func changed() {
        let waiting = waiters
        waiters = []
        var left: [Waiter] = []
        for waiter in waiting where !waiter.pending.isFinished {
            if waiter.isTrue() { waiter.pending.succeed(()) } else { left.append(waiter) }
        }
        waiters = left + waiters
    }

    /// Returns once `condition` is true.
    /// - Throws: ``Expired`` after `timeout`, with what was waited for.
    public func wait(
        _ what: String, within timeout: Duration = .seconds(10), until condition: @escaping @EventLoopActor () -> Bool
    ) async throws {
        if condition() { return }
        let waiter = Waiter(condition)
        waiters.append(waiter)
        do {
            try await waiter.pending.value(timeout: timeout)
        } catch {
            throw Expired(message: "waited \(timeout) in vain for \(what)")
        }
    }
}

/// Something did not happen in time.
public struct Expired: Error, CustomStringConvertible, Sendable {
    public let message: String
    public var description: String { message }

    public init(message: String) { self.message = message }
}
