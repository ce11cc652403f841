internal import Bluetooth
internal import EventLoop

/// What a device answers to a request. Source: Bluetooth Core, Vol 3 Part F §3.4.
enum ATTAnswer: Equatable {
    case value([UInt8])
    case error(UInt8)
    /// It never answers.
    case silence

    static let readNotPermitted = ATTAnswer.error(0x02)
    static let writeNotPermitted = ATTAnswer.error(0x03)
    static let insufficientAuthentication = ATTAnswer.error(0x05)
    static let invalidOffset = ATTAnswer.error(0x07)
    static let notLong = ATTAnswer.error(0x0b)
    static let invalidLength = ATTAnswer.error(0x0d)
    /// What bluetoothd reports where the link went before the answer.
    static let unlikely = ATTAnswer.error(0x0e)
}

/// A characteristic of a device, as its server holds it.
@EventLoopActor
final class PeerCharacteristic {
    let spec: Fleet.Characteristic
    let handle: UInt16
    let valueHandle: UInt16
    /// `svc/chr`, with `#n` for one of twins.
    fileprivate(set) var name: String
    fileprivate(set) var descriptors: [PeerDescriptor] = []
    var value: [UInt8]
    var answers: Bool
    var attError: UInt8
    /// What the peer wrote to the configuration descriptor: bit 0 notifications, bit 1 indications.
    var configuration: UInt16 = 0
    /// Notifications that went out on the air.
    var notifications = 0
    private(set) var nextSequence: UInt32 = 0
    /// The numbered values that went out on the air, the newest so many of them.
    private(set) var sentValues: [(number: UInt32, time: MonotonicTime)] = []
    private static let mostSentValues = 100_000
    var timer: LoopTimer?

    fileprivate init(_ spec: Fleet.Characteristic, service: BluetoothUUID, handle: UInt16) {
        self.spec = spec
        self.handle = handle
        valueHandle = handle &+ 1
        name = "\(service.topicForm)/\(spec.uuid.topicForm)"
        value = spec.value
        answers = spec.answers
        attError = spec.attError
    }

    /// The next value with its number, `size` bytes and at least 4.
    func counted(_ size: Int) -> [UInt8] {
        let number = nextSequence
        nextSequence &+= 1
        var bytes = (0..<4).map { UInt8(truncatingIfNeeded: number >> (8 * UInt32($0))) }
        bytes += [UInt8](repeating: 0, count: max(0, size - 4))
        return bytes
    }

    func noteSent(_ number: UInt32, at time: MonotonicTime) {
        if sentValues.count >= Self.mostSentValues { sentValues.removeFirst(Self.mostSentValues / 10) }
        sentValues.append((number, time))
    }

    func stopSending() {
        timer?.cancel()
        timer = nil
    }
}

@EventLoopActor
final class PeerDescriptor {
    let uuid: BluetoothUUID
    let handle: UInt16
    let isWritable: Bool
    var value: [UInt8]

    fileprivate init(_ spec: Fleet.Descriptor, handle: UInt16) {
        uuid = spec.uuid
        self.handle = handle
        isWritable = spec.isWritable
        value = spec.value
    }

    var isConfiguration: Bool { uuid == .clientCharacteristicConfiguration }
}

@EventLoopActor
final class PeerService {
    let uuid: BluetoothUUID
    let handle: UInt16
    let isPrimary: Bool
    fileprivate(set) var endHandle: UInt16
    fileprivate(set) var includes: [PeerService] = []
    fileprivate(set) var characteristics: [PeerCharacteristic] = []

    fileprivate init(_ uuid: BluetoothUUID, isPrimary: Bool, handle: UInt16) {
        self.uuid = uuid
        self.isPrimary = isPrimary
        self.handle = handle
        endHandle = handle
    }
}

/// The attributes of a device, with handles as a server numbers them: a service, its includes, then for each
/// characteristic its declaration, value, configuration and other descriptors.
@EventLoopActor
final class AttributeDatabase {
    private(set) var services: [PeerService] = []
    /// False: no request is answered.
    var answers: Bool
    /// Service Changed of the generic attribute service.
    private(set) var serviceChanged: PeerCharacteristic?
    private var nextHandle: UInt16 = 1
    private var extra: PeerService?

    init(_ device: Fleet.Device) {
        answers = device.answers
        var name = Fleet.Characteristic(.deviceName)
        name.properties = .read
        name.value = Array(device.gapName.utf8)
        var appearance = Fleet.Characteristic(BluetoothUUID(0x2a01))
        appearance.properties = .read
        appearance.value = [
            UInt8(truncatingIfNeeded: device.appearance), UInt8(truncatingIfNeeded: device.appearance >> 8),
        ]
        var changed = Fleet.Characteristic(BluetoothUUID(0x2a05))
        changed.properties = .indicate
        var access = Fleet.Service(.genericAccess)
        access.characteristics = [name, appearance]
        var attribute = Fleet.Service(.genericAttribute)
        attribute.characteristics = [changed]
        add(access, including: [])
        serviceChanged = add(attribute, including: []).characteristics.first
        addServices(device.gatt)
        numberTwins()
    }

    /// In the order of the file, but each after those that it includes.
    private func addServices(_ specs: [Fleet.Service]) {
        var made: [String: PeerService] = [:]
        var waiting = specs
        while !waiting.isEmpty {
            let ready = waiting.filter { spec in spec.includes.allSatisfy { made[$0] != nil } }
            if ready.isEmpty { return }  // a fleet made by code, whose services include each other
            waiting.removeAll { spec in spec.includes.allSatisfy { made[$0] != nil } }
            for spec in ready {
                let service = add(spec, including: spec.includes.compactMap { made[$0] })
                if let id = spec.id { made[id] = service }
            }
        }
    }

    private func takeHandle() -> UInt16 {
        defer { nextHandle &+= 1 }
        return nextHandle
    }

    @discardableResult
    private func add(_ spec: Fleet.Service, including includes: [PeerService]) -> PeerService {
        let service = PeerService(spec.uuid, isPrimary: spec.isPrimary, handle: takeHandle())
        service.includes = includes
        for _ in includes { _ = takeHandle() }
        for characteristic in spec.characteristics {
            let made = PeerCharacteristic(characteristic, service: spec.uuid, handle: takeHandle())
            _ = takeHandle()  // its value
            let hasOwn = characteristic.descriptors.contains { $0.uuid == .clientCharacteristicConfiguration }
            var descriptors = characteristic.descriptors
            if !hasOwn, !characteristic.properties.isDisjoint(with: [.notify, .indicate]) {
                descriptors.insert(Fleet.Descriptor(.clientCharacteristicConfiguration), at: 0)
            }
            made.descriptors = descriptors.map { PeerDescriptor($0, handle: takeHandle()) }
            service.characteristics.append(made)
        }
        service.endHandle = nextHandle &- 1
        services.append(service)
        return service
    }

    /// Characteristics of one name are told apart as #0, #1 … in the order of their handles.
    private func numberTwins() {
        let all = characteristics
        var count: [String: Int] = [:]
        for characteristic in all { count[characteristic.name, default: 0] += 1 }
        var seen: [String: Int] = [:]
        for characteristic in all {
            let name = characteristic.name
            guard count[name, default: 0] > 1 else { continue }
            characteristic.name = "\(name)#\(seen[name, default: 0])"
            seen[name, default: 0] += 1
        }
    }

    var characteristics: [PeerCharacteristic] { services.flatMap(\.characteristics) }

    /// All that are called `svc/chr`, in the order of their handles.
    func characteristics(service: BluetoothUUID, characteristic: BluetoothUUID) -> [PeerCharacteristic] {
        services.filter { $0.uuid == service }.flatMap(\.characteristics).filter { $0.spec.uuid == characteristic }
    }

    /// Adds a service, or takes it away again; gives back its range of handles.
    func change() -> (UInt16, UInt16) {
        if let extra {
            services.removeAll { $0 === extra }
            nextHandle = extra.handle
            self.extra = nil
            return (extra.handle, extra.endHandle)
        }
        var characteristic = Fleet.Characteristic(BluetoothUUID(0xfffe))
        characteristic.properties = .read
        characteristic.value = Array("new".utf8)
        var spec = Fleet.Service(BluetoothUUID(0xfffd))
        spec.characteristics = [characteristic]
        let service = add(spec, including: [])
        extra = service
        return (service.handle, service.endHandle)
    }

    // MARK: Requests

    /// A read, or a read of what follows `offset`.
    func read(_ characteristic: PeerCharacteristic, offset: Int, mtu: Int, isEncrypted: Bool) -> ATTAnswer {
        if let refusal = refusal(characteristic, isEncrypted: isEncrypted) { return refusal }
        guard characteristic.spec.properties.contains(.read) else { return .readNotPermitted }
        return Self.part(of: characteristic.value, offset: offset, mtu: mtu)
    }

    func read(_ descriptor: PeerDescriptor, of characteristic: PeerCharacteristic, offset: Int, mtu: Int) -> ATTAnswer {
        guard answers else { return .silence }
        guard descriptor.isConfiguration else { return Self.part(of: descriptor.value, offset: offset, mtu: mtu) }
        let bits = characteristic.configuration
        return Self.part(
            of: [UInt8(truncatingIfNeeded: bits), UInt8(truncatingIfNeeded: bits >> 8)], offset: offset, mtu: mtu)
    }

    /// A write request, or prepared writes from `offset` on.
    func write(_ value: [UInt8], to characteristic: PeerCharacteristic, offset: Int, isEncrypted: Bool) -> ATTAnswer {
        if let refusal = refusal(characteristic, isEncrypted: isEncrypted) { return refusal }
        guard characteristic.spec.properties.contains(.write) else { return .writeNotPermitted }
        return Self.store(value, at: offset, in: &characteristic.value)
    }

    /// A write command: what is not allowed is passed over in silence. False where it is.
    func command(_ value: [UInt8], to characteristic: PeerCharacteristic, isEncrypted: Bool) -> Bool {
        guard answers, characteristic.spec.properties.contains(.writeWithoutResponse),
            isEncrypted || !characteristic.spec.isEncrypted, value.count <= ATT.longestValue
        else { return false }
        characteristic.value = value
        return true
    }

    func write(_ value: [UInt8], to descriptor: PeerDescriptor, offset: Int) -> ATTAnswer {
        guard answers else { return .silence }
        guard descriptor.isWritable else { return .writeNotPermitted }
        return Self.store(value, at: offset, in: &descriptor.value)
    }

    private func refusal(_ characteristic: PeerCharacteristic, isEncrypted: Bool) -> ATTAnswer? {
        if !answers || !characteristic.answers { return .silence }
        if characteristic.attError != 0 { return .error(characteristic.attError) }
        if characteristic.spec.isEncrypted, !isEncrypted { return .insufficientAuthentication }
        return nil
    }

    private static func part(of value: [UInt8], offset: Int, mtu: Int) -> ATTAnswer {
        if offset == 0 { return .value(value) }
        if offset > value.count { return .invalidOffset }
        if value.count <= mtu - 1 { return .notLong }
        return .value(Array(value[offset...]))
    }

    private static func store(_ value: [UInt8], at offset: Int, in stored: inout [UInt8]) -> ATTAnswer {
        if offset > stored.count { return .invalidOffset }
        if offset + value.count > ATT.longestValue { return .invalidLength }
        stored = stored.prefix(offset) + value
        return .value([])
    }
}
