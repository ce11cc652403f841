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

/// Starts a program with the signals of a fresh process, whatever this one blocks or ignores. It is the caller's to reap.
/// Source: `posix_spawn(3)`.
/// - Parameters:
///   - descriptors: from its descriptor 0 on; nil stands for /dev/null. Each is to be above the number that it gets, or
///     the same.
///   - isDetached: for one that outlives this process: it has a session of its own, and no other descriptor.
/// - Throws: ``LoopError`` where the system refuses.
@EventLoopActor
public func spawnProcess(
    _ path: String, _ words: [String], environment: [String], descriptors: [Int32?], isDetached: Bool = false
) throws(LoopError) -> Int32 {
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
    if isDetached {
        let status = clinux_spawn_close_from(&actions, Int32(descriptors.count))
        guard status == 0 else { throw LoopError(call: "posix_spawn", errno: status) }
    }
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    var signals = sigset_t()
    sigemptyset(&signals)
    posix_spawnattr_setsigmask(&attributes, &signals)
    for signal in [SIGPIPE, SIGTERM, SIGINT, SIGHUP, SIGCHLD] { sigaddset(&signals, signal) }
    posix_spawnattr_setsigdefault(&attributes, &signals)
    let flags = Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF)
    posix_spawnattr_setflags(&attributes, isDetached ? flags | clinux_spawn_setsid : flags)
    var arguments: [UnsafeMutablePointer<CChar>?] = words.map { strdup($0) } + [nil]
    var variables: [UnsafeMutablePointer<CChar>?] = environment.map { strdup($0) } + [nil]
    defer {
        for text in arguments + variables { free(text) }
    }
    var process: Int32 = 0
    let status = posix_spawn(&process, path, &actions, &attributes, &arguments, &variables)
    guard status == 0 else { throw LoopError(call: "posix_spawn", errno: status) }
    return process
}
