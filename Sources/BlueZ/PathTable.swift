/// Objects by D-Bus path, found by the path's bytes where they lie in a message: no string is built for a look-up.
/// Open addressing with linear probing; a removal closes the gap, so that there are no tombstones.
struct PathTable {
    private var slots: [RemoteObject?]
    private(set) var count = 0

    init() {
        slots = Array(repeating: nil, count: 64)
    }

    private var mask: Int { slots.count &- 1 }

    func find(_ path: UnsafeRawBufferPointer) -> RemoteObject? {
        let hash = Self.hash(path)
        var index = Int(truncatingIfNeeded: hash) & mask
        while let object = slots[index] {
            if object.pathHash == hash, object.hasPath(path) { return object }
            index = (index &+ 1) & mask
        }
        return nil
    }

    func find(_ path: String) -> RemoteObject? {
        var path = path
        return path.withUTF8 { find(UnsafeRawBufferPointer($0)) }
    }

    /// Adds an object whose path is not in the table.
    mutating func insert(_ object: RemoteObject) {
        if (count + 1) * 4 > slots.count * 3 { grow() }
        place(object)
        count += 1
    }

    mutating func remove(_ object: RemoteObject) {
        var index = Int(truncatingIfNeeded: object.pathHash) & mask
        while let found = slots[index], found !== object { index = (index &+ 1) & mask }
        guard slots[index] != nil else { return }
        slots[index] = nil
        count -= 1
        closeGap(at: index)
    }

    var objects: [RemoteObject] { slots.compactMap { $0 } }

    private mutating func place(_ object: RemoteObject) {
        var index = Int(truncatingIfNeeded: object.pathHash) & mask
        while slots[index] != nil { index = (index &+ 1) & mask }
        slots[index] = object
    }

    private mutating func closeGap(at start: Int) {
        var gap = start
        var index = (start &+ 1) & mask
        while let object = slots[index] {
            let home = Int(truncatingIfNeeded: object.pathHash) & mask
            // The object may move back where its home does not lie between the gap and its place.
            if (index &- home) & mask >= (index &- gap) & mask {
                slots[gap] = object
                slots[index] = nil
                gap = index
            }
            index = (index &+ 1) & mask
        }
    }

    private mutating func grow() {
        let old = objects
        slots = Array(repeating: nil, count: slots.count * 2)
        for object in old { place(object) }
    }

    /// Eight bytes at a time, multiplied and folded. Paths come from the system's own daemon: no seed is needed.
    static func hash(_ path: UnsafeRawBufferPointer) -> UInt64 {
        var hash: UInt64 = 0x9e37_79b9_7f4a_7c15 ^ UInt64(path.count)
        var offset = 0
        while offset &+ 8 <= path.count {
            hash = mix(hash ^ path.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
            offset &+= 8
        }
        var tail: UInt64 = 0
        while offset < path.count {
            tail = tail << 8 | UInt64(path[offset])
            offset &+= 1
        }
        return mix(hash ^ tail)
    }

    private static func mix(_ value: UInt64) -> UInt64 {
        let product = value.multipliedFullWidth(by: 0xd6e8_feb8_6659_fd93)
        return product.high ^ product.low
    }
}
