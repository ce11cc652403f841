public import EventLoop
internal import Glibc
public import JSON

/// Orders to the radio, the simulator's or the lab's: one JSON line there, one back, each on a connection of its own, so
/// that a long order holds no other.
@EventLoopActor
public final class RadioControl {
    public let path: String

    public init(path: String) {
        self.path = path
    }

    /// Waits until the radio answers at all.
    public func waitUntilReady(within timeout: Duration = .seconds(10)) async throws {
        let deadline = MonotonicTime.now + timeout
        while true {
            do {
                _ = try await send("devices", [:], timeout: .seconds(5))
                return
            } catch {
                guard MonotonicTime.now < deadline else { throw error }
                try await SystemClock.shared.sleep(for: .milliseconds(20))
            }
        }
    }

    /// Gives an order and waits for its answer.
    /// - Throws: ``Expired`` where the radio refuses, does not answer in time, or is not there.
    @discardableResult
    public func send(
        _ operation: String, _ parameters: [String: JSONValue] = [:], timeout: Duration = .seconds(60)
    ) async throws -> JSONValue {
        let descriptor = try connect()
        defer { close(descriptor) }
        var members: [(String, JSONValue)] = [("op", .string(operation))]
        members += parameters.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
        let line = JSONValue.object(members).serialised() + [0x0a]
        guard Glibc.write(descriptor, line, line.count) == line.count else {
            throw Expired(message: "the radio took no order")
        }

        let answer = Pending<[UInt8]>()
        var received: [UInt8] = []
        let registration = try EventLoop.shared.register(descriptor, .read) { _ in
            var chunk = [UInt8](repeating: 0, count: 65536)
            let count = Glibc.read(descriptor, &chunk, chunk.count)
            if count > 0 { received += chunk[0..<count] }
            if let end = received.firstIndex(of: 0x0a) {
                answer.succeed(Array(received[..<end]))
            } else if count <= 0 {
                answer.fail(Expired(message: "the radio closed the connection over '\(operation)'"))
            }
        }
        defer { registration.cancel() }
        let text = try await answer.value(timeout: timeout)
        var limits = JSONLimits()
        limits.size = 64 << 20
        let value = try JSONValue.parse(text, limits: limits)
        if let fault = value["error"] {
            throw Expired(message: "the radio refused '\(operation)': \(fault.stringValue ?? "?")")
        }
        return value["ok"] ?? .null
    }

    private func connect() throws -> Int32 {
        let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let bytes = Array(path.utf8)
        guard descriptor >= 0, bytes.count < MemoryLayout.size(ofValue: address.sun_path) else {
            throw Expired(message: "no socket for \(path)")
        }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: bytes) }
        let status = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Glibc.connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        guard status == 0 else {
            let reason = String(cString: strerror(errno))
            close(descriptor)
            throw Expired(message: "no radio at \(path): \(reason)")
        }
        return descriptor
    }
}
