internal import CLinux
internal import Glibc
internal import Synchronization

/// How much memory the process holds.
public enum ProcessMemory {
    private static let isConfigured = Atomic<Bool>(false)

    /// Settings for a process whose work is done by one thread, and which gets a large message now and then: one arena
    /// for all threads, since each further one would hold pages of its own; and large blocks from the heap, since a
    /// buffer that once was large would stay a mapping of its own, whose every change of size is a system call.
    /// Source: `mallopt(3)`.
    public static func configure() {
        _ = mallopt(M_ARENA_MAX, 1)
        _ = mallopt(M_MMAP_THRESHOLD, 32 << 20)
        _ = mallopt(M_TRIM_THRESHOLD, 256 << 10)
        isConfigured.store(true, ordering: .relaxed)
    }

    /// Makes room beside something large that is here for a moment, in a process that was configured so.
    public static func makeRoom() {
        guard isConfigured.load(ordering: .relaxed) else { return }
        returnFreed()
        releaseCode()
    }

    /// Gives back what was freed. Source: `malloc_trim(3)`.
    public static func returnFreed() {
        _ = malloc_trim(0)
    }

    /// Lets go of the pages of code and constants that are mapped by now: much of the program and its libraries runs only
    /// at the start, and the kernel maps sixteen pages where one is touched. What is needed further is mapped again out of
    /// the page cache, which takes well under a millisecond. Source: `madvise(2)`, MADV_DONTNEED.
    public static func releaseCode() {
        clinux_release_code()
    }
}
