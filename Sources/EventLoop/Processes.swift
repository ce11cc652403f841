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
