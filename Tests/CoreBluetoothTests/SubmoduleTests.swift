import CoreBluetooth.CBCharacteristic
import CoreBluetooth.CBError
import CoreBluetooth.CBPeripheral
import CoreBluetooth.CBUUID
import XCTest

/// That Apple's submodules resolve, with all of the module behind each, is proven by this file's compiling.
final class SubmoduleTests: XCTestCase {
    func testSubmodulesShowTheWholeModule() {
        XCTAssertEqual(CBUUID(string: "180F").uuidString, "180F")
        XCTAssertEqual(CBCharacteristicProperties.read.rawValue, 2)
        XCTAssertEqual(CBError.Code.unknown.rawValue, 0)
    }
}
