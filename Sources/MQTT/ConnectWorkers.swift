internal import EventLoop

/// Threads for connects. A look-up or a connect blocks for as long as the system likes; one that hangs keeps its thread,
/// and the next attempt takes another.
@EventLoopActor
final class ConnectWorkers {
    static let shared = ConnectWorkers()
    static let limit = 8

    private var idle: [BlockingWorker] = []
    private var busy = 0

    private init() {}

    /// Nil, without running `body`, where all threads hang.
    func run<Result: Sendable>(_ body: @escaping @Sendable () -> Result) async -> Result? {
        guard busy < Self.limit else { return nil }
        busy += 1
        let worker = idle.popLast() ?? BlockingWorker(name: "mqtt-connect")
        let result = await worker.run(body)
        busy -= 1
        idle.append(worker)
        return result
    }
}
