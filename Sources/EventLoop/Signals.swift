internal import CLinux
internal import Glibc

/// Unix signals as events of the loop. Source: `signalfd(2)`.
@EventLoopActor
public final class SignalSource {
    private let descriptor: Int32
    private var registration: IORegistration?

    /// Takes the signals out of their usual action and calls `handler` with each one's number. Call ``block(_:)`` first,
    /// on the main thread before any other thread starts, since each thread has a mask of its own.
    /// - Throws: ``LoopError`` where signalfd or epoll refuses.
    public init(_ signals: [Int32], _ handler: @escaping @EventLoopActor (Int32) -> Void) throws(LoopError) {
        var mask = Self.mask(signals)
        let descriptor = signalfd(-1, &mask, clinux_sfd_flags)
        guard descriptor >= 0 else { throw LoopError(call: "signalfd", errno: clinux_errno()) }
        self.descriptor = descriptor
        registration = try EventLoop.shared.register(descriptor, .read) { _ in
            var info = signalfd_siginfo()
            while read(descriptor, &info, MemoryLayout<signalfd_siginfo>.size) == MemoryLayout<signalfd_siginfo>.size {
                handler(Int32(bitPattern: info.ssi_signo))
            }
        }
    }

    /// Ends the source; the signals stay blocked.
    public func cancel() {
        guard let registration else { return }
        registration.cancel()
        self.registration = nil
        close(descriptor)
    }

    /// Blocks the signals in the calling thread and in each that it starts from now on. Source: `pthread_sigmask(3)`.
    public nonisolated static func block(_ signals: [Int32]) {
        var mask = Self.mask(signals)
        pthread_sigmask(SIG_BLOCK, &mask, nil)
    }

    private nonisolated static func mask(_ signals: [Int32]) -> sigset_t {
        var mask = sigset_t()
        sigemptyset(&mask)
        for signal in signals { sigaddset(&mask, signal) }
        return mask
    }
}
