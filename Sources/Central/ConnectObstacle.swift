internal import BlueZ
public import Bluetooth
internal import EventLoop

/// Why a device has no link now, as far as the engine knows it.
public enum ConnectObstacle: Equatable, Sendable, CustomStringConvertible {
    /// The bus, bluetoothd or the right to talk to it is missing.
    case noBlueZ(CentralState)
    /// None of the controllers that may be used is there; with the one that was asked for, where that is so.
    case noAdapter(String?)
    case adapterOff(systemName: String, address: BluetoothAddress)
    /// It was not heard lately: with a link wanted, discovery runs until it is.
    case unheard
    /// So many attempts go before it.
    case queued(behind: Int)
    case attempting(number: Int)
    /// The link is up, the GATT tree is not complete.
    case resolving
    case disconnecting
    /// Between two attempts. `attempts`: since a link last held; `error`: of the last one, or why the link ended.
    case pausing(milliseconds: Int64, attempts: Int, error: String)
    /// BlueZ refuses for good, and nothing more is tried.
    case refused(String)
    /// The device asks for a passkey, and none is known.
    case passkeyMissing

    public var description: String {
        switch self {
        case .noBlueZ(let state): state.description
        case .noAdapter(nil): "there is no Bluetooth adapter that may be used; plug one in"
        case .noAdapter(let name?): "the adapter \(name) is not there; plug it in"
        case .adapterOff(let systemName, let address): "the adapter \(systemName) (\(address)) is off; switch it on"
        case .unheard: "it is not heard"
        case .queued(let count):
            "it waits in the queue for a connection behind \(count) other\(count == 1 ? "" : "s")"
        case .attempting(let number): "connection attempt \(number) is under way"
        case .resolving: "it is connected, and its services are being read"
        case .disconnecting: "its connection is being ended"
        case .pausing(let pause, let attempts, let error):
            attempts == 0
                ? "its connection ended (\(error)); it is tried again within \(Self.seconds(pause)) s"
                : "it is tried again within \(Self.seconds(pause)) s, after \(attempts)"
                    + " attempt\(attempts == 1 ? "" : "s"), the last: \(error)"
        case .refused(let error): "the connection was refused, and is not tried again: \(error)"
        case .passkeyMissing: "it asks for a passkey to pair; give it as devices[].passkey in the settings"
        }
    }

    /// Nothing that the device could do would help.
    public var isOurs: Bool {
        switch self {
        case .noBlueZ, .noAdapter, .adapterOff: true
        default: false
        }
    }

    private static func seconds(_ milliseconds: Int64) -> Int64 { max(1, (milliseconds + 999) / 1000) }
}

extension Central {
    /// Why the device has no link; nil where it has one that is complete, or where nothing but a wish is missing.
    public func obstacle(to address: BluetoothAddress) -> ConnectObstacle? {
        let device = devicesByAddress[address]
        if device?.isConnected == true { return nil }
        if state != .running { return .noBlueZ(state) }
        let link = device?.link
        if let obstacle = adapterObstacle(link?.selector, device) { return obstacle }
        guard let device, let link else { return device?.remote == nil ? .unheard : nil }
        if let refusal = link.refusal { return .refused(refusal) }
        switch link.phase {
        case .idle: return nil
        case .sought: return .unheard
        case .queued: return .queued(behind: device.adapter?.queue.position(of: address) ?? 0)
        case .connecting: return .attempting(number: device.connection.attempts)
        case .resolving, .up: return .resolving
        case .disconnecting: return .disconnecting
        case .pausing:
            if link.lacksPasskey { return .passkeyMissing }
            let reason = device.connection.reason ?? "unknown"
            return .pausing(
                milliseconds: link.currentPause.clampedMilliseconds, attempts: device.connection.attempts, error: reason
            )
        }
    }

    private func adapterObstacle(_ selector: AdapterSelector?, _ device: Device?) -> ConnectObstacle? {
        let usable = adapters.filter { $0.isPresent && $0.isSelected && suits($0, selector) }
        if usable.contains(where: { $0.state == .poweredOn }) { return nil }
        if let off = usable.first(where: { $0 === device?.adapter }) ?? usable.first {
            return .adapterOff(systemName: off.systemName, address: off.address)
        }
        let gone = adapters.first { $0 === device?.adapter } ?? adapters.first { $0.isSelected && suits($0, selector) }
        return .noAdapter(
            selector?.description ?? gone.map { "\($0.systemName) (\($0.address))" })
    }
}
