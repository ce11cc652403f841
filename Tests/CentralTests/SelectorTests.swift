import BlueZ
import Bluetooth
import XCTest

@testable import Central

final class SelectorTests: XCTestCase {
    func testAttributeSelectors() {
        for text in ["180f", "0x180F", "0000180f-0000-1000-8000-00805f9b34fb"] {
            XCTAssertEqual(AttributeSelector(parsing: text), AttributeSelector(uuid: BluetoothUUID(0x180f)), text)
        }
        XCTAssertEqual(
            AttributeSelector(parsing: "2a06_0015"), AttributeSelector(uuid: BluetoothUUID(0x2a06), handle: 0x15))
        XCTAssertEqual(AttributeSelector(parsing: "2a06_0015")?.description, "2a06_0015")
        for text in ["", "_", "180f_", "180f_12345", "180f_xyz", "180f_1_2", "battery"] {
            XCTAssertNil(AttributeSelector(parsing: text), text)
        }
    }

    func testAdapterSelectors() {
        XCTAssertEqual(
            AdapterSelector(parsing: "00:1A:7D:DA:71:13"), .address(BluetoothAddress(value: 0x001a_7dda_7113)))
        XCTAssertEqual(AdapterSelector(parsing: "hci0"), .name("hci0"))
    }

    func testHoldersAreThemselvesAlone() {
        let first = HolderID("mqtt")
        XCTAssertEqual(first, first)
        XCTAssertNotEqual(first, HolderID("mqtt"))
    }
}

final class WriteChoiceTests: XCTestCase {
    private func choose(_ type: WriteType, _ properties: CharacteristicProperties) -> Result<Bool, CentralError> {
        do throws(CentralError) { return .success(try WriteChoice.isCommand(type, properties, "writing")) } catch {
            return .failure(error)
        }
    }

    func testTheTypeFollowsTheProperties() throws {
        XCTAssertEqual(try choose(.automatic, [.writeWithoutResponse]).get(), true)
        XCTAssertEqual(try choose(.automatic, [.write]).get(), false)
        XCTAssertEqual(try choose(.automatic, [.write, .writeWithoutResponse]).get(), false)
        XCTAssertEqual(try choose(.command, [.write, .writeWithoutResponse]).get(), true)
    }

    func testWhatIsNotOfferedIsRefused() {
        for (type, properties): (WriteType, CharacteristicProperties) in [
            (.command, [.write]), (.request, [.writeWithoutResponse]), (.automatic, [.read]),
        ] {
            guard case .failure(let error) = choose(type, properties) else { return XCTFail("\(type) was taken") }
            XCTAssertEqual(error.code, .notSupported)
        }
    }

    func testLengths() {
        func code(_ length: Int, offset: Int = 0, isCommand: Bool = false, mtu: Int? = nil) -> CentralError.Code? {
            do throws(CentralError) {
                try WriteChoice.check(length: length, offset: offset, isCommand: isCommand, mtu: mtu, "writing")
                return nil
            } catch { return error.code }
        }
        XCTAssertNil(code(512))
        XCTAssertEqual(code(513), .tooLong)
        XCTAssertEqual(code(500, offset: 13), .tooLong)
        XCTAssertNil(code(500, offset: 12))
        XCTAssertNil(code(20, isCommand: true, mtu: 23))
        XCTAssertEqual(code(21, isCommand: true, mtu: 23), .tooLong)
        XCTAssertNil(code(21, isCommand: true, mtu: nil))
    }
}

final class ScanFilterTests: XCTestCase {
    private let battery = BluetoothUUID(0x180f)

    func testServicesAreAnyOf() throws {
        var request = ScanRequest(kind: .library)
        request.services = [battery, BluetoothUUID(0x1802)]
        let filter = try ScanFilter(request)
        XCTAssertTrue(filter.admits(name: [], services: [battery], solicited: []))
        XCTAssertFalse(filter.admits(name: [], services: [BluetoothUUID(0x181a)], solicited: [battery]))
        XCTAssertFalse(filter.admits(name: [], services: [], solicited: []))
    }

    func testSolicited() throws {
        var request = ScanRequest(kind: .library)
        request.solicited = [battery]
        let filter = try ScanFilter(request)
        XCTAssertTrue(filter.admits(name: [], services: [], solicited: [battery]))
        XCTAssertFalse(filter.admits(name: [], services: [battery], solicited: []))
    }

    func testANameThatComesLaterMatchesLater() throws {
        var request = ScanRequest(kind: .library)
        request.name = "Sensor"
        let filter = try ScanFilter(request)
        XCTAssertFalse(filter.admits(name: [], services: [], solicited: []))
        XCTAssertTrue(filter.admits(name: Array("Sensor".utf8), services: [], solicited: []))
        XCTAssertFalse(filter.admits(name: Array("Sensor 2".utf8), services: [], solicited: []))
    }

    func testATimeoutOfNothingIsRefused() {
        var request = ScanRequest(kind: .commanded)
        request.timeout = .zero
        XCTAssertThrowsError(try ScanFilter(request)) { error in
            XCTAssertEqual((error as? CentralError)?.code, .badRequest)
        }
    }
}

final class CentralErrorTests: XCTestCase {
    private func translated(_ name: String, _ message: String, _ request: Request = .gatt) -> CentralError {
        CentralError(BlueZError(name: name, message: message), request, "reading 180f/2a19")
    }

    func testATTErrorsKeepTheirCode() {
        let application = translated("org.bluez.Error.Failed", "Operation failed with ATT error: 0x80")
        XCTAssertEqual(application.code, .attError)
        XCTAssertEqual(application.att, 0x80)
        let refused = translated("org.bluez.Error.NotPermitted", "Read not permitted")
        XCTAssertEqual(refused.code, .attError)
        XCTAssertEqual(refused.att, 2)
        XCTAssertEqual(refused.bluezName, "org.bluez.Error.NotPermitted")
        XCTAssertEqual(translated("org.bluez.Error.NotPermitted", "Write not permitted").att, 3)
        XCTAssertEqual(translated("org.bluez.Error.InvalidArguments", "Invalid Length").att, 0x0d)
    }

    func testOtherRefusals() {
        XCTAssertEqual(translated("org.bluez.Error.NotPermitted", "Not paired").code, .notPermitted)
        XCTAssertEqual(translated("org.bluez.Error.NotPermitted", "Notify acquired").code, .busy)
        XCTAssertEqual(translated("org.bluez.Error.InProgress", "In Progress").code, .busy)
        XCTAssertEqual(translated("org.bluez.Error.Failed", "Not connected").code, .notConnected)
        XCTAssertEqual(
            translated("org.bluez.Error.Failed", "le-connection-abort-by-local", .connect).code, .connectionFailed)
        XCTAssertEqual(translated("org.bluez.Error.NotReady", "Resource Not Ready", .connect).code, .adapterOff)
        XCTAssertEqual(
            translated("org.bluez.Error.AuthenticationFailed", "Authentication Failed", .pair).code, .pairingFailed)
        XCTAssertEqual(
            translated("org.freedesktop.DBus.Error.UnknownObject", "no such object", .connect).code, .unknownDevice)
    }

    func testTheTextNamesTheSubjectAndTheCause() {
        let error = translated("org.bluez.Error.Failed", "something odd")
        XCTAssertEqual(error.message, "reading 180f/2a19: BlueZ refused: something odd")
    }
}
