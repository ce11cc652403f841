import Bluetooth
import EventLoop
import TestKit
import XCTest

@testable import Bridge

/// The scan of a person at a terminal, over a simulated radio.
final class LiveScanTests: XCTestCase {
    private static let fleet = """
        devices:
          - { id: strap, address: "C0:00:00:00:00:01", name: HR strap }
        """

    @EventLoopActor
    private func failure(_ scan: LiveScan) async -> CommandError? {
        do throws(CommandError) {
            try await scan.start()
            return nil
        } catch { return error }
    }

    @EventLoopActor
    func testAnAdapterIsWaitedForUntilBlueZHasAnswered() async throws {
        let radio = try await SimulatedRadio.start(Self.fleet)
        var filters = LiveScan.Filters()
        filters.adapter = "hci0"
        let scan = LiveScan(filters, busAddress: radio.address)
        let heard = Pending<LiveScan.Row>()
        scan.onDevice = { heard.succeed($0) }
        let error = await failure(scan)
        XCTAssertNil(error)
        let row = try await heard.value(timeout: .seconds(10))
        XCTAssertEqual(row.address, "C0:00:00:00:00:01")
        await scan.stop()
        await radio.stop()
    }

    @EventLoopActor
    func testAnAdapterThatIsMissingIsToldWithThoseThatAreThere() async throws {
        let radio = try await SimulatedRadio.start(Self.fleet)
        var filters = LiveScan.Filters()
        filters.adapter = "hci9"
        let scan = LiveScan(filters, busAddress: radio.address, patience: .seconds(1))
        let error = await failure(scan)
        XCTAssertEqual(error?.code, .unknownAdapter)
        XCTAssertTrue(error?.message.contains("hci9") == true, "\(String(describing: error))")
        XCTAssertTrue(
            error?.message.contains("there are: hci0 00:1A:7D:DA:71:13") == true, "\(String(describing: error))")
        await scan.stop()
        await radio.stop()
    }

    @EventLoopActor
    func testAPatternThatIsNoneIsToldAtOnce() async {
        var filters = LiveScan.Filters()
        filters.name = "("
        filters.adapter = "hci0"
        let scan = LiveScan(filters, busAddress: "unix:path=/nonexistent/bus", patience: .seconds(60))
        let error = await failure(scan)
        XCTAssertEqual(error?.code, .badRequest)
        await scan.stop()
    }
}
