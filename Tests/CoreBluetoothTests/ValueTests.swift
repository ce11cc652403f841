import Bluetooth
import XCTest

@testable import CoreBluetooth

final class ValueTests: XCTestCase {
    func testUUIDReadsAllFormsAndKeepsTheOneGiven() {
        XCTAssertEqual(CBUUID(string: "180f").uuidString, "180F")
        XCTAssertEqual(CBUUID(string: "0x180F").uuidString, "180F")
        XCTAssertEqual(CBUUID(string: "0000180f").uuidString, "0000180F")
        XCTAssertEqual(
            CBUUID(string: "6e400001-b5a3-f393-e0a9-e50e24dcca9e").uuidString, "6E400001-B5A3-F393-E0A9-E50E24DCCA9E")
        XCTAssertEqual(CBUUID(data: Data([0x18, 0x0f])).uuidString, "180F")
        XCTAssertEqual(CBUUID(string: "180F").data, Data([0x18, 0x0f]))
        XCTAssertEqual(CBUUID(string: "12345678").data, Data([0x12, 0x34, 0x56, 0x78]))
        let uuid = UUID()
        XCTAssertEqual(CBUUID(nsuuid: uuid).uuidString, uuid.uuidString)
        XCTAssertEqual(CBUUID(nsuuid: uuid).data, withUnsafeBytes(of: uuid.uuid) { Data($0) })
        XCTAssertEqual("\(CBUUID(string: "2a19"))", "2A19")
    }

    func testUUIDsOnTheBaseAreEqualAndNoOthers() {
        let short = CBUUID(string: "180F")
        let middle = CBUUID(string: "0000180F")
        let long = CBUUID(string: "0000180f-0000-1000-8000-00805F9B34FB")
        XCTAssertEqual(short, middle)
        XCTAssertEqual(short, long)
        XCTAssertEqual(Set([short, middle, long]).count, 1)
        XCTAssertNotEqual(short, CBUUID(string: "0000180f-0000-1000-8000-00805F9B34FC"))
        XCTAssertNotEqual(short, CBUUID(string: "0001180f"))
        XCTAssertNotEqual(short, CBUUID(string: "0000180f-0000-0000-0000-000000000000"))
        XCTAssertFalse(short.isEqual("180F"))
    }

    func testUUIDOfNonsenseIsZerosAndNoTrap() {
        for text in ["", "18", "180G", "0x", "180f180f180f180f180f180f180f180f", "🦊🦊"] {
            XCTAssertEqual(CBUUID(string: text).uuidString, "00000000-0000-0000-0000-000000000000", text)
        }
        XCTAssertEqual(CBUUID(data: Data([1, 2, 3])), CBUUID(string: "nonsense"))
    }

    func testErrorsBridgeBothWays() {
        let error: any Error = CBError(.connectionTimeout, userInfo: [NSLocalizedDescriptionKey: "gone"])
        let bridged = (error as Any) as? NSError
        XCTAssertEqual(bridged?.domain, CBErrorDomain)
        XCTAssertEqual(bridged?.code, 6)
        XCTAssertEqual(error.localizedDescription, "gone")
        let back: any Error = NSError(domain: CBErrorDomain, code: 7)
        XCTAssertEqual((back as? CBError)?.code, .peripheralDisconnected)
        XCTAssertNil(NSError(domain: "other", code: 7) as? CBError)
        XCTAssertNil(back as? CBATTError)
        let attribute: any Error = NSError(domain: CBATTErrorDomain, code: 2)
        XCTAssertEqual((attribute as? CBATTError)?.code, .readNotPermitted)
    }

    func testErrorsAreCaughtByCodeAndAsNSError() {
        func caught(_ error: any Error) -> String {
            do { throw error } catch CBError.connectionTimeout { return "code" } catch let e as CBATTError
                where e.code == .invalidPdu
            {
                return "att"
            } catch let e as NSError { return "ns \(e.code)" }
        }
        XCTAssertEqual(caught(CBError(.connectionTimeout)), "code")
        XCTAssertEqual(caught(NSError(domain: CBErrorDomain, code: 6)), "code")
        XCTAssertEqual(caught(CBATTError(.invalidPdu)), "att")
        XCTAssertEqual(caught(CBError(.unknownDevice)), "ns 12")
    }

    func testUnlistedCodesDoNotTrap() {
        let application = CBATTError(number: 0x80, "out of range")
        XCTAssertEqual(application.code, .unlikelyError)
        XCTAssertEqual(application.errorCode, 0x80)
        let bridged: any Error = NSError(domain: CBErrorDomain, code: 4711)
        XCTAssertEqual((bridged as? CBError)?.code, .unknown)
        switch bridged {
        case CBError.connectionTimeout: XCTFail("another code matched")
        default: break
        }
    }

    func testIdentifierIsDerivedFromTheAddressAndReadsBack() {
        let key = DeviceKey(BluetoothAddress(value: 0xe7f7_d0fc_52a9), .random)
        XCTAssertEqual(key.identifier.uuidString, "626C7565-6665-8001-8000-E7F7D0FC52A9")
        XCTAssertEqual(DeviceKey(identifier: key.identifier), key)
        let other = DeviceKey(key.address, .public)
        XCTAssertNotEqual(other.identifier, key.identifier)
        XCTAssertNil(DeviceKey(identifier: UUID()))
    }

    func testAdvertisementHasApplesTypes() throws {
        var advertisement = Advertisement()
        advertisement.name = "ATC_5E07D3"
        advertisement.txPower = -4
        advertisement.services = [BluetoothUUID(0x180f)]
        advertisement.solicited = [BluetoothUUID(0x1805)]
        advertisement.serviceData = [.init(uuid: BluetoothUUID(0xfcd2), data: [0x40, 1])]
        advertisement.manufacturerData = [.init(company: 0x0499, data: [5]), .init(company: 0x004c, data: [2, 0x15])]
        let dictionary = advertisement.dictionary
        XCTAssertEqual(dictionary[CBAdvertisementDataLocalNameKey] as? String, "ATC_5E07D3")
        XCTAssertEqual(dictionary[CBAdvertisementDataTxPowerLevelKey] as? NSNumber, -4)
        XCTAssertEqual(
            dictionary[CBAdvertisementDataServiceUUIDsKey] as? [CBUUID], [CBUUID(string: "180F")])
        XCTAssertEqual(
            dictionary[CBAdvertisementDataSolicitedServiceUUIDsKey] as? [CBUUID], [CBUUID(string: "1805")])
        let data = try XCTUnwrap(dictionary[CBAdvertisementDataServiceDataKey] as? [CBUUID: Data])
        XCTAssertEqual(data[CBUUID(string: "FCD2")], Data([0x40, 1]))
        XCTAssertEqual(
            dictionary[CBAdvertisementDataManufacturerDataKey] as? Data, Data([0x4c, 0x00, 2, 0x15]))
        XCTAssertEqual(dictionary[CBAdvertisementDataIsConnectable] as? Bool, true)
        XCTAssertEqual(Set(Advertisement().dictionary.keys), [CBAdvertisementDataIsConnectable])
    }

    func testOptionSetsHaveApplesNumbers() {
        XCTAssertEqual(CBCharacteristicProperties([.read, .notify]).rawValue, UInt(0x12))
        XCTAssertEqual(CBAttributePermissions.writeEncryptionRequired.rawValue, UInt(8))
        XCTAssertTrue(CBCentralManager.supports([]))
        XCTAssertFalse(CBCentralManager.supports(.extendedScanAndConnect))
        XCTAssertEqual(CBManagerState.poweredOn.rawValue, 5)
        XCTAssertEqual(CBManager.authorization, .allowedAlways)
    }

    func testDescriptorValuesHaveApplesTypes() {
        func value(_ uuid: String, _ bytes: [UInt8]) -> Any? {
            let descriptor = CBDescriptor(uuid: CBUUID(string: uuid), handle: 1, characteristic: nil)
            descriptor.setValue(bytes: bytes)
            return descriptor.value
        }
        XCTAssertEqual(value("2902", [1, 0]) as? NSNumber, 1)
        XCTAssertEqual(value("2901", Array("Level".utf8)) as? String, "Level")
        XCTAssertEqual(value("2904", [4, 0]) as? Data, Data([4, 0]))
        XCTAssertEqual(value("2900", []) as? NSNumber, 0)
    }

    func testMutableAttributesKnowTheirParents() {
        let service = CBMutableService(type: CBUUID(string: "180F"), primary: true)
        let level = CBMutableCharacteristic(
            type: CBUUID(string: "2A19"), properties: .read, value: Data([1]), permissions: .readable)
        let note = CBMutableDescriptor(type: CBUUID(string: "2901"), value: "Level")
        level.descriptors = [note]
        service.characteristics = [level]
        XCTAssertTrue(level.service === service)
        XCTAssertTrue(note.characteristic === level)
        level.value = Data([2])
        XCTAssertEqual((level as CBCharacteristic).value, Data([2]))
    }

    func testSocketAddressOfAChannel() {
        let bytes = ChannelSocket.address(psm: 0x0080, bytes: [6, 5, 4, 3, 2, 1], type: 2)
        XCTAssertEqual(bytes, [31, 0, 0x80, 0, 6, 5, 4, 3, 2, 1, 0, 0, 2, 0])
    }

    func testCommandQueueAsksToWaitAndTellsWhenToGoOn() {
        var queue = CommandQueue()
        for _ in 0..<32 { XCTAssertTrue(queue.add()) }
        XCTAssertFalse(queue.hasRoom)
        var ready = 0
        for _ in 0..<32 where queue.remove() { ready += 1 }
        XCTAssertEqual(ready, 1)
        for _ in 0..<1024 { XCTAssertTrue(queue.add()) }
        XCTAssertFalse(queue.add())
    }
}
