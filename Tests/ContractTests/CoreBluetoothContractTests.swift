import CoreBluetooth
import EventLoop
import JSON
import TestKit
import XCTest

/// Each callback of a peripheral that the radio can provoke.
final class CoreBluetoothContractTests: LibraryCase {
    @EventLoopActor
    func testDiscoveryTellsWhatIsAdvertised() async throws {
        try await inRadio { world, user in
            let manager = try XCTUnwrap(user.manager)
            manager.scanForPeripherals(withServices: [CBUUID(string: "180D")])
            XCTAssertTrue(manager.isScanning)
            try await user.journal.rest(of: "discover HR strap")
            let (data, rssi) = try user.queue.sync {
                (try XCTUnwrap(user.recorder.advertisements.last), try XCTUnwrap(user.recorder.strengths.last))
            }
            XCTAssertEqual(data[CBAdvertisementDataLocalNameKey] as? String, "HR strap")
            XCTAssertEqual(data[CBAdvertisementDataTxPowerLevelKey] as? NSNumber, 4)
            XCTAssertEqual(data[CBAdvertisementDataIsConnectable] as? Bool, true)
            XCTAssertTrue(
                (data[CBAdvertisementDataServiceUUIDsKey] as? [CBUUID])?.contains(CBUUID(string: "180F")) == true)
            XCTAssertLessThan(rssi.intValue, 0)
            // A new scan replaces the former one, and hears at once of what is known.
            manager.scanForPeripherals(
                withServices: [CBUUID(string: "FEAA"), CBUUID(string: "EC88")],
                options: [CBCentralManagerScanOptionAllowDuplicatesKey: true])
            try await user.journal.rest(of: "discover GVH5075_2233", count: 2)
            XCTAssertEqual(user.journal.count("discover HR strap"), 1, "told once for a scan, and only to the first")
            let all = user.queue.sync { user.recorder.advertisements }
            let beacon = all.compactMap { $0[CBAdvertisementDataServiceDataKey] as? [CBUUID: Data] }.first
            XCTAssertNotNil(beacon?[CBUUID(string: "FEAA")])
            let govee = all.compactMap { $0[CBAdvertisementDataManufacturerDataKey] as? Data }.first
            XCTAssertEqual(govee, Data([0x88, 0xec, 0x00, 0x81, 0x1e, 0xf0, 0x5a, 0x00]))
            manager.stopScan()
            XCTAssertFalse(manager.isScanning)
        }
    }

    @EventLoopActor
    func testAWholeSession() async throws {
        try await inRadio { world, user in
            let before = try await writes(world, "strap").count
            let tree = try await user.connect(Self.strap)
            let (peripheral, journal) = (tree.peripheral, user.journal)
            XCTAssertEqual(peripheral.name, "HR strap")
            XCTAssertEqual(peripheral.state, .connected)
            XCTAssertGreaterThanOrEqual(peripheral.maximumWriteValueLength(for: .withoutResponse), 20)
            let level = try tree.characteristic("2A19")
            XCTAssertEqual(level.properties, [.read, .notify])
            peripheral.readValue(for: level)
            try await journal.rest(of: "value 2A19 100")
            peripheral.writeValue(Data([1]), for: try tree.characteristic("2A39"), type: .withResponse)
            try await journal.rest(of: "wrote 2A39")
            let written = try await writes(world, "strap").dropFirst(before)
            XCTAssertEqual(written.map { $0["value"] }, [.string("01")])
            peripheral.readRSSI()
            let strength = try await journal.rest(of: "rssi ")
            // The simulator has no kernel behind it that could be asked.
            if World.isLab {
                XCTAssertLessThan(try XCTUnwrap(Int(strength)), 0)
            } else {
                XCTAssertEqual(strength, "127 error cb 13")
            }
            peripheral.setNotifyValue(true, for: try tree.characteristic("2A37"))
            try await journal.rest(of: "notifying 2A37 true")
            try await journal.rest(of: "value 2A37 ", count: 3)
            journal.clear()
            try await user.cancel(peripheral)
            // An order later nothing has come behind the end.
            try await waitForPeer(world, "strap", toSee: "disconnected")
            XCTAssertEqual(journal.all.last, "disconnect disconnected")
            XCTAssertFalse(try tree.characteristic("2A37").isNotifying)
        }
    }

    @EventLoopActor
    func testDescriptorsAndIncludedServices() async throws {
        try await inRadio { world, user in
            try await world.advertise("courier", true)
            let tree = try await user.connect(Self.courier)
            let text = try tree.characteristic("08590F7E-DB05-467E-8757-72F6FAEB13D4")
            tree.peripheral.discoverDescriptors(for: text)
            try await user.journal.rest(of: "descriptors ")
            let note = try XCTUnwrap(
                text.descriptors?.first { $0.uuid.uuidString == CBUUIDCharacteristicUserDescriptionString })
            let configuration = try XCTUnwrap(
                text.descriptors?.first { $0.uuid.uuidString == CBUUIDClientCharacteristicConfigurationString })
            tree.peripheral.writeValue(Data("Words".utf8), for: note)
            try await user.journal.rest(of: "wrote descriptor 2901")
            tree.peripheral.readValue(for: note)
            try await user.journal.rest(of: "descriptor 2901 Words")
            tree.peripheral.writeValue(Data("Text".utf8), for: note)
            try await user.journal.rest(of: "wrote descriptor 2901", count: 2)
            tree.peripheral.writeValue(Data([1, 0]), for: configuration)
            try await user.journal.rest(of: "wrote descriptor 2902 error cb 13")
            try await user.cancel(tree.peripheral)

            let second = try await user.connect(Self.includer)
            second.peripheral.discoverIncludedServices(nil, for: try second.service("FFF3"))
            try await user.journal.rest(of: "included ")
            let included = try second.service("FFF3").includedServices ?? []
            XCTAssertTrue(included.contains { $0.uuid == CBUUID(string: "180F") }, "\(included)")
            XCTAssertTrue(try second.service("180F").isPrimary)
            try await user.cancel(second.peripheral)
        }
    }

    // Field case 58.
    @EventLoopActor
    func testReadsAndNotificationsShareOneCallback() async throws {
        try await inRadio { world, user in
            let tree = try await user.connect(Self.tag)
            let (peripheral, journal) = (tree.peripheral, user.journal)
            let level = try tree.characteristic("2A19")
            peripheral.setNotifyValue(true, for: level)
            try await journal.rest(of: "notifying 2A19 true")
            journal.clear()
            for _ in 0..<3 { peripheral.readValue(for: level) }
            try await journal.rest(of: "value 2A19 50", count: 3)
            XCTAssertTrue(level.isNotifying)
            for value in ["31", "32", "31"] { try await world.notify("tag", "180f/2a19", value) }
            try await journal.rest(of: "value 2A19 49", count: 2)
            peripheral.readValue(for: level)
            try await journal.rest(of: "value 2A19 ", count: 7)
            peripheral.setNotifyValue(false, for: level)
            try await journal.rest(of: "notifying 2A19 false")
            // A later read is answered once: nothing is told twice.
            peripheral.readValue(for: level)
            try await journal.rest(of: "value 2A19 ", count: 8)
            let values = journal.all.filter { $0.hasPrefix("value") }
            XCTAssertEqual(values.prefix(6), ["50", "50", "50", "49", "50", "49"].map { "value 2A19 \($0)" }[...])
            peripheral.setNotifyValue(false, for: level)
            try await journal.rest(of: "notifying 2A19 false", count: 2)
            XCTAssertEqual(journal.all.filter { $0.hasPrefix("value") }.count, 8, "\(journal.all)")
            try await user.cancel(peripheral)
        }
    }

    @EventLoopActor
    func testIndications() async throws {
        try await inRadio { world, user in
            let tree = try await user.connect(Self.thermometer)
            let measurement = try tree.characteristic("2A1C")
            XCTAssertEqual(measurement.properties, .indicate)
            tree.peripheral.setNotifyValue(true, for: measurement)
            try await user.journal.rest(of: "notifying 2A1C true")
            let order: [String: JSONValue] = [
                "device": .string("thermometer"), "characteristic": .string("1809/2a1c"),
                "value": .string("006e0100ff"),
            ]
            try await world.radio.send("indicate", order)
            try await user.journal.rest(of: "value 2A1C 0,110,1,0,255")
            try await user.cancel(tree.peripheral)
        }
    }

    // Field case 59.
    @EventLoopActor
    func testWritesAreAnsweredOnceOrNever() async throws {
        try await inRadio { world, user in
            let tree = try await user.connect(Self.stubborn)
            let bad = try tree.characteristic("FFE2")
            tree.peripheral.writeValue(Data([9]), for: bad, type: .withResponse)
            try await user.journal.rest(of: "wrote FFE2 error att 128")
            tree.peripheral.readValue(for: bad)
            try await user.journal.rest(of: "value FFE2 - error att 128")
            let good = try tree.characteristic("FFE3")
            tree.peripheral.writeValue(Data([5]), for: good, type: .withResponse)
            try await user.journal.rest(of: "wrote FFE3")
            // Not offered: logged, and no callback.
            tree.peripheral.writeValue(Data([6]), for: good, type: .withoutResponse)
            tree.peripheral.readValue(for: good)
            try await user.journal.rest(of: "value FFE3 5")
            XCTAssertEqual(
                user.journal.all,
                ["wrote FFE2 error att 128", "value FFE2 - error att 128", "wrote FFE3", "value FFE3 5"])
            // The peers outlive a test, and another one knows this value.
            tree.peripheral.writeValue(Data([3]), for: good, type: .withResponse)
            try await user.journal.rest(of: "wrote FFE3", count: 2)
            try await user.cancel(tree.peripheral)
        }
    }

    @EventLoopActor
    func testManyWritesWithoutResponse() async throws {
        try await inRadio { world, user in
            let tree = try await user.connect(Self.node(0))
            let (peripheral, journal) = (tree.peripheral, user.journal)
            let target = try tree.characteristic("FFF2")
            let before = try await writes(world, "node-0").count
            let rest = [UInt8](repeating: 0xaa, count: 59)
            var sent = 0
            while sent < 200 {
                let ready = journal.count("ready true")
                while sent < 200, peripheral.canSendWriteWithoutResponse {
                    let value = Data([UInt8(sent)] + rest)
                    peripheral.writeValue(value, for: target, type: .withoutResponse)
                    sent += 1
                }
                if sent < 200 { try await journal.rest(of: "ready true", count: ready + 1) }
            }
            // A request on the same characteristic comes behind them, and is not refused for their sake.
            peripheral.writeValue(Data([255] + rest), for: target, type: .withResponse)
            try await journal.rest(of: "wrote FFF2")
            let seen = try await writes(world, "node-0").dropFirst(before)
            XCTAssertEqual(
                seen.map { $0["value"] },
                ((0..<200) + [255]).map { JSONValue.string(hex($0) + String(repeating: "aa", count: 59)) })
            XCTAssertEqual(seen.filter { $0["kind"] == .string("command") }.count, 200)
            XCTAssertEqual(journal.all.filter { $0.hasPrefix("wrote") }, ["wrote FFF2"])
            XCTAssertGreaterThan(journal.count("ready true"), 0)
            try await user.cancel(peripheral)
        }
    }

    @EventLoopActor
    func testLongValues() async throws {
        try await inRadio { world, user in
            let tree = try await user.connect(Self.large)
            let value = try tree.characteristic("FFD2")
            XCTAssertEqual(tree.peripheral.maximumWriteValueLength(for: .withResponse), 512)
            tree.peripheral.writeValue(Data(repeating: 7, count: 512), for: value, type: .withResponse)
            try await user.journal.rest(of: "wrote FFD2")
            tree.peripheral.readValue(for: value)
            try await user.journal.rest(of: "value FFD2 ")
            XCTAssertEqual(value.value, Data(repeating: 7, count: 512))
            try await user.cancel(tree.peripheral)
        }
    }

    private func hex(_ number: Int) -> String {
        let digits = String(number, radix: 16)
        return digits.count < 2 ? "0" + digits : digits
    }

    @EventLoopActor
    func testServicesChange() async throws {
        try await inRadio { world, user in
            let tree = try await user.connect(Self.strap)
            try await world.radio.send("services_changed", ["device": .string("strap")])
            try await user.journal.rest(of: "modified ", within: 60)
            let again = try await user.discover(tree.peripheral)
            again.peripheral.readValue(for: try again.characteristic("2A19"))
            try await user.journal.rest(of: "value 2A19 ")
            try await world.radio.send("services_changed", ["device": .string("strap")])
            try await user.journal.rest(of: "modified ", within: 60)
            try await user.cancel(tree.peripheral)
        }
    }

    @EventLoopActor
    func testNameChanges() async throws {
        try await inRadio { world, user in
            try await world.advertise("sleeper", true)
            let peripheral = try user.peripheral(Self.sleeper)
            user.manager?.scanForPeripherals(
                withServices: [CBUUID(string: "181A")], options: [CBCentralManagerScanOptionAllowDuplicatesKey: true])
            try await user.journal.rest(of: "discover Sleeper")
            user.journal.clear()
            try await world.radio.send("set", ["device": .string("sleeper"), "name": .string("Waker")])
            try await user.journal.rest(of: "name Waker")
            XCTAssertEqual(peripheral.name, "Waker")
            try await world.radio.send("set", ["device": .string("sleeper"), "name": .string("Sleeper")])
            try await user.journal.rest(of: "name Sleeper")
        }
    }

    @EventLoopActor
    func testChannel() async throws {
        try await inRadio { world, user in
            let tree = try await user.connect(Self.strap)
            tree.peripheral.openL2CAPChannel(0x81)
            let answer = try await user.journal.rest(of: "channel ")
            // Channels are the kernel's; the simulator has none behind it.
            guard World.isLab else {
                XCTAssertTrue(answer.hasPrefix("0 error cb"), answer)
                return try await user.cancel(tree.peripheral)
            }
            XCTAssertEqual(answer, "129")
            let channel = try XCTUnwrap(user.queue.sync { user.recorder.channel })
            XCTAssertEqual(channel.peer?.identifier, tree.peripheral.identifier)
            let (input, output) = (try XCTUnwrap(channel.inputStream), try XCTUnwrap(channel.outputStream))
            input.open()
            output.open()
            XCTAssertEqual(output.write([1, 2, 3], maxLength: 3), 3)
            let echo = await withCheckedContinuation { continuation in
                DispatchQueue.global().async {
                    var buffer = [UInt8](repeating: 0, count: 16)
                    let count = channel.inputStream.read(&buffer, maxLength: 16)
                    continuation.resume(returning: Array(buffer.prefix(max(0, count))))
                }
            }
            XCTAssertEqual(echo, [1, 2, 3])
            input.close()
            output.close()
            tree.peripheral.openL2CAPChannel(0x99)
            try await user.journal.rest(of: "channel 0 error cb 10")
            try await user.cancel(tree.peripheral)
        }
    }
}
