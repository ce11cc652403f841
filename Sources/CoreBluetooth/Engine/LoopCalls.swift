internal import EventLoop

/// The way into the loop from any thread: one queue, first in, first out. However many calls wait, at most one job of the
/// loop is due to run them.
enum LoopCalls {
    private struct Waiting {
        var bodies: [@EventLoopActor () -> Void] = []
        var isDue = false
    }

    private static let waiting = Locked(Waiting())

    /// Runs `body` on the loop, after all that was given before.
    static func perform(_ body: @escaping @EventLoopActor () -> Void) {
        let isFirst = waiting.withLock { waiting in
            waiting.bodies.append(body)
            defer { waiting.isDue = true }
            return !waiting.isDue
        }
        guard isFirst else { return }
        EventLoop.shared.startThread()
        Task { @EventLoopActor in drain() }
    }

    @EventLoopActor
    private static func drain() {
        let bodies = waiting.withLock { waiting in
            waiting.isDue = false
            let bodies = waiting.bodies
            waiting.bodies = []
            return bodies
        }
        for body in bodies { body() }
    }
}
