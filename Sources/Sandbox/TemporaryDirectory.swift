internal import Glibc

/// A directory of its own, for its owner alone, that goes with everything in it when it is removed or let go.
public final class TemporaryDirectory: Sendable {
    public let path: String

    /// Creates the directory under `TMPDIR`, or `/tmp`. Source: `mkdtemp(3)`.
    /// - Throws: ``SandboxError`` where the file system refuses.
    public init(prefix: String = "blueferry") throws(SandboxError) {
        let parent = getenv("TMPDIR").map { String(cString: $0) } ?? ""
        var template = Array("\(parent.isEmpty ? "/tmp" : parent)/\(prefix)-XXXXXX".utf8CString)
        guard let made = mkdtemp(&template) else {
            throw SandboxError(
                .system,
                "no directory can be made in \(parent.isEmpty ? "/tmp" : parent): \(String(cString: strerror(errno)))")
        }
        path = String(cString: made)
    }

    deinit { remove() }

    /// Removes the directory and what is in it. Symbolic links are not followed. Later calls do nothing.
    public func remove() {
        Self.removeTree(path)
    }

    /// The path of a file in the directory.
    public func file(_ name: String) -> String { path + "/" + name }

    /// Writes a file that only its owner can read.
    /// - Throws: ``SandboxError`` where the file system refuses.
    @discardableResult
    public func write(_ text: String, to name: String) throws(SandboxError) -> String {
        let path = file(name)
        let descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else {
            throw SandboxError(.system, "\(path) cannot be written: \(String(cString: strerror(errno)))")
        }
        defer { close(descriptor) }
        var text = text
        let isWritten = text.withUTF8 { bytes in
            var rest = UnsafeRawBufferPointer(bytes)
            while !rest.isEmpty {
                let count = Glibc.write(descriptor, rest.baseAddress, rest.count)
                if count < 0, errno == EINTR { continue }
                guard count > 0 else { return false }
                rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst(count))
            }
            return true
        }
        guard isWritten else {
            throw SandboxError(.system, "\(path) cannot be written: \(String(cString: strerror(errno)))")
        }
        return path
    }

    private static func removeTree(_ path: String) {
        guard let directory = opendir(path) else { return }
        while let entry = readdir(directory) {
            let name = withUnsafeBytes(of: entry.pointee.d_name) { bytes in
                String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
            }
            if name == "." || name == ".." { continue }
            let child = path + "/" + name
            if entry.pointee.d_type == UInt8(DT_DIR) { removeTree(child) } else { unlink(child) }
        }
        closedir(directory)
        rmdir(path)
    }
}
