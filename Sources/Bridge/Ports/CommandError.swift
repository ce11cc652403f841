public import Bluetooth

/// Why a command did not work: the words of the MQTT contract.
public struct CommandError: Error, Equatable, Sendable, CustomStringConvertible {
    public typealias Code = ErrorCode

    public var code: Code
    /// What is wrong, where, and what to do about it.
    public var message: String
    /// The device's ATT error code, where it sent one. Source: Core Specification, Vol 3, Part F, 3.4.1.1.
    public var att: UInt8?
    /// The D-Bus error name of BlueZ, where it gave one.
    public var bluez: String?

    public init(_ code: Code, _ message: String, att: UInt8? = nil, bluez: String? = nil) {
        self.code = code
        self.message = message
        self.att = att
        self.bluez = bluez
    }

    public var description: String { "\(code.rawValue): \(message)" }
}
