public import Foundation

/// What a ``CBCentralManager`` tells. Callbacks arrive on the manager's queue, in order, one at a time.
///
/// All but the first have defaults. A default does nothing, except where it says that it forwards.
public protocol CBCentralManagerDelegate: NSObjectProtocol {
    /// ``CBManager/state`` has changed. Comes once soon after the manager was made, too. Below `poweredOn` no scan runs
    /// and no peripheral is connected: both have to be asked for again.
    func centralManagerDidUpdateState(_ central: CBCentralManager)

    /// Before the first state: what this manager did when the process last ended. See
    /// ``CBCentralManagerOptionRestoreIdentifierKey``.
    func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any])

    /// A peripheral was heard. `rssi` is in dBm, 127 where it is not known. Keep the peripheral if you mean to use it.
    func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi: NSNumber)

    /// The link is up. BlueZ has read the peer's services by then.
    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral)

    /// The attempt has ended without a link. A peripheral that is only out of range never ends it.
    func centralManager(
        _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?)

    /// The link is down: `error` is nil where this manager asked for it.
    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?)

    /// The same with the time, and whether the manager connects again by itself
    /// (``CBConnectPeripheralOptionEnableAutoReconnect``). The default forwards to the one without.
    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?)

    /// A peripheral of those registered for was connected or disconnected, by whatever program.
    func centralManager(
        _ central: CBCentralManager, connectionEventDidOccur event: CBConnectionEvent,
        for peripheral: CBPeripheral)

    /// Never called: Apple's notification centre service does not exist on Linux.
    func centralManager(_ central: CBCentralManager, didUpdateANCSAuthorizationFor peripheral: CBPeripheral)

    /// The answer to the deprecated ``CBCentralManager/retrievePeripherals(_:)``.
    func centralManager(_ central: CBCentralManager, didRetrievePeripherals peripherals: [CBPeripheral])

    /// The answer to the deprecated ``CBCentralManager/retrieveConnectedPeripherals()``.
    func centralManager(_ central: CBCentralManager, didRetrieveConnectedPeripherals peripherals: [CBPeripheral])
}

extension CBCentralManagerDelegate {
    public func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any]) {}

    public func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi: NSNumber
    ) {}

    public func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {}

    public func centralManager(
        _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?
    ) {}

    public func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
    ) {}

    public func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?
    ) {
        centralManager(central, didDisconnectPeripheral: peripheral, error: error)
    }

    public func centralManager(
        _ central: CBCentralManager, connectionEventDidOccur event: CBConnectionEvent,
        for peripheral: CBPeripheral
    ) {}

    public func centralManager(
        _ central: CBCentralManager, didUpdateANCSAuthorizationFor peripheral: CBPeripheral
    ) {}

    public func centralManager(_ central: CBCentralManager, didRetrievePeripherals peripherals: [CBPeripheral]) {}

    public func centralManager(
        _ central: CBCentralManager, didRetrieveConnectedPeripherals peripherals: [CBPeripheral]
    ) {}
}

/// What a ``CBPeripheral`` tells, on its manager's queue. All have defaults that do nothing, or forward where they say so.
public protocol CBPeripheralDelegate: NSObjectProtocol {
    /// ``CBPeripheral/name`` has changed.
    func peripheralDidUpdateName(_ peripheral: CBPeripheral)

    /// The peer's services have changed: those in `invalidatedServices` are gone, with all that they held.
    func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService])

    /// The answer to ``CBPeripheral/readRSSI()`` of the first release.
    func peripheralDidUpdateRSSI(_ peripheral: CBPeripheral, error: (any Error)?)

    /// The answer to ``CBPeripheral/readRSSI()``: `rssi` is in dBm, 127 with an error. The default forwards to
    /// ``peripheralDidUpdateRSSI(_:error:)``.
    func peripheral(_ peripheral: CBPeripheral, didReadRSSI rssi: NSNumber, error: (any Error)?)

    /// The answer to ``CBPeripheral/discoverServices(_:)``.
    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?)

    /// The answer to ``CBPeripheral/discoverIncludedServices(_:for:)``.
    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverIncludedServicesFor service: CBService, error: (any Error)?)

    /// The answer to ``CBPeripheral/discoverCharacteristics(_:for:)``.
    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?)

    /// A value has arrived, by a read, a notification or an indication: one call for each.
    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?)

    /// A write with response has ended: one call for each, and none for a write without response.
    func peripheral(
        _ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?)

    /// The answer to ``CBPeripheral/setNotifyValue(_:for:)``; ``CBCharacteristic/isNotifying`` is set by then.
    func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic,
        error: (any Error)?)

    /// The answer to ``CBPeripheral/discoverDescriptors(for:)``.
    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverDescriptorsFor characteristic: CBCharacteristic,
        error: (any Error)?)

    /// The answer to ``CBPeripheral/readValue(for:)-(CBDescriptor)``.
    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor descriptor: CBDescriptor, error: (any Error)?)

    /// The answer to ``CBPeripheral/writeValue(_:for:)``.
    func peripheral(
        _ peripheral: CBPeripheral, didWriteValueFor descriptor: CBDescriptor, error: (any Error)?)

    /// ``CBPeripheral/canSendWriteWithoutResponse`` was false and is true again.
    func peripheralIsReady(toSendWriteWithoutResponse peripheral: CBPeripheral)

    /// The answer to ``CBPeripheral/openL2CAPChannel(_:)``. Keep the channel: it closes with its last reference.
    func peripheral(_ peripheral: CBPeripheral, didOpen channel: CBL2CAPChannel?, error: (any Error)?)
}

extension CBPeripheralDelegate {
    public func peripheralDidUpdateName(_ peripheral: CBPeripheral) {}

    public func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService]) {}

    public func peripheralDidUpdateRSSI(_ peripheral: CBPeripheral, error: (any Error)?) {}

    public func peripheral(_ peripheral: CBPeripheral, didReadRSSI rssi: NSNumber, error: (any Error)?) {
        peripheralDidUpdateRSSI(peripheral, error: error)
    }

    public func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {}

    public func peripheral(
        _ peripheral: CBPeripheral, didDiscoverIncludedServicesFor service: CBService, error: (any Error)?
    ) {}

    public func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) {}

    public func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {}

    public func peripheral(
        _ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {}

    public func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic,
        error: (any Error)?
    ) {}

    public func peripheral(
        _ peripheral: CBPeripheral, didDiscoverDescriptorsFor characteristic: CBCharacteristic,
        error: (any Error)?
    ) {}

    public func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor descriptor: CBDescriptor, error: (any Error)?
    ) {}

    public func peripheral(
        _ peripheral: CBPeripheral, didWriteValueFor descriptor: CBDescriptor, error: (any Error)?
    ) {}

    public func peripheralIsReady(toSendWriteWithoutResponse peripheral: CBPeripheral) {}

    public func peripheral(_ peripheral: CBPeripheral, didOpen channel: CBL2CAPChannel?, error: (any Error)?) {}
}
