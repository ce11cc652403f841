public import Bluetooth
internal import Glibc

/// Keyed byte strings of an advertisement as they lie in memory, one after another, until the device's next one. Each is
/// its key (2 or 16 bytes), its length (2 bytes) and its bytes.
public struct Records {
    let bytes: UnsafeRawBufferPointer

    public var isEmpty: Bool { bytes.isEmpty }

    /// Each record of manufacturer data: company identifier and what follows it.
    public func forEachCompany(_ body: (UInt16, UnsafeRawBufferPointer) -> Void) {
        var place = 0
        while let (value, end) = value(at: place + 2) {
            body(bytes.loadUnaligned(fromByteOffset: place, as: UInt16.self), value)
            place = end
        }
    }

    /// Each record of service data.
    public func forEachService(_ body: (BluetoothUUID, UnsafeRawBufferPointer) -> Void) {
        var place = 0
        while let (value, end) = value(at: place + 16) {
            let high = bytes.loadUnaligned(fromByteOffset: place, as: UInt64.self)
            let low = bytes.loadUnaligned(fromByteOffset: place + 8, as: UInt64.self)
            body(BluetoothUUID(high: high, low: low), value)
            place = end
        }
    }

    /// The value whose length stands there, and where it ends; nil behind the last one.
    private func value(at place: Int) -> (UnsafeRawBufferPointer, Int)? {
        guard place + 2 <= bytes.count else { return nil }
        let start = place + 2
        let end = start + Int(bytes.loadUnaligned(fromByteOffset: place, as: UInt16.self))
        guard end <= bytes.count else { return nil }
        return (UnsafeRawBufferPointer(rebasing: bytes[start..<end]), end)
    }
}

/// Where the records of one advertisement are put together, again and again.
final class RecordWriter {
    private let start = UnsafeMutableRawPointer.allocate(byteCount: AdvertisedBytes.limit, alignment: 8)
    private var count = 0

    deinit { start.deallocate() }

    var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: start, count: count) }

    func removeAll() { count = 0 }

    func append(company: UInt16, _ value: UnsafeRawBufferPointer) {
        guard let place = place(for: value, keySize: 2) else { return }
        place.storeBytes(of: company, as: UInt16.self)
        append(value, behind: 2)
    }

    func append(uuid: BluetoothUUID, _ value: UnsafeRawBufferPointer) {
        guard let place = place(for: value, keySize: 16) else { return }
        place.storeBytes(of: uuid.high, as: UInt64.self)
        (place + 8).storeBytes(of: uuid.low, as: UInt64.self)
        append(value, behind: 16)
    }

    /// Nil for what is longer than any advertisement: it is left out.
    private func place(for value: UnsafeRawBufferPointer, keySize: Int) -> UnsafeMutableRawPointer? {
        value.count <= AdvertisedBytes.limit - count - keySize - 2 ? start + count : nil
    }

    private func append(_ value: UnsafeRawBufferPointer, behind keySize: Int) {
        let place = start + count + keySize
        place.storeBytes(of: UInt16(value.count), as: UInt16.self)
        if let from = value.baseAddress { memcpy(place + 2, from, value.count) }
        count += keySize + 2 + value.count
    }
}
