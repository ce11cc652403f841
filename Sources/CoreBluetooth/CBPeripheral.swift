internal import Bluetooth
internal import EventLoop
public import Foundation

/// How far a connection has come.
public enum CBPeripheralState: Int, Sendable {
    /// There is no link, and none is sought.
    case disconnected = 0
    /// A link is sought.
    case connecting
    /// The link is up.
    case connected
    /// The program has let go; `didDisconnectPeripheral` follows.
    case disconnecting
}

/// A device that a ``CBCentralManager`` has heard, or knows of. A manager has one object for one device, and holds it
/// weakly: keep a reference for as long as you want the connection.
///
/// Its commands need a connection; without one they are logged and do nothing, as on Apple's systems. Each returns at
/// once and is answered through ``delegate``, in the order of the commands.
///
/// `@unchecked Sendable`: its variables are behind a lock.
open class CBPeripheral: CBPeer, @unchecked Sendable {
    struct State {
        weak var delegate: (any CBPeripheralDelegate)?
        var name: String?
        var state = CBPeripheralState.disconnected
        var attempt = 0
        var commandLength = ATT.defaultMTU - ATT.valueHeader
        var commands = CommandQueue()
        var tree = DiscoveredTree()
        var rssi: NSNumber?
    }

    let key: DeviceKey
    let storage = Locked(State())
    let session: ManagerSession
    let reference = PeripheralReference()

    init(key: DeviceKey, session: ManagerSession) {
        self.key = key
        self.session = session
        super.init(identifier: key.identifier)
        reference.peripheral = self
    }

    deinit {
        LoopCalls.perform { [session, key, reference] in session.forget(key, reference) }
    }

    /// Who hears of the answers.
    open weak var delegate: (any CBPeripheralDelegate)? {
        get { storage.withLock { $0.delegate } }
        set { storage.withLock { $0.delegate = newValue } }
    }

    /// The name that the device has really told, by GAP or by advertising; nil before.
    open var name: String? { storage.withLock { $0.name } }

    /// How far this manager's connection has come; others of the machine do not count.
    open var state: CBPeripheralState { storage.withLock { $0.state } }

    @available(*, deprecated, message: "Use state")
    open var isConnected: Bool { state == .connected }

    /// The strength read last by ``readRSSI()``.
    @available(*, deprecated, message: "Use peripheral(_:didReadRSSI:error:)")
    open var rssi: NSNumber? { storage.withLock { $0.rssi } }

    /// The services discovered so far, in the order of their handles; nil before.
    open var services: [CBService]? { storage.withLock { $0.tree.services } }

    /// Whether a write without response would be sent soon. Where it is false,
    /// ``CBPeripheralDelegate/peripheralIsReady(toSendWriteWithoutResponse:)`` follows.
    open var canSendWriteWithoutResponse: Bool {
        storage.withLock { $0.state == .connected && $0.commands.hasRoom }
    }

    /// Always false: Apple's notification centre service does not exist on Linux.
    open var ancsAuthorized: Bool { false }

    open override var description: String {
        let (name, state) = storage.withLock { ($0.name, $0.state) }
        return "<CBPeripheral: identifier = \(identifier.uuidString), name = \(name ?? "(null)"), state = \(state)>"
    }

    // MARK: Discovery of attributes

    /// Finds the peer's primary services: all of them, or those listed. BlueZ has read them when the link came up, so
    /// nothing goes on the air.
    open func discoverServices(_ serviceUUIDs: [CBUUID]?) {
        let wanted = serviceUUIDs.map { Set($0.map(\.value)) }
        command { link in
            link.enqueue { radio, key in
                radio.services(of: key).filter { $0.isPrimary && (wanted?.contains($0.uuid) ?? true) }
            } _: { peripheral, result in
                if case .success(let services) = result { peripheral.adopt(services) }
                peripheral.delegate?.peripheral(peripheral, didDiscoverServices: result.failure)
            }
        }
    }

    /// Finds the services that `service` includes: all of them, or those listed.
    open func discoverIncludedServices(_ includedServiceUUIDs: [CBUUID]?, for service: CBService) {
        let wanted = includedServiceUUIDs.map { Set($0.map(\.value)) }
        command(about: service.handle) { link in
            link.enqueue { radio, key in
                let services = radio.services(of: key)
                guard let parent = services.first(where: { $0.handle == service.handle }) else {
                    throw RadioFailure(kind: .unknownAttribute, message: "The service is gone.")
                }
                return parent.includes.compactMap { handle in services.first { $0.handle == handle } }
                    .filter { wanted?.contains($0.uuid) ?? true }
            } _: { peripheral, result in
                if case .success(let services) = result { peripheral.adopt(services, includedBy: service) }
                peripheral.delegate?.peripheral(
                    peripheral, didDiscoverIncludedServicesFor: service, error: result.failure)
            }
        }
    }

    /// Finds the characteristics of `service`: all of them, or those listed.
    open func discoverCharacteristics(_ characteristicUUIDs: [CBUUID]?, for service: CBService) {
        let wanted = characteristicUUIDs.map { Set($0.map(\.value)) }
        command(about: service.handle) { link in
            link.enqueue { radio, key in
                guard let found = radio.services(of: key).first(where: { $0.handle == service.handle }) else {
                    throw RadioFailure(kind: .unknownAttribute, message: "The service is gone.")
                }
                return found.characteristics.filter { wanted?.contains($0.uuid) ?? true }
            } _: { peripheral, result in
                if case .success(let characteristics) = result { peripheral.adopt(characteristics, of: service) }
                peripheral.delegate?.peripheral(
                    peripheral, didDiscoverCharacteristicsFor: service, error: result.failure)
            }
        }
    }

    /// Finds all descriptors of `characteristic`.
    open func discoverDescriptors(for characteristic: CBCharacteristic) {
        let handle = characteristic.handle
        command(about: handle) { link in
            link.enqueue { radio, key in
                let all = radio.services(of: key).lazy.flatMap(\.characteristics)
                guard let found = all.first(where: { $0.handle == handle }) else {
                    throw RadioFailure(kind: .unknownAttribute, message: "The characteristic is gone.")
                }
                return found.descriptors
            } _: { peripheral, result in
                if case .success(let descriptors) = result { peripheral.adopt(descriptors, of: characteristic) }
                peripheral.delegate?.peripheral(
                    peripheral, didDiscoverDescriptorsFor: characteristic, error: result.failure)
            }
        }
    }

    // MARK: Values

    /// Reads the value; answered by `didUpdateValueFor`.
    open func readValue(for characteristic: CBCharacteristic) {
        let isReadable = characteristic.properties.contains(.read)
        command(about: characteristic.handle) { link in
            link.enqueue { radio, key in
                guard isReadable else {
                    throw RadioFailure(kind: .attribute(2), message: "Reading is not permitted.")
                }
                return try await radio.read(.characteristic(characteristic.handle), of: key)
            } _: { peripheral, result in
                if case .success(let bytes) = result {
                    characteristic.storage.withLock { $0.value = Data(bytes) }
                }
                peripheral.delegate?.peripheral(
                    peripheral, didUpdateValueFor: characteristic, error: result.failure)
            }
        }
    }

    /// The longest value that one write takes, in bytes: 512 with response (BlueZ splits long values), and what one
    /// packet holds without.
    open func maximumWriteValueLength(for type: CBCharacteristicWriteType) -> Int {
        type == .withResponse ? ATT.longestValue : storage.withLock { $0.commandLength }
    }

    /// Writes the value. With response it is answered by `didWriteValueFor`, once; without, there is no answer, even
    /// on an error.
    open func writeValue(_ data: Data, for characteristic: CBCharacteristic, type: CBCharacteristicWriteType) {
        guard type == .withResponse else { return sendCommand(data, characteristic) }
        let isWritable = characteristic.properties.contains(.write)
        let bytes = [UInt8](data)
        command(about: characteristic.handle) { link in
            link.enqueue { radio, key in
                guard isWritable else {
                    throw RadioFailure(kind: .attribute(3), message: "Writing is not permitted.")
                }
                guard bytes.count <= ATT.longestValue else {
                    throw RadioFailure(kind: .tooLong, message: "The value is longer than 512 bytes.")
                }
                try await radio.write(
                    bytes, to: .characteristic(characteristic.handle), withResponse: true, of: key)
            } _: { peripheral, result in
                peripheral.delegate?.peripheral(
                    peripheral, didWriteValueFor: characteristic, error: result.failure)
            }
        }
    }

    private func sendCommand(_ data: Data, _ characteristic: CBCharacteristic) {
        guard characteristic.properties.contains(.writeWithoutResponse) else {
            return Misuse.log("\(characteristic) takes no write without response")
        }
        guard data.count <= maximumWriteValueLength(for: .withoutResponse) else {
            return Misuse.log("a write without response of \(data.count) bytes is longer than one packet holds")
        }
        let bytes = [UInt8](data)
        guard check(about: characteristic.handle) else { return }
        guard let attempt = storage.withLock({ $0.commands.add() ? $0.attempt : nil }) else {
            return Misuse.log("a write without response was dropped: canSendWriteWithoutResponse is false")
        }
        command(about: characteristic.handle) { link in
            link.enqueue { radio, key in
                try await radio.write(
                    bytes, to: .characteristic(characteristic.handle), withResponse: false, of: key)
            } _: { peripheral, result in
                if let error = result.failure {
                    Misuse.warn("a write without response failed: \(error.localizedDescription)")
                }
                let isReady = peripheral.storage.withLock { $0.attempt == attempt && $0.commands.remove() }
                if isReady { peripheral.delegate?.peripheralIsReady(toSendWriteWithoutResponse: peripheral) }
            }
        }
    }

    /// Asks for notifications or, where the peer offers only them, indications; answered by
    /// `didUpdateNotificationStateFor`. Turning off what is off is harmless.
    open func setNotifyValue(_ enabled: Bool, for characteristic: CBCharacteristic) {
        let canNotify = !characteristic.properties.isDisjoint(with: [.notify, .indicate])
        command(about: characteristic.handle) { link in
            if canNotify || !enabled { return link.setNotify(enabled, characteristic) }
            link.enqueue { _, _ in
                throw RadioFailure(kind: .attribute(6), message: "The characteristic has no notifications.")
            } _: { (peripheral, result: Result<Void, any Error>) in
                peripheral.delegate?.peripheral(
                    peripheral, didUpdateNotificationStateFor: characteristic, error: result.failure)
            }
        }
    }

    /// Reads the descriptor; answered by `didUpdateValueFor`.
    open func readValue(for descriptor: CBDescriptor) {
        command(about: descriptor.handle) { link in
            link.enqueue { radio, key in
                try await radio.read(.descriptor(descriptor.handle), of: key)
            } _: { peripheral, result in
                if case .success(let bytes) = result { descriptor.setValue(bytes: bytes) }
                peripheral.delegate?.peripheral(peripheral, didUpdateValueFor: descriptor, error: result.failure)
            }
        }
    }

    /// Writes the descriptor; answered by `didWriteValueFor`. The client configuration (2902) is
    /// ``setNotifyValue(_:for:)``'s: writing it gives an error, where Apple's stops the program.
    open func writeValue(_ data: Data, for descriptor: CBDescriptor) {
        let bytes = [UInt8](data)
        command(about: descriptor.handle) { link in
            link.enqueue { radio, key in
                guard descriptor.uuid.value != BluetoothUUID.clientCharacteristicConfiguration else {
                    throw RadioFailure(kind: .notSupported, message: "Use setNotifyValue(_:for:) for descriptor 2902.")
                }
                try await radio.write(bytes, to: .descriptor(descriptor.handle), withResponse: true, of: key)
            } _: { peripheral, result in
                peripheral.delegate?.peripheral(peripheral, didWriteValueFor: descriptor, error: result.failure)
            }
        }
    }

    // MARK: The link

    /// Reads the strength of the live link; answered by `didReadRSSI`. It takes the kernel's management socket, so
    /// without CAP_NET_ADMIN the answer is `CBError.operationNotSupported`, never a stale value.
    open func readRSSI() {
        command { link in
            link.enqueue { radio, key in
                try await radio.rssi(of: key)
            } _: { peripheral, result in
                let value = NSNumber(value: (try? result.get()) ?? 127)
                if case .success = result { peripheral.storage.withLock { $0.rssi = value } }
                peripheral.delegate?.peripheral(peripheral, didReadRSSI: value, error: result.failure)
            }
        }
    }

    /// Opens a channel to the peer's L2CAP service over a socket of the kernel; answered by `didOpen`.
    open func openL2CAPChannel(_ psm: CBL2CAPPSM) {
        command { link in
            link.enqueue { radio, key in
                try await radio.openChannel(psm, of: key)
            } _: { peripheral, result in
                let channel = (try? result.get()).map { CBL2CAPChannel(peer: peripheral, psm: psm, socket: $0) }
                peripheral.delegate?.peripheral(peripheral, didOpen: channel, error: result.failure)
            }
        }
    }

    // MARK: Commands

    private func check(about handle: UInt16) -> Bool {
        let (state, isKnown) = storage.withLock { ($0.state, handle == 0 || $0.tree.knows(handle)) }
        if state != .connected { Misuse.log("\(self) accepts commands only while it is connected") }
        if !isKnown { Misuse.log("an attribute that \(self) does not have, or that was invalidated, was used") }
        return state == .connected && isKnown
    }

    private func command(about handle: UInt16 = 0, _ body: @escaping @EventLoopActor (PeripheralLink) -> Void) {
        guard check(about: handle) else { return }
        LoopCalls.perform { [session, key, reference] in session.withLink(key, reference, body) }
    }
}
