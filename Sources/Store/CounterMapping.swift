internal import CMapping

/// Numbers of 8 bytes in a file, set without a call to the kernel: they are in its page cache at once, and outlive the
/// process as what `write(2)` has written. A file that somebody cuts off costs an error, and not the process.
/// Source: `mmap(2)`, MAP_SHARED.
final class CounterMapping: Sendable {
    private let index: Int32

    /// Nil where the file system offers none, or four others are in use.
    /// - Parameter length: that the file never exceeds.
    init?(descriptor: Int32, length: Int) {
        // Before there is an instance whose end would unmap something.
        let index = cmapping_map(descriptor, length)
        guard index >= 0 else { return nil }
        self.index = index
    }

    /// - Parameter place: a multiple of 8, with 8 bytes of the file behind it.
    /// - Returns: false where the file has not got it, and will not any more.
    func store(_ value: UInt64, at place: Int) -> Bool { cmapping_store(index, place, value.littleEndian) != 0 }

    deinit { cmapping_unmap(index) }
}
