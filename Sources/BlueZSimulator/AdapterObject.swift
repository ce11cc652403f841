internal import Bluetooth
internal import DBus
internal import EventLoop

/// An adapter as bluetoothd shows it: `/org/bluez/hciN`.
@EventLoopActor
final class AdapterObject: BusObject, ControllerListener {
    /// A client that set a filter or discovers. Source: struct discovery_client.
    private struct Client {
        let owner: String
        var filter: DiscoveryFilter?
        var isDiscovering = false
    }

    private struct Key: Hashable {
        let address: BluetoothAddress
        let type: AddressType
    }

    let path: String
    let controller: Controller
    unowned let daemon: Daemon
    let monitors: MonitorManager
    private(set) var isPowered: Bool
    private(set) var powerState: String
    private(set) var isDiscovering = false
    private var isDiscoverable = false
    private var isPairable = false
    private var alias: String
    private var clients: [Client] = []
    private var devices: [Key: DeviceObject] = [:]
    /// Those that were heard in this discovery.
    private var found: [ObjectIdentifier: DeviceObject] = [:]
    private var sweep: LoopTimer?

    // What the clients' filters come to, for the frequent path.
    private var wantsDuplicates = false
    private var isFiltered = false

    init(_ controller: Controller, daemon: Daemon) {
        self.controller = controller
        self.daemon = daemon
        path = "/org/bluez/\(controller.name)"
        isPowered = controller.isPowered
        powerState = controller.isPowered ? "on" : "off"
        alias = controller.spec.alias ?? "BlueZ 5.66"
        monitors = MonitorManager(daemon)
        monitors.adapterPath = path
        controller.listener = self
        scheduleSweep()
    }

    private var bus: DaemonBus { daemon.bus }
    var allDevices: [DeviceObject] { devices.values.sorted { $0.address < $1.address } }

    // MARK: Properties

    var interfaces: [(String, Properties)] {
        var list = [(Interface.adapter, properties)]
        if daemon.isExperimental { list.append((Interface.monitorManager, MonitorManager.properties)) }
        return list
    }

    private var properties: Properties {
        var list: Properties = [
            ("Address", .string(controller.spec.address.description)), ("AddressType", .string("public")),
            ("Name", .string(controller.spec.alias ?? "BlueZ 5.66")), ("Alias", .string(alias)),
            ("Class", .uint32(isPowered ? 0x7c0000 : 0)), ("Powered", .bool(isPowered)),
        ]
        if daemon.isExperimental { list.append(("PowerState", .string(powerState))) }
        list += [
            ("Discoverable", .bool(isDiscoverable)), ("DiscoverableTimeout", .uint32(180)),
            ("Pairable", .bool(isPairable)), ("PairableTimeout", .uint32(0)), ("Discovering", .bool(isDiscovering)),
            (
                "UUIDs",
                .array(
                    of: "s",
                    [0x1800, 0x1801, 0x180a].map { .string(BluetoothUUID($0).description) })
            ),
            ("Modalias", .string("usb:v1D6Bp0246d0542")),
            ("Roles", .array(of: "s", [.string("central"), .string("peripheral")])),
        ]
        return list
    }

    private func changed(_ names: String...) {
        bus.changed(path, Interface.adapter, properties.filter { names.contains($0.0) })
    }

    func set(_ property: String, _ value: DBusValue, _ call: MethodCall) -> Bool {
        switch (property, value) {
        case ("Powered", .bool(let on)):
            setPowered(on)
        case ("Alias", .string(let text)):
            alias = text.isEmpty ? controller.spec.alias ?? "BlueZ 5.66" : text
            changed("Alias")
        case ("Discoverable", .bool(let on)):
            isDiscoverable = on
            changed("Discoverable")
        case ("Pairable", .bool(let on)):
            isPairable = on
            changed("Pairable")
        case ("DiscoverableTimeout", .uint32), ("PairableTimeout", .uint32): break
        default: return false
        }
        call.reply()
        return true
    }

    /// Source: settings_changed, adapter_start and adapter_stop.
    func setPowered(_ on: Bool) {
        guard on != isPowered else { return }
        powerState = on ? "off-enabling" : "on-disabling"
        if daemon.isExperimental { changed("PowerState") }
        if on {
            isPowered = true
            controller.isPowered = true
            if controller.silence == .power { controller.silence = nil }
            powerState = "on"
        } else {
            controller.isPowered = false
            controller.stopRadio()
            clients.removeAll()
            updateFilters()
            finishDiscovery()
            isDiscovering = false
            isPowered = false
            powerState = "off"
        }
        changed("Powered", "Class", "Discovering")
        if daemon.isExperimental { changed("PowerState") }
    }

    // MARK: Methods

    func handle(_ call: MethodCall) -> Bool {
        if call.interface == Interface.monitorManager {
            return daemon.isExperimental && monitors.handle(call)
        }
        guard call.interface == Interface.adapter else { return false }
        switch call.member {
        case "SetDiscoveryFilter": setFilter(call)
        case "StartDiscovery": startDiscovery(call)
        case "StopDiscovery": stopDiscovery(call)
        case "GetDiscoveryFilters": call.reply(.array(of: "s", DiscoveryFilter.names.map { .string($0) }))
        case "RemoveDevice": removeDevice(call)
        default: return false
        }
        return true
    }

    private func client(_ owner: String) -> Int? { clients.firstIndex { $0.owner == owner } }

    private func setFilter(_ call: MethodCall) {
        guard isPowered else { return call.fail(.notReady) }
        guard let filter = DiscoveryFilter.parse(call.arguments) else { return call.fail(.invalidArguments()) }
        if let index = client(call.sender) {
            clients[index].filter = filter
            if filter == nil, !clients[index].isDiscovering { clients.remove(at: index) }
        } else if filter != nil {
            clients.append(Client(owner: call.sender, filter: filter))
        }
        updateFilters()
        call.reply()
    }

    private func startDiscovery(_ call: MethodCall) {
        guard isPowered else { return call.fail(.notReady) }
        if let index = client(call.sender), clients[index].isDiscovering { return call.fail(.busy) }
        if let until = controller.orphanedUntil, daemon.clock.now < until { return call.fail(.busy) }
        controller.orphanedUntil = nil
        if let index = client(call.sender) {
            clients[index].isDiscovering = true
        } else {
            clients.append(Client(owner: call.sender, isDiscovering: true))
        }
        updateFilters()
        controller.renewFilter()
        if controller.silence == .restart { controller.silence = nil }
        call.reply()
        guard !isDiscovering else { return }
        isDiscovering = true
        changed("Discovering")
    }

    private func stopDiscovery(_ call: MethodCall) {
        guard isPowered else { return call.fail(.notReady) }
        guard let index = client(call.sender), clients[index].isDiscovering else {
            return call.fail(.failed("No discovery started"))
        }
        clients[index].isDiscovering = false
        if clients[index].filter == nil { clients.remove(at: index) }
        call.reply()
        discoveryEnded()
    }

    /// The client left the bus.
    func clientLeft(_ owner: String) {
        monitors.clientLeft(owner)
        for device in devices.values { device.clientLeft(owner) }
        guard let index = client(owner) else { return }
        let wasDiscovering = clients[index].isDiscovering
        clients.remove(at: index)
        if wasDiscovering { discoveryEnded() } else { updateFilters() }
    }

    private func discoveryEnded() {
        updateFilters()
        guard isDiscovering, !clients.contains(where: \.isDiscovering) else { return }
        finishDiscovery()
        isDiscovering = false
        changed("Discovering")
    }

    /// Source: discovery_cleanup.
    private func finishDiscovery() {
        let heard = found.values
        found = [:]
        for device in heard { device.invalidateSignal() }
        for device in devices.values where device.isTemporary && !device.isConnectable && !device.isConnected {
            remove(device)
        }
    }

    private func updateFilters() {
        let filters = clients.filter(\.isDiscovering).map(\.filter)
        wantsDuplicates = filters.contains { $0?.duplicateData ?? false }
        isFiltered = !filters.isEmpty && filters.contains { $0 != nil }
    }

    private func removeDevice(_ call: MethodCall) {
        guard case .objectPath(let target)? = call.arguments.first else { return call.fail(.invalidArguments()) }
        guard let device = devices.values.first(where: { $0.path == target }) else { return call.fail(.doesNotExist) }
        guard isPowered else { return call.fail(.notReady) }
        device.forget()
        guard device.isConnected else {
            remove(device)
            return call.reply()
        }
        device.disconnect(call, removing: true)
    }

    // MARK: Devices

    func remove(_ device: DeviceObject) {
        guard devices.removeValue(forKey: Key(address: device.address, type: device.addressType)) != nil else { return }
        found[ObjectIdentifier(device)] = nil
        monitors.lost(device)
        device.cancelAttempt()
        device.unexport()
    }

    @discardableResult
    func add(_ address: BluetoothAddress, _ type: AddressType) -> DeviceObject {
        let device = DeviceObject(address, type, adapter: self)
        devices[Key(address: address, type: type)] = device
        return device
    }

    /// Every temporary device that was not heard for long enough goes. Source: device_disappeared.
    private func scheduleSweep() {
        sweep = daemon.clock.schedule(after: .seconds(1)) { [weak self] in
            guard let self else { return }
            let limit = daemon.timing.temporary
            let now = daemon.clock.now
            for device in devices.values where device.isTemporary && !device.isConnected && !device.isConnecting {
                if now - device.lastSeen >= limit { remove(device) }
            }
            scheduleSweep()
        }
    }

    /// The adapter goes; with `isSilent` nothing is said, as when the daemon dies.
    func tearDown(isSilent: Bool) {
        sweep?.cancel()
        for device in devices.values { device.tearDown() }
        if !isSilent {
            for device in allDevices { device.unexport() }
            bus.removed(path, interfaces.map(\.0))
        }
        devices.removeAll()
        if controller.listener === self { controller.listener = nil }
    }

    // MARK: Hearing

    var isScanning: Bool { isDiscovering || monitors.isActive }
    var hasActiveMonitor: Bool { monitors.isActive }

    /// Source: btd_adapter_device_found.
    func heard(_ heard: Heard, from peripheral: Peripheral?) {
        guard !daemon.isFrozen else { return }
        let isMonitored = monitors.matches(heard.structures)
        guard isDiscovering || isMonitored else { return }
        let isDiscoverable = isDiscoverable(heard)
        if !isMonitored, !isDiscoverable || (isFiltered && !passesFilters(heard)) { return }
        let key = Key(address: heard.address, type: heard.type)
        let now = daemon.clock.now
        if let device = devices[key] {
            device.peripheral = peripheral
            device.lastSeen = now
            device.isConnectable = heard.isConnectable
            device.update(heard, isDuplicate: wantsDuplicates, hasProximity: isFiltered)
            if isDiscovering { found[ObjectIdentifier(device)] = device }
            monitors.found(device, heard.structures)
            return
        }
        let device = add(heard.address, heard.type)
        device.peripheral = peripheral
        device.lastSeen = now
        device.isConnectable = heard.isConnectable
        device.adopt(heard)
        if isDiscovering { found[ObjectIdentifier(device)] = device }
        device.export()
        monitors.found(device, heard.structures)
    }

    private func isDiscoverable(_ heard: Heard) -> Bool {
        var result = isFiltered || (heard.advertisement.flags ?? 0) & 0x03 != 0
        for client in clients where client.isDiscovering {
            guard let matches = client.filter?.matchesPattern(heard) else { continue }
            if matches { return true }
            result = false
        }
        return result
    }

    private func passesFilters(_ heard: Heard) -> Bool {
        clients.contains { client in
            client.isDiscovering && (client.filter.map { $0.matches(heard) } ?? true)
        }
    }
}
