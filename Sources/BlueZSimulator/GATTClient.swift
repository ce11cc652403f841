internal import Bluetooth
internal import DBus
internal import EventLoop

/// The attributes of one device as bluetoothd shows them. They stay on the bus when the link ends. Source:
/// src/gatt-client.c of BlueZ 5.66.
@EventLoopActor
final class GATTClient {
    unowned let device: DeviceObject
    private(set) var services: [ServiceObject] = []
    private var byHandle: [UInt16: CharacteristicObject] = [:]
    private var battery: Battery?
    var isExported: Bool { !services.isEmpty }

    init(_ device: DeviceObject) {
        self.device = device
    }

    private var daemon: Daemon { device.daemon }

    /// Shows what is new and takes away what is gone. The generic access service belongs to bluetoothd itself.
    func synchronise(with database: AttributeDatabase) {
        let hidden = device.peripheral?.spec.hidesBattery ?? false
        let shown = database.services.filter { $0.uuid != .genericAccess && !(hidden && $0.uuid == .batteryService) }
        for service in services where !shown.contains(where: { $0 === service.peer }) { unexport(service) }
        services.removeAll { service in !shown.contains { $0 === service.peer } }
        for peer in shown where !services.contains(where: { $0.peer === peer }) {
            let service = ServiceObject(peer, client: self)
            services.append(service)
            for characteristic in service.characteristics { byHandle[characteristic.peer.handle] = characteristic }
        }
        for service in services where !service.isExported { export(service) }
    }

    private func export(_ service: ServiceObject) {
        service.isExported = true
        let objects: [any BusObject] =
            [service] + service.characteristics.flatMap { [$0 as any BusObject] + $0.descriptors }
        for object in objects {
            daemon.register(object)
            daemon.bus.added(object)
        }
    }

    private func unexport(_ service: ServiceObject) {
        for characteristic in service.characteristics {
            characteristic.closeSockets()
            byHandle[characteristic.peer.handle] = nil
            for descriptor in characteristic.descriptors { take(descriptor, Interface.descriptor) }
            take(characteristic, Interface.characteristic)
        }
        take(service, Interface.service)
    }

    private func take(_ object: any BusObject, _ interface: String) {
        daemon.unregister(object)
        daemon.bus.removed(object.path, [interface])
    }

    func unexport() {
        for service in services { unexport(service) }
        services = []
    }

    func tearDown() {
        for service in services {
            for characteristic in service.characteristics { characteristic.closeSockets() }
        }
    }

    var allCharacteristics: [CharacteristicObject] { services.flatMap(\.characteristics) }

    func path(of peer: PeerService) -> String? { services.first { $0.peer === peer }?.path }

    // MARK: The link

    /// Notify sessions of clients outlive a link and are taken up again.
    func linkOpened(_ link: Link) {
        for characteristic in allCharacteristics { characteristic.registerAgain() }
    }

    func linkClosed() {
        for characteristic in allCharacteristics { characteristic.linkClosed() }
        guard battery != nil else { return }
        battery = nil
        device.bus.removed(device.path, [Interface.battery], whole: false)
    }

    func clientLeft(_ owner: String) {
        for characteristic in allCharacteristics { characteristic.clientLeft(owner) }
    }

    func received(_ value: [UInt8], of peer: PeerCharacteristic) {
        byHandle[peer.handle]?.received(value)
        guard let battery, battery.characteristic === peer, let level = value.first, level != battery.level else {
            return
        }
        self.battery?.level = level
        device.bus.changed(device.path, Interface.battery, [("Percentage", .byte(level))])
    }

    // MARK: Battery

    /// Source: profiles/battery/battery.c.
    private struct Battery {
        let characteristic: PeerCharacteristic
        var level: UInt8
    }

    var batteryProperties: Properties? {
        battery.map { [("Percentage", .byte($0.level)), ("Source", .string("GATT Battery Service"))] }
    }

    /// bluetoothd reads the battery of each device that has one, and subscribes to it.
    func startBattery() {
        guard let link = device.link, let peripheral = device.peripheral,
            let service = peripheral.database.services.first(where: { $0.uuid == .batteryService && $0.isPrimary }),
            let peer = service.characteristics.first(where: { $0.spec.uuid == .batteryLevel })
        else { return }
        link.request {
            peripheral.read(peer, offset: 0)
        } completion: { [weak self] answer in
            guard let self, case .value(let value) = answer, device.link === link else { return }
            subscribeBattery(peer, link: link, level: value.first ?? 0)
        }
    }

    private func subscribeBattery(_ peer: PeerCharacteristic, link: Link, level: UInt8) {
        let shown = byHandle[peer.handle]
        if peer.spec.properties.contains(.notify) {
            if let shown {
                shown.registerInternally()
            } else {
                link.request {
                    link.peripheral.configure(peer, 1)
                } completion: { _ in
                }
            }
        }
        battery = Battery(characteristic: peer, level: level)
        device.bus.added(BatteryObject(path: device.path, properties: batteryProperties ?? []))
    }

    /// For the signal that the interface has come; the device itself answers for it.
    private final class BatteryObject: BusObject {
        let path: String
        let interfaces: [(String, Properties)]

        init(path: String, properties: Properties) {
            self.path = path
            interfaces = [(Interface.battery, properties)]
        }
    }
}

/// `/…/serviceXXXX`
@EventLoopActor
final class ServiceObject: BusObject {
    let peer: PeerService
    let path: String
    private unowned let client: GATTClient
    private(set) var characteristics: [CharacteristicObject] = []
    var isExported = false

    init(_ peer: PeerService, client: GATTClient) {
        self.peer = peer
        self.client = client
        path = "\(client.device.path)/service\(Hex.encode(UInt64(peer.handle), digits: 4))"
        characteristics = peer.characteristics.map { CharacteristicObject($0, service: self, device: client.device) }
    }

    var interfaces: [(String, Properties)] {
        [
            (
                Interface.service,
                [
                    ("UUID", .string(peer.uuid.description)), ("Device", .objectPath(client.device.path)),
                    ("Primary", .bool(peer.isPrimary)),
                    (
                        "Includes",
                        .array(of: "o", peer.includes.compactMap { client.path(of: $0) }.map { .objectPath($0) })
                    ),
                ]
            )
        ]
    }
}

/// `/…/descXXXX`
@EventLoopActor
final class DescriptorObject: BusObject {
    let peer: PeerDescriptor
    let path: String
    private unowned let characteristic: CharacteristicObject
    private var value: [UInt8] = []
    private var isReading = false
    private var isWriting = false

    init(_ peer: PeerDescriptor, characteristic: CharacteristicObject) {
        self.peer = peer
        self.characteristic = characteristic
        path = "\(characteristic.path)/desc\(Hex.encode(UInt64(peer.handle), digits: 4))"
    }

    var interfaces: [(String, Properties)] {
        [
            (
                Interface.descriptor,
                [
                    ("UUID", .string(peer.uuid.description)), ("Characteristic", .objectPath(characteristic.path)),
                    ("Value", .bytes(value)),
                ]
            )
        ]
    }

    func handle(_ call: MethodCall) -> Bool {
        guard call.interface == Interface.descriptor else { return false }
        switch call.member {
        case "ReadValue": read(call)
        case "WriteValue": write(call)
        default: return false
        }
        return true
    }

    private func read(_ call: MethodCall) {
        guard let link = characteristic.device.link else { return call.fail(.notConnected) }
        guard let options = GATTOptions(call.arguments.first) else { return call.fail(.invalidArguments()) }
        if isReading { return call.fail(.inProgress) }
        isReading = true
        let (peer, owner) = (peer, characteristic.peer)
        link.request(exchanges: 1 + peer.value.count / (link.mtu - 1)) {
            link.peripheral.database.read(peer, of: owner, offset: options.offset, mtu: link.mtu)
        } completion: { [weak self] answer in
            guard let self else { return call.fail(.att(0x0e)) }
            isReading = false
            guard case .value(let bytes) = answer else { return call.fail(.answer(answer)) }
            value = Array(value.prefix(options.offset)) + bytes
            characteristic.device.bus.changed(path, Interface.descriptor, [("Value", .bytes(value))])
            call.reply(.bytes(bytes))
        }
    }

    private func write(_ call: MethodCall) {
        guard let link = characteristic.device.link else { return call.fail(.notConnected) }
        if isWriting { return call.fail(.inProgress) }
        guard let bytes = call.arguments.first?.byteArray, let options = GATTOptions(call.arguments.dropFirst().first)
        else { return call.fail(.invalidArguments()) }
        if peer.isConfiguration { return call.fail(.notPermitted("Write not permitted")) }
        isWriting = true
        let peer = peer
        link.request(exchanges: 1 + bytes.count / max(1, link.mtu - 5)) {
            link.peripheral.database.write(bytes, to: peer, offset: options.offset)
        } completion: { [weak self] answer in
            self?.isWriting = false
            if case .value = answer { call.reply() } else { call.fail(.answer(answer)) }
        }
    }
}

/// The options of ReadValue and WriteValue. Source: parse_options.
struct GATTOptions {
    var offset = 0
    var type: String?

    /// Nil where they are not valid.
    init?(_ argument: DBusValue?) {
        guard let options = argument?.options else { return nil }
        for (name, value) in options {
            switch (name.lowercased(), value) {
            case ("offset", .uint16(let value)): offset = Int(value)
            case ("type", .string(let value)): type = value.lowercased()
            case ("offset", _), ("type", _): return nil
            default: break
            }
        }
    }
}

extension BlueZFault {
    /// For an answer that is no value.
    static func answer(_ answer: ATTAnswer) -> BlueZFault {
        if case .error(let code) = answer { .att(code) } else { .att(0x0e) }
    }
}
