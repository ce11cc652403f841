public import Foundation

/// A device on the other side, by its identifier.
///
/// `@unchecked Sendable`: immutable here; subclasses give their own proof.
open class CBPeer: NSObject, NSCopying, @unchecked Sendable {
    /// Stable across managers, processes and restarts: it is derived from the device's identity address. Apple's is
    /// random for each Mac or phone; this one is the same on every machine.
    public let identifier: UUID

    init(identifier: UUID) {
        self.identifier = identifier
        super.init()
    }

    open func copy(with zone: NSZone? = nil) -> Any { self }
}

/// The number of an L2CAP channel's service (protocol/service multiplexer).
public typealias CBL2CAPPSM = UInt16
