public import Bluetooth
public import Configuration

/// Which commands are obeyed.
public struct Permissions: Sendable, Equatable {
    public var isEnabled = true
    /// Nil: all.
    public var verbs: Set<Verb>?
    /// Nil: all.
    public var devices: Set<BluetoothAddress>?

    public init() {}

    func check(_ verb: Verb) throws(CommandError) {
        guard isEnabled else { throw CommandError(.forbidden, "commands are switched off by commands.enabled") }
        guard verbs?.contains(verb) != false else {
            throw CommandError(.forbidden, "'\(verb.rawValue)' is not among commands.verbs of the settings")
        }
    }

    func allows(_ device: BluetoothAddress) -> Bool { devices?.contains(device) != false }

    func check(_ device: BluetoothAddress) throws(CommandError) {
        guard allows(device) else {
            throw CommandError(.forbidden, "\(device) is not among commands.devices of the settings")
        }
    }
}
