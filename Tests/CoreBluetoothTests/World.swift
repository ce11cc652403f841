import BlueZSimulator
import DBus
import EventLoop
import Glibc
import Sandbox
import XCTest

@testable import CoreBluetooth

/// A simulated radio behind a private bus.
@EventLoopActor
final class World {
    let bus: PrivateBus
    let simulator: Simulator
    private let directory: String

    /// Starts the loop, and on it a bus and a radio.
    nonisolated static func make(_ fleet: String) async throws -> World {
        EventLoop.shared.startThread()
        return try await World(fleet)
    }

    private init(_ fleet: String) async throws {
        bus = try await PrivateBus.start()
        var template = Array("\(NSTemporaryDirectory())/blueferry-XXXXXX".utf8CString)
        directory = mkdtemp(&template).map { String(cString: $0) } ?? ""
        simulator = Simulator(fleet: try FleetFile.parse(fleet))
        try await simulator.start(on: .address(bus.address), control: directory + "/radio")
    }

    func stop() async {
        await simulator.stop()
        await bus.stop()
        try? FileManager.default.removeItem(atPath: directory)
    }

    nonisolated var address: String { bus.address }

    /// One command to the radio; gives back its answer. For the test's thread, never the loop's.
    @discardableResult
    nonisolated func control(_ request: String, file: StaticString = #filePath, line: UInt = #line) -> String {
        let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        defer { close(descriptor) }
        var name = sockaddr_un()
        name.sun_family = sa_family_t(AF_UNIX)
        let path = directory + "/radio"
        withUnsafeMutableBytes(of: &name.sun_path) { $0.copyBytes(from: path.utf8.prefix($0.count - 1)) }
        let status = withUnsafePointer(to: &name) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        XCTAssertEqual(status, 0, "the radio's socket", file: file, line: line)
        let bytes = Array((request + "\n").utf8)
        XCTAssertEqual(write(descriptor, bytes, bytes.count), bytes.count, file: file, line: line)
        var answer: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65536)
        while !answer.contains(10) {
            let count = read(descriptor, &buffer, buffer.count)
            if count <= 0 { break }
            answer += buffer.prefix(count)
        }
        let text = String(decoding: answer, as: UTF8.self)
        XCTAssertTrue(text.hasPrefix("{\"ok\""), "\(request) -> \(text)", file: file, line: line)
        return text
    }

    static let fleet = """
        devices:
          - id: strap
            name: HR strap
            address: "C0:00:00:00:00:01"
            interval: 50
            rssi: -58
            tx_power: 4
            services: ["180d", "180f"]
            manufacturer_data: { "0499": "0512fc" }
            gatt:
              - uuid: "180d"
                includes: [bat]
                characteristics:
                  - { uuid: "2a37", properties: [notify], value: "0648" }
                  - { uuid: "2a39", properties: [write], value: "00" }
              - uuid: "180f"
                id: bat
                characteristics:
                  - uuid: "2a19"
                    properties: [read, notify]
                    value: "64"
                    descriptors: [ { uuid: "2901", text: "Level", writable: true } ]
              - uuid: "1802"
                characteristics:
                  - { uuid: "2a06", properties: [write-without-response], value: "00" }
              - uuid: "ff00"
                characteristics:
                  - { uuid: "ff01", properties: [read, write], value: "00", att_error: 128 }
                  - { uuid: "ff02", properties: [read, write], length: 512 }
          - id: tag
            name: Tag
            address: "C0:00:00:00:00:02"
            interval: 50
            services: ["1802"]
          - id: silent
            address: "C0:00:00:00:00:03"
            advertise: false
        """
}
