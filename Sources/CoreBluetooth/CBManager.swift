public import Foundation

/// What the machine's Bluetooth can do right now.
///
/// On Linux: `unknown` until the bus has answered; `resetting` where bluetoothd, the bus or an adapter went away and is
/// expected back; `unsupported` where there is no bus, no bluetoothd or no adapter; `unauthorized` where the bus refuses
/// this user; `poweredOn` where at least one adapter is on.
public enum CBManagerState: Int, Sendable {
    /// Nothing is known yet.
    case unknown = 0
    /// The connection to bluetoothd or to the adapter was lost, and is expected back.
    case resetting
    /// There is no Bluetooth on this machine.
    case unsupported
    /// The bus refuses this user.
    case unauthorized
    /// The adapter is off.
    case poweredOff
    /// Bluetooth is on and can be used.
    case poweredOn
}

/// Whether this process may use Bluetooth. On Linux the policy of the system bus decides.
public enum CBManagerAuthorization: Int, Sendable {
    /// Never on Linux: there is nobody to ask.
    case notDetermined = 0
    /// Never on Linux.
    case restricted
    /// The policy of the system bus refuses this user; on Debian the group `bluetooth` may.
    case denied
    /// This process may use Bluetooth.
    case allowedAlways
}

/// What managers of both roles have in common.
///
/// `@unchecked Sendable`: its one variable is behind a lock.
open class CBManager: NSObject, @unchecked Sendable {
    private static let isDenied = Locked(false)
    let currentState = Locked(CBManagerState.unknown)

    public override init() {
        super.init()
    }

    /// The state, as of the newest callback.
    open var state: CBManagerState { currentState.withLock { $0 } }

    /// `denied` once the bus has refused this user, else `allowedAlways`: Linux asks nobody.
    open class var authorization: CBManagerAuthorization {
        isDenied.withLock { $0 } ? .denied : .allowedAlways
    }

    /// The same as the class's.
    open var authorization: CBManagerAuthorization { CBManager.authorization }

    func setState(_ state: CBManagerState) {
        currentState.withLock { $0 = state }
        if state == .unauthorized || state == .poweredOn {
            Self.isDenied.withLock { $0 = state == .unauthorized }
        }
    }
}
