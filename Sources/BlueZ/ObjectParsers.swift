internal import Bluetooth
internal import DBus
internal import EventLoop

/// Properties of Adapter1 and AdvertisementMonitorManager1.
@EventLoopActor
enum AdapterParser {
    static func apply(_ entries: inout some ArgumentReader, to adapter: RemoteAdapter) {
        while entries.isAt(.dictEntry) {
            let key = entries.enter()
            var value = key
            value.next()
            value = value.enter()
            if key.equals("Address") {
                adapter.address = value.address() ?? adapter.address
            } else if key.equals("Alias") {
                adapter.alias = value.string() ?? adapter.alias
            } else if key.equals("Powered") {
                adapter.isPowered = value.bool() ?? adapter.isPowered
            } else if key.equals("Discovering") {
                adapter.isDiscovering = value.bool() ?? adapter.isDiscovering
            } else if key.equals("PowerState") {
                adapter.powerState = value.string()
            }
            entries.next()
        }
    }

    /// Whether `SupportedMonitorTypes` holds `or_patterns`.
    static func takesPatterns(_ entries: inout some ArgumentReader) -> Bool {
        var takes = false
        while entries.isAt(.dictEntry) {
            let key = entries.enter()
            var value = key
            value.next()
            value = value.enter()
            if key.equals("SupportedMonitorTypes"), value.isAt(.array) {
                var types = value.enter()
                while types.isAt(.string) {
                    if types.equals("or_patterns") { takes = true }
                    types.next()
                }
            }
            entries.next()
        }
        return takes
    }
}

/// Properties of GattService1, GattCharacteristic1 and GattDescriptor1. Where BlueZ has no `Handle` property the handle
/// is that in the path.
@EventLoopActor
enum GATTParser {
    static func apply(_ entries: inout some ArgumentReader, to service: RemoteService) {
        service.handle = service.handleInPath
        forEach(&entries) { key, value in
            if key.equals("UUID") {
                service.uuid = value.uuid() ?? service.uuid
            } else if key.equals("Primary") {
                service.isPrimary = value.bool() ?? true
            } else if key.equals("Handle") {
                service.handle = value.uint16() ?? service.handle
            } else if key.equals("Includes"), value.isAt(.array) {
                service.includes = []
                var paths = value.enter()
                while paths.isAt(.objectPath) {
                    let handle = paths.string().flatMap { UInt16($0.suffix(4), radix: 16) }
                    if let handle { service.includes.append(handle) }
                    paths.next()
                }
            }
        }
    }

    static func apply(_ entries: inout some ArgumentReader, to characteristic: RemoteCharacteristic) {
        characteristic.handle = characteristic.handleInPath
        forEach(&entries) { key, value in
            if key.equals("UUID") {
                characteristic.uuid = value.uuid() ?? characteristic.uuid
            } else if key.equals("Flags"), value.isAt(.array) {
                characteristic.flags = []
                var names = value.enter()
                while names.isAt(.string) {
                    let flag = names.string().flatMap { CharacteristicProperties(name: $0) }
                    if let flag { characteristic.flags.insert(flag) }
                    names.next()
                }
            } else if key.equals("Handle") {
                characteristic.handle = value.uint16() ?? characteristic.handle
            } else if key.equals("Notifying") {
                characteristic.isNotifying = value.bool() ?? false
            } else if key.equals("MTU") {
                characteristic.mtu = value.uint16() ?? 0
            }
        }
    }

    static func apply(_ entries: inout some ArgumentReader, to descriptor: RemoteDescriptor) {
        descriptor.handle = descriptor.handleInPath
        forEach(&entries) { key, value in
            if key.equals("UUID") {
                descriptor.uuid = value.uuid() ?? descriptor.uuid
            } else if key.equals("Handle") {
                descriptor.handle = value.uint16() ?? descriptor.handle
            }
        }
    }

    /// PropertiesChanged of a characteristic: the value where there is one goes straight to its handler. True for one.
    static func applyChange(_ entries: inout some ArgumentReader, to characteristic: RemoteCharacteristic) -> Bool {
        var hasValue = false
        while entries.isAt(.dictEntry) {
            let key = entries.enter()
            var value = key
            value.next()
            value = value.enter()
            if key.equals("Value") {
                hasValue = true
                if let handler = characteristic.valueHandler {
                    value.withByteArray { handler.characteristic(characteristic, didSignal: $0) }
                }
            } else if key.equals("Notifying") {
                characteristic.isNotifying = value.bool() ?? characteristic.isNotifying
                characteristic.valueHandler?.characteristicDidChangeNotifying(characteristic)
            } else if key.equals("MTU") {
                characteristic.mtu = value.uint16() ?? characteristic.mtu
            }
            entries.next()
        }
        return hasValue
    }

    /// Names of properties that BlueZ withdraws, as the MTU with the link.
    static func invalidate(_ names: inout some ArgumentReader, of characteristic: RemoteCharacteristic) {
        while names.isAt(.string) {
            if names.equals("MTU") {
                characteristic.mtu = 0
            } else if names.equals("Notifying"), characteristic.isNotifying {
                characteristic.isNotifying = false
                characteristic.valueHandler?.characteristicDidChangeNotifying(characteristic)
            }
            names.next()
        }
    }

    private static func forEach<Reader: ArgumentReader>(
        _ entries: inout Reader, _ body: (Reader, Reader) -> Void
    ) {
        while entries.isAt(.dictEntry) {
            let key = entries.enter()
            var value = key
            value.next()
            body(key, value.enter())
            entries.next()
        }
    }
}

extension ArgumentReader {
    /// The UUID that stands here as text, read in place.
    func uuid() -> BluetoothUUID? {
        withBytes { BluetoothUUID(text: $0) } ?? nil
    }

    /// The device address that stands here as text, read in place.
    func address() -> BluetoothAddress? {
        withBytes { BluetoothAddress(parsingBytes: $0) } ?? nil
    }
}
