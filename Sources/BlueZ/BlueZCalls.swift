internal import Bluetooth
internal import DBus
internal import EventLoop

/// Calls of org.bluez. Each has a deadline, and each completion is called once: with the reply, the refusal, or the loss
/// of the bus.
extension BlueZClient {
    public typealias Completion<Value> = @EventLoopActor (Result<Value, BlueZError>) -> Void

    private static let brief = Duration.seconds(10)
    /// BlueZ itself gives up an ATT request after 30 s.
    private static let attribute = Duration.seconds(40)

    func call(
        _ object: RemoteObject, _ interface: StaticString, _ member: StaticString, timeout: Duration,
        write: (inout MessageWriter) -> Void = { _ in }, then completion: @escaping Completion<DBusMessage>
    ) {
        if object.isGone { return completion(.failure(Self.gone)) }
        let message = DBusMessage(
            call: "org.bluez", knownPath: object.pathBytes, interface: interface, member: member)
        send(message, timeout, write, then: completion)
    }

    private static let gone = BlueZError(kind: .doesNotExist, name: nil, message: "the object is gone")

    func call(
        path: String, _ interface: String, _ member: String, timeout: Duration,
        write: (inout MessageWriter) -> Void = { _ in }, then completion: @escaping Completion<DBusMessage>
    ) {
        send(
            DBusMessage(call: Self.name, path: path, interface: interface, member: member), timeout, write,
            then: completion)
    }

    private func send(
        _ message: DBusMessage, _ timeout: Duration, _ write: (inout MessageWriter) -> Void,
        then completion: @escaping Completion<DBusMessage>
    ) {
        var writer = message.writer()
        write(&writer)
        send(message, timeout, then: completion)
    }

    private func send(
        _ message: DBusMessage, _ timeout: Duration, then completion: @escaping Completion<DBusMessage>
    ) {
        guard let connection else {
            return completion(.failure(BlueZError(kind: .busLost, name: nil, message: "the bus is not connected")))
        }
        connection.call(message, timeout: timeout) { completion($0.mapError { BlueZError($0) }) }
    }

    private func done(_ completion: @escaping Completion<Void>) -> Completion<DBusMessage> {
        { completion($0.map { _ in () }) }
    }

    // MARK: Adapter1

    /// SetDiscoveryFilter: Low Energy, every advertisement. Source: BlueZ org.bluez.Adapter(5).
    public func setDiscoveryFilter(on adapter: RemoteAdapter, _ completion: @escaping Completion<Void>) {
        call(
            adapter, "org.bluez.Adapter1", "SetDiscoveryFilter", timeout: Self.brief,
            write: { $0.appendOptions([("Transport", .string("le")), ("DuplicateData", .bool(true))]) },
            then: done(completion))
    }

    public func startDiscovery(on adapter: RemoteAdapter, _ completion: @escaping Completion<Void>) {
        call(adapter, "org.bluez.Adapter1", "StartDiscovery", timeout: Self.brief, then: done(completion))
    }

    public func stopDiscovery(on adapter: RemoteAdapter, _ completion: @escaping Completion<Void>) {
        call(adapter, "org.bluez.Adapter1", "StopDiscovery", timeout: Self.brief, then: done(completion))
    }

    /// Sets Powered. Source: BlueZ org.bluez.Adapter(5).
    public func setPowered(_ isOn: Bool, _ adapter: RemoteAdapter, _ completion: @escaping Completion<Void>) {
        call(
            adapter, "org.freedesktop.DBus.Properties", "Set", timeout: Self.brief,
            write: {
                $0.append(string: "org.bluez.Adapter1")
                $0.append(string: "Powered")
                $0.append(.variant(.bool(isOn)))
            }, then: done(completion))
    }

    /// RemoveDevice, with its bond.
    public func remove(_ device: RemoteDevice, _ completion: @escaping Completion<Void>) {
        call(
            device.adapter, "org.bluez.Adapter1", "RemoveDevice", timeout: Self.brief,
            write: { $0.append(objectPath: device.path) }, then: done(completion))
    }

    // MARK: Device1

    public func connect(_ device: RemoteDevice, timeout: Duration, _ completion: @escaping Completion<Void>) {
        call(device, "org.bluez.Device1", "Connect", timeout: timeout, then: done(completion))
    }

    /// Also cancels a Connect under way.
    public func disconnect(_ device: RemoteDevice, _ completion: @escaping Completion<Void>) {
        call(device, "org.bluez.Device1", "Disconnect", timeout: Self.brief, then: done(completion))
    }

    public func pair(_ device: RemoteDevice, timeout: Duration, _ completion: @escaping Completion<Void>) {
        call(device, "org.bluez.Device1", "Pair", timeout: timeout, then: done(completion))
    }

    public func cancelPairing(_ device: RemoteDevice, _ completion: @escaping Completion<Void>) {
        call(device, "org.bluez.Device1", "CancelPairing", timeout: Self.brief, then: done(completion))
    }

    // MARK: GATT

    /// Asks for the MTU of a link that has come up: BlueZ keeps the objects of an earlier link and does not signal the new
    /// value. `completion` is called in any case, and after all that BlueZ had to tell of the attributes: it may say that
    /// they are resolved before it shows them. Source: BlueZ org.bluez.GattCharacteristic(5), MTU.
    public func refreshMTU(of device: RemoteDevice, _ completion: @escaping @EventLoopActor () -> Void) {
        let characteristics = device.gatt.flatMap(\.characteristics)
        guard let first = characteristics.first else {
            return call(
                device, "org.freedesktop.DBus.Properties", "Get", timeout: .seconds(2),
                write: {
                    $0.append(string: "org.bluez.Device1")
                    $0.append(string: "ServicesResolved")
                },
                then: { _ in completion() })
        }
        call(
            first, "org.freedesktop.DBus.Properties", "Get", timeout: .seconds(2),
            write: {
                $0.append(string: "org.bluez.GattCharacteristic1")
                $0.append(string: "MTU")
            },
            then: { result in
                if case .success(let reply) = result, let mtu = reply.reader().enter().uint16() {
                    for characteristic in characteristics { characteristic.mtu = mtu }
                }
                completion()
            })
    }

    public func read(
        _ characteristic: RemoteCharacteristic, offset: UInt16, _ completion: @escaping Completion<[UInt8]>
    ) {
        let interface: StaticString = "org.bluez.GattCharacteristic1"
        guard offset == 0, !characteristic.isGone else { return read(characteristic, interface, offset, completion) }
        // The same call again and again: a copy costs a fifth of a new one.
        let call = characteristic.readCall ?? Self.readCall(characteristic, interface, 0)
        characteristic.readCall = call
        send(call.copy(), Self.attribute, then: Self.valueRead(completion))
    }

    public func read(_ descriptor: RemoteDescriptor, offset: UInt16, _ completion: @escaping Completion<[UInt8]>) {
        read(descriptor, "org.bluez.GattDescriptor1", offset, completion)
    }

    private func read(
        _ object: RemoteObject, _ interface: StaticString, _ offset: UInt16, _ completion: @escaping Completion<[UInt8]>
    ) {
        if object.isGone { return completion(.failure(Self.gone)) }
        send(Self.readCall(object, interface, offset), Self.attribute, then: Self.valueRead(completion))
    }

    private static func readCall(
        _ object: RemoteObject, _ interface: StaticString, _ offset: UInt16
    ) -> DBusMessage {
        let message = DBusMessage(
            call: "org.bluez", knownPath: object.pathBytes, interface: interface, member: "ReadValue")
        var writer = message.writer()
        writer.appendOptions(offset == 0 ? [] : [("offset", .uint16(offset))])
        return message
    }

    private static func valueRead(_ completion: @escaping Completion<[UInt8]>) -> Completion<DBusMessage> {
        { result in
            switch result {
            case .success(let reply):
                if let value = reply.reader().bytes() { return completion(.success(value)) }
                completion(
                    .failure(BlueZError(kind: .failed, name: nil, message: "BlueZ answered ReadValue without a value")))
            case .failure(let error): completion(.failure(error))
            }
        }
    }

    public func write(
        _ value: [UInt8], to characteristic: RemoteCharacteristic, isCommand: Bool, offset: UInt16,
        _ completion: @escaping Completion<Void>
    ) {
        var options: [(String, DBusValue)] = [("type", .string(isCommand ? "command" : "request"))]
        if offset > 0 { options.append(("offset", .uint16(offset))) }
        write(value, options, to: characteristic, "org.bluez.GattCharacteristic1", completion)
    }

    public func write(
        _ value: [UInt8], to descriptor: RemoteDescriptor, offset: UInt16, _ completion: @escaping Completion<Void>
    ) {
        let options: [(String, DBusValue)] = offset == 0 ? [] : [("offset", .uint16(offset))]
        write(value, options, to: descriptor, "org.bluez.GattDescriptor1", completion)
    }

    private func write(
        _ value: [UInt8], _ options: [(String, DBusValue)], to object: RemoteObject, _ interface: StaticString,
        _ completion: @escaping Completion<Void>
    ) {
        call(
            object, interface, "WriteValue", timeout: Self.attribute,
            write: {
                $0.append(bytes: value)
                $0.appendOptions(options)
            }, then: done(completion))
    }

    public func startNotify(_ characteristic: RemoteCharacteristic, _ completion: @escaping Completion<Void>) {
        let answered: Completion<Void> = { result in
            switch result {
            case .success: characteristic.hasSession = true
            case .failure(let error):
                // The peer has refused; where the link ended, BlueZ tries again with the next.
                if case .att(let code) = error.kind, code != ATTError.unlikely { characteristic.hasSession = false }
            }
            completion(result)
        }
        keepingConnection(isHarmful: false, answered) {
            call(
                characteristic, "org.bluez.GattCharacteristic1", "StartNotify", timeout: Self.attribute, then: done($0))
        }
    }

    public func stopNotify(_ characteristic: RemoteCharacteristic, _ completion: @escaping Completion<Void>) {
        characteristic.hasSession = false
        call(
            characteristic, "org.bluez.GattCharacteristic1", "StopNotify", timeout: Self.attribute,
            then: done(completion))
    }

    /// The reply is a socket and the MTU, `hq`.
    public func acquireNotify(
        _ characteristic: RemoteCharacteristic, _ completion: @escaping Completion<NotifySocket>
    ) {
        let answered: Completion<DBusMessage> = { result in
            completion(
                result.flatMap { reply in
                    if let descriptor = reply.reader().takeDescriptor() {
                        return .success(NotifySocket(descriptor: descriptor))
                    }
                    return .failure(
                        BlueZError(kind: .failed, name: nil, message: "BlueZ answered AcquireNotify without a socket"))
                })
        }
        keepingConnection(isHarmful: true, answered) {
            call(
                characteristic, "org.bluez.GattCharacteristic1", "AcquireNotify", timeout: Self.attribute,
                write: { $0.appendOptions([]) }, then: $0)
        }
    }

    /// The reply is a socket and the MTU, `hq`.
    public func acquireWrite(_ characteristic: RemoteCharacteristic, _ completion: @escaping Completion<WriteSocket>) {
        let answered: Completion<DBusMessage> = { result in
            completion(
                result.flatMap { reply in
                    var reader = reply.reader()
                    if let descriptor = reader.takeDescriptor() {
                        reader.next()
                        return .success(WriteSocket(descriptor: descriptor, mtu: Int(reader.uint16() ?? 23)))
                    }
                    return .failure(
                        BlueZError(kind: .failed, name: nil, message: "BlueZ answered AcquireWrite without a socket"))
                })
        }
        call(
            characteristic, "org.bluez.GattCharacteristic1", "AcquireWrite", timeout: Self.attribute,
            write: { $0.appendOptions([]) }, then: answered)
    }
}
