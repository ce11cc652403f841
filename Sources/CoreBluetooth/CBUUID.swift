// Apple's names.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

internal import Bluetooth
public import Foundation

/// A UUID of 16, 32 or 128 bits, as Bluetooth uses for services, characteristics and descriptors.
///
/// The three forms of one UUID on the Bluetooth base are equal and have equal hashes
/// (Bluetooth Core, Vol 3 Part B §2.5.1); ``uuidString`` and ``data`` keep the form that was given.
///
/// `@unchecked Sendable`: immutable.
open class CBUUID: NSObject, NSCopying, @unchecked Sendable {
    let value: BluetoothUUID
    private let width: Int

    /// Reads 4, 8 or 36 characters, in either case, with or without `0x`.
    ///
    /// Apple's stops the program on any other text. Here the misuse is logged, and the result is a UUID of zeros, which
    /// no attribute has.
    public init(string theString: String) {
        let hasPrefix = theString.hasPrefix("0x") || theString.hasPrefix("0X")
        let length = theString.utf8.count - (hasPrefix ? 2 : 0)
        if length == 4 || length == 8 || length == 36, let value = BluetoothUUID(parsing: theString) {
            self.value = value
            width = length == 36 ? 16 : length / 2
        } else {
            Misuse.log("CBUUID(string:) takes 4, 8 or 36 characters of hexadecimal, not \(theString.debugDescription)")
            value = BluetoothUUID(high: 0, low: 0)
            width = 16
        }
        super.init()
    }

    /// Reads 2, 4 or 16 bytes, most significant first. Other lengths are logged and give a UUID of zeros.
    public init(data theData: Data) {
        if [2, 4, 16].contains(theData.count), let value = BluetoothUUID(littleEndian: Array(theData.reversed())) {
            self.value = value
            width = theData.count
        } else {
            Misuse.log("CBUUID(data:) takes 2, 4 or 16 bytes, not \(theData.count)")
            value = BluetoothUUID(high: 0, low: 0)
            width = 16
        }
        super.init()
    }

    /// The same 128 bits as `theUUID`.
    public init(nsuuid theUUID: UUID) {
        let bytes = withUnsafeBytes(of: theUUID.uuid) { Array($0.reversed()) }
        value = BluetoothUUID(littleEndian: bytes) ?? BluetoothUUID(high: 0, low: 0)
        width = 16
        super.init()
    }

    /// In the shortest form, as for what a device itself tells.
    init(_ value: BluetoothUUID) {
        self.value = value
        width = value.short != nil ? 2 : value.short32 != nil ? 4 : 16
        super.init()
    }

    /// The bytes, most significant first: 2, 4 or 16, as the UUID was given.
    open var data: Data {
        let bytes = [value.high, value.low].flatMap { half in
            (0..<8).map { UInt8(truncatingIfNeeded: half >> UInt64(56 - 8 * $0)) }
        }
        return switch width {
        case 2: Data(bytes[2..<4])
        case 4: Data(bytes[0..<4])
        default: Data(bytes)
        }
    }

    /// Upper-case: 4 or 8 digits, or the dashed 36 characters, as the UUID was given.
    open var uuidString: String {
        let full = value.description.uppercased()
        return switch width {
        case 2: String(full.dropFirst(4).prefix(4))
        case 4: String(full.prefix(8))
        default: full
        }
    }

    open override var description: String { uuidString }

    open override func isEqual(_ object: Any?) -> Bool {
        (object as? CBUUID).map { $0.value == value } ?? false
    }

    open override var hash: Int { value.hashValue }

    open func copy(with zone: NSZone? = nil) -> Any { self }
}

/// Descriptor: extended properties.
public let CBUUIDCharacteristicExtendedPropertiesString = "2900"
/// Descriptor: a text for people.
public let CBUUIDCharacteristicUserDescriptionString = "2901"
/// Descriptor: notifications and indications; see ``CBPeripheral/setNotifyValue(_:for:)``.
public let CBUUIDClientCharacteristicConfigurationString = "2902"
/// Descriptor: broadcasts.
public let CBUUIDServerCharacteristicConfigurationString = "2903"
/// Descriptor: presentation format.
public let CBUUIDCharacteristicFormatString = "2904"
/// Descriptor: several presentation formats.
public let CBUUIDCharacteristicAggregateFormatString = "2905"
/// Descriptor: the range of the value.
public let CBUUIDCharacteristicValidRangeString = "2906"
/// Descriptor: when the value is observed.
public let CBUUIDCharacteristicObservationScheduleString = "2910"
/// The characteristic that publishes a PSM for ``CBPeripheral/openL2CAPChannel(_:)``.
public let CBUUIDL2CAPPSMCharacteristicString = "ABDD3056-28FA-441D-A470-55A75A52553A"
/// Service: Generic Access.
public let CBUUIDGenericAccessProfileString = "1800"
/// Service: Generic Attribute.
public let CBUUIDGenericAttributeProfileString = "1801"
/// Characteristic of Generic Access: the name.
public let CBUUIDDeviceNameString = "2A00"
/// Characteristic of Generic Access: what the device is.
public let CBUUIDAppearanceString = "2A01"
/// Characteristic of Generic Access: whether privacy is on.
public let CBUUIDPeripheralPrivacyFlagString = "2A02"
/// Characteristic of Generic Access: the address to reconnect to.
public let CBUUIDReconnectionAddressString = "2A03"
/// Characteristic of Generic Access: what the device would like the link to be.
public let CBUUIDPeripheralPreferredConnectionParametersString = "2A04"
/// Characteristic of Generic Attribute: which services have changed.
public let CBUUIDServiceChangedString = "2A05"
