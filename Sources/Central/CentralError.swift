internal import BlueZ
public import Bluetooth

/// Why a request of the engine was not done. The codes are those of the MQTT contract.
public struct CentralError: Error, Sendable, CustomStringConvertible {
    public typealias Code = ErrorCode

    public let code: Code
    /// What is wrong, where, and what to do, for a person.
    public let message: String
    /// The ATT error code of the peer, where it gave one. Source: Core specification, Vol 3 Part F §3.4.1.1.
    public let att: UInt8?
    /// The D-Bus error name, where BlueZ gave one.
    public let bluezName: String?

    public init(_ code: Code, _ message: String, att: UInt8? = nil, bluezName: String? = nil) {
        self.code = code
        self.message = message
        self.att = att
        self.bluezName = bluezName
    }

    public var description: String { "\(code.rawValue): \(message)" }
}

/// What it is when no answer came: the time was over, or the task that waited was cancelled.
func late(_ error: any Error) -> CentralError.Code { error is CancellationError ? .cancelled : .timeout }

/// What was asked of BlueZ: the same refusal means different things for each.
enum Request {
    case connect
    case disconnect
    case gatt
    case pair
    case scan
    case other
}

extension CentralError {
    /// Says in the engine's words what BlueZ refused. `subject` names the object, as "reading 180f/2a19 of AA:…".
    init(_ error: BlueZError, _ request: Request, _ subject: String) {
        if request == .gatt, let att = Self.attCode(of: error) {
            self.init(.attError, "\(subject): \(ATTError(code: att))", att: att, bluezName: error.name)
            return
        }
        let (code, text) = Self.meaning(of: error, request)
        let detail = error.message.isEmpty || text.contains(error.message) ? "" : ": \(error.message)"
        self.init(code, "\(subject): \(text)\(detail)", bluezName: error.name)
    }

    /// BlueZ turns some ATT errors into errors of its own; their texts tell which.
    /// Source: BlueZ `src/gatt-client.c`, create_gatt_dbus_error.
    private static func attCode(of error: BlueZError) -> UInt8? {
        switch (error.kind, error.message) {
        case (.att(let code), _): code
        case (.notPermitted, "Read not permitted"): 0x02
        case (.notPermitted, "Write not permitted"): 0x03
        case (.invalidArguments, "Invalid offset"), (.invalidOffset, _): 0x07
        case (.invalidArguments, "Invalid Length"), (.invalidLength, _): 0x0d
        case (.notAuthorized, _): 0x08
        default: nil
        }
    }

    private static func meaning(of error: BlueZError, _ request: Request) -> (Code, String) {
        switch error.kind {
        case .busLost: return (request == .gatt ? .notConnected : .connectionFailed, "the D-Bus connection was lost")
        case .noBlueZ: return (request == .gatt ? .notConnected : .adapterOff, "bluetoothd does not run")
        case .timeout: return (.timeout, "no answer in time")
        case .inProgress: return (.busy, "BlueZ is still busy with an earlier request")
        case .notConnected: return (.notConnected, "the device is not connected")
        case .notReady: return (.adapterOff, "the adapter is not powered on")
        case .notSupported: return (.notSupported, "not supported")
        case .notPermitted where error.message == "Not paired":
            return (.notPermitted, "the device wants an encrypted link; pair it first")
        case .notPermitted: return (.notPermitted, "not permitted")
        case .notAuthorized: return (.notPermitted, "not authorised")
        case .accessDenied: return (.notPermitted, "the bus policy denies it; is the user in the group bluetooth?")
        case .invalidLength: return (.tooLong, "the value has a wrong length for this attribute")
        case .invalidOffset: return (.attError, "the offset is beyond the value")
        case .invalidArguments: return (.badRequest, "refused as invalid")
        case .doesNotExist: return doesNotExist(request)
        case .connectionFailed: return (request == .gatt ? .notConnected : .connectionFailed, "the connection failed")
        case .authenticationFailed: return (.pairingFailed, "the pairing failed")
        case .att(let code): return (.attError, "the device answered: \(ATTError(code: code))")
        case .alreadyConnected, .alreadyExists, .failed: break
        }
        switch request {
        case .connect: return (.connectionFailed, "the connection failed")
        case .pair: return (.pairingFailed, "the pairing failed")
        default: return (.internal, "BlueZ refused")
        }
    }

    private static func doesNotExist(_ request: Request) -> (Code, String) {
        switch request {
        case .gatt: return (.unknownAttribute, "the attribute is gone")
        default: return (.unknownDevice, "BlueZ does not know the device any more")
        }
    }
}

extension RetryClass {
    init(_ error: BlueZError) {
        switch error.kind {
        case .inProgress: self = .local
        case .failed, .connectionFailed:
            self = error.message.contains("abort-by-local") || error.message.contains("canceled") ? .local : .peer
        case .notConnected, .alreadyExists, .att: self = .peer
        case .authenticationFailed, .notAuthorized, .notPermitted: self = .security
        default: self = .daemon
        }
    }
}

/// Something that a person should see: for `events` and the log.
public struct CentralWarning: Sendable {
    public enum Level: String, Sendable { case info, warning, error }
    public let level: Level
    /// A stable word, as `scan_failed`.
    public let code: String
    public let message: String
    /// The device concerned, where there is one.
    public let device: BluetoothAddress?

    init(_ level: Level, _ code: String, _ message: String, device: BluetoothAddress? = nil) {
        self.level = level
        self.code = code
        self.message = message
        self.device = device
    }
}
