public import CoreBluetooth
public import Foundation

/// A delegate of both kinds in Apple's style, which writes down all that it is told.
public final class Recorder: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate, @unchecked Sendable {
    // `@unchecked Sendable`: the journal is; the table is touched on the manager's queue, and by tests in between.
    public let journal = Journal()
    /// The channel that was opened last.
    public var channel: CBL2CAPChannel?
    public var found: [UUID: CBPeripheral] = [:]
    public var advertisements: [[String: Any]] = []
    public var strengths: [NSNumber] = []
    public var errors: [any Error] = []
    public var keeps = true
    public var onDisconnect: ((CBCentralManager, CBPeripheral) -> Void)?

    public override init() { super.init() }

    private func tell(_ line: String, _ error: (any Error)? = nil) {
        if let error { errors.append(error) }
        guard let error = error.map({ $0 as NSError }) else { return journal.add(line) }
        journal.add("\(line) error \(error.domain == CBATTErrorDomain ? "att" : "cb") \(error.code)")
    }

    public func centralManagerDidUpdateState(_ central: CBCentralManager) { tell("state \(central.state)") }

    public func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any]) {
        let peripherals = dict[CBCentralManagerRestoredStatePeripheralsKey] as? [CBPeripheral] ?? []
        for peripheral in peripherals {
            found[peripheral.identifier] = peripheral
            peripheral.delegate = self
        }
        let services = dict[CBCentralManagerRestoredStateScanServicesKey] as? [CBUUID] ?? []
        tell("restore \(peripherals.map(\.state)) \(services.map(\.uuidString))")
    }

    public func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi: NSNumber
    ) {
        if keeps {
            found[peripheral.identifier] = peripheral
            peripheral.delegate = self
        }
        advertisements.append(advertisementData)
        strengths.append(rssi)
        tell("discover \(peripheral.name ?? "-")")
    }

    public func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        tell("connect \(peripheral.state == .connected)")
    }

    public func centralManager(
        _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?
    ) { tell("fail", error) }

    public func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
    ) {
        tell("disconnect \(peripheral.state)", error)
        onDisconnect?(central, peripheral)
    }

    public func centralManager(
        _ central: CBCentralManager, connectionEventDidOccur event: CBConnectionEvent, for peripheral: CBPeripheral
    ) { tell("event \(event)") }

    public func centralManager(_ central: CBCentralManager, didRetrievePeripherals peripherals: [CBPeripheral]) {
        tell("retrieved \(peripherals.count)")
    }

    public func centralManager(_ central: CBCentralManager, didRetrieveConnectedPeripherals peripherals: [CBPeripheral])
    {
        tell("retrieved connected \(peripherals.count)")
    }

    public func peripheralDidUpdateName(_ peripheral: CBPeripheral) { tell("name \(peripheral.name ?? "-")") }

    public func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService]) {
        tell("modified \(invalidatedServices.map(\.uuid.uuidString))")
    }

    public func peripheral(_ peripheral: CBPeripheral, didReadRSSI rssi: NSNumber, error: (any Error)?) {
        tell("rssi \(rssi)", error)
    }

    public func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
        tell("services \(peripheral.services?.map(\.uuid.uuidString) ?? [])", error)
    }

    public func peripheral(
        _ peripheral: CBPeripheral, didDiscoverIncludedServicesFor service: CBService, error: (any Error)?
    ) { tell("included \(service.includedServices?.map(\.uuid.uuidString) ?? [])", error) }

    public func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) { tell("characteristics \(service.characteristics?.map(\.uuid.uuidString) ?? [])", error) }

    public func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        let bytes = characteristic.value.map { $0.map { String($0) }.joined(separator: ",") } ?? "-"
        tell("value \(characteristic.uuid) \(bytes)", error)
    }

    public func peripheral(
        _ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) { tell("wrote \(characteristic.uuid)", error) }

    public func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic,
        error: (any Error)?
    ) { tell("notifying \(characteristic.uuid) \(characteristic.isNotifying)", error) }

    public func peripheral(
        _ peripheral: CBPeripheral, didDiscoverDescriptorsFor characteristic: CBCharacteristic, error: (any Error)?
    ) { tell("descriptors \(characteristic.descriptors?.map(\.uuid.uuidString) ?? [])", error) }

    public func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor descriptor: CBDescriptor, error: (any Error)?)
    {
        tell("descriptor \(descriptor.uuid) \(descriptor.value ?? "-")", error)
    }

    public func peripheral(_ peripheral: CBPeripheral, didWriteValueFor descriptor: CBDescriptor, error: (any Error)?) {
        tell("wrote descriptor \(descriptor.uuid)", error)
    }

    public func peripheralIsReady(toSendWriteWithoutResponse peripheral: CBPeripheral) {
        tell("ready \(peripheral.canSendWriteWithoutResponse)")
    }

    public func peripheral(_ peripheral: CBPeripheral, didOpen channel: CBL2CAPChannel?, error: (any Error)?) {
        self.channel = channel
        tell("channel \(channel?.psm ?? 0)", error)
    }
}
