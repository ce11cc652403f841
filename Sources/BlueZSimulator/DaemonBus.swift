internal import DBus
internal import EventLoop

/// Properties of an interface, in the order they are sent.
typealias Properties = [(String, DBusValue)]

/// The interfaces that this module speaks. Source: doc/*-api.txt of BlueZ 5.66.
enum Interface {
    static let adapter = "org.bluez.Adapter1"
    static let device = "org.bluez.Device1"
    static let battery = "org.bluez.Battery1"
    static let service = "org.bluez.GattService1"
    static let characteristic = "org.bluez.GattCharacteristic1"
    static let descriptor = "org.bluez.GattDescriptor1"
    static let agent = "org.bluez.Agent1"
    static let agentManager = "org.bluez.AgentManager1"
    static let monitor = "org.bluez.AdvertisementMonitor1"
    static let monitorManager = "org.bluez.AdvertisementMonitorManager1"
    static let objectManager = "org.freedesktop.DBus.ObjectManager"
    static let properties = "org.freedesktop.DBus.Properties"
    static let introspectable = "org.freedesktop.DBus.Introspectable"
}

/// An error that bluetoothd answers. Source: src/error.c of BlueZ 5.66.
struct BlueZFault: Error {
    let name: String
    let text: String

    init(_ name: String, _ text: String) {
        self.name = name
        self.text = text
    }

    static func failed(_ text: String) -> BlueZFault { BlueZFault("org.bluez.Error.Failed", text) }
    static func notPermitted(_ text: String) -> BlueZFault { BlueZFault("org.bluez.Error.NotPermitted", text) }
    static func invalidArguments(_ text: String = "Invalid arguments in method call") -> BlueZFault {
        BlueZFault("org.bluez.Error.InvalidArguments", text)
    }
    static let busy = BlueZFault("org.bluez.Error.InProgress", "Operation already in progress")
    static let inProgress = BlueZFault("org.bluez.Error.InProgress", "In Progress")
    static let notReady = BlueZFault("org.bluez.Error.NotReady", "Resource Not Ready")
    static let notSupported = BlueZFault("org.bluez.Error.NotSupported", "Operation is not supported")
    static let notConnected = BlueZFault.failed("Not connected")
    static let disconnecting = BlueZFault("org.bluez.Error.NotConnected", "Not Connected")
    static let alreadyExists = BlueZFault("org.bluez.Error.AlreadyExists", "Already Exists")
    static let doesNotExist = BlueZFault("org.bluez.Error.DoesNotExist", "Does Not Exist")
    static let abortedByLocal = BlueZFault.failed("le-connection-abort-by-local")
    static let cancelled = BlueZFault.failed("br-connection-canceled")

    /// The answer for an ATT error. Source: create_gatt_dbus_error in src/gatt-client.c.
    static func att(_ code: UInt8) -> BlueZFault {
        switch code {
        case 0x02: .notPermitted("Read not permitted")
        case 0x03: .notPermitted("Write not permitted")
        case 0x05, 0x0c, 0x0f: .notPermitted("Not paired")
        case 0x06: .notSupported
        case 0x07: .invalidArguments("Invalid offset")
        case 0x08: BlueZFault("org.bluez.Error.NotAuthorized", "Operation Not Authorized")
        case 0x0d: .invalidArguments("Invalid Length")
        case 0: .failed("Operation failed")
        default:
            .failed("Operation failed with ATT error: 0x" + (code < 16 ? "0" : "") + String(code, radix: 16))
        }
    }
}

/// A method call to answer, now or later. An answer after the first does nothing.
@EventLoopActor
final class MethodCall {
    let path: String
    let interface: String
    let member: String
    let sender: String
    let arguments: [DBusValue]
    private let message: DBusMessage
    private weak var bus: DaemonBus?
    private var isAnswered = false

    init(_ message: DBusMessage, on bus: DaemonBus) {
        self.message = message
        self.bus = bus
        path = message.path ?? ""
        interface = message.interface ?? ""
        member = message.member ?? ""
        sender = message.sender ?? ""
        arguments = message.allValues
    }

    func reply(_ values: DBusValue...) {
        reply { writer in
            for value in values { writer.append(value) }
        }
    }

    func reply(_ body: (inout MessageWriter) -> Void) {
        guard !isAnswered else { return }
        isAnswered = true
        guard message.wantsReply else { return }
        let reply = message.reply()
        var writer = reply.writer()
        body(&writer)
        bus?.send(reply)
    }

    func fail(_ fault: BlueZFault) {
        guard !isAnswered else { return }
        isAnswered = true
        if message.wantsReply { bus?.send(message.error(fault.name, fault.text)) }
    }

    /// Answers with a fault, or with nothing.
    func finish(_ fault: BlueZFault?) {
        if let fault { fail(fault) } else { reply() }
    }
}

/// An object of bluetoothd.
@EventLoopActor
protocol BusObject: AnyObject {
    var path: String { get }
    /// Its interfaces with their properties.
    var interfaces: [(String, Properties)] { get }
    /// A call of one of its own interfaces. False where there is no such method.
    func handle(_ call: MethodCall) -> Bool
    /// Sets a property. False where it cannot be set.
    func set(_ property: String, _ value: DBusValue, _ call: MethodCall) -> Bool
}

extension BusObject {
    func handle(_ call: MethodCall) -> Bool { false }
    func set(_ property: String, _ value: DBusValue, _ call: MethodCall) -> Bool { false }
}

/// bluetoothd's connection to the bus: what it says there.
@EventLoopActor
final class DaemonBus {
    let connection: DBusConnection
    private let clock: any LoopClock
    /// Each signal goes out twice.
    var repeatsSignals = false
    /// How long signals are held back.
    var signalDelay = Duration.zero
    private(set) var isClosed = false
    /// What is said waits while the process is stopped.
    var isFrozen = false {
        didSet { if !isFrozen { sendHeld() } }
    }
    private var held: [DBusMessage] = []
    /// Signals that were sent.
    private(set) var signalCount = 0

    init(_ connection: DBusConnection, clock: any LoopClock) {
        self.connection = connection
        self.clock = clock
    }

    func close() {
        isClosed = true
        connection.onDisconnect = nil
        connection.close()
    }

    func send(_ message: DBusMessage) {
        guard !isClosed else { return }
        if isFrozen { held.append(message) } else { connection.send(message) }
    }

    private func sendHeld() {
        let messages = held
        held = []
        for message in messages { send(message) }
    }

    private func signal(_ make: @escaping @EventLoopActor () -> DBusMessage) {
        guard !isClosed else { return }
        signalCount += 1
        guard repeatsSignals || signalDelay > .zero else { return send(make()) }
        let count = repeatsSignals ? 2 : 1
        guard signalDelay > .zero else {
            for _ in 0..<count { send(make()) }
            return
        }
        clock.schedule(after: signalDelay) { [weak self] in
            for _ in 0..<count { self?.send(make()) }
        }
    }

    // MARK: Signals

    /// Some properties have new values, or none any more.
    func changed(_ path: String, _ interface: String, _ properties: Properties, invalidated: [String] = []) {
        guard !properties.isEmpty || !invalidated.isEmpty else { return }
        signal {
            let message = DBusMessage(signal: path, interface: Interface.properties, member: "PropertiesChanged")
            var writer = message.writer()
            writer.append(string: interface)
            writer.appendOptions(properties)
            writer.array(of: "s") { names in
                for name in invalidated { names.append(string: name) }
            }
            return message
        }
    }

    /// The same for the frequent case: `body` appends the entries of the `a{sv}` itself.
    func changed(_ path: String, _ interface: String, _ body: @escaping @EventLoopActor (inout MessageWriter) -> Void) {
        signal {
            let message = DBusMessage(signal: path, interface: Interface.properties, member: "PropertiesChanged")
            var writer = message.writer()
            writer.append(string: interface)
            writer.array(of: "{sv}") { body(&$0) }
            writer.array(of: "s") { _ in }
            return message
        }
    }

    func added(_ object: any BusObject) {
        let path = object.path
        let interfaces = object.interfaces
        signal {
            let message = DBusMessage(signal: "/", interface: Interface.objectManager, member: "InterfacesAdded")
            var writer = message.writer()
            writer.append(objectPath: path)
            Self.write(interfaces, to: &writer)
            return message
        }
    }

    /// - Parameter whole: the object goes, not some of its interfaces.
    func removed(_ path: String, _ interfaces: [String], whole: Bool = true) {
        let names = (whole ? [Interface.properties, Interface.introspectable] : []) + interfaces
        signal {
            let message = DBusMessage(signal: "/", interface: Interface.objectManager, member: "InterfacesRemoved")
            var writer = message.writer()
            writer.append(objectPath: path)
            writer.array(of: "s") { array in
                for name in names { array.append(string: name) }
            }
            return message
        }
    }

    /// `a{sa{sv}}`, with the standard interfaces that gdbus adds.
    static func write(_ interfaces: [(String, Properties)], to writer: inout MessageWriter) {
        let standard = [Interface.introspectable, Interface.properties].map { ($0, Properties()) }
        writer.array(of: "{sa{sv}}") { array in
            for (name, properties) in standard + interfaces {
                array.entry { entry in
                    entry.append(string: name)
                    entry.appendOptions(properties)
                }
            }
        }
    }

    // MARK: Calls to clients

    /// Calls a client: an agent or a monitor.
    func call(
        _ destination: String, _ path: String, _ interface: String, _ member: String, _ arguments: [DBusValue] = [],
        timeout: Duration = .seconds(60),
        _ completion: @escaping @EventLoopActor (Result<[DBusValue], DBusError>) -> Void
    ) {
        let message = Self.call(destination, path, interface, member, arguments)
        connection.call(message, timeout: timeout) { result in completion(result.map { $0.allValues }) }
    }

    /// Calls a client that is not asked for an answer.
    func tell(
        _ destination: String, _ path: String, _ interface: String, _ member: String, _ arguments: [DBusValue] = []
    ) {
        let message = Self.call(destination, path, interface, member, arguments)
        message.setNoReply()
        send(message)
    }

    private static func call(
        _ destination: String, _ path: String, _ interface: String, _ member: String, _ arguments: [DBusValue]
    ) -> DBusMessage {
        let message = DBusMessage(call: destination, path: path, interface: interface, member: member)
        var writer = message.writer()
        for argument in arguments { writer.append(argument) }
        return message
    }
}
