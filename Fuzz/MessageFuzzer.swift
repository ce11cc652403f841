internal import EventLoop

@testable internal import BlueZ
@testable internal import DBus

/// Messages as they come from the bus, one after another, to the mirror of BlueZ's objects.
@EventLoopActor
enum MessageFuzzer {
    static func run(_ input: UnsafeRawBufferPointer) {
        let mirror = Mirror()
        var rest = Array(input)[...]
        for _ in 0..<16 {
            guard let (message, count) = DBusMessage.demarshal(rest) else { break }
            rest = rest.dropFirst(count)
            readAll(message)
            apply(message, to: mirror)
            mirror.checkIntegrity()
        }
    }

    private static func readAll(_ message: DBusMessage) {
        var reader = message.reader()
        while !reader.isAtEnd {
            let value = reader.value()
            precondition(value?.signature.isEmpty != true)
            reader.next()
        }
    }

    private static func apply(_ message: DBusMessage, to mirror: Mirror) {
        var path = message.path ?? "/"
        path.withUTF8 { path in
            let path = UnsafeRawBufferPointer(path)
            switch message.member {
            case "PropertiesChanged": mirror.propertiesChanged(path: path, message.reader())
            case "InterfacesAdded": mirror.interfacesAdded(message.reader())
            case "InterfacesRemoved": mirror.interfacesRemoved(message.reader())
            case "Disconnected": mirror.disconnected(path: path, message.reader())
            default: mirror.load(message.reader())
            }
        }
    }
}

extension Mirror {
    /// What holds between any two messages.
    func checkIntegrity() {
        for adapter in adapters { precondition(!adapter.isGone) }
        for device in devices {
            precondition(!device.isGone && !device.adapter.isGone, "\(device.path) is gone")
            for service in device.gatt {
                precondition(!service.isGone && service.device === device, "\(service.path) is not in its place")
                precondition(object(at: service.path) === service)
                for characteristic in service.characteristics {
                    precondition(!characteristic.isGone && characteristic.service === service)
                    precondition(object(at: characteristic.path) === characteristic)
                    for descriptor in characteristic.descriptors {
                        precondition(!descriptor.isGone && descriptor.characteristic === characteristic)
                        precondition(object(at: descriptor.path) === descriptor)
                    }
                }
            }
        }
    }
}
