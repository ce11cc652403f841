import BlueZ
import Bluetooth
import Bridge
import Central
import DBus
import EventLoop
import JSON

/// A broker that takes everything, and acknowledges when it is told to.
@EventLoopActor
final class CountingBroker: BrokerPort {
    weak var delegate: (any BrokerDelegate)?
    let isConnected = true
    let hasProperties = true
    let reconnects: UInt64 = 0
    let queuedBytes = 0
    private(set) var published = 0
    private var lastToken: UInt64 = 0
    private var acknowledged: UInt64 = 0

    nonisolated init() {}

    func start() {}
    func stop(flushWithin: Duration) async {}
    func subscribe(_ filter: String) {}

    func publish(
        topic: UnsafeBufferPointer<UInt8>, payload: UnsafeRawBufferPointer, qos: UInt8, retain: Bool,
        properties: MessageProperties?
    ) -> PublishResult {
        published += 1
        guard qos > 0 else { return .sent(token: 0) }
        lastToken += 1
        return .sent(token: lastToken)
    }

    func acknowledge() {
        while acknowledged < lastToken {
            acknowledged += 1
            delegate?.brokerDidAcknowledge(token: acknowledged)
        }
    }
}

/// The bridge with its real engine between messages that are made here and a broker that counts.
@EventLoopActor
final class Stand {
    static let adapter = "/org/bluez/hci0"

    let broker = CountingBroker()
    let clock = ManualClock()
    let central: Central
    let radio: CentralRadio
    let bridge: Bridge

    /// - Parameter scan: the configured scan; nil: one without conditions.
    init(devices: Int, scan: ScanCommand? = nil) {
        central = Central(options: CentralOptions(), clock: clock)
        radio = CentralRadio(central)
        var settings = BridgeSettings()
        settings.gateway = "bench"
        settings.scan = scan ?? ScanCommand(isConfigured: true)
        bridge = Bridge(
            settings: settings, radio: radio, broker: broker, outbox: MemoryOutbox(limit: 10_000, epoch: 1),
            clock: clock)
        radio.bridge = bridge
        // The engine opens no bus: signals are handed to it, and it has observers all the same.
        central.addObserver(radio)
        deliver(Signals.adapterAdded())
        for number in 0..<devices { deliver(Signals.deviceAdded(number)) }
        startScan(settings.scan)
        broker.delegate?.brokerDidConnect()
        broker.acknowledge()
    }

    private func startScan(_ scan: ScanCommand?) {
        if let scan { _ = try? radio.startScan(scan) }
    }

    func deliver(_ signal: DBusMessage) { central.bluez.deliver(signal) }

    /// Advances both clocks by a millisecond, so that each message has a time of its own.
    func tick() { clock.advance(by: .milliseconds(1)) }
}

/// Signals as bluetoothd sends them.
@EventLoopActor
enum Signals {
    static func address(_ number: Int) -> BluetoothAddress {
        BluetoothAddress(value: 0xc0fe_0000_0000 + UInt64(number))
    }

    static func path(_ number: Int) -> String {
        let digits = address(number).description.map { $0 == ":" ? "_" : String($0) }.joined()
        return "\(Stand.adapter)/dev_\(digits)"
    }

    static func adapterAdded() -> DBusMessage {
        added(
            Stand.adapter, "org.bluez.Adapter1",
            [
                ("Address", .string("00:1A:7D:DA:71:13")), ("Alias", .string("bench")), ("Powered", .bool(true)),
                ("Discovering", .bool(true)),
            ])
    }

    static func deviceAdded(_ number: Int) -> DBusMessage {
        added(
            path(number), "org.bluez.Device1",
            [
                ("Address", .string(address(number).description)), ("AddressType", .string("random")),
                ("Name", .string("bench \(number)")), ("Adapter", .objectPath(Stand.adapter)),
                ("Connected", .bool(false)), ("ServicesResolved", .bool(false)), ("RSSI", .int16(-60)),
            ])
    }

    static func deviceRemoved(_ number: Int) -> DBusMessage {
        let message = DBusMessage(
            signal: "/", interface: "org.freedesktop.DBus.ObjectManager", member: "InterfacesRemoved")
        var writer = message.writer()
        writer.append(objectPath: path(number))
        writer.append(.array(of: "s", [.string("org.bluez.Device1")]))
        return message
    }

    /// As after each advertisement: RSSI, manufacturer data of 20 bytes, and service data of every fourth device.
    static func advertisement(_ number: Int, rssi: Int16) -> DBusMessage {
        let data = (0..<20).map { UInt8(truncatingIfNeeded: $0 + number) }
        var properties: [(String, DBusValue)] = [
            ("RSSI", .int16(rssi)),
            ("ManufacturerData", .dictionary("qv", [(.uint16(0xffff), .variant(.bytes(data)))])),
        ]
        if number % 4 == 0 {
            let uuid = DBusValue.string("0000fcd2-0000-1000-8000-00805f9b34fb")
            properties.append(("ServiceData", .dictionary("sv", [(uuid, .variant(.bytes([0x40, 0, 1, 2, 3, 4])))])))
        }
        return changed(path(number), properties)
    }

    static func changed(_ path: String, _ properties: [(String, DBusValue)]) -> DBusMessage {
        let message = DBusMessage(
            signal: path, interface: "org.freedesktop.DBus.Properties", member: "PropertiesChanged")
        var writer = message.writer()
        writer.append(string: "org.bluez.Device1")
        writer.append(.properties(properties))
        writer.append(.array(of: "s", []))
        return message
    }

    private static func added(_ path: String, _ interface: String, _ properties: [(String, DBusValue)]) -> DBusMessage {
        let message = DBusMessage(
            signal: "/", interface: "org.freedesktop.DBus.ObjectManager", member: "InterfacesAdded")
        var writer = message.writer()
        writer.append(objectPath: path)
        writer.append(.dictionary("sa{sv}", [(.string(interface), .properties(properties))]))
        return message
    }
}

struct BenchFault: Error, CustomStringConvertible {
    let description: String
}
