internal import BlueZ
public import Bluetooth
internal import EventLoop

extension Central {
    /// Makes the tree of what BlueZ shows; what was there before keeps its objects.
    func buildTree(of device: Device) {
        guard let remote = device.remote else { return }
        var known: [ObjectIdentifier: GATTCharacteristic] = [:]
        for characteristic in device.services.flatMap(\.characteristics) {
            if let remote = characteristic.remote { known[ObjectIdentifier(remote)] = characteristic }
        }
        var services = remote.gatt.sorted { $0.handle < $1.handle }.map { service(of: device, $0, known) }
        if let battery = batteryService(of: device, remote, beside: services) { services.append(battery) }
        AttributeLookup.nameKeys(services)
        device.services = services
        for observer in observers { observer.central(self, servicesDidChange: device) }
    }

    private func service(
        of device: Device, _ remote: RemoteService, _ known: [ObjectIdentifier: GATTCharacteristic]
    ) -> GATTService {
        let service = GATTService(
            uuid: remote.uuid, handle: remote.handle, isPrimary: remote.isPrimary, includes: remote.includes,
            device: device)
        service.characteristics = remote.characteristics.sorted { $0.handle < $1.handle }.map { remote in
            let characteristic =
                known[ObjectIdentifier(remote)]
                ?? GATTCharacteristic(
                    uuid: remote.uuid, handle: remote.handle, properties: remote.flags, service: service, remote: remote
                )
            characteristic.service = service
            characteristic.central = self
            characteristic.descriptors = remote.descriptors.sorted { $0.handle < $1.handle }.map {
                GATTDescriptor(remote: $0, characteristic: characteristic)
            }
            AttributeLookup.nameKeys(characteristic.descriptors)
            return characteristic
        }
        AttributeLookup.nameKeys(service.characteristics)
        return service
    }

    /// BlueZ may keep the battery service to itself and show Battery1 instead; it is served as what the device has.
    private func batteryService(
        of device: Device, _ remote: RemoteDevice, beside services: [GATTService]
    ) -> GATTService? {
        guard remote.battery != nil, !services.contains(where: { $0.uuid == BluetoothUUID.batteryService }) else {
            return nil
        }
        if let present = device.services.first(where: { $0.uuid == BluetoothUUID.batteryService && $0.handle == 0 }) {
            return present
        }
        let service = GATTService(
            uuid: BluetoothUUID.batteryService, handle: 0, isPrimary: true, includes: [], device: device)
        let level = GATTCharacteristic(
            uuid: BluetoothUUID.batteryLevel, handle: 0, properties: [.read, .notify], service: service, remote: nil)
        level.central = self
        service.characteristics = [level]
        return service
    }

    func batteryChanged(_ device: Device, _ remote: RemoteDevice) {
        guard device.isConnected, let value = remote.battery else { return }
        guard let service = device.services.first(where: { $0.handle == 0 && $0.uuid == BluetoothUUID.batteryService }),
            let level = service.characteristics.first
        else { return buildTree(of: device) }
        if level.isNotifying { deliver([value], of: level, .notify) }
    }

    // MARK: Finding

    /// - Throws: ``CentralError``: `unknown_device`, `not_connected`, `unknown_attribute`, `ambiguous_attribute`.
    public func characteristic(
        _ address: BluetoothAddress, service: AttributeSelector, characteristic: AttributeSelector
    ) throws(CentralError) -> GATTCharacteristic {
        guard let device = devicesByAddress[address] else {
            throw CentralError(.unknownDevice, "\(address) was not heard; scan, or connect it first")
        }
        guard device.isConnected else { throw notConnected(address) }
        let found = try AttributeLookup.find(service, in: device.services, what: "service", of: "\(address)")
        return try AttributeLookup.find(
            characteristic, in: found.characteristics, what: "characteristic", of: "service \(found.key) of \(address)")
    }

    /// - Throws: ``CentralError``: `unknown_attribute`, `ambiguous_attribute`.
    public func descriptor(
        _ characteristic: GATTCharacteristic, _ selector: AttributeSelector
    ) throws(CentralError) -> GATTDescriptor {
        try AttributeLookup.find(
            selector, in: characteristic.descriptors, what: "descriptor", of: "characteristic \(characteristic.text)")
    }

    // MARK: Reading and writing

    /// Reads a value; it also goes to the observers, with the source `read`.
    /// Source: BlueZ org.bluez.GattCharacteristic(5), ReadValue.
    /// - Throws: ``CentralError``: `not_connected`, `not_supported`, `not_permitted`, `att_error`, `timeout`.
    public func read(
        _ characteristic: GATTCharacteristic, offset: Int = 0, timeout: Duration? = nil
    ) async throws(CentralError) -> [UInt8] {
        try await AttributeCall.result { self.startRead(characteristic, offset: offset, timeout: timeout, then: $0) }
    }

    /// The same without a task: `completion` is called once, perhaps before this returns.
    public func read(
        _ characteristic: GATTCharacteristic, offset: Int = 0, timeout: Duration? = nil,
        then completion: @escaping @EventLoopActor (Result<[UInt8], CentralError>) -> Void
    ) {
        _ = startRead(characteristic, offset: offset, timeout: timeout, then: completion)
    }

    private func startRead(
        _ characteristic: GATTCharacteristic, offset: Int, timeout: Duration?,
        then completion: @escaping @EventLoopActor (Result<[UInt8], CentralError>) -> Void
    ) -> AttributeCall<[UInt8]>? {
        do throws(CentralError) {
            let (device, link) = try connected(characteristic.device)
            let subject = { "reading \(characteristic.text) of \(device.address)" }
            guard let remote = characteristic.remote else {
                guard let level = device.remote?.battery else { throw notConnected(device.address) }
                deliver([level], of: characteristic, .read)
                completion(.success([level]))
                return nil
            }
            guard characteristic.properties.contains(.read) else {
                throw CentralError(.notSupported, "\(subject()): the characteristic has not the property read")
            }
            let offset = try checkedOffset(offset, subject())
            return start(subject, link, timeout) { [bluez] done in
                characteristic.readsUnderWay += 1
                bluez.read(remote, offset: offset) { [weak self] result in
                    self?.wasAnswered(characteristic, result)
                    done(result)
                }
            } then: { [weak self] result in
                if case .success(let value) = result { self?.deliver(value, of: characteristic, .read) }
                completion(result)
            }
        } catch {
            completion(.failure(error))
            return nil
        }
    }

    /// BlueZ answers a read, perhaps when nobody waits for it any more.
    private func wasAnswered(_ characteristic: GATTCharacteristic, _ result: Result<[UInt8], BlueZError>) {
        characteristic.readsUnderWay -= 1
        // The `Value` that BlueZ signalled for this very read is its echo.
        if case .success(let value) = result, characteristic.heldValue == value { characteristic.heldValue = nil }
        release(characteristic)
    }

    /// Writes a value: `automatic` takes a request where the characteristic has it, else a command.
    /// Source: BlueZ org.bluez.GattCharacteristic(5), WriteValue.
    /// - Throws: ``CentralError``: `too_long` before the air, `not_supported` for a type that is not offered, and those
    ///   of ``read(_:offset:timeout:)-(GATTCharacteristic,_,_)``.
    public func write(
        _ value: [UInt8], to characteristic: GATTCharacteristic, type: WriteType = .automatic, offset: Int = 0,
        timeout: Duration? = nil
    ) async throws(CentralError) {
        let (device, link) = try connected(characteristic.device)
        func subject() -> String { "writing \(characteristic.text) of \(device.address)" }
        guard let remote = characteristic.remote else {
            throw CentralError(.notSupported, "\(subject()): BlueZ shows the battery level for reading only")
        }
        let isCommand = try WriteChoice.isCommand(type, characteristic.properties, subject())
        characteristic.commands?.release()
        let offset = try checkedOffset(offset, subject())
        try WriteChoice.check(
            length: value.count, offset: Int(offset), isCommand: isCommand, mtu: characteristic.mtu ?? device.mtu,
            subject())
        try await call(subject(), link, timeout) { done in
            self.bluez.write(value, to: remote, isCommand: isCommand, offset: offset, done)
        }
    }

    public func read(
        _ descriptor: GATTDescriptor, offset: Int = 0, timeout: Duration? = nil
    ) async throws(CentralError) -> [UInt8] {
        let (device, link) = try connected(descriptor.characteristic?.device)
        func subject() -> String { "reading \(descriptor.text) of \(device.address)" }
        let offset = try checkedOffset(offset, subject())
        return try await call(subject(), link, timeout) { done in
            self.bluez.read(descriptor.remote, offset: offset, done)
        }
    }

    public func write(
        _ value: [UInt8], to descriptor: GATTDescriptor, offset: Int = 0, timeout: Duration? = nil
    ) async throws(CentralError) {
        let (device, link) = try connected(descriptor.characteristic?.device)
        func subject() -> String { "writing \(descriptor.text) of \(device.address)" }
        let offset = try checkedOffset(offset, subject())
        try WriteChoice.check(length: value.count, offset: Int(offset), isCommand: false, mtu: nil, subject())
        try await call(subject(), link, timeout) { done in
            self.bluez.write(value, to: descriptor.remote, offset: offset, done)
        }
    }

    /// Makes a call that ends with its reply, its deadline or the link, whichever comes first.
    func call<Value: Sendable>(
        _ subject: @autoclosure @escaping () -> String, _ link: Link, _ timeout: Duration?,
        _ make: @escaping AttributeCall<Value>.Attempt
    ) async throws(CentralError) -> Value {
        try await AttributeCall.result { self.start(subject, link, timeout, make, then: $0) }
    }

    private func start<Value: Sendable>(
        _ subject: @escaping () -> String, _ link: Link, _ timeout: Duration?,
        _ make: @escaping AttributeCall<Value>.Attempt, then completion: @escaping AttributeCall<Value>.Completion
    ) -> AttributeCall<Value> {
        let call = AttributeCall(
            subject: subject, link: link, timeout: timeout ?? options.callTimeout, clock: clock, make, completion)
        call.start()
        return call
    }

    func connected(_ device: Device?) throws(CentralError) -> (Device, Link) {
        guard let device else {
            throw CentralError(.notConnected, "the connection that this attribute belongs to ended")
        }
        guard device.isConnected else { throw notConnected(device.address) }
        return (device, link(of: device))
    }

    func notConnected(_ address: BluetoothAddress) -> CentralError {
        CentralError(.notConnected, "\(address) is not connected; connect it first")
    }

    private func checkedOffset(_ offset: Int, _ subject: @autoclosure () -> String) throws(CentralError) -> UInt16 {
        guard (0...ATT.longestValue).contains(offset) else {
            throw CentralError(
                .badRequest, "\(subject()): 'offset' must be from 0 to \(ATT.longestValue), not \(offset)")
        }
        return UInt16(offset)
    }

    // MARK: Values

    func deliver(_ value: [UInt8], of characteristic: GATTCharacteristic, _ source: ValueSource) {
        deliver(value, value.count, of: characteristic, source)
    }

    /// An array goes where a pointer stands, without a closure: in isolated code each call of one is checked.
    private func deliver(
        _ start: UnsafeRawPointer, _ count: Int, of characteristic: GATTCharacteristic, _ source: ValueSource
    ) {
        deliver(UnsafeRawBufferPointer(start: start, count: count), of: characteristic, source)
    }

    func deliver(_ value: UnsafeRawBufferPointer, of characteristic: GATTCharacteristic, _ source: ValueSource) {
        guard let device = characteristic.device else { return }
        if source == .notify { counts.notifications &+= 1 }
        let event = ValueEvent(
            device: device, characteristic: characteristic, value: value, source: source, time: clock.now)
        for observer in observers { observer.central(self, didReceive: event) }
    }

    /// A held `Value` turned out to be a notification.
    func release(_ characteristic: GATTCharacteristic) {
        guard let value = characteristic.heldValue else { return }
        characteristic.heldValue = nil
        deliver(value, of: characteristic, .notify)
    }

    /// A `Value` signal: a notification, unless it may be the echo of a read, which BlueZ sends just before its reply.
    func signalled(_ value: UnsafeRawBufferPointer, of characteristic: GATTCharacteristic) {
        guard let subscription = characteristic.subscription, subscription.takesSignals, !subscription.holders.isEmpty
        else { return }
        guard characteristic.readsUnderWay > 0 else { return deliver(value, of: characteristic, .notify) }
        release(characteristic)
        characteristic.heldValue = Array(value)
        characteristic.heldNumber &+= 1
        let number = characteristic.heldNumber
        clock.schedule(after: .milliseconds(30)) { [weak self, weak characteristic] in
            // A later value is held for as long as the one before it was.
            guard let self, let characteristic, characteristic.heldNumber == number else { return }
            release(characteristic)
        }
    }
}

/// Which kind of write is right, without I/O.
enum WriteChoice {
    static func isCommand(
        _ type: WriteType, _ properties: CharacteristicProperties, _ subject: @autoclosure () -> String
    ) throws(CentralError) -> Bool {
        let takesRequest = properties.contains(.write)
        let takesCommand = properties.contains(.writeWithoutResponse)
        switch type {
        case .automatic where takesRequest: return false
        case .automatic where takesCommand: return true
        case .request where takesRequest: return false
        case .command where takesCommand: return true
        case .automatic: throw CentralError(.notSupported, "\(subject()): the characteristic cannot be written")
        case .request:
            throw CentralError(.notSupported, "\(subject()): it has not the property write; use the type command")
        case .command:
            throw CentralError(
                .notSupported, "\(subject()): it has not the property write-without-response; use the type request")
        }
    }

    /// An attribute value has at most 512 bytes, a command at most MTU-3. Source: Core specification, Vol 3 Part F §3.2.9,
    /// §3.4.5.3.
    static func check(
        length: Int, offset: Int, isCommand: Bool, mtu: Int?, _ subject: @autoclosure () -> String
    ) throws(CentralError) {
        if offset + length > ATT.longestValue {
            let end = offset == 0 ? "" : " from offset \(offset)"
            throw CentralError(
                .tooLong, "\(subject()): \(length) bytes\(end) go beyond the \(ATT.longestValue) of an attribute")
        }
        if isCommand, let mtu, length > mtu - ATT.valueHeader {
            throw CentralError(
                .tooLong,
                "\(subject()): a command holds \(mtu - ATT.valueHeader) bytes on this link, the value has \(length)")
        }
    }
}
