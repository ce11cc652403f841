public import CoreBluetooth

/// A device that was connected once.
public struct BluetoothKnownDevice: Codable, Hashable, Sendable {
    public let identifier: UUID
    public var name: String?
    public var lastConnected: Date
}

/// The devices that were connected, the latest first; kept in a file where there is one.
///
/// `@unchecked Sendable`: what changes is behind a lock, and the file belongs to one queue.
public final class BluetoothDeviceRegistry: NSObject, @unchecked Sendable {
    /// More are forgotten, the eldest first.
    public static let limit = 1000

    private let file: URL?
    private let devices = Locked<[BluetoothKnownDevice]>([])
    private let writer = DispatchQueue(label: "blueferry.devicediscovery.registry", qos: .utility)

    /// A file that is damaged counts as empty; it is left alone until the next device is connected.
    init(file: URL?) {
        self.file = file
        super.init()
        guard let file, let data = try? Data(contentsOf: file),
            let stored = try? PropertyListDecoder().decode([BluetoothKnownDevice].self, from: data)
        else { return }
        devices.withLock { $0 = Array(stored.sorted { $0.lastConnected > $1.lastConnected }.prefix(Self.limit)) }
    }

    /// The latest first.
    public var knownDevices: [BluetoothKnownDevice] { devices.withLock { $0 } }

    public var lastConnected: BluetoothKnownDevice? { devices.withLock { $0.first } }

    /// Takes a device out; false where it was not known.
    @discardableResult
    public func forget(_ identifier: UUID) -> Bool {
        let isKnown = devices.withLock { devices in
            let count = devices.count
            devices.removeAll { $0.identifier == identifier }
            return devices.count < count
        }
        if isKnown { save() }
        return isKnown
    }

    func connected(_ peripheral: CBPeripheral) {
        let device = BluetoothKnownDevice(
            identifier: peripheral.identifier, name: peripheral.name, lastConnected: Date())
        devices.withLock { devices in
            devices.removeAll { $0.identifier == device.identifier }
            devices.insert(device, at: 0)
            if devices.count > Self.limit { devices.removeLast(devices.count - Self.limit) }
        }
        save()
    }

    /// Waits until all is written; for tests.
    func flush() { writer.sync {} }

    private func save() {
        guard let file else { return }
        writer.async { [devices] in
            do {
                try FileManager.default.createDirectory(
                    at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
                try PropertyListEncoder().encode(devices.withLock { $0 }).write(to: file, options: .atomic)
            } catch {
                FileHandle.standardError.write(
                    Data("DeviceDiscovery: \(file.path) could not be written: \(error)\n".utf8))
            }
        }
    }
}
