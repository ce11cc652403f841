// Reads a temperature sensor (Environmental Sensing, 181A) on a queue of its own, while the main thread waits. The
// sensor's name begins with "Thermo", or with the first argument.
import CoreBluetooth

final class Thermometer: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate, @unchecked Sendable {
    let finished = DispatchSemaphore(value: 0)
    private let queue = DispatchQueue(label: "thermometer")
    private let prefix = CommandLine.arguments.dropFirst().first ?? "Thermo"
    private var manager: CBCentralManager?
    private var sensor: CBPeripheral?
    private var count = 0

    func start() {
        queue.async { self.manager = CBCentralManager(delegate: self, queue: self.queue, options: nil) }
    }

    func centralManagerDidUpdateState(_ central: CBCentralManager) {
        switch central.state {
        case .poweredOn:
            let options: [String: Any] = [CBCentralManagerScanOptionAllowDuplicatesKey: false]
            central.scanForPeripherals(withServices: [CBUUID(string: "181A")], options: options)
        case .unsupported, .unauthorized: print("there is no Bluetooth here")
        default: break
        }
    }

    func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi: NSNumber
    ) {
        let name = advertisementData[CBAdvertisementDataLocalNameKey] as? String
        guard name?.hasPrefix(prefix) == true else { return }
        central.stopScan()
        sensor = peripheral
        central.connect(peripheral, options: nil)
    }

    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        peripheral.delegate = self
        peripheral.discoverServices(nil)
    }

    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
    ) {
        finished.signal()
    }

    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
        for service in peripheral.services ?? [] { peripheral.discoverCharacteristics(nil, for: service) }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) {
        let temperature = service.characteristics?.first { $0.uuid == CBUUID(string: "2A6E") }
        guard let temperature, temperature.properties.contains(.notify) else { return }
        peripheral.setNotifyValue(true, for: temperature)
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic,
        error: (any Error)?
    ) {
        if let error { print("no notifications: \(error.localizedDescription)") }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        guard let data = characteristic.value, data.count >= 2 else { return }
        let hundredths = Int16(bitPattern: UInt16(data[0]) | UInt16(data[1]) << 8)
        print("temperature: \(Double(hundredths) / 100) °C")
        count += 1
        if count == 3 { manager?.cancelPeripheralConnection(peripheral) }
    }
}

let thermometer = Thermometer()
thermometer.start()
thermometer.finished.wait()
print("done")
