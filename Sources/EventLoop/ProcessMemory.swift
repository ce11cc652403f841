internal import CLinux
internal import Glibc

/// How much memory the process holds.
public enum ProcessMemory {
    /// Settings for a process whose work is done by one thread, and which gets a large message now and then: one arena
    /// for all threads, since each further one would hold pages of its own; and large blocks from the heap, since a
    /// buffer that once was large would stay a mapping of its own, whose every change of size is a system call.
    /// Source: `mallopt(3)`.
    public static func configure() {
        _ = mallopt(M_ARENA_MAX, 1)
        _ = mallopt(M_MMAP_THRESHOLD, 32 << 20)
        _ = mallopt(M_TRIM_THRESHOLD, 256 << 10)
    }

    /// Gives back the pages of code that have been used so far. Most of them served the start only; what is needed again
    /// comes back from the page cache, in some microseconds a piece. Nothing that was written is touched: only mappings
    /// that can be executed and not written. Sources: `proc_pid_maps(5)`; `madvise(2)`, MADV_DONTNEED.
    public static func dropUsedCode() {
        guard let file = fopen("/proc/self/maps", "re") else { return }
        defer { fclose(file) }
        var line = [CChar](repeating: 0, count: 4_096 + 128)
        while fgets(&line, Int32(line.count), file) != nil {
            // "55d0c8a00000-55d0c8b00000 r-xp 00001000 08:01 1234 /usr/bin/blueferry"
            var next: UnsafeMutablePointer<CChar>?
            line.withUnsafeMutableBufferPointer { text in
                guard let base = text.baseAddress else { return }
                let start = strtoull(base, &next, 16)
                guard let dash = next, dash.pointee == CChar(bitPattern: UInt8(ascii: "-")) else { return }
                let end = strtoull(dash + 1, &next, 16)
                guard let rights = next, start < end, strncmp(rights, " r-xp ", 6) == 0,
                    strchr(rights, Int32(UInt8(ascii: "/"))) != nil
                else { return }
                madvise(UnsafeMutableRawPointer(bitPattern: UInt(start)), Int(end - start), MADV_DONTNEED)
            }
        }
    }

    /// Gives back what was freed. Source: `malloc_trim(3)`.
    public static func returnFreed() {
        _ = malloc_trim(0)
    }
}
