import DBus
import EventLoop

/// An org.bluez on a private bus that does exactly what a test scripts: orders and refusals that a faithful one shows
/// only by chance.
@EventLoopActor
final class FakeBlueZ {
    typealias Properties = [(String, DBusValue)]
    typealias Handler = @EventLoopActor (DBusMessage) -> DBusMessage?

    static let adapter = "/org/bluez/hci0"
    static let device = "/org/bluez/hci0/dev_AA_BB_CC_00_00_01"

    let connection: DBusConnection
    /// Answers by member, as `StartDiscovery`, or by path and member, as `/org/bluez/hci0 StartDiscovery`. Nil: no answer.
    var handlers: [String: Handler] = [:]
    /// Each call that came, as `hci0 StartDiscovery`.
    private(set) var calls: [String] = []
    private(set) var messages: [DBusMessage] = []
    private var objects: [(path: String, interfaces: [(String, Properties)])] = []
    var onCall: (@EventLoopActor () -> Void)?

    init(address: String) async throws {
        connection = try await DBusConnection.open(.address(address))
        connection.export(path: "/", subtree: true) { [weak self] in self?.answer($0) }
    }

    func takeName() async throws { try await connection.requestName("org.bluez") }
    func dropName() async throws { try await connection.releaseName("org.bluez") }

    func count(of call: String) -> Int { calls.filter { $0 == call }.count }
    func forgetCalls() {
        calls = []
        messages = []
    }

    private func answer(_ message: DBusMessage) -> DBusMessage? {
        let member = message.member ?? ""
        let path = message.path ?? ""
        if member == "GetManagedObjects" { return managedObjects(message) }
        calls.append("\(path.split(separator: "/").last ?? "") \(member)")
        messages.append(message)
        defer { onCall?() }
        guard let handler = handlers["\(path) \(member)"] ?? handlers[member] else { return message.reply() }
        return handler(message)
    }

    private func managedObjects(_ message: DBusMessage) -> DBusMessage {
        let entries = objects.map { object in
            (DBusValue.objectPath(object.path), Self.interfaces(object.interfaces))
        }
        let reply = message.reply()
        var writer = reply.writer()
        writer.append(.dictionary("oa{sa{sv}}", entries))
        return reply
    }

    private static func interfaces(_ interfaces: [(String, Properties)]) -> DBusValue {
        .dictionary("sa{sv}", interfaces.map { (.string($0.0), .properties($0.1)) })
    }

    // MARK: Objects and signals

    /// Adds an object; tells of it unless it is to be there from the start.
    func add(_ path: String, _ interfaces: [(String, Properties)], isTold: Bool = true) {
        objects.removeAll { $0.path == path }
        objects.append((path, interfaces))
        guard isTold else { return }
        send("/", "org.freedesktop.DBus.ObjectManager", "InterfacesAdded") { writer in
            writer.append(objectPath: path)
            writer.append(Self.interfaces(interfaces))
        }
    }

    func remove(_ path: String, _ names: [String]) {
        objects.removeAll { $0.path == path }
        send("/", "org.freedesktop.DBus.ObjectManager", "InterfacesRemoved") { writer in
            writer.append(objectPath: path)
            writer.append(.array(of: "s", names.map { .string($0) }))
        }
    }

    func forgetObjects() { objects = [] }

    func change(_ path: String, _ interface: String, _ properties: Properties, invalidated: [String] = []) {
        send(path, "org.freedesktop.DBus.Properties", "PropertiesChanged") { writer in
            writer.append(string: interface)
            writer.append(.properties(properties))
            writer.append(.array(of: "s", invalidated.map { .string($0) }))
        }
    }

    private func send(_ path: String, _ interface: String, _ member: String, _ body: (inout MessageWriter) -> Void) {
        let message = DBusMessage(signal: path, interface: interface, member: member)
        var writer = message.writer()
        body(&writer)
        connection.send(message)
    }

    // MARK: Usual objects

    func addAdapter(_ path: String = adapter, powered: Bool = true, monitor: Bool = false, isTold: Bool = true) {
        var interfaces: [(String, Properties)] = [
            (
                "org.bluez.Adapter1",
                [
                    ("Address", .string("00:1A:7D:DA:71:1\(path.suffix(1))")), ("Alias", .string("attic")),
                    ("Powered", .bool(powered)), ("Discovering", .bool(false)),
                ]
            )
        ]
        if monitor {
            let types = DBusValue.array(of: "s", [.string("or_patterns")])
            interfaces.append(("org.bluez.AdvertisementMonitorManager1", [("SupportedMonitorTypes", types)]))
        }
        add(path, interfaces, isTold: isTold)
    }

    func addDevice(_ path: String = device, _ more: Properties = [], isTold: Bool = true, battery: UInt8? = nil) {
        let address = path.suffix(17).map { $0 == "_" ? ":" : String($0) }.joined()
        var properties: Properties = [
            ("Address", .string(address)), ("AddressType", .string("public")),
            ("Alias", .string(address.split(separator: ":").joined(separator: "-"))),
            ("Adapter", .objectPath(String(path.dropLast(22)))), ("Connected", .bool(false)),
            ("ServicesResolved", .bool(false)), ("Paired", .bool(false)),
        ]
        for (name, value) in more {
            properties.removeAll { $0.0 == name }
            properties.append((name, value))
        }
        var interfaces = [("org.bluez.Device1", properties)]
        if let battery { interfaces.append(("org.bluez.Battery1", [("Percentage", .byte(battery))])) }
        add(path, interfaces, isTold: isTold)
    }

    func addService(_ handle: String, _ uuid: String, of device: String = device, isTold: Bool = true) {
        let full = "0000\(uuid)-0000-1000-8000-00805f9b34fb"
        add(
            "\(device)/service\(handle)",
            [("org.bluez.GattService1", [("UUID", .string(full)), ("Primary", .bool(true))])], isTold: isTold)
    }

    func addCharacteristic(
        _ service: String, _ handle: String, _ uuid: String, _ flags: [String], of device: String = device,
        isTold: Bool = true
    ) {
        let full = "0000\(uuid)-0000-1000-8000-00805f9b34fb"
        let properties: Properties = [
            ("UUID", .string(full)), ("Flags", .array(of: "s", flags.map { .string($0) })), ("Notifying", .bool(false)),
            ("MTU", .uint16(247)),
        ]
        add(
            "\(device)/service\(service)/char\(handle)", [("org.bluez.GattCharacteristic1", properties)],
            isTold: isTold)
    }

    /// Connect and Disconnect as a device does that is near: the GATT tree that was added is resolved at once.
    func answerConnects(to device: String = device) {
        handlers["\(device) Connect"] = { [weak self] message in
            self?.change(device, "org.bluez.Device1", [("Connected", .bool(true))])
            self?.change(device, "org.bluez.Device1", [("ServicesResolved", .bool(true))])
            return message.reply()
        }
        handlers["\(device) Disconnect"] = { [weak self] message in
            self?.dropLink(of: device)
            return message.reply()
        }
    }

    func dropLink(of device: String = device) {
        change(device, "org.bluez.Device1", [("ServicesResolved", .bool(false)), ("Connected", .bool(false))])
    }

    func refuse(_ key: String, _ name: String, _ text: String, times: Int = .max) {
        var left = times
        handlers[key] = { message in
            guard left > 0 else { return message.reply() }
            left -= 1
            return message.error("org.bluez.Error.\(name)", text)
        }
    }
}
