public import DBus
public import EventLoop
internal import Glibc
public import JSON
public import MQTT
public import Sandbox

/// Everything around the program in a test: the radio and its bus, a broker, a probe that listens, and the program itself.
/// With `BLUEFERRY_CONTRACT=lab` the bus and the radio are those of the lab, with the real bluetoothd; else they are the
/// simulator on a private bus. The tests are the same.
@EventLoopActor
public final class World {
    public static var isLab: Bool { environment("BLUEFERRY_CONTRACT") == "lab" }

    public let broker: PrivateBroker
    public let radio: RadioControl
    public let probe: MQTTProbe
    public let directory: TemporaryDirectory
    public private(set) var bridge: ChildProcess?
    private let bus: PrivateBus?
    private var simulator: ChildProcess?
    private let fleet: String
    private var requests = 0
    public let topic = "blueferry/gw"

    /// The bus on which org.bluez is, for an independent observer.
    public var busAddress: DBusAddress { bus.map { .address($0.address) } ?? .system }

    /// The same as text; nil for the system's.
    public var busText: String? { bus?.address }

    /// The repository's root, in which the tests find the fleet and the program.
    public nonisolated static let root: String = {
        let file = #filePath
        return file.split(separator: "/", omittingEmptySubsequences: false).dropLast(3).joined(separator: "/")
    }()

    /// The program under test: `BLUEFERRY_BINARY`, else the debug build beside the tests.
    public nonisolated static var program: String {
        if let named = environment("BLUEFERRY_BINARY") { return named }
        return root + "/.build/debug/blueferry"
    }

    private nonisolated static func environment(_ name: String) -> String? {
        getenv(name).map { String(cString: $0) }
    }

    /// Starts everything but the program.
    public static func start(fleet: String = root + "/config/fleet.yaml") async throws -> World {
        EventLoop.shared.startThread()
        let directory = try TemporaryDirectory()
        // Else what a slow subscriber leaves waiting there would look like a loss of the program's.
        var options = PrivateBroker.Options()
        options.lines = ["max_queued_messages 0"]
        let broker = try await PrivateBroker.start(options)
        let probe = try await MQTTProbe.connect(port: broker.port)
        if isLab {
            guard let path = environment("BLUEFERRY_CONTROL") else {
                throw Expired(message: "BLUEFERRY_CONTRACT=lab outside of the lab: run it by scripts/lab")
            }
            let world = World(broker, RadioControl(path: path), probe, directory, nil, fleet)
            try await world.radio.waitUntilReady()
            return world
        }
        let bus = try await PrivateBus.start()
        let control = directory.file("control.sock")
        let world = World(broker, RadioControl(path: control), probe, directory, bus, fleet)
        try await world.startSimulator()
        return world
    }

    private func startSimulator() async throws {
        var environment = ChildProcess.ownEnvironment()
        environment["DBUS_SYSTEM_BUS_ADDRESS"] = bus?.address
        simulator = try ChildProcess(
            Self.program, ["simulate", "--fleet", fleet, "--control", radio.path], environment: environment,
            output: .file(directory.file("simulator.log")))
        try await radio.waitUntilReady()
    }

    /// The bus dies, and comes back at the same address with a radio as at the start. Not in the lab.
    public func restartBus() async throws {
        guard let bus else { throw Expired(message: "the lab's bus stays") }
        await bus.killDaemon()
        _ = await simulator?.stop()
        try await bus.startDaemon()
        try await startSimulator()
    }

    private init(
        _ broker: PrivateBroker, _ radio: RadioControl, _ probe: MQTTProbe, _ directory: TemporaryDirectory,
        _ bus: PrivateBus?, _ fleet: String
    ) {
        (self.broker, self.radio, self.probe, self.directory) = (broker, radio, probe, directory)
        (self.bus, self.fleet) = (bus, fleet)
    }

    // MARK: The program

    /// Starts the program with these settings beside gateway, broker and outbox, and waits until it is online.
    public func startBridge(_ settings: String = "", waits: Bool = true) async throws {
        let file = directory.file("blueferry.yaml")
        let text = """
            gateway: { id: gw }
            mqtt: { url: "\(broker.url)" }
            outbox: { path: "\(directory.file("outbox.db"))" }
            \(settings)

            """
        try Self.write(text, to: file)
        var environment = ChildProcess.ownEnvironment()
        if let bus { environment["DBUS_SYSTEM_BUS_ADDRESS"] = bus.address }
        bridge = try ChildProcess(
            Self.program, ["run", "--config", file], environment: environment,
            output: .file(directory.file("bridge.log")))
        guard waits else { return }
        try await probe.wait(for: "\(topic)/status", within: .seconds(20)) { $0.text == "online" }
        try await waitForAdapter { $0["state"] == .string("poweredOn") }
    }

    /// Waits for the state of the (first) adapter.
    @discardableResult
    public func waitForAdapter(
        within timeout: Duration = .seconds(20), where condition: @escaping @EventLoopActor (JSONValue) -> Bool
    ) async throws -> JSONValue {
        let message = try await probe.wait(for: "\(topic)/adapters/+", within: timeout) { condition($0.json) }
        return message.json
    }

    /// Starts another program on the radio's bus, its output by line.
    public func start(
        _ program: String, _ arguments: [String], onLine: @escaping @EventLoopActor (String) -> Void
    ) throws -> ChildProcess {
        var environment = ChildProcess.ownEnvironment()
        if let bus { environment["DBUS_SYSTEM_BUS_ADDRESS"] = bus.address }
        return try ChildProcess(program, arguments, environment: environment, output: .lines(onLine))
    }

    /// The id under which the program is known at the broker. It is there once the program is.
    public var clientID: String {
        guard let file = fopen(directory.file("client-id"), "r") else { return "" }
        defer { fclose(file) }
        var bytes = [UInt8](repeating: 0, count: 16)
        let count = fread(&bytes, 1, bytes.count, file)
        return "blueferry-gw-" + String(decoding: bytes.prefix(count).prefix { $0 > 0x20 }, as: UTF8.self)
    }

    /// Ends the program as a service manager does, and gives how it ended.
    @discardableResult
    public func stopBridge(within timeout: Duration = .seconds(5)) async throws -> ChildProcess.Exit? {
        guard let bridge else { return nil }
        bridge.terminate()
        let exit = try await bridge.waitForExit(within: timeout)
        self.bridge = nil
        return exit
    }

    public func killBridge() async throws {
        bridge?.kill()
        _ = try await bridge?.waitForExit(within: .seconds(5))
        bridge = nil
    }

    /// Ends everything. Links that a test left are dropped by their peers, so that the next one starts afresh.
    public func stop() async {
        if let bridge { _ = await bridge.stop() }
        if let ids = try? await radio.send("connected", timeout: .seconds(5)).arrayValue {
            for id in ids { _ = try? await radio.send("disconnect", ["device": id], timeout: .seconds(5)) }
        }
        if let simulator { _ = await simulator.stop() }
        await probe.stop()
        await broker.stop()
        if let bus { await bus.stop() }
        directory.remove()
    }

    /// What the program and the simulator printed.
    public var logs: String {
        var text = ""
        for name in ["bridge.log", "simulator.log"] {
            guard let file = fopen(directory.file(name), "r") else { continue }
            defer { fclose(file) }
            var chunk = [UInt8](repeating: 0, count: 1 << 16)
            var bytes: [UInt8] = []
            while case let count = fread(&chunk, 1, chunk.count, file), count > 0 { bytes += chunk[0..<count] }
            text += "--- \(name)\n" + String(decoding: bytes.suffix(6000), as: UTF8.self) + "\n"
        }
        return text
    }

    private static func write(_ text: String, to path: String) throws {
        guard let file = fopen(path, "w") else { throw Expired(message: "\(path) cannot be written") }
        fputs(text, file)
        fclose(file)
    }

    // MARK: Requests

    /// Sends a command and waits for its answer, whatever it says.
    public func request(
        _ verb: String, _ parameters: [String: JSONValue] = [:], within timeout: Duration = .seconds(20)
    ) async throws -> JSONValue {
        requests += 1
        let id = "test-\(requests)"
        var members: [(String, JSONValue)] = [("id", .string(id))]
        members += parameters.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
        try await probe.publish("\(topic)/request/\(verb)", JSONValue.object(members).serialised())
        let answer = try await probe.wait(for: "\(topic)/response/\(verb)", within: timeout) {
            $0.json["id"] == .string(id)
        }
        return answer.json
    }

    /// Sends a command that must succeed, and gives its data.
    @discardableResult
    public func ask(
        _ verb: String, _ parameters: [String: JSONValue] = [:], within timeout: Duration = .seconds(20)
    ) async throws -> JSONValue {
        let answer = try await request(verb, parameters, within: timeout)
        guard answer["status"] == .string("ok") else {
            throw Expired(
                message: "\(verb) \(parameters) failed: \(String(decoding: answer.serialised(), as: UTF8.self))")
        }
        return answer["data"] ?? .null
    }

    /// Sends a command that must fail, and gives its error.
    public func refusal(
        _ verb: String, _ parameters: [String: JSONValue] = [:], within timeout: Duration = .seconds(20)
    ) async throws -> JSONValue {
        let answer = try await request(verb, parameters, within: timeout)
        guard answer["status"] == .string("error"), let error = answer["error"] else {
            throw Expired(
                message: "\(verb) \(parameters) did not fail: \(String(decoding: answer.serialised(), as: UTF8.self))")
        }
        return error
    }

    /// Waits until a device was heard, so that BlueZ has it.
    public func hear(_ address: String, within timeout: Duration = .seconds(20)) async throws {
        let device = address.lowercased().split(separator: ":").joined()
        try await probe.wait(for: "\(topic)/devices/\(device)/advertisement", within: timeout)
    }
}

extension MQTTReceived {
    /// The payload as JSON; null where it is none.
    public var json: JSONValue { (try? JSONValue.parse(payload)) ?? .null }
}
