internal import Bluetooth

/// The newest advertisement of each known device that the broker did not take yet, in the order in which the devices
/// fell behind. Bounded by bytes; empty, and without a cost, while the broker keeps up.
struct NewestAdvertisements {
    struct Kept {
        var topic: [UInt8]
        var payload: [UInt8]
        var size: Int { topic.count + payload.count + 64 }
    }

    static let sizeLimit = 4 << 20

    private var kept: [BluetoothAddress: Kept] = [:]
    private var order: [BluetoothAddress] = []
    private var head = 0
    private var size = 0

    var isEmpty: Bool { kept.isEmpty }
    var count: Int { kept.count }

    /// Takes the newest of a device. False where that costs one: its earlier one, or, without room, this one.
    mutating func keep(
        _ address: BluetoothAddress, topic: UnsafeBufferPointer<UInt8>, payload: UnsafeRawBufferPointer
    ) -> Bool {
        if var older = kept.removeValue(forKey: address) {
            size -= older.size
            older.payload.removeAll(keepingCapacity: true)
            older.payload.append(contentsOf: payload)
            size += older.size
            kept[address] = older
            return false
        }
        let new = Kept(topic: Array(topic), payload: Array(payload))
        guard size + new.size <= Self.sizeLimit else { return false }
        kept[address] = new
        order.append(address)
        size += new.size
        return true
    }

    /// The one that waits longest.
    var first: Kept? { head < order.count ? kept[order[head]] : nil }

    mutating func removeFirst() {
        guard head < order.count else { return }
        if let gone = kept.removeValue(forKey: order[head]) { size -= gone.size }
        head += 1
        if head == order.count {
            order = []
            head = 0
        }
    }

    /// The device is forgotten.
    mutating func remove(_ address: BluetoothAddress) {
        guard let gone = kept.removeValue(forKey: address) else { return }
        size -= gone.size
        order.removeFirst(head)
        head = 0
        order.removeAll { $0 == address }
    }
}
