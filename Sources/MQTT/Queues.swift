/// The sizes of QoS 0 packets that wait for the socket, first in, first out. Steady state allocates nothing.
struct SizeQueue {
    private var ring = [Int32](repeating: 0, count: 64)
    private var head = 0
    private(set) var count = 0
    private(set) var bytes = 0

    mutating func append(_ size: Int) {
        if count == ring.count { grow() }
        ring[(head + count) & (ring.count - 1)] = Int32(clamping: size)
        count += 1
        bytes += Int(Int32(clamping: size))
    }

    mutating func removeFirst() {
        guard count > 0 else { return }
        bytes -= Int(ring[head])
        head = (head + 1) & (ring.count - 1)
        count -= 1
    }

    mutating func removeAll() {
        head = 0
        count = 0
        bytes = 0
    }

    private mutating func grow() {
        var larger = [Int32](repeating: 0, count: ring.count * 2)
        for index in 0..<count { larger[index] = ring[(head + index) & (ring.count - 1)] }
        ring = larger
        head = 0
    }
}

/// Messages of QoS 1 that wait for their acknowledgement, in the order they were given. Brokers acknowledge in that
/// order, so that the search ends at the front.
struct TokenQueue {
    private struct Entry {
        let packet: UInt16
        let size: Int32
        let token: UInt64
    }

    private var entries: [Entry] = []
    private var head = 0
    private(set) var bytes = 0

    var count: Int { entries.count - head }

    mutating func append(packet: UInt16, token: UInt64, size: Int) {
        entries.append(Entry(packet: packet, size: Int32(clamping: size), token: token))
        bytes += Int(Int32(clamping: size))
    }

    /// Takes out the oldest message that was sent under a packet identifier. An identifier comes back after 65,535
    /// packets, and may then stand here twice.
    mutating func remove(packet: UInt16) -> PublishToken? {
        guard let index = entries[head...].firstIndex(where: { $0.packet == packet }) else { return nil }
        let entry = entries[index]
        bytes -= Int(entry.size)
        if index == head {
            head += 1
            if head == entries.count || head >= 1_024 {
                entries.removeFirst(head)
                head = 0
            }
        } else {
            entries.remove(at: index)
        }
        return PublishToken(number: entry.token)
    }

    mutating func removeAll() -> [PublishToken] {
        defer {
            entries.removeAll()
            head = 0
            bytes = 0
        }
        return entries[head...].map { PublishToken(number: $0.token) }
    }
}
