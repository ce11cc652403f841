internal import Bluetooth
internal import Foundation

/// A device as the engine names it: its identity address and that address's type.
struct DeviceKey: Hashable, Sendable {
    let address: BluetoothAddress
    let type: AddressType

    init(_ address: BluetoothAddress, _ type: AddressType) {
        self.address = address
        self.type = type
    }

    // "blue", "fe", version 8 (RFC 9562: an own layout), the type, the variant; then the address.
    private static let prefix: [UInt8] = [0x62, 0x6c, 0x75, 0x65, 0x66, 0x65, 0x80]

    /// The identifier: the address in an own layout, so that it needs no table and reads the same after a restart.
    var identifier: UUID {
        let a = address.bytes
        let p = Self.prefix
        return UUID(
            uuid: (
                p[0], p[1], p[2], p[3], p[4], p[5], p[6], type == .random ? 1 : 0,
                0x80, 0, a[0], a[1], a[2], a[3], a[4], a[5]
            ))
    }

    /// Nil for an identifier that is not of this making.
    init?(identifier: UUID) {
        let bytes = withUnsafeBytes(of: identifier.uuid) { Array($0) }
        guard bytes.count == 16, Array(bytes[0..<7]) == Self.prefix, bytes[7] <= 1, bytes[8] == 0x80, bytes[9] == 0
        else { return nil }
        let value = bytes[10...].reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        self.init(BluetoothAddress(value: value), bytes[7] == 1 ? .random : .public)
    }
}
