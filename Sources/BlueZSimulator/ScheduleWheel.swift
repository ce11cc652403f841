/// When each of many entries is due next: a wheel of slots, one for each tick, whose entries are linked through arrays.
/// Adding and taking an entry costs the same however many there are.
struct ScheduleWheel {
    private static let none: Int32 = -1

    private var heads: [Int32]
    private var next: [Int32]
    private var due: [UInt64]
    private var isScheduled: [Bool]
    private let mask: UInt64
    /// The next tick that was not taken yet.
    private(set) var now: UInt64 = 0

    /// - Parameter slots: rounded up to a power of two; entries further away wait for later turns of the wheel.
    init(entries: Int, slots: Int = 4096) {
        var size = 1
        while size < slots { size <<= 1 }
        heads = [Int32](repeating: Self.none, count: size)
        next = [Int32](repeating: Self.none, count: entries)
        due = [UInt64](repeating: 0, count: entries)
        isScheduled = [Bool](repeating: false, count: entries)
        mask = UInt64(size - 1)
    }

    /// Schedules an entry that is not scheduled; one that is stays where it was. A tick that has passed is due at once.
    mutating func add(_ entry: Int, at tick: UInt64) {
        guard next.indices.contains(entry), !isScheduled[entry] else { return }
        isScheduled[entry] = true
        due[entry] = max(tick, now)
        link(Int32(entry), slot: Int(due[entry] & mask))
    }

    /// Appends what is due up to and with `tick` to `entries`, in the order of their ticks; they are scheduled no more.
    mutating func take(upTo tick: UInt64, into entries: inout [Int]) {
        while now <= tick {
            let slot = Int(now & mask)
            var entry = heads[slot]
            heads[slot] = Self.none
            while entry != Self.none {
                let following = next[Int(entry)]
                if due[Int(entry)] <= now {
                    isScheduled[Int(entry)] = false
                    entries.append(Int(entry))
                } else {
                    link(entry, slot: slot)
                }
                entry = following
            }
            now += 1
        }
    }

    private mutating func link(_ entry: Int32, slot: Int) {
        next[Int(entry)] = heads[slot]
        heads[slot] = entry
    }
}
