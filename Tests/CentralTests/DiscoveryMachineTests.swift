import BlueZ
import XCTest

@testable import Central

final class DiscoveryMachineTests: XCTestCase {
    private func started(monitor: Bool = false) -> DiscoveryMachine {
        var machine = DiscoveryMachine()
        machine.isWanted = true
        _ = machine.powerChanged(true, supportsMonitor: monitor)
        return machine
    }

    func testNothingIsAskedWhileNothingIsWanted() {
        var machine = DiscoveryMachine()
        XCTAssertNil(machine.powerChanged(true, supportsMonitor: true))
        machine.isWanted = true
        XCTAssertEqual(machine.update(), .registerMonitor)
    }

    func testTheFilterPrecedesTheStart() {
        var machine = DiscoveryMachine()
        machine.isWanted = true
        XCTAssertEqual(machine.powerChanged(true, supportsMonitor: false), .setFilter)
        XCTAssertEqual(machine.ended(nil), .startDiscovery)
        XCTAssertFalse(machine.isRunning)
        XCTAssertNil(machine.ended(nil))
        XCTAssertTrue(machine.isRunning)
    }

    func testTheMonitorPrecedesTheFilterAndMayFail() {
        var machine = started(monitor: true)
        XCTAssertEqual(machine.state, .registering)
        XCTAssertEqual(machine.ended(.other), .setFilter)
        XCTAssertFalse(machine.isMonitoring)
        var other = started(monitor: true)
        XCTAssertEqual(other.ended(nil), .setFilter)
        XCTAssertTrue(other.isMonitoring)
    }

    func testInProgressTwiceThenSuccess() {
        var machine = started()
        XCTAssertEqual(machine.ended(nil), .startDiscovery)
        XCTAssertEqual(machine.ended(.inProgress), .wait(.milliseconds(250)))
        XCTAssertEqual(machine.waited(), .setFilter)
        XCTAssertEqual(machine.ended(nil), .startDiscovery)
        XCTAssertEqual(machine.ended(.inProgress), .wait(.milliseconds(500)))
        XCTAssertEqual(machine.waited(), .setFilter)
        XCTAssertEqual(machine.ended(nil), .startDiscovery)
        XCTAssertNil(machine.ended(nil))
        XCTAssertTrue(machine.isRunning)
        XCTAssertEqual(machine.failures, 0)
    }

    func testPausesStayShortEnoughToBeBackWithinFiveSeconds() {
        var machine = started()
        var longest = Duration.zero
        for _ in 0..<20 {
            var action = machine.ended(nil)
            XCTAssertEqual(action, .startDiscovery)
            action = machine.ended(.inProgress)
            if action == .stopDiscovery { action = machine.ended(.other) }
            guard case .wait(let pause)? = action else { return XCTFail("\(String(describing: action))") }
            longest = max(longest, pause)
            XCTAssertEqual(machine.waited(), .setFilter)
        }
        XCTAssertEqual(longest, .seconds(2))
    }

    func testARefusalThatTimeHardlyMendsIsGivenGrowingPeace() {
        var machine = started()
        var pauses: [Duration] = []
        for _ in 0..<12 {
            XCTAssertEqual(machine.ended(nil), .startDiscovery)
            guard case .wait(let pause) = machine.ended(.other) else { return XCTFail("no pause") }
            pauses.append(pause)
            XCTAssertEqual(machine.waited(), .setFilter)
        }
        XCTAssertEqual(pauses.first, .milliseconds(250))
        XCTAssertEqual(pauses.last, .seconds(30))
    }

    /// As with a bluetoothd that stood still: what it did after all is stopped before the next attempt.
    func testAStartThatWasNeverAnsweredMayHaveBeenDone() {
        var machine = started()
        XCTAssertEqual(machine.ended(nil), .startDiscovery)
        XCTAssertEqual(machine.ended(.noAnswer), .wait(.milliseconds(250)))
        XCTAssertEqual(machine.waited(), .setFilter)
        XCTAssertEqual(machine.ended(nil), .startDiscovery)
        XCTAssertEqual(machine.ended(.inProgress), .stopDiscovery)
    }

    func testPowerOffEndsItAndPowerOnStartsItAnew() {
        var machine = started()
        _ = machine.ended(nil)
        _ = machine.ended(nil)
        XCTAssertTrue(machine.isRunning)
        XCTAssertNil(machine.powerChanged(false, supportsMonitor: false))
        XCTAssertFalse(machine.isRunning)
        XCTAssertEqual(machine.powerChanged(true, supportsMonitor: false), .setFilter)
    }

    func testASessionThatBlueZStillHoldsAfterPowerOffIsStopped() {
        var machine = started()
        _ = machine.ended(nil)
        _ = machine.ended(nil)
        _ = machine.powerChanged(false, supportsMonitor: false)
        _ = machine.powerChanged(true, supportsMonitor: false)
        XCTAssertEqual(machine.ended(nil), .startDiscovery)
        XCTAssertEqual(machine.ended(.inProgress), .stopDiscovery)
    }

    func testStoppingWhileTheStartIsUnderWay() {
        var machine = started(monitor: true)
        _ = machine.ended(nil)
        XCTAssertEqual(machine.ended(nil), .startDiscovery)
        machine.isWanted = false
        XCTAssertNil(machine.update())
        XCTAssertEqual(machine.ended(nil), .stopDiscovery)
        XCTAssertEqual(machine.ended(nil), .unregisterMonitor)
        XCTAssertNil(machine.ended(nil))
        XCTAssertEqual(machine.state, .idle)
    }

    func testWantedAgainWhileStopping() {
        var machine = started()
        _ = machine.ended(nil)
        _ = machine.ended(nil)
        machine.isWanted = false
        XCTAssertEqual(machine.update(), .stopDiscovery)
        machine.isWanted = true
        XCTAssertNil(machine.update())
        XCTAssertEqual(machine.ended(nil), .setFilter)
    }

    func testRenewalStopsAndStarts() {
        var machine = started()
        XCTAssertNil(machine.renew())
        _ = machine.ended(nil)
        _ = machine.ended(nil)
        XCTAssertEqual(machine.renew(), .stopDiscovery)
        XCTAssertEqual(machine.ended(nil), .setFilter)
        XCTAssertEqual(machine.ended(nil), .startDiscovery)
        XCTAssertTrue(machine.isRenewing)
        XCTAssertNil(machine.ended(nil))
        XCTAssertTrue(machine.isRunning)
        XCTAssertFalse(machine.isRenewing)
    }

    func testARenewalIsOverOnceItFailsOrIsNotWantedAnyMore() {
        func renewing() -> DiscoveryMachine {
            var machine = started()
            _ = machine.ended(nil)
            _ = machine.ended(nil)
            _ = machine.renew()
            return machine
        }
        var machine = renewing()
        _ = machine.ended(nil)
        _ = machine.ended(nil)
        XCTAssertEqual(machine.ended(.inProgress), .wait(.milliseconds(250)))
        XCTAssertFalse(machine.isRenewing)

        machine = renewing()
        machine.isWanted = false
        XCTAssertNil(machine.ended(nil))
        XCTAssertFalse(machine.isRenewing)

        machine = renewing()
        _ = machine.powerChanged(false, supportsMonitor: false)
        XCTAssertFalse(machine.isRenewing)

        machine = renewing()
        machine.reset()
        XCTAssertFalse(machine.isRenewing)
    }

    func testRepliesAfterAResetChangeNothing() {
        var machine = started()
        machine.reset()
        XCTAssertNil(machine.ended(nil))
        XCTAssertNil(machine.waited())
        XCTAssertEqual(machine.state, .idle)
    }
}

final class ConnectQueueTests: XCTestCase {
    func testFewAtATime() {
        var queue = ConnectQueue<Int>(places: 3)
        for key in 0..<10 { queue.add(key, isHeard: true) }
        XCTAssertEqual([queue.next(), queue.next(), queue.next()], [0, 1, 2])
        XCTAssertNil(queue.next())
        queue.remove(1)
        XCTAssertEqual(queue.next(), 3)
        XCTAssertEqual(queue.activeCount, 3)
        XCTAssertEqual(queue.waitingCount, 6)
    }

    func testDevicesOutOfRangeLeaveAPlace() {
        var queue = ConnectQueue<String>(places: 3)
        for key in ["far1", "far2", "far3"] { queue.add(key, isHeard: false) }
        XCTAssertEqual([queue.next(), queue.next()], ["far1", "far2"])
        XCTAssertNil(queue.next())
        queue.add("near", isHeard: true)
        XCTAssertEqual(queue.next(), "near")
    }

    func testHeardOnesGoFirst() {
        var queue = ConnectQueue<String>(places: 1)
        queue.add("far", isHeard: false)
        queue.add("near", isHeard: true)
        XCTAssertEqual(queue.next(), "near")
        queue.remove("near")
        XCTAssertEqual(queue.next(), "far")
    }

    func testAWordThatComesWhileWaiting() {
        var queue = ConnectQueue<String>(places: 1)
        queue.add("a", isHeard: false)
        queue.add("b", isHeard: false)
        queue.add("b", isHeard: true)
        XCTAssertEqual(queue.waitingCount, 2)
        XCTAssertEqual(queue.next(), "b")
    }

    func testNoneTwice() {
        var queue = ConnectQueue<String>(places: 2)
        queue.add("a", isHeard: true)
        XCTAssertEqual(queue.next(), "a")
        queue.add("a", isHeard: true)
        XCTAssertNil(queue.next())
        queue.remove("a")
        XCTAssertFalse(queue.contains("a"))
    }

    func testEachClassOfFaultHasPausesOfItsOwn() {
        let expected: [(RetryClass, Duration, Duration)] = [
            (.local, .milliseconds(250), .seconds(5)), (.peer, .milliseconds(250), .seconds(30)),
            (.daemon, .seconds(1), .seconds(60)), (.security, .seconds(5), .seconds(300)),
        ]
        for (kind, first, longest) in expected {
            var pause = RetryPause(seed: 3)
            XCTAssertTrue((first / 2...first).contains(pause.next(kind)), "\(kind)")
            for _ in 0..<20 { _ = pause.next(kind) }
            XCTAssertTrue((longest / 2...longest).contains(pause.next(kind)), "\(kind)")
        }
    }

    func testFaultsAreClassedByWhatHelps() {
        let expected: [(String, String, RetryClass)] = [
            ("org.bluez.Error.Failed", "le-connection-abort-by-local", .local),
            ("org.bluez.Error.InProgress", "In Progress", .local),
            ("org.bluez.Error.Failed", "le-connection-timeout", .peer),
            ("org.bluez.Error.NotAvailable", "", .peer),
            ("org.bluez.Error.AuthenticationFailed", "", .security),
            ("org.freedesktop.DBus.Error.NoReply", "", .daemon),
        ]
        for (name, message, kind) in expected {
            XCTAssertEqual(RetryClass(BlueZError(name: name, message: message)), kind, "\(name) \(message)")
        }
    }

    func testPausesGrowWithJitterToTheLimit() {
        var pause = RetryPause(seed: 7)
        var former = Duration.zero
        for attempt in 0..<12 {
            let next = pause.next(.peer)
            let whole = min(Duration.milliseconds(250 << attempt), .seconds(30))
            XCTAssertGreaterThanOrEqual(next, whole / 2)
            XCTAssertLessThanOrEqual(next, whole)
            XCTAssertNotEqual(next, former)
            former = next
        }
        pause.reset()
        XCTAssertLessThanOrEqual(pause.next(.peer), .milliseconds(250))
    }
}
