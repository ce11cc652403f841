internal import Glibc
internal import Synchronization

/// Counters that outlive the process: each is in the file before it counts, so that a killed process has lost none and
/// used none twice. They cost no wait for the disk, and where the file can be mapped no call to the kernel; so what a
/// power cut leaves is of no use, and a file that was not closed before the machine restarted begins anew, under another
/// epoch.
public final class CounterFile: Sendable {
    /// Where a counter stands in the file.
    public typealias Slot = Int

    public let path: String
    private let state: Mutex<State>

    private struct State {
        var descriptor: Int32
        /// Nil where there is none: then each value is written.
        var mapping: CounterMapping?
        var epoch: UInt32
        var commits: UInt32
        /// Where the next counter goes.
        var end: Slot
        var slots: [[UInt8]: (slot: Slot, value: UInt64)]
    }

    /// 16 bytes of kind, the epoch, 1 where the file was closed, the machine's boot that it was used in, and the number of
    /// commits.
    private static let headerSize: Slot = 64
    private static let kind = Array("bf-counters-001\n".utf8)
    private static let bootSize = 36
    private static let commitsPlace: Slot = 60
    /// A counter: its value in 8 bytes, the length of its key in 2, the key, and zeros up to a multiple of 8.
    private static let recordHead = 10
    private static let sizeLimit = 64 << 20
    /// What the last record may take beyond that.
    private static let slack = 1 << 17
    /// Beyond so many counters of ever a file begins anew when it is opened.
    private static let limit = 50_000

    /// Opens a file, or makes it.
    /// - Parameter boot: what tells one run of the machine from another; nil: the kernel's boot identifier.
    /// - Parameter isNew: true to begin anew in any case.
    /// - Throws: ``StoreError`` where it cannot be read or written.
    public convenience init(path: String, isNew: Bool = false, boot: [UInt8]? = nil) throws(StoreError) {
        try self.init(path: path, isNew: isNew, boot: boot, isMapped: true)
    }

    init(path: String, isNew: Bool = false, boot: [UInt8]?, isMapped: Bool) throws(StoreError) {
        self.path = path
        let descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw Self.error(path, "cannot be opened") }
        do throws(StoreError) {
            let boot = Array((boot ?? Self.bootIdentifier()).prefix(Self.bootSize))
            let bytes = try Self.readAll(descriptor, path)
            let kept = isNew ? nil : Self.parse(bytes, boot: boot)
            var state = State(
                descriptor: descriptor, epoch: kept?.epoch ?? .random(in: 0...(.max)), commits: kept?.commits ?? 0,
                end: Self.headerSize, slots: [:])
            if let kept {
                state.end = kept.end
                state.slots = kept.slots
            }
            try Self.writeHeader(state, boot: boot, isClosed: false, path)
            guard ftruncate(descriptor, state.end) == 0, fsync(descriptor) == 0 else {
                throw Self.error(path, "cannot be written")
            }
            if isMapped { state.mapping = CounterMapping(descriptor: descriptor, length: Self.sizeLimit + Self.slack) }
            self.state = Mutex(state)
        } catch {
            Glibc.close(descriptor)
            throw error
        }
    }

    deinit {
        state.withLock { state in
            if state.descriptor >= 0 { Glibc.close(state.descriptor) }
        }
    }

    /// New with each file that begins anew.
    public var epoch: UInt32 { state.withLock { $0.epoch } }

    /// Commits of the database beside it, as noted last; it wraps around. 0 where none was noted since the file began.
    public var commits: UInt32 { state.withLock { $0.commits } }

    /// Notes that the database has so many commits: a database that is found with fewer has lost some.
    public func note(commits: UInt32) throws(StoreError) {
        try locked { (state) throws(StoreError) in
            try Self.write(Self.bytes(commits), state.descriptor, at: Self.commitsPlace, path)
            state.commits = commits
        }
    }

    /// A counter's place and value; one that is not known begins at 0.
    public func counter(_ key: [UInt8]) throws(StoreError) -> (slot: Slot, value: UInt64) {
        try locked { (state) throws(StoreError) in
            if let known = state.slots[key] { return known }
            guard let length = UInt16(exactly: key.count), state.end < Self.sizeLimit else {
                throw StoreError(code: .misuse, message: "\(path): no room for another counter", result: 0)
            }
            var record = [UInt8](repeating: 0, count: 8)
            record += [UInt8(truncatingIfNeeded: length), UInt8(truncatingIfNeeded: length >> 8)] + key
            record += [UInt8](repeating: 0, count: (8 - record.count % 8) % 8)
            try Self.write(record, state.descriptor, at: state.end, path)
            let counter = (slot: state.end, value: UInt64(0))
            state.slots[key] = counter
            state.end += Slot(record.count)
            return counter
        }
    }

    /// Sets a counter. When this returns, the end of the process loses nothing of it.
    public func set(_ slot: Slot, to value: UInt64) throws(StoreError) {
        try locked { (state) throws(StoreError) in
            guard slot >= Self.headerSize, slot <= state.end - 8, slot % 8 == 0 else {
                throw StoreError(code: .misuse, message: "\(path): no counter stands at \(slot)", result: 0)
            }
            if let isStored = state.mapping?.store(value, at: slot) {
                guard !isStored else { return }
                state.mapping = nil
                throw StoreError(code: .inputOutput, message: "\(path) was cut off, or its disk is full", result: EIO)
            }
            var value = value.littleEndian
            let written = withUnsafeBytes(of: &value) { pwrite(state.descriptor, $0.baseAddress, $0.count, slot) }
            guard written == 8 else { throw Self.error(path, "cannot be written") }
        }
    }

    /// Forgets all counters, and begins a new epoch.
    public func renew() throws(StoreError) {
        try locked { (state) throws(StoreError) in
            // The epoch first: cut off in between, old numbers go on under the new epoch, and none is used twice.
            state.epoch &+= 1
            try Self.write(Self.bytes(state.epoch), state.descriptor, at: Slot(Self.kind.count), path)
            state.slots = [:]
            state.end = Self.headerSize
            _ = ftruncate(state.descriptor, state.end)
        }
    }

    /// Brings all to the disk, as good for the next run of the machine too. Later calls throw.
    public func close() {
        state.withLock { state in
            guard state.descriptor >= 0 else { return }
            if fsync(state.descriptor) == 0 {
                try? Self.write(Self.bytes(1), state.descriptor, at: Slot(Self.kind.count) + 4, path)
                fsync(state.descriptor)
            }
            state.mapping = nil
            Glibc.close(state.descriptor)
            state.descriptor = -1
        }
    }

    private func locked<Value>(
        _ body: (inout State) throws(StoreError) -> Value
    ) throws(StoreError) -> Value {
        let result: Result<Value, StoreError> = state.withLock { state in
            guard state.descriptor >= 0 else {
                return .failure(StoreError(code: .misuse, message: "\(path) is closed", result: 0))
            }
            do throws(StoreError) { return .success(try body(&state)) } catch { return .failure(error) }
        }
        return try result.get()
    }

    // MARK: The file

    /// Nil where the file holds nothing that may be used.
    private static func parse(
        _ bytes: [UInt8], boot: [UInt8]
    ) -> (epoch: UInt32, commits: UInt32, end: Slot, slots: [[UInt8]: (slot: Slot, value: UInt64)])? {
        guard bytes.count >= Int(headerSize), bytes.starts(with: kind) else { return nil }
        let epoch = UInt32(truncatingIfNeeded: number(bytes, at: 16, size: 4))
        let isClosed = number(bytes, at: 20, size: 4) == 1
        guard isClosed || (!boot.isEmpty && bytes[24...].starts(with: boot)) else { return nil }
        var slots: [[UInt8]: (slot: Slot, value: UInt64)] = [:]
        var offset = Int(headerSize)
        while bytes.count - offset >= recordHead {
            let length = Int(number(bytes, at: offset + 8, size: 2))
            let size = (recordHead + length + 7) / 8 * 8
            guard length > 0, bytes.count - offset >= size else { break }
            let key = Array(bytes[offset + recordHead..<offset + recordHead + length])
            slots[key] = (Slot(offset), number(bytes, at: offset, size: 8))
            offset += size
        }
        guard slots.count <= limit else { return nil }
        let commits = UInt32(truncatingIfNeeded: number(bytes, at: Int(commitsPlace), size: 4))
        return (epoch, commits, Slot(offset), slots)
    }

    private static func number(_ bytes: [UInt8], at offset: Int, size: Int) -> UInt64 {
        bytes[offset..<offset + size].reversed().reduce(0) { $0 << 8 | UInt64($1) }
    }

    private static func bytes(_ number: UInt32) -> [UInt8] {
        withUnsafeBytes(of: number.littleEndian) { Array($0) }
    }

    private static func writeHeader(
        _ state: State, boot: [UInt8], isClosed: Bool, _ path: String
    ) throws(StoreError) {
        var header = kind + bytes(state.epoch) + bytes(isClosed ? 1 : 0) + boot
        header += [UInt8](repeating: 0, count: Int(commitsPlace) - header.count) + bytes(state.commits)
        try write(header, state.descriptor, at: 0, path)
    }

    private static func write(
        _ bytes: [UInt8], _ descriptor: Int32, at offset: Slot, _ path: String
    ) throws(StoreError) {
        guard pwrite(descriptor, bytes, bytes.count, offset) == bytes.count else {
            throw error(path, "cannot be written")
        }
    }

    private static func readAll(_ descriptor: Int32, _ path: String) throws(StoreError) -> [UInt8] {
        let size = lseek(descriptor, 0, SEEK_END)
        guard size >= 0, size <= sizeLimit else { throw error(path, "cannot be read") }
        var bytes = [UInt8](repeating: 0, count: Int(size))
        var done = 0
        while done < bytes.count {
            let count = bytes.withUnsafeMutableBytes { buffer in
                pread(descriptor, buffer.baseAddress.map { $0 + done }, buffer.count - done, off_t(done))
            }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { break }
            done += count
        }
        guard done == bytes.count else { throw error(path, "cannot be read") }
        return bytes
    }

    /// Source: `/proc/sys/kernel/random/boot_id`, random(4). Empty where it is not to be had.
    private static func bootIdentifier() -> [UInt8] {
        let descriptor = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return [] }
        defer { Glibc.close(descriptor) }
        var bytes = [UInt8](repeating: 0, count: bootSize)
        return read(descriptor, &bytes, bytes.count) == bytes.count ? bytes : []
    }

    private static func error(_ path: String, _ what: String) -> StoreError {
        let number = errno
        let code: StoreError.Code =
            switch number {
            case ENOSPC, EDQUOT, EFBIG: .diskFull
            case EROFS: .readOnly
            case EACCES, EPERM, ENOENT, ENOTDIR, ELOOP, EISDIR: .cannotOpen
            default: .inputOutput
            }
        return StoreError(code: code, message: "\(path) \(what): \(String(cString: strerror(number)))", result: number)
    }
}
