/// The one isolation domain of the engine: everything that touches the bus, the broker or the bridge's state is isolated
/// to it, and it runs on the thread of ``EventLoop/shared``. Calls among its members are plain calls.
///
/// What each advertisement touches is `@exclusivity(unchecked)`: on one thread only a method that calls back could break
/// the exclusive access to a property, and those values have none; the checks were a tenth of our own instructions.
@globalActor
public actor EventLoopActor {
    public static let shared = EventLoopActor()

    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        EventLoop.shared.asUnownedSerialExecutor()
    }

    private init() {}

    /// Runs `body` at once, as a part of the loop. For C callbacks that are known to arrive on the loop's thread;
    /// called on another thread it stops the process, since that is an error of ours and never of an input.
    @inlinable
    public nonisolated static func assumeIsolated<Result>(
        _ body: @EventLoopActor () throws -> Result
    ) rethrows -> Result {
        checkThread()
        return try withoutActuallyEscaping(body) { escaping in
            // The isolation is part of the closure's type only, not of its representation.
            try unsafeBitCast(escaping, to: (() throws -> Result).self)()
        }
    }

    @usableFromInline
    nonisolated static func checkThread() {
        precondition(EventLoop.shared.isOnLoop, "the event loop's state was touched from another thread")
    }
}
