public import EventLoop
internal import Glibc

/// The socket that AcquireWrite gives: each packet is a write without response. While it is open, BlueZ refuses
/// WriteValue on the characteristic to everybody.
/// Source: BlueZ org.bluez.GattCharacteristic(5), AcquireWrite; `unix(7)`, SOCK_SEQPACKET.
@EventLoopActor
public final class WriteSocket {
    public enum Outcome {
        case sent
        /// There is no room now; ``whenWritable(_:)`` tells of it.
        case full
        /// BlueZ closed its end.
        case ended
    }

    private var descriptor: Int32
    private var registration: IORegistration?
    private var waiter: (@EventLoopActor () -> Void)?
    /// The ATT MTU of the link.
    public let mtu: Int

    /// Takes over the descriptor.
    init(descriptor: Int32, mtu: Int) {
        self.descriptor = descriptor
        self.mtu = mtu
    }

    public func send(_ value: [UInt8]) -> Outcome {
        while true {
            let count = value.withUnsafeBytes {
                Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT))
            }
            if count >= 0 { return .sent }
            if errno == EINTR { continue }
            return errno == EAGAIN ? .full : .ended
        }
    }

    /// Calls `body` once, when there is room or one of the ends is closed; false where the loop refuses the descriptor.
    public func whenWritable(_ body: @escaping @EventLoopActor () -> Void) -> Bool {
        if registration == nil {
            registration = try? EventLoop.shared.register(descriptor, .write) { [weak self] _ in self?.wake() }
        }
        guard registration != nil else { return false }
        let former = waiter
        waiter = {
            former?()
            body()
        }
        return true
    }

    private func wake() {
        registration?.cancel()
        registration = nil
        let waiter = waiter
        self.waiter = nil
        waiter?()
    }

    public func close() {
        defer { wake() }
        guard descriptor >= 0 else { return }
        registration?.cancel()
        Glibc.close(descriptor)
        descriptor = -1
    }

    deinit {
        if descriptor >= 0 { Glibc.close(descriptor) }
    }
}
