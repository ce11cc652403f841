public import Bluetooth

/// Keyed byte strings of an advertisement in one flat buffer that is written anew with each one: after the first, no
/// memory is taken. An entry is its key (2 or 16 bytes), its length (2 bytes) and its bytes.
public struct RecordBuffer {
    public private(set) var count = 0
    private var bytes: [UInt8] = []

    public init() {}

    public var isEmpty: Bool { count == 0 }

    mutating func removeAll() {
        bytes.removeAll(keepingCapacity: true)
        count = 0
    }

    mutating func append(company: UInt16, _ value: UnsafeRawBufferPointer) {
        withUnsafeBytes(of: company) { append(key: $0, value) }
    }

    mutating func append(uuid: BluetoothUUID, _ value: UnsafeRawBufferPointer) {
        withUnsafeBytes(of: (uuid.high, uuid.low)) { append(key: $0, value) }
    }

    private mutating func append(key: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer) {
        // Longer than any advertisement: what does not fit the length field is cut, never trusted.
        let length = UInt16(clamping: value.count)
        // No more than is needed: there may be thousands of devices.
        bytes.reserveCapacity(bytes.count + key.count + 2 + Int(length))
        bytes.append(contentsOf: key)
        withUnsafeBytes(of: length) { bytes.append(contentsOf: $0) }
        bytes.append(contentsOf: UnsafeRawBufferPointer(rebasing: value[..<Int(length)]))
        count += 1
    }

    /// Each record of manufacturer data: company identifier and what follows it.
    public func forEachCompany(_ body: (UInt16, UnsafeRawBufferPointer) -> Void) {
        forEach(keySize: 2) { key, value in body(key.loadUnaligned(as: UInt16.self), value) }
    }

    /// Each record of service data.
    public func forEachService(_ body: (BluetoothUUID, UnsafeRawBufferPointer) -> Void) {
        forEach(keySize: 16) { key, value in
            let high = key.loadUnaligned(as: UInt64.self)
            let low = key.loadUnaligned(fromByteOffset: 8, as: UInt64.self)
            body(BluetoothUUID(high: high, low: low), value)
        }
    }

    private func forEach(keySize: Int, _ body: (UnsafeRawBufferPointer, UnsafeRawBufferPointer) -> Void) {
        bytes.withUnsafeBytes { buffer in
            var offset = 0
            while offset + keySize + 2 <= buffer.count {
                let key = UnsafeRawBufferPointer(rebasing: buffer[offset..<offset + keySize])
                let length = Int(buffer.loadUnaligned(fromByteOffset: offset + keySize, as: UInt16.self))
                let start = offset + keySize + 2
                guard start + length <= buffer.count else { return }
                body(key, UnsafeRawBufferPointer(rebasing: buffer[start..<start + length]))
                offset = start + length
            }
        }
    }
}
