internal import Bluetooth
internal import DBus
internal import EventLoop

/// One run of bluetoothd: its name on the bus, its objects, and its clients.
@EventLoopActor
final class Daemon {
    let air: Air
    let clock: any LoopClock
    let timing: SimulatorTiming
    let isExperimental: Bool
    let bus: DaemonBus
    let agents = AgentManager()
    let faults: Faults
    private(set) var adapters: [AdapterObject] = []
    /// It was stopped by SIGSTOP: calls wait, and what is heard is lost.
    private(set) var isFrozen = false {
        didSet { bus.isFrozen = isFrozen }
    }
    private var frozenMessages: [DBusMessage] = []
    private var objects: [String: any BusObject] = [:]
    /// Those in the order in which they were added, for GetManagedObjects.
    private var order: [ObjectIdentifier: Int] = [:]
    private var nextOrder = 0
    private let storage: Storage
    var onCrash: (@EventLoopActor () -> Void)?

    /// Connects to the bus. The objects are shown by ``begin()``.
    static func start(
        on address: DBusAddress, air: Air, storage: Storage, faults: Faults, isExperimental: Bool,
        clock: any LoopClock, timing: SimulatorTiming
    ) async throws(DBusError) -> Daemon {
        let connection = try await DBusConnection.open(address)
        let daemon = Daemon(
            DaemonBus(connection, clock: clock), air, storage, faults, isExperimental: isExperimental, clock, timing)
        do throws(DBusError) {
            try await daemon.takeName()
        } catch {
            daemon.bus.close()
            throw error
        }
        return daemon
    }

    private init(
        _ bus: DaemonBus, _ air: Air, _ storage: Storage, _ faults: Faults, isExperimental: Bool,
        _ clock: any LoopClock, _ timing: SimulatorTiming
    ) {
        self.bus = bus
        self.air = air
        self.storage = storage
        self.faults = faults
        self.isExperimental = isExperimental
        self.clock = clock
        self.timing = timing
        register(agents)
    }

    private func takeName() async throws(DBusError) {
        bus.connection.addSignalHandler { [weak self] message in self?.heard(message) }
        bus.connection.export(path: "/", subtree: true) { [weak self] message in
            self?.receive(message)
            return nil
        }
        let rules = [
            MatchRule(sender: "org.freedesktop.DBus", interface: "org.freedesktop.DBus", member: "NameOwnerChanged"),
            MatchRule(interface: Interface.objectManager, member: "InterfacesAdded"),
            MatchRule(interface: Interface.objectManager, member: "InterfacesRemoved"),
        ]
        for rule in rules { try await bus.connection.addMatch(rule) }
        try await bus.connection.requestName("org.bluez")
    }

    /// The adapters come, and get their power.
    func begin() {
        for controller in air.controllers where controller.isPlugged { addAdapter(controller) }
    }

    func addAdapter(_ controller: Controller) {
        let adapter = AdapterObject(controller, daemon: self)
        adapters.append(adapter)
        register(adapter)
        bus.added(adapter)
        for stored in storage.devices(of: controller.spec.address) {
            let device = adapter.add(stored.address, stored.type)
            device.restore(stored)
            device.export()
        }
        clock.schedule(after: timing.start) { [weak adapter] in adapter?.setPowered(true) }
    }

    func adapter(of controller: Controller) -> AdapterObject? { adapters.first { $0.controller === controller } }

    /// The controller was unplugged: the adapter and all its devices go.
    func removeAdapter(_ adapter: AdapterObject) {
        store(adapter)
        adapters.removeAll { $0 === adapter }
        adapter.controller.isPowered = false
        adapter.controller.stopRadio()
        adapter.tearDown(isSilent: false)
        unregister(adapter)
    }

    /// A device's attributes changed while it has a link.
    func servicesChanged(_ link: Link) {
        for adapter in adapters {
            for device in adapter.allDevices where device.link === link { device.servicesChanged() }
        }
    }

    private func store(_ adapter: AdapterObject) {
        storage.set(adapter.allDevices.compactMap(\.stored), of: adapter.controller.spec.address)
    }

    // MARK: Ending

    /// What bluetoothd does not survive was done: it is to be killed, once the call is done with.
    func crash() {
        clock.schedule(after: .zero) { [weak self] in self?.onCrash?() }
    }

    /// As by SIGKILL: nothing is said.
    func kill() {
        for adapter in adapters {
            store(adapter)
            let wasDiscovering = adapter.isDiscovering
            adapter.tearDown(isSilent: true)
            adapter.controller.abandon(wasDiscovering: wasDiscovering)
        }
        adapters = []
        objects = [:]
        bus.close()
    }

    /// As by SIGTERM: power off, objects away, then the name.
    func stop() async {
        isFrozen = false
        for adapter in adapters {
            store(adapter)
            adapter.setPowered(false)
            adapter.tearDown(isSilent: false)
            adapter.controller.listener = nil
        }
        adapters = []
        objects = [:]
        // Its answer tells that all before it has left.
        try? await bus.connection.releaseName("org.bluez")
        bus.close()
    }

    func freeze() { isFrozen = true }

    func thaw() {
        guard isFrozen else { return }
        isFrozen = false
        let messages = frozenMessages
        frozenMessages = []
        for message in messages { receive(message) }
    }

    // MARK: Objects

    func register(_ object: any BusObject) {
        objects[object.path] = object
        nextOrder += 1
        order[ObjectIdentifier(object)] = nextOrder
    }

    func unregister(_ object: any BusObject) {
        if objects[object.path] === object { objects[object.path] = nil }
        order[ObjectIdentifier(object)] = nil
    }

    // MARK: What comes from the bus

    private func heard(_ message: borrowing DBusMessageView) {
        if message.memberEquals("NameOwnerChanged") {
            guard message.sender == "org.freedesktop.DBus" else { return }
            var reader = message.reader()
            guard let name = reader.string(), name.hasPrefix(":") else { return }
            reader.next()
            reader.next()
            guard reader.string() == "" else { return }
            for adapter in adapters { adapter.clientLeft(name) }
            agents.clientLeft(name)
            return
        }
        guard message.interfaceEquals("org.freedesktop.DBus.ObjectManager"), let sender = message.sender,
            sender != bus.connection.uniqueName
        else { return }
        var reader = message.reader()
        guard let path = reader.string() else { return }
        reader.next()
        if message.memberEquals("InterfacesAdded"), let interfaces = reader.value() {
            for adapter in adapters { adapter.monitors.objectAdded(sender, path, interfaces) }
        } else if message.memberEquals("InterfacesRemoved") {
            for adapter in adapters { adapter.monitors.objectRemoved(sender, path) }
        }
    }

    private func receive(_ message: DBusMessage) {
        guard !isFrozen else { return frozenMessages.append(message) }
        let call = MethodCall(message, on: bus)
        switch faults.take(call) {
        case nil: dispatch(call)
        case .hang: break
        case .error(let name, let text): call.fail(BlueZFault(name, text))
        case .delay(let pause):
            clock.schedule(after: pause) { [weak self] in self?.dispatch(call) }
        }
    }

    private func dispatch(_ call: MethodCall) {
        if call.interface == Interface.objectManager, call.member == "GetManagedObjects", call.path == "/" {
            return answerObjects(call)
        }
        guard let object = objects[call.path] else {
            let text = "Method \"\(call.member)\" on interface \"\(call.interface)\" doesn't exist"
            return call.fail(BlueZFault("org.freedesktop.DBus.Error.UnknownObject", text))
        }
        let isKnown = call.interface == Interface.properties ? property(call, object) : object.handle(call)
        if !isKnown {
            let text = "Method \"\(call.member)\" on interface \"\(call.interface)\" doesn't exist"
            call.fail(BlueZFault("org.freedesktop.DBus.Error.UnknownMethod", text))
        }
    }

    private func answerObjects(_ call: MethodCall) {
        let sorted = objects.values.sorted { order[ObjectIdentifier($0)] ?? 0 < order[ObjectIdentifier($1)] ?? 0 }
        call.reply { writer in
            writer.array(of: "{oa{sa{sv}}}") { array in
                for object in sorted {
                    array.entry { entry in
                        entry.append(objectPath: object.path)
                        DaemonBus.write(object.interfaces, to: &entry)
                    }
                }
            }
        }
    }

    /// Source: gdbus/object.c.
    private func property(_ call: MethodCall, _ object: any BusObject) -> Bool {
        let texts = call.arguments.prefix(2).map(\.text)
        guard let interface = texts.first ?? nil,
            let properties = object.interfaces.first(where: { $0.0 == interface })?.1
        else {
            call.fail(BlueZFault("org.freedesktop.DBus.Error.InvalidArgs", "No such interface"))
            return true
        }
        if call.member == "GetAll" {
            call.reply(.properties(properties))
            return true
        }
        guard call.member == "Get" || call.member == "Set" else { return false }
        guard texts.count == 2, let name = texts[1], let current = properties.first(where: { $0.0 == name }) else {
            let name = texts.count == 2 ? texts[1] ?? "" : ""
            call.fail(BlueZFault("org.freedesktop.DBus.Error.InvalidArgs", "No such property '\(name)'"))
            return true
        }
        if call.member == "Get" {
            call.reply(.variant(current.1))
            return true
        }
        guard call.arguments.count == 3, case .variant(let value) = call.arguments[2],
            value.signature == current.1.signature
        else {
            call.fail(BlueZFault("org.freedesktop.DBus.Error.InvalidSignature", "Invalid signature for '\(name)'"))
            return true
        }
        if !object.set(name, value, call) {
            call.fail(BlueZFault("org.freedesktop.DBus.Error.PropertyReadOnly", "Property '\(name)' is not writable"))
        }
        return true
    }
}

/// What bluetoothd keeps on disk.
@EventLoopActor
final class Storage {
    private var devices: [BluetoothAddress: [StoredDevice]] = [:]

    func devices(of adapter: BluetoothAddress) -> [StoredDevice] { devices[adapter] ?? [] }
    func set(_ stored: [StoredDevice], of adapter: BluetoothAddress) { devices[adapter] = stored }
}
