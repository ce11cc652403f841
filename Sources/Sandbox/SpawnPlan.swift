internal import EventLoop
internal import Glibc

/// The descriptors of a child, made before it is started and sorted out after.
@EventLoopActor
struct SpawnPlan {
    /// Our end of the standard input; -1 without one.
    private(set) var input: Int32 = -1
    /// Our ends of the outputs that are read by line.
    private(set) var lines: [(descriptor: Int32, handler: @EventLoopActor (String) -> Void)] = []
    private var childSide: [Int32] = []
    private var standard: [Int32] = []

    init(hasInput: Bool, output: ChildProcess.Output, errors: ChildProcess.Output) throws(SandboxError) {
        do throws(SandboxError) {
            try addInput(hasInput)
            try add(output, inherited: STDOUT_FILENO)
            try add(errors, inherited: STDERR_FILENO)
        } catch {
            closeChildSide()
            closeOurSide()
            throw error
        }
    }

    private mutating func addInput(_ hasInput: Bool) throws(SandboxError) {
        guard hasInput else { return try addFile("/dev/null", O_RDONLY) }
        input = try addSocket()
    }

    /// Sockets and not pipes, since only a socket can be written to without SIGPIPE. Gives back our end.
    private mutating func addSocket() throws(SandboxError) -> Int32 {
        var ends: [Int32] = [-1, -1]
        let kind = Int32(bitPattern: SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, kind, 0, &ends) == 0 else { throw Self.failure("socketpair") }
        childSide.append(ends[1])
        standard.append(ends[1])
        return ends[0]
    }

    private mutating func add(_ output: ChildProcess.Output, inherited: Int32) throws(SandboxError) {
        switch output {
        case .inherit: standard.append(inherited)
        case .discard: try addFile("/dev/null", O_WRONLY)
        case .file(let path): try addFile(path, O_WRONLY | O_CREAT | O_APPEND)
        case .lines(let handler):
            lines.append((try addSocket(), handler))
        }
    }

    private mutating func addFile(_ path: String, _ flags: Int32) throws(SandboxError) {
        let descriptor = open(path, flags | O_CLOEXEC, 0o644)
        guard descriptor >= 0 else { throw Self.failure(path) }
        childSide.append(descriptor)
        standard.append(descriptor)
    }

    /// Starts the program; gives back its process number.
    func spawn(_ command: [String], environment: [String: String]) throws(SandboxError) -> Int32 {
        guard let path = command.first else { throw SandboxError(.system, "no program to start") }
        do throws(LoopError) {
            return try spawnProcess(
                path, command, environment: environment.map { "\($0.key)=\($0.value)" }, descriptors: standard)
        } catch {
            throw SandboxError(.system, "\(path) cannot be started: \(String(cString: strerror(error.errno)))")
        }
    }

    /// Closes what only the child needs.
    mutating func closeChildSide() {
        for descriptor in childSide { close(descriptor) }
        childSide = []
    }

    /// Closes what would have been ours, where no child came of it.
    mutating func closeOurSide() {
        if input >= 0 { close(input) }
        for (descriptor, _) in lines { close(descriptor) }
        input = -1
        lines = []
    }

    private static func failure(_ what: String) -> SandboxError {
        SandboxError(.system, "\(what): \(String(cString: strerror(errno)))")
    }
}

/// Reads an output to its end and gives each line to a handler. It lives as long as the child has it open.
@EventLoopActor
final class LineReader {
    private static let longestLine = 1 << 20

    private let descriptor: Int32
    private let handler: @EventLoopActor (String) -> Void
    private let onDone: @EventLoopActor () -> Void
    private var registration: IORegistration?
    private var partial: [UInt8] = []
    private(set) var isDone = false

    init(
        _ descriptor: Int32, _ handler: @escaping @EventLoopActor (String) -> Void,
        onDone: @escaping @EventLoopActor () -> Void
    ) {
        self.descriptor = descriptor
        self.handler = handler
        self.onDone = onDone
        registration = try? EventLoop.shared.register(descriptor, .read) { _ in self.read() }
        if registration == nil { end() }
    }

    private func read() {
        let bytes = [UInt8](unsafeUninitializedCapacity: 16_384) { buffer, count in
            count = max(0, Glibc.read(descriptor, buffer.baseAddress, buffer.count))
        }
        guard !bytes.isEmpty else { return end() }
        for part in bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).dropLast() {
            flush(adding: part)
        }
        // What follows the last line feed, or all of it where there is none.
        partial += bytes.suffix(while: { $0 != UInt8(ascii: "\n") })
        if partial.count > Self.longestLine { flush(adding: []) }
    }

    private func flush(adding part: ArraySlice<UInt8>) {
        let line = String(decoding: partial + part, as: UTF8.self)
        partial.removeAll()
        handler(line)
    }

    private func end() {
        guard !isDone else { return }
        isDone = true
        registration?.cancel()
        registration = nil
        close(descriptor)
        if !partial.isEmpty { flush(adding: []) }
        onDone()
    }
}

extension [UInt8] {
    /// The longest end of the array whose elements all satisfy `predicate`.
    fileprivate func suffix(while predicate: (UInt8) -> Bool) -> ArraySlice<UInt8> {
        var start = endIndex
        while start > startIndex, predicate(self[start - 1]) { start -= 1 }
        return self[start...]
    }
}
