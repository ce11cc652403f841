public import EventLoop
internal import Glibc

/// The socket that AcquireNotify gives: one packet for each notification, which spares the daemon a message each.
/// Source: BlueZ org.bluez.GattCharacteristic(5), AcquireNotify; `unix(7)`, SOCK_SEQPACKET.
@EventLoopActor
public final class NotifySocket {
    public enum Event {
        /// Valid during the call; may be empty.
        case value(UnsafeRawBufferPointer)
        /// BlueZ closed its end.
        case end
    }

    private var descriptor: Int32
    private var registration: IORegistration?
    /// Longer than any attribute value. Shared: only the loop reads into it.
    private static let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 1024, alignment: 16)

    /// Takes over the descriptor.
    init(descriptor: Int32) {
        self.descriptor = descriptor
        let flags = fcntl(descriptor, F_GETFL)
        _ = fcntl(descriptor, F_SETFL, flags | O_NONBLOCK)
    }

    /// Calls `handler` for each notification until the end or ``close()``; false where the loop refuses the descriptor.
    public func start(_ handler: @escaping @EventLoopActor (Event) -> Void) -> Bool {
        registration = try? EventLoop.shared.register(descriptor, .read) { [weak self] events in
            self?.drain(events, handler)
        }
        return registration != nil
    }

    /// Reads what is there, at most 64 packets for a turn: the loop comes back for more.
    private func drain(_ events: IOEvents, _ handler: @EventLoopActor (Event) -> Void) {
        let hasHungUp = !events.isDisjoint(with: [.hangUp, .error])
        for _ in 0..<64 {
            guard registration != nil else { return }
            let count = recv(descriptor, Self.buffer.baseAddress, Self.buffer.count, Int32(MSG_DONTWAIT))
            if count < 0 {
                if errno == EINTR { continue }
                if errno != EAGAIN || hasHungUp { handler(.end) }
                return
            }
            // An empty notification and the end of the stream both read as 0 bytes: the end comes with a hang-up.
            if count == 0, hasHungUp || isHungUp { return handler(.end) }
            handler(.value(UnsafeRawBufferPointer(rebasing: Self.buffer[..<count])))
        }
    }

    /// Asked for an empty read alone: the peer may have gone since epoll reported.
    private var isHungUp: Bool {
        var request = pollfd(fd: descriptor, events: 0, revents: 0)
        return poll(&request, 1, 0) > 0
    }

    public func close() {
        registration?.cancel()
        registration = nil
        guard descriptor >= 0 else { return }
        Glibc.close(descriptor)
        descriptor = -1
    }

    deinit {
        if descriptor >= 0 { Glibc.close(descriptor) }
    }
}
