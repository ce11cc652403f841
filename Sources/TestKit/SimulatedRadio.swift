internal import BlueZSimulator
internal import DBus
public import EventLoop
internal import Glibc
internal import Sandbox

/// A simulated radio behind a private bus, in the test's own process: for tests of the libraries, which block their thread.
@EventLoopActor
public final class SimulatedRadio {
    private let bus: PrivateBus
    private let simulator: Simulator
    private let directory: TemporaryDirectory
    private nonisolated let control: String
    /// Of the bus.
    public nonisolated let address: String

    /// Starts the loop, and on it a bus and a radio with the devices of `fleet`, which is YAML.
    public nonisolated static func start(_ fleet: String) async throws -> SimulatedRadio {
        EventLoop.shared.startThread()
        return try await SimulatedRadio(fleet)
    }

    private init(_ fleet: String) async throws {
        bus = try await PrivateBus.start()
        address = bus.address
        directory = try TemporaryDirectory()
        control = directory.file("radio")
        simulator = Simulator(fleet: try FleetFile.parse(fleet))
        try await simulator.start(on: .address(bus.address), control: control)
    }

    public func stop() async {
        await simulator.stop()
        await bus.stop()
        directory.remove()
    }

    /// One order to the radio, as JSON; gives back its answer. For the test's thread, never the loop's, which answers.
    @discardableResult
    public nonisolated func order(_ request: String) throws -> String {
        let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        defer { close(descriptor) }
        var name = sockaddr_un()
        name.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &name.sun_path) { $0.copyBytes(from: control.utf8.prefix($0.count - 1)) }
        let status = withUnsafePointer(to: &name) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        let bytes = Array((request + "\n").utf8)
        guard status == 0, write(descriptor, bytes, bytes.count) == bytes.count else {
            throw Expired(message: "the radio took no order")
        }
        var answer: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65536)
        while !answer.contains(10) {
            let count = read(descriptor, &buffer, buffer.count)
            if count <= 0 { break }
            answer += buffer.prefix(count)
        }
        let text = String(decoding: answer, as: UTF8.self)
        guard text.hasPrefix("{\"ok\"") else { throw Expired(message: "\(request) -> \(text)") }
        return text
    }
}
