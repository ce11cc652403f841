import TestKit
import XCTest

/// The examples, as processes of their own, on the simulated radio.
final class ExampleTests: XCTestCase {
    private var world: SimulatedRadio?

    override func setUp() async throws {
        world = try await SimulatedRadio.start(Self.fleet)
    }

    override func tearDown() async throws {
        await world?.stop()
    }

    private static let fleet = """
        devices:
          - id: keys
            name: Keys
            address: "C0:00:00:00:01:01"
            interval: 50
            services: ["1802", "180f"]
            gatt:
              - uuid: "1802"
                characteristics: [ { uuid: "2a06", properties: [write-without-response], value: "00" } ]
              - uuid: "180f"
                characteristics: [ { uuid: "2a19", properties: [read, notify], value: "64", notify_every: 100 } ]
          - id: thermo
            name: Thermo 1
            address: "C0:00:00:00:01:02"
            interval: 50
            services: ["181a"]
            gatt:
              - uuid: "181a"
                characteristics: [ { uuid: "2a6e", properties: [read, notify], value: "2cfb", notify_every: 100 } ]
          - id: sender
            name: Sender
            address: "C0:00:00:00:01:03"
            interval: 50
            services: ["e20a39f4-73f5-4bc4-a12f-17d1ad07a961"]
            gatt:
              - uuid: "e20a39f4-73f5-4bc4-a12f-17d1ad07a961"
                characteristics: [ { uuid: "08590f7e-db05-467e-8757-72f6faeb13d4", properties: [notify] } ]
        """

    private func start(_ name: String) throws -> (Process, Pipe) {
        let process = Process()
        process.executableURL = Bundle.main.bundleURL.appendingPathComponent(name)
        var environment = ProcessInfo.processInfo.environment
        environment["DBUS_SYSTEM_BUS_ADDRESS"] = try XCTUnwrap(world).address
        process.environment = environment
        let output = Pipe()
        process.standardOutput = output
        try process.run()
        return (process, output)
    }

    private func finish(_ process: Process, _ output: Pipe) -> String {
        let watchdog = DispatchWorkItem { process.terminate() }
        DispatchQueue.global().asyncAfter(deadline: .now() + 30, execute: watchdog)
        let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        process.waitUntilExit()
        watchdog.cancel()
        XCTAssertEqual(process.terminationStatus, 0, text)
        return text
    }

    func testAlertAndBattery() throws {
        let (process, output) = try start("AlertAndBattery")
        let text = finish(process, output)
        XCTAssertTrue(text.contains("found Keys at -60 dBm\n"), text)
        XCTAssertTrue(text.contains("battery: 100 %\n"), text)
        XCTAssertTrue(text.hasSuffix("disconnected\n"), text)
        let log = try world?.order("{\"op\":\"log\",\"device\":\"keys\"}") ?? ""
        XCTAssertTrue(log.contains("\"value\":\"01\""), log)
    }

    func testThermometer() throws {
        let (process, output) = try start("Thermometer")
        let text = finish(process, output)
        XCTAssertEqual(text.split(separator: "\n").filter { $0.hasPrefix("temperature: ") }.count, 3, text)
        XCTAssertTrue(text.hasSuffix("done\n"), text)
    }

    func testLongTransfer() throws {
        let (process, output) = try start("LongTransfer")
        let deadline = Date(timeIntervalSinceNow: 20)
        while !(try world?.order("{\"op\":\"log\",\"device\":\"sender\"}") ?? "").contains("\"subscribe\""),
            Date() < deadline
        {
            sched_yield()
        }
        let text = (0..<300).map { "line \($0)\n" }.joined()
        let bytes = Array(text.utf8)
        for start in stride(from: 0, to: bytes.count, by: 200) {
            try send(Array(bytes[start..<min(start + 200, bytes.count)]))
        }
        try send(Array("EOM".utf8))
        let printed = finish(process, output)
        XCTAssertTrue(printed.contains("received \(bytes.count) bytes: \(text)"), printed)
    }

    private func send(_ chunk: [UInt8]) throws {
        let hex = chunk.map { String(format: "%02x", $0) }.joined()
        let characteristic = "e20a39f4-73f5-4bc4-a12f-17d1ad07a961/08590f7e-db05-467e-8757-72f6faeb13d4"
        try world?.order(
            "{\"op\":\"notify\",\"device\":\"sender\",\"characteristic\":\"\(characteristic)\",\"value\":\"\(hex)\"}")
    }
}
