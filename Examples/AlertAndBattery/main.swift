// Finds a device with an alert (1802) or a battery (180F), rings it, and shows its battery level for a while.
import CoreBluetooth

final class Central: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate {
    private let alertService = CBUUID(string: "1802")
    private let batteryService = CBUUID(string: "180F")
    private let alertLevel = CBUUID(string: "2A06")
    private let batteryLevel = CBUUID(string: "2A19")
    private var manager: CBCentralManager!
    private var peripheral: CBPeripheral?
    private var readings = 0

    override init() {
        super.init()
        manager = CBCentralManager(delegate: self, queue: nil)
    }

    func centralManagerDidUpdateState(_ central: CBCentralManager) {
        guard central.state == .poweredOn else { return print("Bluetooth: \(central.state)") }
        central.scanForPeripherals(withServices: [alertService, batteryService])
    }

    func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi: NSNumber
    ) {
        print("found \(peripheral.name ?? "a device without a name") at \(rssi) dBm")
        self.peripheral = peripheral
        peripheral.delegate = self
        central.stopScan()
        central.connect(peripheral)
    }

    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        peripheral.discoverServices([alertService, batteryService])
    }

    func centralManager(
        _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?
    ) {
        print("no connection: \(error?.localizedDescription ?? "?")")
        exit(1)
    }

    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
    ) {
        print("disconnected\(error.map { ": \($0.localizedDescription)" } ?? "")")
        exit(error == nil ? 0 : 1)
    }

    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
        for service in peripheral.services ?? [] {
            peripheral.discoverCharacteristics([alertLevel, batteryLevel], for: service)
        }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) {
        for characteristic in service.characteristics ?? [] {
            switch characteristic.uuid {
            case alertLevel:
                peripheral.writeValue(Data([1]), for: characteristic, type: .withoutResponse)
                print("alert: mild")
            case batteryLevel:
                peripheral.readValue(for: characteristic)
                peripheral.setNotifyValue(true, for: characteristic)
            default: break
            }
        }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        guard let level = characteristic.value?.first else { return }
        print("battery: \(level) %")
        readings += 1
        if readings == 4 { manager.cancelPeripheralConnection(peripheral) }
    }
}

let central = Central()
RunLoop.main.run()
