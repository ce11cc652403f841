internal import Glibc

/// Holds a file for this process alone, for as long as it is kept. Source: `flock(2)`.
public final class FileLock: Sendable {
    private let descriptor: Int32

    /// - Throws: ``StoreError`` with the code `busy` where another process holds it, which it names where it can.
    public init(path: String) throws(StoreError) {
        descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else {
            let number = errno
            let isFull = number == ENOSPC || number == EDQUOT
            throw StoreError(
                code: isFull ? .diskFull : number == EROFS ? .readOnly : .cannotOpen,
                message: "\(path) cannot be opened: \(String(cString: strerror(number)))", result: number)
        }
        guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
            let number = errno
            var text = [UInt8](repeating: 0, count: 16)
            let count = max(0, pread(descriptor, &text, text.count, 0))
            Glibc.close(descriptor)
            let holder = String(decoding: text.prefix(count).prefix { (0x30...0x39).contains($0) }, as: UTF8.self)
            throw StoreError(
                code: number == EWOULDBLOCK ? .busy : .inputOutput,
                message: number == EWOULDBLOCK
                    ? "another process\(holder.isEmpty ? "" : " (\(holder))") holds \(path)"
                    : "\(path) cannot be locked: \(String(cString: strerror(number)))", result: number)
        }
        // For whoever finds it locked; without it the lock holds as well.
        let name = Array("\(getpid())\n".utf8)
        if ftruncate(descriptor, 0) == 0 { _ = pwrite(descriptor, name, name.count, 0) }
    }

    deinit { Glibc.close(descriptor) }

    /// Lets others have it. Harmless a second time.
    public func unlock() { flock(descriptor, LOCK_UN) }
}
