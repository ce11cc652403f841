import Bluetooth
import EventLoop
import XCTest

@testable import Central

final class LinkMarkerTests: XCTestCase {
    override class func setUp() {
        EventLoop.shared.startThread()
    }

    private static let address = BluetoothAddress(value: 0xc000_0000_0001)

    @EventLoopActor
    func testMarkersStandAsLongAsTheirHolders() async {
        // A bus of its own, so that tests of other processes are not seen.
        let prefix = LinkMarker.prefix(bus: "unix:path=/nowhere/\(getpid())", Self.address)
        XCTAssertEqual(LinkMarker.standing(prefix: prefix), [])
        var found = LinkMarker(prefix: prefix, isOurs: false)
        XCTAssertNotNil(found)
        XCTAssertEqual(LinkMarker.standing(prefix: prefix), [false])
        var made = LinkMarker(prefix: prefix, isOurs: true)
        XCTAssertNotNil(made)
        XCTAssertEqual(Set(LinkMarker.standing(prefix: prefix)), [false, true])
        found = nil
        XCTAssertEqual(LinkMarker.standing(prefix: prefix), [true])
        made = nil
        XCTAssertEqual(LinkMarker.standing(prefix: prefix), [])
    }

    @EventLoopActor
    func testEachDeviceAndEachBusHasItsOwn() async {
        let other = BluetoothAddress(value: 0xc000_0000_0002)
        let prefixes = [
            LinkMarker.prefix(bus: "unix:path=/a", Self.address), LinkMarker.prefix(bus: "unix:path=/b", Self.address),
            LinkMarker.prefix(bus: "unix:path=/a", other),
        ]
        XCTAssertEqual(Set(prefixes).count, 3)
        XCTAssertEqual(prefixes[0], LinkMarker.prefix(bus: "unix:path=/a", Self.address))
        // Room for "@", a process number, a count and "/found" in the 107 bytes of a name.
        XCTAssertLessThan(prefixes[0].utf8.count, 70)
    }
}
