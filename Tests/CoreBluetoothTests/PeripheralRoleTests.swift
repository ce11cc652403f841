import CoreBluetooth
import TestKit
import XCTest

final class PeripheralRoleTests: XCTestCase {
    private final class Listener: NSObject, CBPeripheralManagerDelegate, @unchecked Sendable {
        // `@unchecked Sendable`: the journal is.
        let journal = Journal()
        func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {
            journal.add("state \(peripheral.state)")
        }
        func peripheralManagerDidStartAdvertising(_ peripheral: CBPeripheralManager, error: (any Error)?) {
            journal.add("advertising \((error as? CBError)?.code == .operationNotSupported)")
        }
        func peripheralManager(_ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?) {
            journal.add("add \((error as? CBError)?.code == .operationNotSupported)")
        }
        func peripheralManager(
            _ peripheral: CBPeripheralManager, didPublishL2CAPChannel psm: CBL2CAPPSM, error: (any Error)?
        ) { journal.add("publish \((error as? CBError)?.code == .operationNotSupported)") }
    }

    func testWhatItCannotDoItSaysInAnError() {
        let listener = Listener()
        let manager = CBPeripheralManager(delegate: listener, queue: DispatchQueue(label: "role"))
        manager.startAdvertising([CBAdvertisementDataLocalNameKey: "x"])
        manager.add(CBMutableService(type: CBUUID(string: "180F"), primary: true))
        manager.publishL2CAPChannel(withEncryption: false)
        listener.journal.wait(for: "publish true")
        XCTAssertEqual(listener.journal.all, ["state unsupported", "advertising true", "add true", "publish true"])
        XCTAssertFalse(manager.isAdvertising)
        let characteristic = CBMutableCharacteristic(
            type: CBUUID(string: "2A19"), properties: .notify, value: nil, permissions: [])
        XCTAssertFalse(manager.updateValue(Data(), for: characteristic, onSubscribedCentrals: nil))
    }
}
