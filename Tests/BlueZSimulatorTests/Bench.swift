import DBus
import EventLoop
import JSON
import Sandbox
import TestKit
import XCTest

@testable import BlueZSimulator

/// A simulator on a private bus, and a client of it that sees every signal of org.bluez.
@EventLoopActor
final class Bench {
    struct Signal {
        let path: String
        let member: String
        /// The interface whose properties changed, or the path of the object that came or went.
        let subject: String
        let values: [DBusValue]

        /// The value of a property that changed, or nil.
        subscript(property: String) -> DBusValue? { values.count > 1 ? values[1].member(property) : nil }

        var invalidated: [String] { values.count > 2 ? values[2].texts : [] }
    }

    let bus: PrivateBus
    let simulator: Simulator
    private(set) var client: DBusConnection
    private(set) var signals: [Signal] = []
    let monitor = Monitor()

    nonisolated static let adapter = "/org/bluez/hci0"

    nonisolated static func device(_ address: String, adapter: String = adapter) -> String {
        "\(adapter)/dev_\(address.split(separator: ":").joined(separator: "_"))"
    }

    /// Short times, so that tests wait for events and not for the clock.
    static var quick: SimulatorTiming {
        var timing = SimulatorTiming()
        timing.exchange = .milliseconds(1)
        timing.linkSetup = .milliseconds(2)
        timing.disconnect = .milliseconds(20)
        timing.attTimeout = .milliseconds(150)
        timing.connectTimeout = .milliseconds(600)
        timing.orphanedDiscovery = .milliseconds(300)
        timing.orphanedLinks = .milliseconds(100)
        timing.start = .milliseconds(2)
        return timing
    }

    static func start(_ fleet: String, timing: SimulatorTiming = quick, control: String? = nil) async throws -> Bench {
        EventLoop.shared.startThread()
        let bus = try await PrivateBus.start()
        let simulator = Simulator(fleet: try FleetFile.parse(fleet), timing: timing)
        let bench = try await Bench(bus, simulator)
        try await simulator.start(on: .address(bus.address), control: control)
        try await bench.waitPowered()
        return bench
    }

    private init(_ bus: PrivateBus, _ simulator: Simulator) async throws {
        self.bus = bus
        self.simulator = simulator
        client = try await DBusConnection.open(.address(bus.address))
        try await listen(client)
    }

    private func listen(_ connection: DBusConnection) async throws {
        connection.addSignalHandler { [weak self] message in self?.take(message) }
        for rule in [
            MatchRule(sender: "org.bluez"), MatchRule(member: "NameOwnerChanged", arg0: "org.bluez"),
        ] {
            try await connection.addMatch(rule)
        }
    }

    private func take(_ message: borrowing DBusMessageView) {
        var member = ""
        for name in ["PropertiesChanged", "InterfacesAdded", "InterfacesRemoved", "NameOwnerChanged"] as [StaticString]
        where message.memberEquals(name) { member = "\(name)" }
        var reader = message.reader()
        var values: [DBusValue] = []
        while !reader.isAtEnd {
            if let value = reader.value() { values.append(value) }
            reader.next()
        }
        let path = String(decoding: message.path, as: UTF8.self)
        signals.append(Signal(path: path, member: member, subject: values.first?.plainText ?? "", values: values))
        monitor.changed()
    }

    func stop() async {
        client.close()
        await simulator.stop()
        await bus.stop()
    }

    /// The client leaves the bus, and comes back as another.
    func reconnect() async throws {
        client.close()
        client = try await DBusConnection.open(.address(bus.address))
        try await listen(client)
    }

    // MARK: Calls

    @discardableResult
    func call(
        _ path: String, _ interface: String, _ member: String, _ arguments: [DBusValue] = [],
        timeout: Duration = .seconds(10)
    ) async throws(DBusError) -> [DBusValue] {
        let reply = try await client.call(message(path, interface, member, arguments), timeout: timeout)
        var reader = reply.reader()
        var values: [DBusValue] = []
        while !reader.isAtEnd {
            if let value = reader.value() { values.append(value) }
            reader.next()
        }
        return values
    }

    func message(_ path: String, _ interface: String, _ member: String, _ arguments: [DBusValue]) -> DBusMessage {
        let message = DBusMessage(call: "org.bluez", path: path, interface: interface, member: member)
        var writer = message.writer()
        for argument in arguments { writer.append(argument) }
        return message
    }

    /// The error's name and text where the call fails, else nil.
    func failure(_ path: String, _ interface: String, _ member: String, _ arguments: [DBusValue] = []) async
        -> DBusError?
    {
        do throws(DBusError) {
            try await call(path, interface, member, arguments)
            return nil
        } catch {
            return error
        }
    }

    func adapterCall(_ member: String, _ arguments: [DBusValue] = []) async throws(DBusError) {
        try await call(Self.adapter, "org.bluez.Adapter1", member, arguments)
    }

    func discover(_ filter: [(String, DBusValue)] = [("Transport", .string("le")), ("DuplicateData", .bool(true))])
        async throws
    {
        if !filter.isEmpty { try await adapterCall("SetDiscoveryFilter", [.properties(filter)]) }
        try await adapterCall("StartDiscovery")
    }

    func deviceCall(_ address: String, _ member: String) async throws(DBusError) {
        try await call(Self.device(address), "org.bluez.Device1", member)
    }

    func property(_ path: String, _ interface: String, _ name: String) async throws -> DBusValue? {
        let values = try await call(
            path, "org.freedesktop.DBus.Properties", "Get", [.string(interface), .string(name)])
        return values.first?.plain
    }

    func objects() async throws -> [String: DBusValue] {
        let values = try await call("/", "org.freedesktop.DBus.ObjectManager", "GetManagedObjects")
        guard case .dictionary(_, let entries)? = values.first else { return [:] }
        return Dictionary(entries.compactMap { key, value in key.plainText.map { ($0, value) } }) { first, _ in first }
    }

    /// The path of a characteristic below a device, by its UUID.
    func characteristic(_ address: String, _ uuid: String) async throws -> String {
        let below = Self.device(address) + "/"
        let found = try await objects().filter { path, interfaces in
            path.hasPrefix(below)
                && interfaces.member("org.bluez.GattCharacteristic1")?.member("UUID")?.plainText?.hasPrefix(uuid)
                    ?? false
        }
        return try XCTUnwrap(found.keys.min())
    }

    /// A command to the radio, which must succeed; its data.
    @discardableResult
    func order(_ line: String) async throws -> JSONValue {
        let answer = await Control(simulator).answer(Array(line.utf8))
        return try XCTUnwrap(answer["ok"], "\(line): \(String(decoding: answer.serialised(), as: UTF8.self))")
    }

    /// A command to the radio, which must fail; the sentence.
    func refusal(_ line: String) async throws -> String {
        let answer = await Control(simulator).answer(Array(line.utf8))
        return try XCTUnwrap(answer["error"]?.stringValue, line)
    }

    // MARK: Waiting

    @discardableResult
    func wait(
        _ what: String, from start: Int = 0, within timeout: Duration = .seconds(10),
        where condition: @escaping @EventLoopActor (Signal) -> Bool
    ) async throws -> Signal {
        try await monitor.wait(what, within: timeout) { [self] in signals.dropFirst(start).contains { condition($0) } }
        return try XCTUnwrap(signals.dropFirst(start).first { condition($0) })
    }

    @discardableResult
    func waitAdded(_ path: String, from start: Int = 0) async throws -> Signal {
        try await wait("\(path) to come", from: start) { $0.member == "InterfacesAdded" && $0.subject == path }
    }

    @discardableResult
    func waitRemoved(_ path: String, from start: Int = 0) async throws -> Signal {
        try await wait("\(path) to go", from: start) { $0.member == "InterfacesRemoved" && $0.subject == path }
    }

    @discardableResult
    func waitChange(_ path: String, _ property: String, _ value: DBusValue? = nil, from start: Int = 0) async throws
        -> Signal
    {
        try await wait("\(property) of \(path)", from: start) { signal in
            guard signal.path == path, let new = signal[property] else { return false }
            return value == nil || new == value
        }
    }

    func waitPowered() async throws {
        let start = signals.count
        let isPowered = try? await property(Self.adapter, "org.bluez.Adapter1", "Powered")
        if isPowered != .bool(true) { try await waitChange(Self.adapter, "Powered", .bool(true), from: start) }
    }

    /// Discovers, connects, and waits for the services.
    func connect(_ address: String) async throws {
        let path = Self.device(address)
        try await discover()
        try await waitAdded(path)
        let start = signals.count
        try await deviceCall(address, "Connect")
        try await waitChange(path, "ServicesResolved", .bool(true), from: start)
    }
}

extension DBusValue {
    var plain: DBusValue {
        if case .variant(let value) = self { value.plain } else { self }
    }

    var plainText: String? {
        switch plain {
        case .string(let text), .objectPath(let text): text
        default: nil
        }
    }

    var texts: [String] {
        if case .array(_, let items) = plain { items.compactMap(\.plainText) } else { [] }
    }

    func member(_ key: String) -> DBusValue? {
        switch plain {
        case .properties(let pairs): pairs.first { $0.0 == key }?.1.plain
        case .dictionary(_, let entries): entries.first { $0.0.plainText == key }?.1.plain
        default: nil
        }
    }
}
