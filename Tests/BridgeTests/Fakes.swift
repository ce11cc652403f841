import Bluetooth
import EventLoop
import JSON
import XCTest

@testable import Bridge

/// An advertisement made of arrays.
struct FakeAdvertisement: AdvertisementSource {
    var address = BluetoothAddress(value: 0xa4c1_385e_07d3)
    var addressType = AddressType.public
    var adapterAddress: BluetoothAddress? = BluetoothAddress(value: 0x001a_7dda_7113)
    var name = "ATC_5E07D3"
    var rssi: Int8? = -67
    var txPower: Int8?
    var advertisedServices: [BluetoothUUID] = []
    var serviceData: [(BluetoothUUID, [UInt8])] = []
    var manufacturerData: [(UInt16, [UInt8])] = []

    func withName(_ body: (UnsafeRawBufferPointer) -> Void) { Array(name.utf8).withUnsafeBytes(body) }
    func forEachServiceData(_ body: (BluetoothUUID, UnsafeRawBufferPointer) -> Void) {
        for (uuid, bytes) in serviceData { bytes.withUnsafeBytes { body(uuid, $0) } }
    }
    func forEachManufacturerData(_ body: (UInt16, UnsafeRawBufferPointer) -> Void) {
        for (company, bytes) in manufacturerData { bytes.withUnsafeBytes { body(company, $0) } }
    }
}

/// A radio that does what a test says. Calls that a test holds back wait in `pendingCalls`.
@EventLoopActor
final class FakeRadio: RadioPort {
    weak var delegate: (any RadioDelegate)?
    var problem: String?
    var adapters: [AdapterReport] = []
    var scans: [ScanReport] = []
    var counts = RadioCounts()
    var devices: [BluetoothAddress: DeviceReport] = [:]
    var trees: [BluetoothAddress: [ServiceReport]] = [:]
    var obstacles: [BluetoothAddress: Obstacle] = [:]
    var calls: [String] = []
    var failure: CommandError?
    var readValue: [UInt8] = [0x64]
    var holdsCalls = false
    var pendingCalls: [Pending<Void>] = []
    private var scanNumber = 0

    nonisolated init() {}

    func start() { calls.append("start") }
    func stop() async { calls.append("stop") }

    var deviceAddresses: [BluetoothAddress] { Array(devices.keys) }
    func device(_ address: BluetoothAddress) -> DeviceReport? { devices[address] }
    func obstacle(to address: BluetoothAddress) -> Obstacle? { obstacles[address] }
    func services(_ address: BluetoothAddress) -> [ServiceReport] { trees[address] ?? [] }

    func startScan(_ command: ScanCommand) throws(CommandError) -> ScanReport {
        if let failure { throw failure }
        scanNumber += 1
        for scan in scans where scan.command.isConfigured == command.isConfigured {
            delegate?.scanDidEnd(scan, reason: "replaced")
        }
        scans.removeAll { $0.command.isConfigured == command.isConfigured }
        let scan = ScanReport(id: "scan\(scanNumber)", command: command, started: WallTime(milliseconds: 0))
        scans.append(scan)
        delegate?.scanDidStart(scan)
        return scan
    }

    func stopScan(_ id: String) -> Bool {
        guard let index = scans.firstIndex(where: { $0.id == id }) else { return false }
        delegate?.scanDidEnd(scans.remove(at: index), reason: "stopped")
        return true
    }

    private func call(_ name: String) async throws(CommandError) {
        calls.append(name)
        if holdsCalls {
            let pending = Pending<Void>()
            pendingCalls.append(pending)
            do {
                try await pending.value()
            } catch {
                throw error as? CommandError ?? CommandError(.internal, "\(error)")
            }
        }
        if let failure { throw failure }
    }

    func keepConnected(_ address: BluetoothAddress, adapter: String?) { calls.append("keep \(address)") }
    func wantSubscriptions(_ address: BluetoothAddress, _ paths: [AttributePath]) {
        for path in paths { calls.append("want \(path.service)/\(path.characteristic)") }
    }
    func connect(
        _ address: BluetoothAddress, adapter: String?, timeout: Duration?, keep: Bool
    ) async throws(CommandError) {
        try await call("connect \(address)")
    }
    func cancelConnect(_ address: BluetoothAddress) {
        calls.append("cancel \(address)")
        for pending in pendingCalls { pending.fail(CommandError(.cancelled, "cancelled")) }
        pendingCalls = []
    }
    func disconnect(_ address: BluetoothAddress, force: Bool) async throws(CommandError) -> Bool {
        calls.append("disconnect \(address) \(force)")
        return force
    }
    func read(
        _ address: BluetoothAddress, _ path: AttributePath, offset: Int, timeout: Duration
    ) async throws(CommandError) -> [UInt8] {
        try await call("read \(path.service)/\(path.characteristic)")
        return readValue
    }
    func write(
        _ address: BluetoothAddress, _ path: AttributePath, value: [UInt8], mode: WriteMode, offset: Int,
        timeout: Duration
    ) async throws(CommandError) {
        try await call("write \(path.service)/\(path.characteristic) \(Hex.encode(value)) \(mode.rawValue)")
    }
    func subscribe(_ address: BluetoothAddress, _ path: AttributePath, timeout: Duration) async throws(CommandError) {
        try await call("subscribe \(path.service)/\(path.characteristic)")
    }
    func unsubscribe(_ address: BluetoothAddress, _ path: AttributePath) async throws(CommandError) {
        try await call("unsubscribe \(path.service)/\(path.characteristic)")
    }
    func linkRSSI(_ address: BluetoothAddress) async throws(CommandError) -> Int8 {
        try await call("rssi")
        return -60
    }
    func pair(_ address: BluetoothAddress, timeout: Duration) async throws(CommandError) { try await call("pair") }
    func unpair(_ address: BluetoothAddress) async throws(CommandError) { try await call("unpair") }
    func forget(_ address: BluetoothAddress) async throws(CommandError) { try await call("forget") }
}

/// A broker that keeps what it gets and acknowledges when a test says so.
@EventLoopActor
final class FakeBroker: BrokerPort {
    struct Message: Equatable {
        var topic: String
        var payload: String
        var qos: UInt8
        var retain: Bool
        var properties: MessageProperties?
    }

    weak var delegate: (any BrokerDelegate)?
    var isConnected = false
    var hasProperties = true
    var reconnects: UInt64 = 0
    var queuedBytes = 0
    var filters: [String] = []
    var messages: [Message] = []
    var acknowledgesAtOnce = true
    var refuses = false
    /// So many messages of QoS 0 are taken; nil: all.
    var room: Int?
    var unacknowledged: [UInt64] = []
    /// What a late subscriber would get.
    var retained: [String: String] = [:]
    private var lastToken: UInt64 = 0
    private var arrival: Pending<Void>?

    nonisolated init() {}

    func start() {}
    func stop(flushWithin: Duration) async { isConnected = false }
    func subscribe(_ filter: String) { filters.append(filter) }

    func connect() {
        isConnected = true
        delegate?.brokerDidConnect()
    }

    func disconnect() {
        isConnected = false
        unacknowledged = []
        delegate?.brokerDidDisconnect(reason: "connection refused", isSerious: false)
    }

    func publish(
        topic: UnsafeBufferPointer<UInt8>, payload: UnsafeRawBufferPointer, qos: UInt8, retain: Bool,
        properties: MessageProperties?
    ) -> PublishResult {
        guard isConnected, !refuses else { return .refused }
        XCTAssertEqual(topic.last, 0)
        if qos == 0, let left = room {
            guard left > 0 else { return .refused }
            room = left - 1
        }
        let message = Message(
            topic: String(decoding: topic.dropLast(), as: UTF8.self), payload: String(decoding: payload, as: UTF8.self),
            qos: qos, retain: retain, properties: properties)
        messages.append(message)
        if retain { retained[message.topic] = message.payload.isEmpty ? nil : message.payload }
        arrival?.succeed(())
        guard qos > 0 else { return .sent(token: 0) }
        lastToken += 1
        let token = lastToken
        if acknowledgesAtOnce {
            // Later, as a real broker does: never within the call.
            Task { @EventLoopActor in self.delegate?.brokerDidAcknowledge(token: token) }
        } else {
            unacknowledged.append(token)
        }
        return .sent(token: token)
    }

    func acknowledge() {
        let tokens = unacknowledged
        unacknowledged = []
        for token in tokens { delegate?.brokerDidAcknowledge(token: token) }
    }

    func send(_ topic: String, _ payload: [UInt8], retain: Bool = false, properties: MessageProperties? = nil) {
        Array(topic.utf8).withUnsafeBytes { topic in
            payload.withUnsafeBytes { payload in
                delegate?.brokerDidReceive(
                    InboundMessage(
                        topic: topic, payload: payload, isRetained: retain,
                        properties: properties ?? MessageProperties()))
            }
        }
    }

    func send(_ topic: String, _ payload: String, retain: Bool = false, properties: MessageProperties? = nil) {
        send(topic, Array(payload.utf8), retain: retain, properties: properties)
    }

    /// The next message on a topic that was not taken before; waits for it.
    func take(
        _ topic: String, file: StaticString = #filePath, line: UInt = #line
    ) async throws -> JSONValue {
        for _ in 0..<100 {
            if let index = messages.firstIndex(where: { $0.topic == topic }) {
                let message = messages.remove(at: index)
                return try Array(message.payload.utf8).withUnsafeBytes { try JSONValue.parse($0) }
            }
            let next = Pending<Void>()
            arrival = next
            do {
                try await next.value(timeout: .seconds(5))
            } catch {
                break
            }
        }
        XCTFail("nothing came on \(topic); there was \(messages.map(\.topic))", file: file, line: line)
        return .null
    }

    func all(_ topic: String) -> [String] { messages.filter { $0.topic == topic }.map(\.payload) }
}

extension JSONValue {
    subscript(_ key: String) -> JSONValue? {
        guard case .object(let members) = self else { return nil }
        return members.first { $0.0 == key }?.1
    }
    subscript(_ index: Int) -> JSONValue? {
        guard case .array(let items) = self, items.indices.contains(index) else { return nil }
        return items[index]
    }
    var string: String? {
        if case .string(let text) = self { return text }
        return nil
    }
    var count: Int {
        if case .array(let items) = self { return items.count }
        return 0
    }
}

/// A bridge between fakes, connected, on a clock that stands still.
@EventLoopActor
struct Bench {
    let radio = FakeRadio()
    let broker = FakeBroker()
    let clock: ManualClock
    let bridge: Bridge

    init(
        connected: Bool = true, clock: ManualClock = ManualClock(), outbox: (any Outbox)? = nil,
        journal: (any RequestJournal)? = nil, configure: (inout BridgeSettings) -> Void = { _ in }
    ) {
        self.clock = clock
        var settings = BridgeSettings()
        settings.base = "blueferry"
        settings.gateway = "gw"
        configure(&settings)
        bridge = Bridge(
            settings: settings, radio: radio, broker: broker,
            outbox: outbox ?? MemoryOutbox(limit: 1000, epoch: 0x5f3a_9c01), journal: journal, clock: clock)
        bridge.start()
        if connected { broker.connect() }
    }

    nonisolated static let strap = BluetoothAddress(value: 0xc000_0000_0001)

    /// Runs what is queued on the loop.
    func settle() async {
        for _ in 0..<20 { await Task.yield() }
    }

    func addDevice(_ address: BluetoothAddress = Bench.strap, state: LinkReport.State = .disconnected) {
        radio.devices[address] = DeviceReport(
            address: address, addressType: .random, name: "strap", link: LinkReport(state: state))
    }

    func request(_ verb: String, _ payload: String, properties: MessageProperties? = nil) async throws -> JSONValue {
        broker.send("blueferry/gw/request/\(verb)", payload, properties: properties)
        return try await broker.take("blueferry/gw/response/\(verb)")
    }
}

class LoopTestCase: XCTestCase {
    override class func setUp() { EventLoop.shared.startThread() }
}
