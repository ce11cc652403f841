import BlueZ
import Bluetooth
import DBus
import EventLoop
import XCTest

@testable import Central

/// Why a wanted device has no link, and what is tried how often.
final class ObstacleTests: EngineTestCase {
    private let holder = HolderID("test")
    private let device1 = "org.bluez.Device1"
    private let adapter1 = "org.bluez.Adapter1"

    @EventLoopActor
    private func sentence(_ stage: Stage, _ address: BluetoothAddress = Stage.address) -> String {
        stage.central.obstacle(to: address)?.description ?? "none"
    }

    @EventLoopActor
    private func failure(_ body: @EventLoopActor () async throws -> Void) async -> CentralError? {
        do {
            try await body()
            return nil
        } catch { return error as? CentralError }
    }

    @EventLoopActor
    func testTheAdapterIsOffOrGone() async throws {
        try await withStage { stage in
            try await stage.start { fake in
                fake.addDevice(FakeBlueZ.device, isTold: false)
                fake.answerConnects()
            }
            XCTAssertNil(stage.central.obstacle(to: Stage.address))
            stage.fake.change(FakeBlueZ.adapter, self.adapter1, [("Powered", .bool(false))])
            await stage.recorder.wait("off") { stage.central.adapters.first?.state == .poweredOff }
            XCTAssertEqual(
                self.sentence(stage), "the adapter hci0 (00:1A:7D:DA:71:10) is off; switch it on")
            let late = await self.failure {
                _ = try await stage.central.connect(Stage.address, timeout: .milliseconds(20), holder: self.holder)
            }
            XCTAssertEqual(late?.code, .adapterOff)
            XCTAssertTrue(late?.message.contains("hci0") == true, late?.message ?? "")
            // Without a timeout it waits, and is done when the power is back.
            stage.central.keepConnected(Stage.address, holder: self.holder)
            XCTAssertEqual(stage.central.connectionSnapshot(Stage.address).state, .connecting)
            stage.fake.change(FakeBlueZ.adapter, self.adapter1, [("Powered", .bool(true))])
            await stage.recorder.wait("the link") { stage.central.device(Stage.address)?.isConnected == true }
            XCTAssertNil(stage.central.obstacle(to: Stage.address))
            stage.fake.remove(FakeBlueZ.device, [self.device1])
            stage.fake.remove(FakeBlueZ.adapter, [self.adapter1])
            await stage.recorder.wait("gone") { stage.central.adapters.first?.state == .unsupported }
            XCTAssertEqual(
                self.sentence(stage), "the adapter hci0 (00:1A:7D:DA:71:10) is not there; plug it in")
            stage.fake.connection.close()
            await stage.recorder.wait("no BlueZ") { stage.central.state == .noBlueZ }
            XCTAssertEqual(stage.central.adapters.first?.state, .resetting)
            XCTAssertTrue(self.sentence(stage).contains("bluetoothd does not run"), self.sentence(stage))
        }
    }

    @EventLoopActor
    func testItIsNotHeardThenWaitsInTheQueueThenIsAttempted() async throws {
        var options = CentralOptions()
        options.concurrentConnects = 1
        try await withStage(options: options) { stage in
            let paths = (1...3).map { "/org/bluez/hci0/dev_AA_BB_CC_00_00_0\($0)" }
            try await stage.start()
            stage.fake.handlers["Connect"] = { _ in nil }
            for number in 1...3 {
                stage.central.keepConnected(
                    BluetoothAddress(value: 0xaabb_cc00_0000 + UInt64(number)), holder: self.holder)
            }
            XCTAssertEqual(stage.central.obstacle(to: Stage.address), .unheard)
            for path in paths { stage.fake.addDevice(path, [("RSSI", .int16(-60))]) }
            // Nobody is told of a place in line: this is heard of behind it.
            stage.fake.change(FakeBlueZ.adapter, self.adapter1, [("Alias", .string("behind them"))])
            await stage.recorder.wait("all in line") { stage.central.adapters.first?.queue.waitingCount == 2 }
            XCTAssertEqual(stage.central.obstacle(to: Stage.address), .attempting(number: 1))
            XCTAssertEqual(
                stage.central.obstacle(to: BluetoothAddress(value: 0xaabb_cc00_0002)), .queued(behind: 1))
            XCTAssertEqual(
                self.sentence(stage, BluetoothAddress(value: 0xaabb_cc00_0003)),
                "it waits in the queue for a connection behind 2 others")
        }
    }

    @EventLoopActor
    func testItIsTriedAgainLaterWithTheLastError() async throws {
        try await withStage { stage in
            try await stage.start { fake in
                fake.addDevice(FakeBlueZ.device, isTold: false)
                var count = 0
                fake.handlers["Connect"] = { message in
                    count += 1
                    return message.error("org.bluez.Error.Failed", "le-connection-refused-\(count)")
                }
            }
            stage.central.keepConnected(Stage.address, holder: self.holder)
            await stage.recorder.wait("two attempts") {
                stage.central.obstacle(to: Stage.address)?.description.contains("refused-2") == true
            }
            XCTAssertEqual(
                self.sentence(stage),
                "it is tried again within 1 s, after 2 attempts, the last: le-connection-refused-2")
        }
    }

    /// A device that is heard all along and fails nevertheless is left in peace; one that comes into reach is not.
    @EventLoopActor
    func testAdvertisementsOfADeviceThatFailsMakeNoStorm() async throws {
        try await withStage { stage in
            try await stage.start { fake in
                fake.addDevice(FakeBlueZ.device, isTold: false)
                fake.refuse("Connect", "AuthenticationFailed", "Authentication Failed")
            }
            _ = try stage.scan()
            await stage.scanning()
            stage.fake.change(FakeBlueZ.device, self.device1, [("RSSI", .int16(-60))])
            await stage.recorder.wait("heard") { stage.recorder.advertisements.count == 1 }
            stage.central.keepConnected(Stage.address, holder: self.holder)
            await stage.recorder.wait("the attempt") { stage.central.device(Stage.address)?.link?.phase == .pausing }
            XCTAssertEqual(stage.central.obstacle(to: Stage.address), .passkeyMissing)
            XCTAssertTrue(self.sentence(stage).contains("devices[].passkey"))
            let link = try XCTUnwrap(stage.central.device(Stage.address)?.link)
            XCTAssertGreaterThanOrEqual(link.currentPause, .milliseconds(2500))
            // Long enough ago that an advertisement could cut the pause short, if it were one of a device that was away.
            link.failedAt = MonotonicTime(nanoseconds: 0)
            for count in 2...20 {
                stage.fake.change(FakeBlueZ.device, self.device1, [("RSSI", .int16(-60 - Int16(count)))])
            }
            await stage.recorder.wait("all heard") { stage.recorder.advertisements.count == 20 }
            XCTAssertEqual(stage.fake.count(of: "dev_AA_BB_CC_00_00_01 Connect"), 1)
            link.failedUnheard = true
            stage.fake.change(FakeBlueZ.device, self.device1, [("RSSI", .int16(-40))])
            await stage.recorder.wait("an attempt") { stage.fake.count(of: "dev_AA_BB_CC_00_00_01 Connect") == 2 }
        }
    }

    @EventLoopActor
    func testWhatBlueZRefusesForGoodIsNamed() async throws {
        try await withStage { stage in
            try await stage.start { fake in
                fake.addDevice(FakeBlueZ.device, isTold: false)
                fake.refuse("Connect", "NotSupported", "Not Supported")
            }
            stage.central.keepConnected(Stage.address, holder: self.holder)
            await stage.recorder.wait("the refusal") { stage.recorder.warnings.contains("connect_refused") }
            XCTAssertTrue(
                self.sentence(stage).hasPrefix("the connection was refused, and is not tried again: "),
                self.sentence(stage))
            XCTAssertEqual(stage.fake.count(of: "dev_AA_BB_CC_00_00_01 Connect"), 1)
        }
    }

    @EventLoopActor
    func testAttemptsCountUntilALinkHasHeld() async throws {
        try await withStage { stage in
            try await stage.start { fake in
                fake.addDevice(FakeBlueZ.device, isTold: false)
                fake.answerConnects()
            }
            stage.central.keepConnected(Stage.address, holder: self.holder)
            for attempt in 1...3 {
                await stage.recorder.wait("link \(attempt)") {
                    let connection = stage.central.connectionSnapshot(Stage.address)
                    return connection.state == .connected && connection.attempts == attempt
                }
                if attempt == 3 { break }
                stage.fake.dropLink()
                await stage.recorder.wait("the end") { stage.central.device(Stage.address)?.isConnected == false }
            }
            stage.central.device(Stage.address)?.link?.upSince = MonotonicTime(nanoseconds: 0)
            stage.fake.dropLink()
            await stage.recorder.wait("a link again") {
                let connection = stage.central.connectionSnapshot(Stage.address)
                return connection.state == .connected && connection.attempts == 1
            }
        }
    }
}
