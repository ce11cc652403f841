import EventLoop
import Glibc
import Sandbox
import XCTest

final class PrivateServerTests: XCTestCase {
    override class func setUp() { EventLoop.shared.startThread() }

    @EventLoopActor
    func testABusListensAndComesBackAtItsAddress() async throws {
        let bus = try await PrivateBus.start()
        let path = String(bus.address.dropFirst("unix:path=".count))
        XCTAssertTrue(Self.canConnect(unix: path))
        await bus.killDaemon()
        XCTAssertFalse(Self.canConnect(unix: path))
        try await bus.startDaemon()
        XCTAssertTrue(Self.canConnect(unix: path))
        await bus.stop()
        XCTAssertEqual(access(path, F_OK), -1)
    }

    @EventLoopActor
    func testABrokerListensAndComesBackAtItsPort() async throws {
        let broker = try await PrivateBroker.start()
        XCTAssertTrue(Self.canConnect(port: broker.port))
        let port = broker.port
        await broker.stopBroker()
        XCTAssertFalse(Self.canConnect(port: port))
        try await broker.startBroker()
        XCTAssertEqual(broker.port, port)
        XCTAssertTrue(Self.canConnect(port: port))
        await broker.stop()
    }

    @EventLoopActor
    func testABrokersOwnErrorIsTold() async throws {
        var options = PrivateBroker.Options()
        options.lines = ["no_such_setting true"]
        do {
            _ = try await PrivateBroker.start(options)
            XCTFail("a broker with a wrong setting started")
        } catch {
            XCTAssertEqual(error.code, .notReady)
            XCTAssertTrue(error.message.contains("no_such_setting"), error.message)
        }
    }

    private static func canConnect(port: UInt16) -> Bool {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        return canConnect(AF_INET, address)
    }

    private static func canConnect(unix path: String) -> Bool {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8.prefix(107)) }
        return canConnect(AF_UNIX, address)
    }

    private static func canConnect<Address>(_ family: Int32, _ address: Address) -> Bool {
        let descriptor = socket(family, Int32(SOCK_STREAM.rawValue), 0)
        defer { close(descriptor) }
        return withUnsafePointer(to: address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<Address>.size)) == 0
            }
        }
    }
}
