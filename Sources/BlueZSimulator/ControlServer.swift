internal import EventLoop
internal import Glibc
internal import JSON

/// Takes commands on a unix socket: a JSON object on each line, answered by one line. Several clients at once; each has
/// its answers in the order of its requests. Source: `unix(7)`.
@EventLoopActor
final class ControlServer {
    private static let longestLine = 1 << 20

    private final class Client {
        let descriptor: Int32
        var registration: IORegistration?
        var input: [UInt8] = []
        var output: [UInt8] = []
        var waiting: [[UInt8]] = []
        var isBusy = false

        init(_ descriptor: Int32) {
            self.descriptor = descriptor
        }
    }

    private let control: Control
    private var path = ""
    private var descriptor: Int32 = -1
    private var registration: IORegistration?
    private var clients: [Int32: Client] = [:]

    init(_ control: Control) {
        self.control = control
    }

    /// Listens at a path, where only this user may connect. A socket that was left there is replaced.
    /// - Throws: ``SimulatorError`` where that cannot be.
    func listen(at path: String) throws(SimulatorError) {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let bytes = Array(path.utf8)
        guard !bytes.isEmpty, bytes.count < MemoryLayout.size(ofValue: address.sun_path) else {
            throw SimulatorError(description: "\(path): the path of a socket has 1 to 107 bytes")
        }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: bytes) }
        var status = stat()
        if lstat(path, &status) == 0, status.st_mode & S_IFMT == S_IFSOCK { unlink(path) }
        let kind = Int32(bitPattern: SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
        descriptor = socket(AF_UNIX, kind, 0)
        guard descriptor >= 0 else { throw Self.failure(path) }
        let mask = umask(0o077)
        let bound = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        umask(mask)
        guard bound == 0, Glibc.listen(descriptor, 16) == 0 else { throw failed(path) }
        self.path = path
        do throws(LoopError) {
            registration = try EventLoop.shared.register(descriptor, .read) { [weak self] _ in self?.accept() }
        } catch {
            throw failed(path)
        }
    }

    private func failed(_ path: String) -> SimulatorError {
        let failure = Self.failure(path)
        Glibc.close(descriptor)
        descriptor = -1
        return failure
    }

    private static func failure(_ path: String) -> SimulatorError {
        SimulatorError(description: "\(path) cannot be listened at: \(String(cString: strerror(errno)))")
    }

    func close() {
        registration?.cancel()
        registration = nil
        if descriptor >= 0 { Glibc.close(descriptor) }
        descriptor = -1
        if !path.isEmpty { unlink(path) }
        for client in clients.values { end(client) }
    }

    // MARK: Clients

    private func accept() {
        let accepted = Glibc.accept(descriptor, nil, nil)
        guard accepted >= 0 else { return }
        _ = fcntl(accepted, F_SETFD, FD_CLOEXEC)
        let client = Client(accepted)
        client.registration = try? EventLoop.shared.register(accepted, .read) { [weak self, weak client] events in
            guard let self, let client else { return }
            if events.contains(.write) { flush(client) }
            if !events.isDisjoint(with: [.read, .hangUp, .error]) { receive(client) }
        }
        guard client.registration != nil else {
            Glibc.close(accepted)
            return
        }
        clients[accepted] = client
    }

    private func end(_ client: Client) {
        guard clients.removeValue(forKey: client.descriptor) != nil else { return }
        client.registration?.cancel()
        Glibc.close(client.descriptor)
    }

    private func receive(_ client: Client) {
        var chunk = [UInt8](repeating: 0, count: 65536)
        let count = recv(client.descriptor, &chunk, chunk.count, Int32(MSG_DONTWAIT))
        if count < 0, errno == EAGAIN || errno == EINTR { return }
        guard count > 0 else { return end(client) }
        client.input += chunk[..<count]
        while let newline = client.input.firstIndex(of: 0x0a) {
            client.waiting.append(Array(client.input[..<newline]))
            client.input.removeFirst(newline + 1)
        }
        guard client.input.count <= Self.longestLine else { return end(client) }
        next(client)
    }

    private func next(_ client: Client) {
        guard !client.isBusy, !client.waiting.isEmpty else { return }
        client.isBusy = true
        let line = client.waiting.removeFirst()
        Task { @EventLoopActor [weak self, weak client] in
            guard let self else { return }
            let answer = await control.answer(line)
            guard let client, clients[client.descriptor] === client else { return }
            client.output += answer.serialised() + [0x0a]
            flush(client)
            client.isBusy = false
            next(client)
        }
    }

    private func flush(_ client: Client) {
        while !client.output.isEmpty {
            let count = send(client.descriptor, client.output, client.output.count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT))
            if count < 0, errno == EINTR { continue }
            if count < 0, errno == EAGAIN { break }
            guard count > 0 else { return end(client) }
            client.output.removeFirst(count)
        }
        client.registration?.events = client.output.isEmpty ? .read : [.read, .write]
    }
}
