internal import Bluetooth
internal import EventLoop
internal import Glibc

/// The kernel's Bluetooth management socket, for the one thing that D-Bus does not tell: the RSSI of a live link.
/// Needs CAP_NET_ADMIN. Source: BlueZ doc/mgmt-api.txt; `lib/hci.h` (HCI_CHANNEL_CONTROL).
@EventLoopActor
final class ManagementSocket {
    private typealias Completion = @EventLoopActor (Result<Int8, BlueZError>) -> Void

    private struct Request {
        let index: UInt16
        let address: UInt64
        let completion: Completion
    }

    private static let getConnectionInformation: UInt16 = 0x0031
    private static let commandComplete: UInt16 = 0x0001
    private static let commandStatus: UInt16 = 0x0002

    private let descriptor: Int32
    private var registration: IORegistration?
    private var requests: [Request] = []

    /// - Throws: ``BlueZError`` (`notSupported`) where the kernel has no Bluetooth or the process lacks the capability.
    init() throws(BlueZError) {
        // AF_BLUETOOTH, BTPROTO_HCI: Glibc has no names for them.
        let descriptor = socket(31, Int32(SOCK_RAW.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 1)
        guard descriptor >= 0 else { throw Self.unavailable("socket") }
        // struct sockaddr_hci: family, device (HCI_DEV_NONE), channel (HCI_CHANNEL_CONTROL).
        let address: [UInt16] = [31, 0xffff, 3]
        let status = address.withUnsafeBytes { bytes in
            bytes.withMemoryRebound(to: sockaddr.self) { bind(descriptor, $0.baseAddress, 6) }
        }
        guard status == 0 else {
            let error = Self.unavailable("bind")
            close(descriptor)
            throw error
        }
        self.descriptor = descriptor
        do {
            registration = try EventLoop.shared.register(descriptor, .read) { [weak self] _ in self?.drain() }
        } catch {
            close(descriptor)
            throw BlueZError(kind: .notSupported, name: nil, message: "the management socket: \(error)")
        }
    }

    deinit { Glibc.close(descriptor) }

    func shutDown() {
        registration?.cancel()
        registration = nil
        fail(BlueZError(kind: .busLost, name: nil, message: "the management socket was closed"))
    }

    private static func unavailable(_ call: String) -> BlueZError {
        let reason = String(cString: strerror(errno))
        return BlueZError(
            kind: .notSupported, name: nil,
            message: "the RSSI of a link needs the kernel's management socket and CAP_NET_ADMIN (\(call): \(reason))")
    }

    /// Get Connection Information (0x0031).
    /// - Parameter index: the number of the controller, as 0 for hci0.
    func rssi(
        index: UInt16, address: BluetoothAddress, isRandom: Bool,
        _ completion: @escaping @EventLoopActor (Result<Int8, BlueZError>) -> Void
    ) {
        var packet: [UInt8] = []
        for value in [Self.getConnectionInformation, index, 7] {
            packet.append(UInt8(truncatingIfNeeded: value))
            packet.append(UInt8(truncatingIfNeeded: value >> 8))
        }
        for shift in 0..<6 { packet.append(UInt8(truncatingIfNeeded: address.value >> UInt64(8 * shift))) }
        packet.append(isRandom ? 2 : 1)
        requests.append(Request(index: index, address: address.value, completion: completion))
        if send(descriptor, packet, packet.count, 0) != packet.count {
            requests.removeLast()
            completion(.failure(Self.unavailable("send")))
        }
    }

    private func drain() {
        var buffer = [UInt8](repeating: 0, count: 1024)
        while true {
            let count = recv(descriptor, &buffer, buffer.count, Int32(MSG_DONTWAIT))
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { return }
            handle(buffer[..<count])
        }
    }

    /// An event: code, index, length, then for an answer the opcode, the status and what follows.
    private func handle(_ packet: ArraySlice<UInt8>) {
        guard packet.count >= 9 else { return }
        let word = { (offset: Int) in UInt16(packet[offset]) | UInt16(packet[offset + 1]) << 8 }
        guard word(0) == Self.commandComplete || word(0) == Self.commandStatus,
            word(6) == Self.getConnectionInformation
        else { return }
        let status = packet[8]
        let index = word(2)
        let address =
            packet.count >= 15 ? (0..<6).reduce(UInt64(0)) { $0 | UInt64(packet[9 + $1]) << UInt64(8 * $1) } : nil
        guard
            let position = requests.firstIndex(where: {
                $0.index == index && (address == nil || $0.address == address)
            })
        else { return }
        let request = requests.remove(at: position)
        guard status == 0, packet.count >= 17 else { return request.completion(.failure(Self.refused(status))) }
        let rssi = Int8(bitPattern: packet[16])
        guard rssi != 127 else {
            let error = BlueZError(kind: .notSupported, name: nil, message: "the controller does not know the RSSI")
            return request.completion(.failure(error))
        }
        request.completion(.success(rssi))
    }

    private static func refused(_ status: UInt8) -> BlueZError {
        switch status {
        case 0x02, 0x0e: BlueZError(kind: .notConnected, name: nil, message: "the kernel sees no such link")
        case 0x01, 0x0c, 0x14:
            BlueZError(
                kind: .notSupported, name: nil,
                message: "the kernel refuses the RSSI of a link (status \(status)); the process needs CAP_NET_ADMIN")
        default: BlueZError(kind: .failed, name: nil, message: "the kernel answered with status \(status)")
        }
    }

    private func fail(_ error: BlueZError) {
        let failed = requests
        requests = []
        for request in failed { request.completion(.failure(error)) }
    }
}
