import Bluetooth
import EventLoop
import Glibc
import TestKit
import XCTest

@testable import CoreBluetooth

final class PeripheralTests: FakeRadioTestCase {
    func testDiscovery() throws {
        let (_, peripheral) = try makeConnected()
        XCTAssertNil(peripheral.services)
        peripheral.discoverServices([CBUUID(string: "1802")])
        journal.wait(for: "services [\"1802\"]")
        peripheral.discoverServices(nil)
        journal.wait(for: "services [\"180F\", \"1802\"]")
        let services = try XCTUnwrap(peripheral.services)
        let battery = try XCTUnwrap(services.first)
        XCTAssertTrue(battery.peripheral === peripheral)
        XCTAssertTrue(battery.isPrimary)
        XCTAssertNil(battery.characteristics)
        peripheral.discoverCharacteristics([CBUUID(string: "FFFF")], for: battery)
        journal.wait(for: "characteristics []")
        peripheral.discoverCharacteristics(nil, for: battery)
        journal.wait(for: "characteristics [\"2A19\"]")
        let level = try XCTUnwrap(battery.characteristics?.first)
        XCTAssertTrue(level.service === battery)
        XCTAssertEqual(level.properties, [.read, .notify])
        peripheral.discoverDescriptors(for: level)
        journal.wait(for: "descriptors [\"2902\", \"2901\"]")
        peripheral.discoverIncludedServices(nil, for: battery)
        journal.wait(for: "included [\"180A\"]")
        peripheral.discoverServices(nil)
        journal.wait(for: "services [\"180F\", \"1802\"]", count: 2)
        XCTAssertTrue(peripheral.services?.first === battery)
        XCTAssertTrue(battery.characteristics?.first === level)
    }

    func testDescriptorsAreReadAndWritten() throws {
        let (_, peripheral) = try makeConnected()
        let level = try XCTUnwrap(try discover(peripheral)[CBUUID(string: "2A19")])
        onLoop { $0.values[.descriptor(0x14)] = Array("Level".utf8) }
        peripheral.discoverDescriptors(for: level)
        settle()
        let descriptors = try XCTUnwrap(level.descriptors)
        peripheral.readValue(for: descriptors[1])
        journal.wait(for: "descriptor 2901 Level")
        peripheral.writeValue(Data([65]), for: descriptors[1])
        journal.wait(for: "wrote descriptor 2901")
        peripheral.writeValue(Data([1, 0]), for: descriptors[0])
        journal.wait(for: "wrote descriptor 2902 error cb 13")
        XCTAssertEqual(onLoop { $0.values[.descriptor(0x14)] }, [65])
        XCTAssertNil(onLoop { $0.values[.descriptor(0x13)] } ?? nil)
    }

    // Field case 58.
    func testReadsAndNotificationsShareOneCallback() throws {
        let (_, peripheral) = try makeConnected()
        let level = try XCTUnwrap(try discover(peripheral)[CBUUID(string: "2A19")])
        onLoop { $0.values[.characteristic(0x11)] = [64] }
        peripheral.setNotifyValue(true, for: level)
        journal.wait(for: "notifying 2A19 true")
        journal.clear()
        peripheral.readValue(for: level)
        journal.wait(for: "value 2A19 64")
        XCTAssertTrue(level.isNotifying)
        onLoop { radio in
            radio.notify([63], 0x11, FakeRadioTestCase.key)
            radio.notify([], 0x11, FakeRadioTestCase.key)
            radio.notify([62], 0x11, FakeRadioTestCase.key)
        }
        journal.wait(for: "value 2A19 62")
        XCTAssertEqual(journal.all, ["value 2A19 64", "value 2A19 63", "value 2A19 ", "value 2A19 62"])
        XCTAssertEqual(level.value, Data([62]))
    }

    func testFastFirstNotificationFollowsTheState() throws {
        let (_, peripheral) = try makeConnected()
        let level = try XCTUnwrap(try discover(peripheral)[CBUUID(string: "2A19")])
        journal.clear()
        onLoop { $0.valueDuringSubscribe = [8] }
        peripheral.setNotifyValue(true, for: level)
        journal.wait(for: "value 2A19 8")
        XCTAssertEqual(journal.all, ["notifying 2A19 true", "value 2A19 8"])
    }

    func testNotificationsEnd() throws {
        let (_, peripheral) = try makeConnected()
        let level = try XCTUnwrap(try discover(peripheral)[CBUUID(string: "2A19")])
        journal.clear()
        peripheral.setNotifyValue(false, for: level)
        journal.wait(for: "notifying 2A19 false")
        peripheral.setNotifyValue(true, for: level)
        journal.wait(for: "notifying 2A19 true")
        peripheral.setNotifyValue(true, for: level)
        journal.wait(for: "notifying 2A19 true", count: 2)
        peripheral.setNotifyValue(false, for: level)
        journal.wait(for: "notifying 2A19 false", count: 2)
        onLoop { $0.notify([1], 0x11, FakeRadioTestCase.key) }
        settle()
        XCTAssertEqual(journal.all.count, 4)
        XCTAssertEqual(onLoop { $0.log.filter { $0.hasSuffix("subscribe") } }, ["subscribe", "unsubscribe"])
    }

    func testNotifyingEndsWithTheLink() throws {
        let (_, peripheral) = try makeConnected()
        let level = try XCTUnwrap(try discover(peripheral)[CBUUID(string: "2A19")])
        peripheral.setNotifyValue(true, for: level)
        journal.wait(for: "notifying 2A19 true")
        onLoop { $0.drop(FakeRadioTestCase.key, .byPeer) }
        journal.wait(for: "disconnect disconnected error cb 7")
        XCTAssertFalse(level.isNotifying)
    }

    // Field case 59.
    func testWritesWithResponseAreAnsweredOnceAndOthersNever() throws {
        let (_, peripheral) = try makeConnected()
        let alert = try XCTUnwrap(try discover(peripheral)[CBUUID(string: "2A06")])
        journal.clear()
        peripheral.writeValue(Data([2]), for: alert, type: .withResponse)
        journal.wait(for: "wrote 2A06")
        onLoop { $0.failure = RadioFailure(kind: .attribute(0x80), message: "out of range") }
        peripheral.writeValue(Data([9]), for: alert, type: .withResponse)
        journal.wait(for: "wrote 2A06 error att 128")
        peripheral.writeValue(Data([9]), for: alert, type: .withoutResponse)
        settle()
        onLoop { $0.failure = nil }
        peripheral.writeValue(Data([1]), for: alert, type: .withoutResponse)
        settle()
        peripheral.writeValue(Data(repeating: 0, count: 600), for: alert, type: .withResponse)
        journal.wait(for: "wrote 2A06 error att 13")
        XCTAssertEqual(
            journal.all, ["wrote 2A06", "wrote 2A06 error att 128", "wrote 2A06 error att 13"])
        XCTAssertEqual(onLoop { $0.values[.characteristic(0x21)] }, [1])
        XCTAssertEqual(queue.sync { recorder.errors.first?.localizedDescription }, "out of range")
    }

    func testWhatThePropertiesForbidIsAnErrorWithoutTheAir() throws {
        let (_, peripheral) = try makeConnected()
        let found = try discover(peripheral)
        let level = try XCTUnwrap(found[CBUUID(string: "2A19")])
        let alert = try XCTUnwrap(found[CBUUID(string: "2A06")])
        peripheral.readValue(for: alert)
        journal.wait(for: "value 2A06 - error att 2")
        peripheral.writeValue(Data([1]), for: level, type: .withResponse)
        journal.wait(for: "wrote 2A19 error att 3")
        peripheral.setNotifyValue(true, for: alert)
        journal.wait(for: "notifying 2A06 false error att 6")
        peripheral.writeValue(Data([1]), for: level, type: .withoutResponse)
        settle()
        XCTAssertEqual(onLoop { $0.log }, ["connect"])
    }

    func testWriteReadinessFollowsTheQueue() throws {
        let (_, peripheral) = try makeConnected()
        let alert = try XCTUnwrap(try discover(peripheral)[CBUUID(string: "2A06")])
        XCTAssertTrue(peripheral.canSendWriteWithoutResponse)
        let gate = Pending<Void>()
        onLoop { $0.gate = gate }
        var sent = 0
        while peripheral.canSendWriteWithoutResponse, sent < 100 {
            peripheral.writeValue(Data([UInt8(sent)]), for: alert, type: .withoutResponse)
            sent += 1
        }
        XCTAssertEqual(sent, 32)
        settle()
        XCTAssertEqual(journal.count("ready true"), 0)
        onLoop { radio in
            radio.gate = nil
            gate.succeed(())
        }
        journal.wait(for: "ready true")
        settle()
        XCTAssertEqual(onLoop { $0.log.filter { $0 == "command" }.count }, 32)
        XCTAssertEqual(journal.count("ready true"), 1)
        XCTAssertTrue(peripheral.canSendWriteWithoutResponse)
    }

    func testOperationsKeepTheirOrder() throws {
        let (_, peripheral) = try makeConnected()
        let found = try discover(peripheral)
        let level = try XCTUnwrap(found[CBUUID(string: "2A19")])
        let alert = try XCTUnwrap(found[CBUUID(string: "2A06")])
        journal.clear()
        for _ in 0..<100 {
            peripheral.readValue(for: level)
            peripheral.writeValue(Data([1]), for: alert, type: .withResponse)
        }
        journal.wait(for: "wrote 2A06", count: 100)
        XCTAssertEqual(journal.all, (0..<100).flatMap { _ in ["value 2A19 ", "wrote 2A06"] })
    }

    func testModifiedServices() throws {
        let (_, peripheral) = try makeConnected()
        let found = try discover(peripheral)
        let alert = try XCTUnwrap(found[CBUUID(string: "2A06")])
        journal.clear()
        onLoop { radio in
            radio.tree.remove(at: 1)
            for observer in radio.observers { observer.radio(servicesDidChange: FakeRadioTestCase.key) }
        }
        journal.wait(for: "modified [\"1802\"]")
        XCTAssertEqual(peripheral.services?.map(\.uuid.uuidString), ["180F"])
        peripheral.writeValue(Data([1]), for: alert, type: .withResponse)
        settle()
        XCTAssertEqual(journal.all, ["modified [\"1802\"]"])
    }

    func testRSSIAndChannel() throws {
        let (_, peripheral) = try makeConnected()
        peripheral.readRSSI()
        journal.wait(for: "rssi -61")
        onLoop { $0.failure = RadioFailure(kind: .notSupported, message: "CAP_NET_ADMIN is missing") }
        peripheral.readRSSI()
        journal.wait(for: "rssi 127 error cb 13")
        peripheral.openL2CAPChannel(0x80)
        journal.wait(for: "channel 0 error cb 13")
        var ends: [Int32] = [0, 0]
        XCTAssertEqual(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends), 0)
        let (near, far) = (ends[0], ends[1])
        defer { Glibc.close(far) }
        onLoop { radio in
            radio.failure = nil
            radio.channel = near
        }
        peripheral.openL2CAPChannel(0x80)
        journal.wait(for: "channel 128")
        let channel = try XCTUnwrap(queue.sync { recorder.channel })
        XCTAssertTrue(channel.peer === peripheral)
        channel.outputStream.open()
        XCTAssertEqual(channel.outputStream.write([7], maxLength: 1), 1)
    }

    func testCommandsWithoutAConnectionDoNothing() throws {
        let (manager, peripheral) = try makeConnected()
        let level = try XCTUnwrap(try discover(peripheral)[CBUUID(string: "2A19")])
        manager.cancelPeripheralConnection(peripheral)
        journal.wait(for: "disconnect disconnected")
        journal.clear()
        peripheral.readValue(for: level)
        peripheral.discoverServices(nil)
        peripheral.readRSSI()
        settle()
        XCTAssertEqual(journal.all, [])
        XCTAssertFalse(peripheral.canSendWriteWithoutResponse)
    }

    func testServiceOutlivesNothing() throws {
        weak var service: CBService?
        do {
            let (_, peripheral) = try makeConnected()
            _ = try discover(peripheral)
            service = peripheral.services?.first
            XCTAssertNotNil(service)
        }
        settle()
        XCTAssertNil(service, "the parents are weak, so nothing keeps a service but its peripheral")
    }
}
