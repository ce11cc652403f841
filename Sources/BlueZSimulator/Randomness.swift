internal import Bluetooth

/// Numbers that look random and are the same in each run with the same seed (SplitMix64).
struct Randomness: RandomNumberGenerator {
    private var state: UInt64

    /// - Parameter name: sets apart those that share a seed.
    init(seed: UInt64, name: String) {
        // FNV-1a
        state = name.utf8.reduce(0xcbf2_9ce4_8422_2325 ^ seed) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
    }

    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var value = state
        value = (value ^ value >> 30) &* 0xbf58_476d_1ce4_e5b9
        value = (value ^ value >> 27) &* 0x94d0_49bb_1331_11eb
        return value ^ value >> 31
    }

    /// A resolvable private address, by its two top bits. Source: Bluetooth Core, Vol 6 Part B §1.3.2.2.
    mutating func privateAddress() -> BluetoothAddress {
        BluetoothAddress(value: next() & 0x3fff_ffff_ffff | 0x4000_0000_0000)
    }
}
