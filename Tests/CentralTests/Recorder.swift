import Bluetooth
import EventLoop
import XCTest

@testable import Central

/// Writes down what the engine tells, and lets a test wait for it.
@EventLoopActor
final class Recorder: CentralObserver {
    struct Advertisement {
        let address: BluetoothAddress
        let rssi: Int8?
        let name: String?
        let manufacturerData: [UInt16: [UInt8]]
        let sessions: ScanSessionSet
        let firstFor: ScanSessionSet
    }

    struct Value: Equatable {
        let key: String
        let bytes: [UInt8]
        let source: ValueSource
    }

    private(set) var advertisements: [Advertisement] = []
    private(set) var values: [Value] = []
    private(set) var appeared: [BluetoothAddress] = []
    private(set) var disappeared: [BluetoothAddress] = []
    private(set) var connections: [ConnectionState] = []
    private(set) var adapterStates: [AdapterState] = []
    private(set) var adapterChanges = 0
    private(set) var ended: [ScanEndReason] = []
    private(set) var warnings: [String] = []
    private var waiters: [(condition: @EventLoopActor () -> Bool, pending: Pending<Void>)] = []

    /// Waits until the condition holds; it is looked at after each event.
    func wait(
        _ what: String, within limit: Duration = .seconds(10), file: StaticString = #filePath, line: UInt = #line,
        until condition: @escaping @EventLoopActor () -> Bool
    ) async {
        if condition() { return }
        let pending = Pending<Void>()
        waiters.append((condition, pending))
        do { try await pending.value(timeout: limit) } catch {
            XCTFail("\(what): \(error)", file: file, line: line)
        }
    }

    func look() {
        for waiter in waiters where waiter.condition() { waiter.pending.succeed(()) }
        waiters.removeAll { $0.pending.isFinished }
    }

    func forget() {
        advertisements = []
        values = []
        connections = []
    }

    func centralDidChange(_ central: Central) { look() }
    func central(_ central: Central, adapterDidChange adapter: Adapter) {
        adapterChanges += 1
        if adapterStates.last != adapter.state { adapterStates.append(adapter.state) }
        look()
    }
    func central(_ central: Central, didReceive advertisement: borrowing AdvertisementEvent) {
        var data: [UInt16: [UInt8]] = [:]
        let device = advertisement.device
        device.forEachManufacturerData { data[$0] = Array($1) }
        advertisements.append(
            Advertisement(
                address: device.address, rssi: advertisement.rssi, name: device.name, manufacturerData: data,
                sessions: advertisement.sessions, firstFor: advertisement.firstFor))
        look()
    }
    func central(_ central: Central, deviceDidAppear device: Device) {
        appeared.append(device.address)
        look()
    }
    func central(_ central: Central, device: Device, didChange changes: DeviceChanges) { look() }
    func central(_ central: Central, deviceDidDisappear device: Device) {
        disappeared.append(device.address)
        look()
    }
    func central(_ central: Central, connectionDidChange device: Device) {
        if connections.last != device.connection.state { connections.append(device.connection.state) }
        look()
    }
    func central(_ central: Central, servicesDidChange device: Device) { look() }
    func central(_ central: Central, subscriptionDidChange characteristic: GATTCharacteristic) { look() }
    func central(_ central: Central, didReceive value: borrowing ValueEvent) {
        values.append(
            Value(key: value.characteristic.text, bytes: Array(value.value), source: value.source))
        look()
    }
    func central(_ central: Central, scanDidEnd session: ScanSession, reason: ScanEndReason) {
        ended.append(reason)
        look()
    }
    func central(_ central: Central, warning: CentralWarning) {
        warnings.append(warning.code)
        look()
    }
}
