internal import CLinux
internal import Glibc

/// Tells when a process ends. Source: `pidfd_open(2)`.
@EventLoopActor
public final class ProcessWatch {
    private let descriptor: Int32
    private var registration: IORegistration?

    /// Calls `handler` once, on the loop, when the process has ended. A child is not reaped: that is the caller's, with
    /// `waitpid(2)`, and until then its number cannot come to stand for another process.
    /// - Throws: ``LoopError`` where there is no such process, or no descriptor is left.
    public init(_ process: Int32, _ handler: @escaping @EventLoopActor () -> Void) throws(LoopError) {
        let descriptor = clinux_pidfd_open(process)
        guard descriptor >= 0 else { throw LoopError(call: "pidfd_open", errno: clinux_errno()) }
        self.descriptor = descriptor
        do {
            registration = try EventLoop.shared.register(descriptor, .read) { [weak self] _ in
                self?.cancel()
                handler()
            }
        } catch {
            close(descriptor)
            throw error
        }
    }

    /// Ends the watch. Later calls do nothing.
    public func cancel() {
        guard let registration else { return }
        registration.cancel()
        self.registration = nil
        close(descriptor)
    }
}

/// Starts a program that outlives this one: in a session of its own, with no signal blocked, and without any descriptor
/// but those given, of which the first is its descriptor 0. Nil where the system refuses. It is the caller's to reap.
/// Source: `posix_spawn(3)`.
/// - Parameter descriptors: nil stands for /dev/null. Each is to be above the number that it gets, or the same.
@EventLoopActor
public func spawnDetached(
    _ path: String, _ words: [String], environment: [String], descriptors: [Int32?]
) -> Int32? {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    for (number, descriptor) in descriptors.enumerated() {
        if let descriptor {
            posix_spawn_file_actions_adddup2(&actions, descriptor, Int32(number))
        } else {
            posix_spawn_file_actions_addopen(&actions, Int32(number), "/dev/null", O_RDWR, 0)
        }
    }
    guard clinux_spawn_close_from(&actions, Int32(descriptors.count)) == 0 else { return nil }
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    var signals = sigset_t()
    sigemptyset(&signals)
    posix_spawnattr_setsigmask(&attributes, &signals)
    posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK) | clinux_spawn_setsid)
    var arguments: [UnsafeMutablePointer<CChar>?] = words.map { strdup($0) } + [nil]
    var variables: [UnsafeMutablePointer<CChar>?] = environment.map { strdup($0) } + [nil]
    defer {
        for text in arguments + variables { free(text) }
    }
    var process: Int32 = 0
    return posix_spawn(&process, path, &actions, &attributes, &arguments, &variables) == 0 ? process : nil
}
