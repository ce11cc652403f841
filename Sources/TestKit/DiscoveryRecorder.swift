public import DeviceDiscovery

/// Delegates of DeviceDiscovery, which write down all that they are told.
public final class DiscoveryRecorder: BluetoothDeviceManagerDelegate, BluetoothDeviceDiscovererDelegate,
    BluetoothDeviceConnectionManagerDelegate
{
    public let journal = Journal()

    public init() {}

    public func bluetoothDeviceManager(_ manager: BluetoothDeviceManager, didUpdateState state: CBManagerState) {
        journal.add("state \(state)")
    }

    public func discovererDidStartDiscovering(_ discoverer: BluetoothDeviceDiscoverer) { journal.add("started") }

    public func discoverer(_ discoverer: BluetoothDeviceDiscoverer, didDiscover device: BluetoothDeviceDiscoveryData) {
        journal.add("found \(device.name ?? "-")")
    }

    public func discoverer(
        _ discoverer: BluetoothDeviceDiscoverer, didStopDiscovering reason: BluetoothDeviceDiscoveryStopReason
    ) { journal.add("stopped \(reason.rawValue)") }

    public func connectionManager(_ manager: BluetoothDeviceConnectionManager, didConnect peripheral: CBPeripheral) {
        journal.add("connected")
    }

    public func connectionManager(
        _ manager: BluetoothDeviceConnectionManager, didDisconnect peripheral: CBPeripheral, error: (any Error)?,
        willReconnect: Bool
    ) { journal.add("disconnected \(willReconnect)") }

    public func connectionManager(
        _ manager: BluetoothDeviceConnectionManager, didGiveUp peripheral: CBPeripheral, attempts: Int
    ) { journal.add("gave up \(attempts)") }
}
