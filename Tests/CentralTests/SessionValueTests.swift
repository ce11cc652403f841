import Bluetooth
import DBus
import EventLoop
import XCTest

@testable import Central

final class SessionValueTests: SessionTestCase {
    private static var withSockets: CentralOptions {
        var options = CentralOptions()
        options.usesNotifySockets = true
        return options
    }

    // MARK: Values

    @EventLoopActor
    func testAFastFirstNotificationIsToldOnce() async throws {
        try await withStage { stage in
            try await stage.start { self.addBattery($0) }
            let level = try await self.connected(stage)
            stage.fake.handlers["\(self.level) StartNotify"] = { message in
                stage.fake.change(self.level, self.characteristic1, [("Notifying", .bool(true))])
                stage.fake.change(self.level, self.characteristic1, [("Value", .bytes([8, 0x70, 0, 0xb1]))])
                return message.reply()
            }
            try await stage.central.subscribe(level, holder: self.holder)
            XCTAssertTrue(level.isNotifying)
            XCTAssertEqual(
                stage.recorder.values,
                [Recorder.Value(key: "180f/2a19", bytes: [8, 0x70, 0, 0xb1], source: .notify)])
        }
    }

    @EventLoopActor
    func testTheEchoOfAReadIsNoNotification() async throws {
        try await withStage { stage in
            try await stage.start { self.addBattery($0) }
            let level = try await self.connected(stage)
            try await stage.central.subscribe(level, holder: self.holder)
            stage.fake.handlers["\(self.level) ReadValue"] = { message in
                stage.fake.change(self.level, self.characteristic1, [("Value", .bytes([1]))])
                stage.fake.change(self.level, self.characteristic1, [("Value", .bytes([0x64]))])
                return message.reply(bytes: [0x64])
            }
            _ = try await stage.central.read(level)
            stage.fake.change(self.level, self.characteristic1, [("Value", .bytes([0x64]))])
            await stage.recorder.wait("three") { stage.recorder.values.count == 3 }
            XCTAssertEqual(
                stage.recorder.values.map { "\($0.bytes) \($0.source)" },
                ["[1] notify", "[100] read", "[100] notify"])
        }
    }

    @EventLoopActor
    func testAnEmptyValueIsAValue() async throws {
        try await withStage { stage in
            try await stage.start { self.addBattery($0) }
            let level = try await self.connected(stage)
            try await stage.central.subscribe(level, holder: self.holder)
            stage.fake.change(self.level, self.characteristic1, [("Value", .bytes([]))])
            await stage.recorder.wait("the value") { stage.recorder.values.count == 1 }
            XCTAssertEqual(stage.recorder.values[0].bytes, [])
            stage.fake.handlers["\(self.level) ReadValue"] = { $0.reply(bytes: []) }
            let value = try await stage.central.read(level)
            XCTAssertEqual(value, [])
            XCTAssertTrue(level.isNotifying)
        }
    }

    @EventLoopActor
    func testASocketIsPreferredWhereWantedAndItsEndIsNoEmptyValue() async throws {
        try await withStage(options: Self.withSockets) { stage in
            try await stage.start { self.addBattery($0) }
            var peer = SocketPair()
            stage.fake.handlers["AcquireNotify"] = { message in
                peer = SocketPair()
                return message.reply(descriptor: peer.theirs)
            }
            let level = try await self.connected(stage)
            try await stage.central.subscribe(level, holder: self.holder)
            XCTAssertEqual(stage.fake.count(of: "char0011 StartNotify"), 0)
            peer.send([1])
            peer.send([])
            peer.send([2])
            await stage.recorder.wait("three") { stage.recorder.values.count == 3 }
            XCTAssertEqual(stage.recorder.values.map(\.bytes), [[1], [], [2]])
            peer.close()
            await stage.recorder.wait("another socket") { stage.fake.count(of: "char0011 AcquireNotify") == 2 }
            await stage.recorder.wait("notifications") { level.isNotifying }
            peer.send([3])
            await stage.recorder.wait("the fourth") { stage.recorder.values.count == 4 }
            XCTAssertEqual(stage.recorder.values.map(\.bytes), [[1], [], [2], [3]])
            try await stage.central.unsubscribe(level, holder: self.holder)
            XCTAssertTrue(peer.isHungUp)
        }
    }

    @EventLoopActor
    func testASocketThatAnotherHasIsAskedForEverMoreSeldomAndSaidOnce() async throws {
        let clock = ManualClock()
        try await withStage(options: Self.withSockets, clock: clock) { stage in
            try await stage.start { self.addBattery($0) }
            stage.fake.refuse("AcquireNotify", "NotPermitted", "Notify acquired")
            _ = try await self.connected(stage)
            let before = stage.recorder.warnings
            stage.central.wantSubscription(
                Stage.address, service: AttributeSelector(uuid: BluetoothUUID(0x180f)),
                characteristic: AttributeSelector(uuid: BluetoothUUID(0x2a19)), holder: self.holder)
            let attempts = { stage.fake.count(of: "char0011 AcquireNotify") }
            for (number, pause) in [0.25, 0.5, 1, 1, 1, 2, 4, 8, 16, 32, 60, 60].enumerated() {
                await stage.recorder.wait("attempt \(number + 1)") { attempts() == number + 1 }
                // The refusal comes after the call; the answer to a later call after both.
                _ = try? await stage.central.read(try self.found(stage))
                XCTAssertEqual(stage.recorder.warnings.count - before.count, number < 5 ? 0 : 1)
                clock.advance(by: .seconds(pause) - .milliseconds(1))
                XCTAssertEqual(attempts(), number + 1)
                clock.advance(by: .milliseconds(1))
            }
            XCTAssertEqual(stage.recorder.warnings.last, "subscribe_failed")
            XCTAssertEqual(stage.fake.count(of: "char0011 StartNotify"), 0)
        }
    }

    /// bluetoothd keeps what a client has subscribed to over the end of the link. Source: `src/gatt-client.c`,
    /// btd_gatt_client_connected.
    @EventLoopActor
    func testASubscriptionThatIsGivenUpBetweenTwoLinksEndsWithTheNext() async throws {
        try await withStage { stage in
            try await stage.start { self.addBattery($0) }
            let level = try await self.connected(stage)
            try await stage.central.subscribe(level, holder: self.holder)
            for isWanted in [true, false] {
                await self.dropped(stage)
                if !isWanted { try await stage.central.unsubscribe(level, holder: self.holder) }
                XCTAssertEqual(stage.fake.count(of: "char0011 StopNotify"), 0)
                _ = try await self.connected(stage)
                _ = try? await stage.central.read(try self.found(stage))
                let level = try self.found(stage)
                if isWanted { await stage.recorder.wait("notifications") { level.isNotifying } }
            }
            await stage.recorder.wait("StopNotify") { stage.fake.count(of: "char0011 StopNotify") == 1 }
            XCTAssertEqual(stage.fake.count(of: "char0011 StartNotify"), 2)
        }
    }

    /// The same, seen from a device that sends at once.
    @EventLoopActor
    func testValuesOfALinkThatIsNotAnnouncedYetAreNotLost() async throws {
        try await withStage { stage in
            try await stage.start { self.addBattery($0) }
            let level = try await self.connected(stage)
            try await stage.central.subscribe(level, holder: self.holder)
            await self.dropped(stage)
            stage.fake.handlers["\(FakeBlueZ.device) Connect"] = { message in
                stage.fake.change(FakeBlueZ.device, self.device1, [("Connected", .bool(true))])
                for byte in 1...2 as ClosedRange<UInt8> {
                    stage.fake.change(self.level, self.characteristic1, [("Value", .bytes([byte]))])
                }
                stage.fake.change(FakeBlueZ.device, self.device1, [("ServicesResolved", .bool(true))])
                return message.reply()
            }
            _ = try await self.connected(stage)
            stage.fake.change(self.level, self.characteristic1, [("Value", .bytes([3]))])
            await stage.recorder.wait("three") { stage.recorder.values.count == 3 }
            XCTAssertEqual(stage.recorder.values.map { "\($0.bytes) \($0.source)" }, (1...3).map { "[\($0)] notify" })
        }
    }

    @EventLoopActor
    func testABatteryThatBlueZKeepsToItselfIsServed() async throws {
        try await withStage { stage in
            try await stage.start {
                $0.addDevice(FakeBlueZ.device, isTold: false, battery: 100)
                $0.answerConnects()
            }
            let level = try await self.connected(stage)
            let value = try await stage.central.read(level)
            XCTAssertEqual(value, [100])
            try await stage.central.subscribe(level, holder: self.holder)
            stage.fake.change(FakeBlueZ.device, "org.bluez.Battery1", [("Percentage", .byte(42))])
            await stage.recorder.wait("the change") { stage.recorder.values.count == 2 }
            XCTAssertEqual(stage.recorder.values[1], Recorder.Value(key: "180f/2a19", bytes: [42], source: .notify))
        }
    }

    // MARK: Attributes

    @EventLoopActor
    func testTwinsAreTold() async throws {
        try await withStage { stage in
            try await stage.start { fake in
                fake.addDevice(FakeBlueZ.device, isTold: false)
                for service in ["0010", "0020"] {
                    fake.addService(service, "1802", isTold: false)
                    for place in 1...2 {
                        fake.addCharacteristic(
                            service, "\(service.prefix(3))\(place)", "2a06", ["write", "notify"], isTold: false)
                    }
                }
                fake.answerConnects()
                fake.refuse("AcquireNotify", "NotSupported", "Operation is not supported")
            }
            let device = try await stage.central.connect(Stage.address, holder: self.holder)
            XCTAssertEqual(
                device.services.flatMap { service in service.characteristics.map { "\(service.key)/\($0.key)" } },
                ["1802_0010/2a06_0011", "1802_0010/2a06_0012", "1802_0020/2a06_0021", "1802_0020/2a06_0022"])
            let find = { (service: String, characteristic: String) throws -> GATTCharacteristic in
                try stage.central.characteristic(
                    Stage.address, service: try XCTUnwrap(AttributeSelector(parsing: service)),
                    characteristic: try XCTUnwrap(AttributeSelector(parsing: characteristic)))
            }
            for (service, characteristic) in [("1802", "2a06_0011"), ("1802_0010", "2a06")] {
                XCTAssertThrowsError(try find(service, characteristic)) { error in
                    XCTAssertEqual((error as? CentralError)?.code, .ambiguousAttribute)
                }
            }
            XCTAssertThrowsError(try find("180f", "2a19")) { error in
                XCTAssertEqual((error as? CentralError)?.code, .unknownAttribute)
            }
            let one = try find("1802_0020", "2a06_0021")
            try await stage.central.write([1], to: one)
            XCTAssertEqual(stage.fake.calls.last, "char0021 WriteValue")
            try await stage.central.subscribe(one, holder: self.holder)
            let path = "\(FakeBlueZ.device)/service0020/char0021"
            stage.fake.change(path, self.characteristic1, [("Value", .bytes([5]))])
            await stage.recorder.wait("the value") { stage.recorder.values.count == 1 }
            XCTAssertEqual(stage.recorder.values[0].key, "1802_0020/2a06_0021")
        }
    }

    @EventLoopActor
    func testTheWriteTypeIsSaid() async throws {
        try await withStage { stage in
            try await stage.start { fake in
                fake.addDevice(FakeBlueZ.device, isTold: false)
                fake.addService("0010", "1802", isTold: false)
                fake.addCharacteristic("0010", "0011", "2a06", ["write-without-response"], isTold: false)
                fake.addCharacteristic("0010", "0013", "2a07", ["write"], isTold: false)
                fake.answerConnects()
            }
            let device = try await stage.central.connect(Stage.address, holder: self.holder)
            let characteristics = device.services.flatMap(\.characteristics)
            for (characteristic, type) in zip(characteristics, ["command", "request"]) {
                try await stage.central.write([1, 2], to: characteristic)
                let message = try XCTUnwrap(stage.fake.messages.last)
                var reader = message.reader()
                XCTAssertEqual(reader.bytes(), [1, 2])
                reader.next()
                XCTAssertEqual(
                    reader.value(), .dictionary("sv", [(.string("type"), .variant(.string(type)))]))
            }
            stage.fake.forgetCalls()
            let error = await self.failure {
                try await stage.central.write([1], to: characteristics[1], type: .command)
            }
            XCTAssertEqual(error?.code, .notSupported)
            let long = await self.failure {
                try await stage.central.write([UInt8](repeating: 0, count: 245), to: characteristics[0])
            }
            XCTAssertEqual(long?.code, .tooLong)
            XCTAssertEqual(stage.fake.calls, [])
        }
    }
}
