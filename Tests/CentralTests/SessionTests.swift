import Bluetooth
import DBus
import EventLoop
import XCTest

@testable import Central

final class SessionTests: SessionTestCase {
    // MARK: Connections

    @EventLoopActor
    func testConnectReadDisconnect() async throws {
        try await withStage { stage in
            try await stage.start { self.addBattery($0) }
            stage.fake.handlers["\(self.level) ReadValue"] = { $0.reply(bytes: [0x64]) }
            let level = try await self.connected(stage)
            XCTAssertEqual(stage.recorder.connections, [.connecting, .connected])
            XCTAssertEqual(stage.central.connectionSnapshot(Stage.address).mtu, 247)
            XCTAssertEqual(level.text, "180f/2a19")
            XCTAssertEqual(level.handle, 0x11)
            let value = try await stage.central.read(level)
            XCTAssertEqual(value, [0x64])
            XCTAssertEqual(
                stage.recorder.values, [Recorder.Value(key: "180f/2a19", bytes: [0x64], source: .read)])
            let isDown = try await stage.central.disconnect(Stage.address, holder: self.holder)
            XCTAssertTrue(isDown)
            XCTAssertEqual(stage.recorder.connections.suffix(2), [.disconnecting, .disconnected])
            XCTAssertEqual(stage.central.connectionSnapshot(Stage.address).reason, "disconnected by us")
            XCTAssertEqual(stage.central.device(Stage.address)?.services.count, 0)
            let error = await self.failure { try await stage.central.read(level) }
            XCTAssertEqual(error?.code, .notConnected)
        }
    }

    @EventLoopActor
    func testALinkIsSharedAndEndsWithItsLastHolder() async throws {
        try await withStage { stage in
            try await stage.start { self.addBattery($0) }
            _ = try await self.connected(stage)
            let other = HolderID("other")
            _ = try await stage.central.connect(Stage.address, holder: other)
            XCTAssertEqual(stage.fake.calls.filter { $0.hasSuffix(" Connect") }.count, 1)
            let first = try await stage.central.disconnect(Stage.address, holder: self.holder)
            XCTAssertFalse(first)
            XCTAssertEqual(stage.central.device(Stage.address)?.isConnected, true)
            let second = try await stage.central.disconnect(Stage.address, holder: other)
            XCTAssertTrue(second)
        }
    }

    @EventLoopActor
    func testALinkFoundAtTheStartIsUsedAndLeft() async throws {
        try await withStage { stage in
            try await stage.start {
                self.addBattery($0, [("Connected", .bool(true)), ("ServicesResolved", .bool(true))])
            }
            stage.fake.handlers["\(self.level) ReadValue"] = { $0.reply(bytes: [0x64]) }
            XCTAssertEqual(stage.central.device(Stage.address)?.isConnected, true)
            let level = try await self.connected(stage)
            let value = try await stage.central.read(level)
            XCTAssertEqual(value, [0x64])
            let isDown = try await stage.central.disconnect(Stage.address, holder: self.holder)
            XCTAssertFalse(isDown)
            XCTAssertEqual(stage.fake.calls.filter { $0.contains("onnect") }, [])
            let isForced = try await stage.central.disconnect(Stage.address, holder: self.holder, force: true)
            XCTAssertTrue(isForced)
        }
    }

    @EventLoopActor
    func testTheReasonOfAnEndIsUnknownWhereBlueZTellsNone() async throws {
        try await withStage { stage in
            try await stage.start { self.addBattery($0) }
            _ = try await self.connected(stage)
            XCTAssertNil(stage.central.connectionSnapshot(Stage.address).reason)
            stage.fake.dropLink()
            await stage.recorder.wait("the end of the link") {
                stage.central.connectionSnapshot(Stage.address).state == .disconnected
            }
            XCTAssertEqual(stage.central.connectionSnapshot(Stage.address).reason, "unknown")
            _ = try await self.connected(stage)
            XCTAssertNil(stage.central.connectionSnapshot(Stage.address).reason)
        }
    }

    @EventLoopActor
    func testAlreadyConnectedIsNoError() async throws {
        try await withStage { stage in
            try await stage.start { self.addBattery($0) }
            stage.fake.handlers["\(FakeBlueZ.device) Connect"] = { message in
                stage.fake.change(FakeBlueZ.device, self.device1, [("Connected", .bool(true))])
                stage.fake.change(FakeBlueZ.device, self.device1, [("ServicesResolved", .bool(true))])
                return message.error("org.bluez.Error.AlreadyConnected", "Already Connected")
            }
            let level = try await self.connected(stage)
            XCTAssertEqual(level.key, "2a19")
        }
    }

    @EventLoopActor
    func testAbortedAttemptsAreRepeated() async throws {
        try await withStage { stage in
            try await stage.start { self.addBattery($0) }
            var left = 2
            stage.fake.handlers["\(FakeBlueZ.device) Connect"] = { message in
                left -= 1
                if left >= 0 { return message.error("org.bluez.Error.Failed", "le-connection-abort-by-local") }
                stage.fake.change(FakeBlueZ.device, self.device1, [("Connected", .bool(true))])
                stage.fake.change(FakeBlueZ.device, self.device1, [("ServicesResolved", .bool(true))])
                return message.reply()
            }
            _ = try await self.connected(stage)
            XCTAssertEqual(stage.central.connectionSnapshot(Stage.address).attempts, 3)
            XCTAssertNil(stage.central.connectionSnapshot(Stage.address).reason)
        }
    }

    @EventLoopActor
    func testAPendingConnectKeepsItsOwnDiscoveryGoing() async throws {
        try await withStage { stage in
            try await stage.start()
            XCTAssertEqual(stage.fake.count(of: "hci0 StartDiscovery"), 0)
            let pending = Pending<Device>()
            Task { @EventLoopActor in
                do { pending.succeed(try await stage.central.connect(Stage.address, holder: self.holder)) } catch {
                    pending.fail(error)
                }
            }
            await stage.scanning()
            XCTAssertEqual(stage.central.connectionSnapshot(Stage.address).state, .connecting)
            stage.fake.answerConnects()
            stage.fake.addDevice(FakeBlueZ.device, [("RSSI", .int16(-60))])
            let device = try await pending.value(timeout: .seconds(5))
            XCTAssertTrue(device.isConnected)
            await stage.recorder.wait("the end of discovery") { stage.fake.count(of: "hci0 StopDiscovery") == 1 }
        }
    }

    @EventLoopActor
    func testATimeoutAndACancellationEndAPendingConnect() async throws {
        try await withStage { stage in
            try await stage.start()
            let late = await self.failure {
                try await stage.central.connect(Stage.address, timeout: .milliseconds(50), holder: self.holder)
            }
            XCTAssertEqual(late?.code, .timeout)
            XCTAssertNil(stage.central.device(Stage.address))
            let pending = Pending<Void>()
            Task { @EventLoopActor in
                let error = await self.failure {
                    try await stage.central.connect(Stage.address, holder: self.holder)
                }
                XCTAssertEqual(error?.code, .cancelled)
                pending.succeed(())
            }
            await stage.recorder.wait("the attempt") { stage.central.device(Stage.address)?.isWanted == true }
            stage.central.cancelConnect(Stage.address, holder: self.holder)
            try await pending.value(timeout: .seconds(5))
            XCTAssertNil(stage.central.device(Stage.address))
        }
    }

    /// A task that is cancelled takes its request back; what BlueZ answers later is nobody's.
    @EventLoopActor
    func testACancelledTaskTakesItsRequestBack() async throws {
        try await withStage { stage in
            try await stage.start { self.addBattery($0) }
            let level = try await self.connected(stage)
            var late: DBusMessage?
            stage.fake.handlers["\(self.level) ReadValue"] = { message in
                late = message.reply(bytes: [1])
                return nil
            }
            let reading = Task { @EventLoopActor in await self.failure { try await stage.central.read(level) } }
            await stage.recorder.wait("the read") { late != nil }
            reading.cancel()
            let read = await reading.value
            XCTAssertEqual(read?.code, .cancelled)
            if let late { stage.fake.connection.send(late) }
            stage.fake.handlers["\(self.level) ReadValue"] = { $0.reply(bytes: [2]) }
            let value = try await stage.central.read(level)
            XCTAssertEqual(value, [2])
            XCTAssertEqual(stage.recorder.values.map(\.bytes), [[2]])

            let other = BluetoothAddress(value: 0xaabb_cc00_0009)
            let connecting = Task { @EventLoopActor in
                await self.failure { try await stage.central.connect(other, holder: self.holder) }
            }
            await stage.recorder.wait("the search") { stage.fake.count(of: "hci0 StartDiscovery") == 1 }
            XCTAssertEqual(stage.central.device(other)?.isWanted, true)
            connecting.cancel()
            let connect = await connecting.value
            XCTAssertEqual(connect?.code, .cancelled)
            XCTAssertNil(stage.central.device(other))
            await stage.recorder.wait("the end of discovery") { stage.fake.count(of: "hci0 StopDiscovery") == 1 }
        }
    }

    @EventLoopActor
    func testConnectsAreQueued() async throws {
        var options = CentralOptions()
        options.concurrentConnects = 3
        try await withStage(options: options) { stage in
            let paths = (1...12).map { "/org/bluez/hci0/dev_AA_BB_CC_00_00_\($0 < 10 ? "0" : "")\($0)" }
            try await stage.start { fake in
                for path in paths { fake.addDevice(path, isTold: false) }
            }
            _ = try stage.scan()
            await stage.scanning()
            var active = 0
            var most = 0
            stage.fake.handlers["Connect"] = { message in
                let path = message.path ?? ""
                active += 1
                most = max(most, active)
                _ = EventLoop.shared.schedule(at: .now + .milliseconds(5)) {
                    active -= 1
                    stage.fake.change(path, self.device1, [("Connected", .bool(true))])
                    stage.fake.change(path, self.device1, [("ServicesResolved", .bool(true))])
                    stage.fake.connection.send(message.reply())
                }
                return nil
            }
            for path in paths { stage.fake.change(path, self.device1, [("RSSI", .int16(-50))]) }
            await stage.recorder.wait("all heard") { stage.recorder.advertisements.count == 12 }
            for device in stage.central.devices { stage.central.keepConnected(device.address, holder: self.holder) }
            await stage.recorder.wait("all connected") { stage.central.devices.allSatisfy(\.isConnected) }
            XCTAssertEqual(most, 3)
            XCTAssertEqual(stage.central.adapters.first?.connectionCount, 12)
        }
    }

    // MARK: Losses

    @EventLoopActor
    func testALinkThatEndsFailsTheCallAndComesBackWithOneSubscription() async throws {
        try await withStage { stage in
            try await stage.start { self.addBattery($0) }
            let level = try await self.connected(stage, policy: .keep)
            try await stage.central.subscribe(level, holder: self.holder)
            XCTAssertEqual(stage.fake.count(of: "char0011 StartNotify"), 1)
            stage.fake.handlers["\(self.level) ReadValue"] = { _ in
                stage.fake.dropLink()
                return nil
            }
            let start = MonotonicTime.now
            let error = await self.failure { try await stage.central.read(level) }
            XCTAssertEqual(error?.code, .notConnected)
            XCTAssertLessThan(MonotonicTime.now - start, .seconds(2))
            await stage.recorder.wait("the subscription") { stage.fake.count(of: "char0011 StartNotify") == 2 }
            await stage.recorder.wait("the notifications") { (try? self.found(stage).isNotifying) == true }
            stage.fake.change(self.level, self.characteristic1, [("Value", .bytes([9]))])
            await stage.recorder.wait("a value") { stage.recorder.values.count == 1 }
            XCTAssertEqual(stage.fake.count(of: "char0011 StartNotify"), 2)
        }
    }

    /// BlueZ may say that the services are resolved before it shows them: at once after it, or later.
    @EventLoopActor
    func testASubscriptionWaitsForAttributesThatAreShownLate() async throws {
        for delay in [Duration.zero, .milliseconds(200)] {
            try await withStage { stage in
                try await stage.start { $0.addDevice(FakeBlueZ.device, isTold: false) }
                stage.fake.refuse("AcquireNotify", "NotSupported", "Operation is not supported")
                let show = { @EventLoopActor in
                    stage.fake.addService("0010", "180f")
                    stage.fake.addCharacteristic("0010", "0011", "2a19", ["read", "notify"])
                }
                stage.fake.handlers["\(FakeBlueZ.device) Connect"] = { message in
                    stage.fake.change(FakeBlueZ.device, self.device1, [("Connected", .bool(true))])
                    stage.fake.change(FakeBlueZ.device, self.device1, [("ServicesResolved", .bool(true))])
                    if delay == .zero { show() } else { SystemClock.shared.schedule(after: delay, show) }
                    return message.reply()
                }
                stage.central.wantSubscription(
                    Stage.address, service: AttributeSelector(uuid: BluetoothUUID(0x180f)),
                    characteristic: AttributeSelector(uuid: BluetoothUUID(0x2a19)), holder: self.holder)
                stage.central.keepConnected(Stage.address, holder: self.holder)
                await stage.recorder.wait("the notifications") { (try? self.found(stage).isNotifying) == true }
                XCTAssertEqual(stage.fake.count(of: "char0011 StartNotify"), 1)
                XCTAssertEqual(stage.recorder.warnings.contains("subscribe_failed"), delay != .zero)
            }
        }
    }

    @EventLoopActor
    func testAReadThatIsCutOffByTheEndOfTheLinkIsNoATTError() async throws {
        try await withStage { stage in
            try await stage.start { self.addBattery($0) }
            let level = try await self.connected(stage)
            stage.fake.handlers["\(self.level) ReadValue"] = { message in
                SystemClock.shared.schedule(after: .milliseconds(20)) { stage.fake.dropLink() }
                return message.error("org.bluez.Error.Failed", "Operation failed with ATT error: 0x0e")
            }
            let cut = await self.failure { try await stage.central.read(level) }
            XCTAssertEqual(cut?.code, .notConnected)
            let again = try await self.connected(stage)
            stage.fake.refuse("\(self.level) ReadValue", "Failed", "Operation failed with ATT error: 0x0e")
            let refused = await self.failure { try await stage.central.read(again) }
            XCTAssertEqual(refused?.att, 0x0e)
        }
    }

    @EventLoopActor
    func testAReadThatIsNeverAnsweredHoldsUpNothingElse() async throws {
        try await withStage { stage in
            let other = "/org/bluez/hci0/dev_AA_BB_CC_00_00_02"
            try await stage.start {
                self.addBattery($0)
                $0.addDevice(other, isTold: false)
                $0.addService("0010", "180f", of: other, isTold: false)
                $0.addCharacteristic("0010", "0011", "2a19", ["read"], of: other, isTold: false)
                $0.answerConnects(to: other)
            }
            let level = try await self.connected(stage)
            var hung: DBusMessage?
            stage.fake.handlers["\(self.level) ReadValue"] = { message in
                hung = message
                return nil
            }
            stage.fake.handlers["\(other)/service0010/char0011 ReadValue"] = { $0.reply(bytes: [7]) }
            let timeout = Pending<CentralError?>()
            Task { @EventLoopActor in
                timeout.succeed(
                    await self.failure { try await stage.central.read(level, timeout: .milliseconds(300)) })
            }
            let second = BluetoothAddress(value: 0xaabb_cc00_0002)
            _ = try await stage.central.connect(second, holder: self.holder)
            let otherLevel = try stage.central.characteristic(
                second, service: AttributeSelector(uuid: BluetoothUUID(0x180f)),
                characteristic: AttributeSelector(uuid: BluetoothUUID(0x2a19)))
            let value = try await stage.central.read(otherLevel)
            XCTAssertEqual(value, [7])
            let error = try await timeout.value(timeout: .seconds(5))
            XCTAssertEqual(error?.code, .timeout)
            if let hung { stage.fake.connection.send(hung.reply(bytes: [1])) }
            stage.fake.handlers["\(self.level) ReadValue"] = { $0.reply(bytes: [2]) }
            let next = try await stage.central.read(level)
            XCTAssertEqual(next, [2])
            XCTAssertFalse(stage.recorder.values.contains { $0.bytes == [1] })
        }
    }

    @EventLoopActor
    func testARefusedReadIsNamedAndNotRepeated() async throws {
        try await withStage { stage in
            try await stage.start { self.addBattery($0) }
            let level = try await self.connected(stage)
            stage.fake.refuse("\(self.level) ReadValue", "NotPermitted", "Read not permitted")
            let error = await self.failure { try await stage.central.read(level) }
            XCTAssertEqual(error?.code, .attError)
            XCTAssertEqual(error?.att, 2)
            XCTAssertEqual(error?.bluezName, "org.bluez.Error.NotPermitted")
            XCTAssertEqual(stage.fake.count(of: "char0011 ReadValue"), 1)
            XCTAssertEqual(stage.central.device(Stage.address)?.isConnected, true)
        }
    }
}
