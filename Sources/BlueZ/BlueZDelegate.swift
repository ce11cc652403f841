public import EventLoop

/// How far the client of org.bluez is.
public enum BlueZState: Sendable {
    case stopped
    case opening
    /// The bus cannot be reached; it is tried again.
    case noBus(BlueZError)
    /// The bus is there, org.bluez is not.
    case noBlueZ
    /// The bus policy denies org.bluez to this user; it is tried again.
    case unauthorized(BlueZError)
    case loading
    case running
}

/// Hears what changes in org.bluez, synchronously, in the order of the signals.
@EventLoopActor
public protocol BlueZDelegate: AnyObject {
    func blueZ(didChange state: BlueZState)
    func blueZ(adapterDidAppear adapter: RemoteAdapter)
    func blueZ(adapterDidChange adapter: RemoteAdapter)
    func blueZ(adapterDidDisappear adapter: RemoteAdapter)
    /// - Parameter isHeard: it appeared because it was heard just now, not because it was known before.
    func blueZ(deviceDidAppear device: RemoteDevice, isHeard: Bool)
    /// The hot path: once for each advertisement.
    func blueZ(device: RemoteDevice, didChange fields: DeviceFields)
    func blueZ(deviceDidDisappear device: RemoteDevice)
    /// GATT objects of the device came or went.
    func blueZ(treeDidChange device: RemoteDevice)
}

/// Answers what BlueZ asks while a device is paired.
@EventLoopActor
public protocol PairingDelegate: AnyObject {
    /// The passkey to enter, 0 to 999999; nil: there is none.
    func passkey(for device: RemoteDevice) -> UInt32?
    /// The device asked for a passkey that there is not.
    func passkeyIsMissing(for device: RemoteDevice)
    /// Whether pairing with the device is wanted at all.
    func mayPair(_ device: RemoteDevice) -> Bool
    /// The passkey that a person has to enter on the device.
    func display(passkey: String, for device: RemoteDevice)
}
