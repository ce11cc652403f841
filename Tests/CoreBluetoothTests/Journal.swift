import CoreBluetooth
import XCTest

/// What a delegate was told, in order. Tests wait for it, with a deadline; they never sleep.
///
/// `@unchecked Sendable`: its variables are behind a condition.
final class Journal: @unchecked Sendable {
    private let condition = NSCondition()
    private var lines: [String] = []

    var all: [String] {
        condition.lock()
        defer { condition.unlock() }
        return lines
    }

    func add(_ line: String) {
        condition.lock()
        lines.append(line)
        condition.broadcast()
        condition.unlock()
    }

    func clear() {
        condition.lock()
        lines = []
        condition.unlock()
    }

    func count(_ line: String) -> Int { all.filter { $0 == line }.count }

    /// Waits until the journal holds `line`, `count` times.
    func wait(
        for line: String, count: Int = 1, within seconds: Double = 10, file: StaticString = #filePath,
        at number: UInt = #line
    ) {
        let deadline = Date(timeIntervalSinceNow: seconds)
        condition.lock()
        defer { condition.unlock() }
        while lines.filter({ $0 == line }).count < count {
            guard condition.wait(until: deadline) else {
                return XCTFail("no '\(line)' (\(count)) among \(lines)", file: file, line: number)
            }
        }
    }
}

/// A delegate of both kinds in Apple's style, which writes down all that it is told.
final class Recorder: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate, @unchecked Sendable {
    // `@unchecked Sendable`: the journal is; the table is touched on the manager's queue, and by tests in between.
    let journal = Journal()
    var found: [UUID: CBPeripheral] = [:]
    var advertisements: [[String: Any]] = []
    var strengths: [NSNumber] = []
    var errors: [any Error] = []
    var keeps = true
    var onDisconnect: ((CBCentralManager, CBPeripheral) -> Void)?

    private func tell(_ line: String, _ error: (any Error)? = nil) {
        if let error { errors.append(error) }
        guard let error = error.map({ $0 as NSError }) else { return journal.add(line) }
        journal.add("\(line) error \(error.domain == CBATTErrorDomain ? "att" : "cb") \(error.code)")
    }

    func centralManagerDidUpdateState(_ central: CBCentralManager) { tell("state \(central.state)") }

    func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any]) {
        let peripherals = dict[CBCentralManagerRestoredStatePeripheralsKey] as? [CBPeripheral] ?? []
        for peripheral in peripherals {
            found[peripheral.identifier] = peripheral
            peripheral.delegate = self
        }
        let services = dict[CBCentralManagerRestoredStateScanServicesKey] as? [CBUUID] ?? []
        tell("restore \(peripherals.map(\.state)) \(services.map(\.uuidString))")
    }

    func centralManager(
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

    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        tell("connect \(peripheral.state == .connected)")
    }

    func centralManager(
        _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?
    ) { tell("fail", error) }

    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
    ) {
        tell("disconnect \(peripheral.state)", error)
        onDisconnect?(central, peripheral)
    }

    func centralManager(
        _ central: CBCentralManager, connectionEventDidOccur event: CBConnectionEvent, for peripheral: CBPeripheral
    ) { tell("event \(event)") }

    func centralManager(_ central: CBCentralManager, didRetrievePeripherals peripherals: [CBPeripheral]) {
        tell("retrieved \(peripherals.count)")
    }

    func centralManager(_ central: CBCentralManager, didRetrieveConnectedPeripherals peripherals: [CBPeripheral]) {
        tell("retrieved connected \(peripherals.count)")
    }

    func peripheralDidUpdateName(_ peripheral: CBPeripheral) { tell("name \(peripheral.name ?? "-")") }

    func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService]) {
        tell("modified \(invalidatedServices.map(\.uuid.uuidString))")
    }

    func peripheral(_ peripheral: CBPeripheral, didReadRSSI rssi: NSNumber, error: (any Error)?) {
        tell("rssi \(rssi)", error)
    }

    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
        tell("services \(peripheral.services?.map(\.uuid.uuidString) ?? [])", error)
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverIncludedServicesFor service: CBService, error: (any Error)?
    ) { tell("included \(service.includedServices?.map(\.uuid.uuidString) ?? [])", error) }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) { tell("characteristics \(service.characteristics?.map(\.uuid.uuidString) ?? [])", error) }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        let bytes = characteristic.value.map { $0.map { String($0) }.joined(separator: ",") } ?? "-"
        tell("value \(characteristic.uuid) \(bytes)", error)
    }

    func peripheral(
        _ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) { tell("wrote \(characteristic.uuid)", error) }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic,
        error: (any Error)?
    ) { tell("notifying \(characteristic.uuid) \(characteristic.isNotifying)", error) }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverDescriptorsFor characteristic: CBCharacteristic, error: (any Error)?
    ) { tell("descriptors \(characteristic.descriptors?.map(\.uuid.uuidString) ?? [])", error) }

    func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor descriptor: CBDescriptor, error: (any Error)?) {
        tell("descriptor \(descriptor.uuid) \(descriptor.value ?? "-")", error)
    }

    func peripheral(_ peripheral: CBPeripheral, didWriteValueFor descriptor: CBDescriptor, error: (any Error)?) {
        tell("wrote descriptor \(descriptor.uuid)", error)
    }

    func peripheralIsReady(toSendWriteWithoutResponse peripheral: CBPeripheral) {
        tell("ready \(peripheral.canSendWriteWithoutResponse)")
    }

    func peripheral(_ peripheral: CBPeripheral, didOpen channel: CBL2CAPChannel?, error: (any Error)?) {
        tell("channel \(channel?.psm ?? 0)", error)
    }
}
