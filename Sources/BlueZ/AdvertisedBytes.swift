internal import Glibc

/// What a device says of itself, in one block of memory: its name, its manufacturer data and its service data. There may
/// be thousands of devices, each of which is looked at when the processor has long forgotten it.
struct AdvertisedBytes: ~Copyable {
    enum Part {
        case name, manufacturerData, serviceData
    }

    /// Longer than any advertisement, and than any name that Bluetooth allows: what does not fit is cut, never trusted.
    static let limit = 8192

    private var start: UnsafeMutableRawPointer?
    private var capacity: UInt16 = 0
    private var nameEnd: UInt16 = 0
    private var manufacturerEnd: UInt16 = 0
    private var end: UInt16 = 0

    init() {}

    deinit { free(start) }

    /// The bytes of a part, until the next call that changes one.
    subscript(part: Part) -> UnsafeRawBufferPointer {
        let range = range(of: part)
        guard let start else { return UnsafeRawBufferPointer(start: nil, count: 0) }
        return UnsafeRawBufferPointer(start: start + range.lowerBound, count: range.count)
    }

    private func range(of part: Part) -> Range<Int> {
        switch part {
        case .name: 0..<Int(nameEnd)
        case .manufacturerData: Int(nameEnd)..<Int(manufacturerEnd)
        case .serviceData: Int(manufacturerEnd)..<Int(end)
        }
    }

    /// Puts new bytes, which are not this block's own, in the place of a part's.
    mutating func set(_ part: Part, to bytes: UnsafeRawBufferPointer) {
        let count = min(bytes.count, Self.limit)
        let range = range(of: part)
        if count != range.count, !resize(part, range, to: count) { return }
        guard let start, let from = bytes.baseAddress, count > 0 else { return }
        memcpy(start + range.lowerBound, from, count)
    }

    /// Moves what stands behind a part. False where memory is out.
    private mutating func resize(_ part: Part, _ range: Range<Int>, to count: Int) -> Bool {
        let size = Int(end) - range.count + count
        if size > Int(capacity) {
            // As much as the allocator gives in any case. Three parts of the limit fit 16 bits.
            let larger = (size + 23) / 16 * 16 - 8
            guard let grown = realloc(start, larger) else { return false }
            start = grown
            capacity = UInt16(larger)
        }
        if let start, Int(end) > range.upperBound {
            memmove(start + range.lowerBound + count, start + range.upperBound, Int(end) - range.upperBound)
        }
        let change = count - range.count
        if part == .name { nameEnd = UInt16(Int(nameEnd) + change) }
        if part != .serviceData { manufacturerEnd = UInt16(Int(manufacturerEnd) + change) }
        end = UInt16(size)
        return true
    }
}
