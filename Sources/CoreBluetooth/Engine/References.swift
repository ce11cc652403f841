/// A manager, as the loop knows it.
///
/// `@unchecked Sendable`: set once, before the first use; loads of a weak reference are safe on any thread.
final class ManagerReference: @unchecked Sendable {
    weak var manager: CBCentralManager?
}

/// A peripheral, as the loop and the manager's table know it.
///
/// `@unchecked Sendable`: set once, before the first use; loads of a weak reference are safe on any thread.
final class PeripheralReference: @unchecked Sendable {
    weak var peripheral: CBPeripheral?
}
