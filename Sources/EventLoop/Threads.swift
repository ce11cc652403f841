internal import CLinux
internal import Glibc
internal import Synchronization

/// A thread that nobody joins.
enum DetachedThread {
    private final class Body: Sendable {
        let run: @Sendable () -> Void
        init(_ run: @escaping @Sendable () -> Void) { self.run = run }
    }

    /// False where the system refuses a thread (`pthread_create(3)`).
    static func start(name: String, _ run: @escaping @Sendable () -> Void) -> Bool {
        var thread = pthread_t()
        let body = Unmanaged.passRetained(
            Body {
                clinux_set_thread_name(name)
                run()
            })
        let status = pthread_create(
            &thread, nil,
            { argument in
                guard let argument else { return nil }
                let body = Unmanaged<Body>.fromOpaque(argument).takeRetainedValue()
                body.run()
                return nil
            }, body.toOpaque())
        guard status == 0 else {
            body.release()
            return false
        }
        pthread_detach(thread)
        return true
    }
}

/// A thread for work that blocks: name look-ups, connects, commits. Bodies run one after another, in the order given.
/// The thread is started by the first body and sleeps without one.
public final class BlockingWorker: Sendable {
    private struct State {
        var bodies: [@Sendable () -> Void] = []
        var hasThread = false
    }

    private let name: String
    private let state = Mutex(State())
    private let semaphore = CountingSemaphore()

    /// - Parameter name: the thread's name, at most 15 bytes.
    public init(name: String) {
        self.name = name
    }

    /// Runs `body` on the worker's thread, later.
    public func submit(_ body: @escaping @Sendable () -> Void) {
        let mustStart = state.withLock { state in
            state.bodies.append(body)
            defer { state.hasThread = true }
            return !state.hasThread
        }
        if mustStart {
            // The worker keeps itself alive: there are few, and they live as long as the process.
            let started = DetachedThread.start(name: name) { self.work() }
            if !started { state.withLock { $0.hasThread = false } }
        }
        semaphore.signal()
    }

    /// Runs `body` on the worker's thread and gives its result to the loop.
    @EventLoopActor
    public func run<Result: Sendable>(_ body: @escaping @Sendable () -> Result) async -> Result {
        await withCheckedContinuation { continuation in
            submit { continuation.resume(returning: body()) }
        }
    }

    private func work() {
        while true {
            semaphore.wait()
            let bodies = state.withLock { state in
                defer { state.bodies.removeAll(keepingCapacity: true) }
                return state.bodies
            }
            for body in bodies { body() }
        }
    }
}

/// `sem_t` behind a stable address.
///
/// `@unchecked Sendable`: sem_post(3) and sem_wait(3) may be called from any thread, and the pointer never changes.
private final class CountingSemaphore: @unchecked Sendable {
    private let pointer = UnsafeMutablePointer<sem_t>.allocate(capacity: 1)

    init() { sem_init(pointer, 0, 0) }

    deinit {
        sem_destroy(pointer)
        pointer.deallocate()
    }

    func signal() { sem_post(pointer) }

    func wait() {
        while sem_wait(pointer) != 0, errno == EINTR {}
    }
}
