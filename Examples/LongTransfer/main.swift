// Receives a text that a device sends in many notifications, and that ends with "EOM".
import CoreBluetooth

enum Transfer {
    static let service = CBUUID(string: "E20A39F4-73F5-4BC4-A12F-17D1AD07A961")
    static let characteristic = CBUUID(string: "08590F7E-DB05-467E-8757-72F6FAEB13D4")
}

@MainActor
final class Receiver: NSObject {
    private var central: CBCentralManager!
    private var peripheral: CBPeripheral?
    private var data = Data()

    override init() {
        super.init()
        central = CBCentralManager(delegate: self, queue: .main)
    }

    fileprivate func look() {
        let connected = central.retrieveConnectedPeripherals(withServices: [Transfer.service])
        if let first = connected.first { return connect(first) }
        central.scanForPeripherals(
            withServices: [Transfer.service], options: [CBCentralManagerScanOptionAllowDuplicatesKey: true])
    }

    fileprivate func connect(_ found: CBPeripheral) {
        guard peripheral != found else { return }
        peripheral = found
        central.stopScan()
        central.connect(found)
    }

    fileprivate func receive(_ chunk: Data, from peripheral: CBPeripheral, _ characteristic: CBCharacteristic) {
        guard String(decoding: chunk, as: UTF8.self) == "EOM" else { return data.append(chunk) }
        print("received \(data.count) bytes: \(String(decoding: data, as: UTF8.self))")
        peripheral.setNotifyValue(false, for: characteristic)
        central.cancelPeripheralConnection(peripheral)
    }
}

extension Receiver: @preconcurrency CBCentralManagerDelegate {
    func centralManagerDidUpdateState(_ central: CBCentralManager) {
        if central.state == .poweredOn { look() }
    }

    func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi: NSNumber
    ) {
        guard rssi.intValue >= -90 else { return }
        connect(peripheral)
    }

    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        peripheral.delegate = self
        peripheral.discoverServices([Transfer.service])
    }

    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
    ) {
        exit(error == nil ? 0 : 1)
    }
}

extension Receiver: @preconcurrency CBPeripheralDelegate {
    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
        for service in peripheral.services ?? [] where service.uuid == Transfer.service {
            peripheral.discoverCharacteristics([Transfer.characteristic], for: service)
        }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) {
        for characteristic in service.characteristics ?? [] where characteristic.uuid == Transfer.characteristic {
            peripheral.setNotifyValue(true, for: characteristic)
        }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic,
        error: (any Error)?
    ) {
        print(characteristic.isNotifying ? "receiving" : "ended")
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        if let value = characteristic.value { receive(value, from: peripheral, characteristic) }
    }
}

let receiver = Receiver()
dispatchMain()
