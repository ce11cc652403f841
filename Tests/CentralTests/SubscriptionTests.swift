import Bluetooth
import DBus
import EventLoop
import XCTest

@testable import Central

/// What becomes of a subscription where something changes while it runs, starts or ends.
final class SubscriptionTests: SessionTestCase {
    private let other = HolderID("other")

    @EventLoopActor
    private func change(_ stage: Stage, _ value: [UInt8]) {
        stage.fake.change(level, characteristic1, [("Value", .bytes(value))])
    }

    @EventLoopActor
    private func values(_ stage: Stage) -> [String] { stage.recorder.values.map { "\($0.bytes) \($0.source)" } }

    /// What BlueZ told before has come, once a later call is answered.
    @EventLoopActor
    private func settle(_ stage: Stage) async {
        _ = try? await stage.central.read(try found(stage))
    }

    /// BlueZ takes a changed service's objects away, with the sessions on them, and says no more of these.
    @EventLoopActor
    func testACharacteristicThatIsShownAnewIsSubscribedAnew() async throws {
        try await withStage { stage in
            try await stage.start { self.addBattery($0) }
            let level = try await self.connected(stage)
            try await stage.central.subscribe(level, holder: self.holder)
            let service = "\(FakeBlueZ.device)/service0010"
            stage.fake.remove(self.level, [self.characteristic1])
            stage.fake.remove(service, ["org.bluez.GattService1"])
            stage.fake.addService("0010", "180f")
            stage.fake.addCharacteristic("0010", "0011", "2a19", ["read", "notify"])
            await stage.recorder.wait("the subscription") { stage.fake.count(of: "char0011 StartNotify") == 2 }
            await stage.recorder.wait("the notifications") { (try? self.found(stage).isNotifying) == true }
            XCTAssertFalse(level.isNotifying)
            self.change(stage, [7])
            await stage.recorder.wait("a value") { stage.recorder.values.count == 1 }
            XCTAssertEqual(self.values(stage), ["[7] notify"])
            try await stage.central.unsubscribe(try self.found(stage), holder: self.holder)
            XCTAssertEqual(stage.fake.count(of: "char0011 StopNotify"), 1)
        }
    }

    /// The same where BlueZ keeps the battery service to itself.
    @EventLoopActor
    func testABatteryThatIsShownAnewIsSubscribedAnew() async throws {
        try await withStage { stage in
            try await stage.start {
                $0.addDevice(FakeBlueZ.device, isTold: false, battery: 100)
                $0.answerConnects()
            }
            let level = try await self.connected(stage)
            try await stage.central.subscribe(level, holder: self.holder)
            stage.fake.remove(FakeBlueZ.device, ["org.bluez.Battery1"])
            await stage.recorder.wait("no battery") { (try? self.found(stage)) == nil }
            stage.fake.add(FakeBlueZ.device, [("org.bluez.Battery1", [("Percentage", .byte(50))])])
            await stage.recorder.wait("the notifications") { (try? self.found(stage).isNotifying) == true }
            stage.fake.change(FakeBlueZ.device, "org.bluez.Battery1", [("Percentage", .byte(42))])
            await stage.recorder.wait("the change") { stage.recorder.values.count == 1 }
            XCTAssertEqual(self.values(stage), ["[42] notify"])
        }
    }

    @EventLoopActor
    func testWhatIsSubscribedWhileTheLastOneEndsOnAWithdrawnCharacteristicStarts() async throws {
        try await withStage { stage in
            try await stage.start { self.addBattery($0) }
            let level = try await self.connected(stage)
            try await stage.central.subscribe(level, holder: self.holder)
            stage.fake.handlers["\(self.level) StopNotify"] = { _ in nil }
            let ending = Task { try await stage.central.unsubscribe(level, holder: self.holder) }
            await stage.recorder.wait("StopNotify") { stage.fake.count(of: "char0011 StopNotify") == 1 }
            let beginning = Task { try await stage.central.subscribe(level, holder: self.other) }
            await Task.yield()
            stage.fake.remove(self.level, [self.characteristic1])
            stage.fake.addCharacteristic("0010", "0011", "2a19", ["read", "notify"])
            await stage.recorder.wait("the notifications") { (try? self.found(stage).isNotifying) == true }
            _ = try await beginning.value
            ending.cancel()
        }
    }

    /// BlueZ subscribes anew by itself with each link, and signals what is read, too.
    @EventLoopActor
    func testNothingIsKeptForASubscriptionThatWasGivenUpBetweenTwoLinks() async throws {
        try await withStage { stage in
            try await stage.start { self.addBattery($0) }
            let level = try await self.connected(stage)
            try await stage.central.subscribe(level, holder: self.holder)
            await self.dropped(stage)
            try await stage.central.unsubscribe(level, holder: self.holder)
            let again = try await self.connected(stage)
            self.change(stage, [1])
            stage.fake.handlers["\(self.level) ReadValue"] = { message in
                self.change(stage, [2])
                return message.reply(bytes: [2])
            }
            _ = try await stage.central.read(again)
            try await stage.central.subscribe(again, holder: self.holder)
            self.change(stage, [3])
            await stage.recorder.wait("the third") { stage.recorder.values.last?.bytes == [3] }
            XCTAssertEqual(self.values(stage), ["[2] read", "[3] notify"])
        }
    }

    /// A refusal that may be the end of the link is waited for; nobody wants the notifications meanwhile.
    @EventLoopActor
    func testASubscriptionThatWasGivenUpWhileItWasRefusedIsPossibleAgain() async throws {
        let clock = ManualClock()
        try await withStage(clock: clock) { stage in
            try await stage.start { self.addBattery($0) }
            let level = try await self.connected(stage)
            stage.fake.refuse("\(self.level) StartNotify", "Failed", "Operation failed with ATT error: 0x0e", times: 1)
            let refused = Task { try await stage.central.subscribe(level, holder: self.holder) }
            await stage.recorder.wait("StartNotify") { stage.fake.count(of: "char0011 StartNotify") == 1 }
            await self.settle(stage)
            try await stage.central.unsubscribe(level, holder: self.holder)
            clock.advance(by: .milliseconds(100))
            let error = await self.failure { try await refused.value }
            XCTAssertEqual(error?.att, 0x0e)
            let task = Task { try await stage.central.subscribe(level, holder: self.other) }
            await stage.recorder.wait("StartNotify") { stage.fake.count(of: "char0011 StartNotify") == 2 }
            try await task.value
            XCTAssertTrue(level.isNotifying)
            XCTAssertFalse(stage.recorder.warnings.contains("subscribe_failed"))
        }
    }

    /// BlueZ sends values before it answers; there is nobody for them between two who want them.
    @EventLoopActor
    func testWhoLetsGoDuringTheStartGetsNothing() async throws {
        try await withStage { stage in
            try await stage.start { self.addBattery($0) }
            let level = try await self.connected(stage)
            var late: DBusMessage?
            stage.fake.handlers["\(self.level) StartNotify"] = { message in
                late = message.reply()
                return nil
            }
            stage.fake.handlers["\(self.level) ReadValue"] = { $0.reply(bytes: [0]) }
            let first = Task { try await stage.central.subscribe(level, holder: self.holder) }
            await stage.recorder.wait("StartNotify") { late != nil }
            self.change(stage, [1])
            await self.settle(stage)
            try await stage.central.unsubscribe(level, holder: self.holder)
            self.change(stage, [2])
            await self.settle(stage)
            let second = Task { try await stage.central.subscribe(level, holder: self.other) }
            await Task.yield()
            self.change(stage, [3])
            stage.fake.connection.send(try XCTUnwrap(late))
            try await first.value
            try await second.value
            XCTAssertEqual(
                self.values(stage), ["[1] notify", "[0] read", "[0] read", "[3] notify"])
            XCTAssertTrue(level.isNotifying)
            XCTAssertEqual(stage.fake.count(of: "char0011 StopNotify"), 0)
        }
    }

    @EventLoopActor
    func testASubscriptionAfterOneThatWasDroppedOutlivesTheLinkToo() async throws {
        try await withStage { stage in
            try await stage.start { self.addBattery($0) }
            let level = try await self.connected(stage, policy: .keep)
            _ = try await stage.central.connect(Stage.address, policy: .keep, holder: self.other)
            try await stage.central.subscribe(level, holder: self.other)
            // BlueZ ends them; they are to begin again in a moment.
            stage.fake.change(self.level, self.characteristic1, [("Notifying", .bool(true))])
            stage.fake.change(self.level, self.characteristic1, [("Notifying", .bool(false))])
            await stage.recorder.wait("no notifications") { !level.isNotifying }
            let isDown = try await stage.central.disconnect(Stage.address, holder: self.other)
            XCTAssertFalse(isDown)
            try await stage.central.subscribe(level, holder: self.other)
            await self.dropped(stage)
            await stage.recorder.wait("the notifications") { (try? self.found(stage).isNotifying) == true }
            self.change(stage, [5])
            await stage.recorder.wait("a value") { stage.recorder.values.count == 1 }
        }
    }

    /// An answer of an earlier link comes when there is another.
    @EventLoopActor
    func testALateAnswerToStopNotifyEndsNoLaterSubscription() async throws {
        try await withStage { stage in
            try await stage.start { self.addBattery($0) }
            let level = try await self.connected(stage)
            try await stage.central.subscribe(level, holder: self.holder)
            var late: DBusMessage?
            stage.fake.handlers["\(self.level) StopNotify"] = { message in
                late = message.reply()
                return nil
            }
            let ending = Task { try await stage.central.unsubscribe(level, holder: self.holder) }
            await stage.recorder.wait("StopNotify") { late != nil }
            await self.dropped(stage)
            let again = try await self.connected(stage)
            try await stage.central.subscribe(again, holder: self.holder)
            stage.fake.connection.send(try XCTUnwrap(late))
            try await ending.value
            XCTAssertTrue(again.isNotifying)
            self.change(stage, [1])
            await stage.recorder.wait("a value") { stage.recorder.values.count == 1 }
        }
    }

    /// Who has subscribed asks again, in vain: what was promised before stays.
    @EventLoopActor
    func testAskingAgainInVainTakesNothingAway() async throws {
        try await withStage { stage in
            try await stage.start { self.addBattery($0) }
            let level = try await self.connected(stage, policy: .keep)
            try await stage.central.subscribe(level, holder: self.holder)
            stage.fake.handlers["\(self.level) StartNotify"] = { _ in nil }
            await self.dropped(stage)
            await stage.recorder.wait("StartNotify") { stage.fake.count(of: "char0011 StartNotify") == 2 }
            let again = try self.found(stage)
            let task = Task { try await stage.central.subscribe(again, holder: self.holder) }
            await Task.yield()
            stage.fake.handlers["\(self.level) StartNotify"] = nil
            await self.dropped(stage)
            let error = await self.failure { try await task.value }
            XCTAssertEqual(error?.code, .notConnected)
            await stage.recorder.wait("the notifications") { (try? self.found(stage).isNotifying) == true }
        }
    }

    /// A read that was given up is answered later all the same, and BlueZ signals its value.
    @EventLoopActor
    func testTheEchoOfAReadThatWasGivenUpIsNoNotification() async throws {
        try await withStage { stage in
            try await stage.start { self.addBattery($0) }
            let level = try await self.connected(stage)
            try await stage.central.subscribe(level, holder: self.holder)
            var late: DBusMessage?
            stage.fake.handlers["\(self.level) ReadValue"] = { message in
                late = message.reply(bytes: [9])
                return nil
            }
            let error = await self.failure { try await stage.central.read(level, timeout: .milliseconds(50)) }
            XCTAssertEqual(error?.code, .timeout)
            self.change(stage, [1])
            self.change(stage, [9])
            stage.fake.connection.send(try XCTUnwrap(late))
            self.change(stage, [2])
            await stage.recorder.wait("the second") { stage.recorder.values.last?.bytes == [2] }
            XCTAssertEqual(self.values(stage), ["[1] notify", "[2] notify"])
        }
    }

    /// A value that might have been the echo of a read is a notification where the link ends before the read's answer.
    @EventLoopActor
    func testAValueThatIsHeldAtTheEndOfTheLinkIsNotLost() async throws {
        let clock = ManualClock()
        try await withStage(clock: clock) { stage in
            try await stage.start { self.addBattery($0) }
            let level = try await self.connected(stage)
            try await stage.central.subscribe(level, holder: self.holder)
            stage.fake.handlers["\(self.level) ReadValue"] = { _ in
                self.change(stage, [6])
                stage.fake.dropLink()
                return nil
            }
            let error = await self.failure { try await stage.central.read(level) }
            XCTAssertEqual(error?.code, .notConnected)
            XCTAssertEqual(self.values(stage), ["[6] notify"])
        }
    }

    /// BlueZ says at once that a session of an earlier link stands, and forgets it without a word where the peer refuses.
    @EventLoopActor
    func testASessionThatBlueZBringsBackInVainIsAskedForAgain() async throws {
        let clock = ManualClock()
        try await withStage(clock: clock) { stage in
            try await stage.start { self.addBattery($0) }
            let level = try await self.connected(stage)
            try await stage.central.subscribe(level, holder: self.holder)
            await self.dropped(stage)
            _ = try await self.connected(stage)
            let calls = { stage.fake.count(of: "char0011 StartNotify") }
            await stage.recorder.wait("the notifications") { (try? self.found(stage).isNotifying) == true }
            XCTAssertEqual(calls(), 2)
            stage.fake.refuse("\(self.level) StartNotify", "Failed", "Operation failed with ATT error: 0x80", times: 1)
            clock.advance(by: .seconds(5))
            await stage.recorder.wait("the refusal") { stage.recorder.warnings.contains("subscribe_failed") }
            XCTAssertEqual(calls(), 3)
            XCTAssertEqual(try self.found(stage).isNotifying, false)
            clock.advance(by: .seconds(2))
            await stage.recorder.wait("the notifications") { (try? self.found(stage).isNotifying) == true }
            clock.advance(by: .seconds(60))
            await self.settle(stage)
            XCTAssertEqual(calls(), 4, "a session of this link is believed, and the other was not")
        }
    }
}
