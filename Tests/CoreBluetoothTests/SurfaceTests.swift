import CoreBluetooth
import TestKit
import XCTest

/// The table of docs/corebluetooth.md: that this file compiles proves each symbol, and the test that the table names no
/// others as there, and none less.
final class SurfaceTests: XCTestCase {
    private var proven: Set<String> = []

    private func prove(_ name: String, _ symbol: Any) { proven.insert(name) }

    @available(*, deprecated)
    func testTheTableOfSymbolsIsTrue() throws {
        proveValues()
        proveKeys()
        proveManagers()
        provePeripheralsAndAttributes()
        provePeripheralRole()
        let text = try String(contentsOfFile: World.root + "/docs/corebluetooth.md", encoding: .utf8)
        var named: Set<String> = []
        for line in text.split(separator: "\n") where line.hasPrefix("| `") {
            let cells = line.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }
            guard cells.count >= 2, ["done", "differs"].contains(cells[1]) else { continue }
            named.insert(cells[0].trimmingCharacters(in: CharacterSet(charactersIn: "`")))
        }
        XCTAssertEqual(named.subtracting(proven), [], "in the table, and not proven")
        XCTAssertEqual(proven.subtracting(named), [], "there, and not in the table")
        XCTAssertGreaterThan(named.count, 150)
    }

    @available(*, deprecated)
    private func proveValues() {
        prove("CBUUID.init(string:)", CBUUID.init(string:))
        prove("CBUUID.init(data:)", CBUUID.init(data:))
        prove("CBUUID.init(nsuuid:)", CBUUID.init(nsuuid:))
        prove("CBUUID.data", \CBUUID.data)
        prove("CBUUID.uuidString", \CBUUID.uuidString)
        prove("CBUUIDCharacteristicExtendedPropertiesString", CBUUIDCharacteristicExtendedPropertiesString)
        prove("CBUUIDCharacteristicUserDescriptionString", CBUUIDCharacteristicUserDescriptionString)
        prove("CBUUIDClientCharacteristicConfigurationString", CBUUIDClientCharacteristicConfigurationString)
        prove("CBUUIDServerCharacteristicConfigurationString", CBUUIDServerCharacteristicConfigurationString)
        prove("CBUUIDCharacteristicFormatString", CBUUIDCharacteristicFormatString)
        prove("CBUUIDCharacteristicAggregateFormatString", CBUUIDCharacteristicAggregateFormatString)
        prove("CBUUIDCharacteristicValidRangeString", CBUUIDCharacteristicValidRangeString)
        prove("CBUUIDCharacteristicObservationScheduleString", CBUUIDCharacteristicObservationScheduleString)
        prove("CBUUIDL2CAPPSMCharacteristicString", CBUUIDL2CAPPSMCharacteristicString)
        prove("CBUUIDGenericAccessProfileString", CBUUIDGenericAccessProfileString)
        prove("CBUUIDGenericAttributeProfileString", CBUUIDGenericAttributeProfileString)
        prove("CBUUIDDeviceNameString", CBUUIDDeviceNameString)
        prove("CBUUIDAppearanceString", CBUUIDAppearanceString)
        prove("CBUUIDPeripheralPrivacyFlagString", CBUUIDPeripheralPrivacyFlagString)
        prove("CBUUIDReconnectionAddressString", CBUUIDReconnectionAddressString)
        prove(
            "CBUUIDPeripheralPreferredConnectionParametersString", CBUUIDPeripheralPreferredConnectionParametersString)
        prove("CBUUIDServiceChangedString", CBUUIDServiceChangedString)
        prove("CBError", CBError.self)
        prove("CBErrorDomain", CBErrorDomain)
        prove("CBError.Code.unknown", CBError.Code.unknown)
        prove("CBError.Code.invalidParameters", CBError.Code.invalidParameters)
        prove("CBError.Code.invalidHandle", CBError.Code.invalidHandle)
        prove("CBError.Code.notConnected", CBError.Code.notConnected)
        prove("CBError.Code.outOfSpace", CBError.Code.outOfSpace)
        prove("CBError.Code.operationCancelled", CBError.Code.operationCancelled)
        prove("CBError.Code.connectionTimeout", CBError.Code.connectionTimeout)
        prove("CBError.Code.peripheralDisconnected", CBError.Code.peripheralDisconnected)
        prove("CBError.Code.uuidNotAllowed", CBError.Code.uuidNotAllowed)
        prove("CBError.Code.alreadyAdvertising", CBError.Code.alreadyAdvertising)
        prove("CBError.Code.connectionFailed", CBError.Code.connectionFailed)
        prove("CBError.Code.connectionLimitReached", CBError.Code.connectionLimitReached)
        prove("CBError.Code.unknownDevice", CBError.Code.unknownDevice)
        prove("CBError.Code.unkownDevice", CBError.Code.unkownDevice)
        prove("CBError.Code.operationNotSupported", CBError.Code.operationNotSupported)
        prove("CBError.Code.peerRemovedPairingInformation", CBError.Code.peerRemovedPairingInformation)
        prove("CBError.Code.encryptionTimedOut", CBError.Code.encryptionTimedOut)
        prove("CBError.Code.tooManyLEPairedDevices", CBError.Code.tooManyLEPairedDevices)
        prove(
            "CBError.Code.leGattExceededBackgroundNotificationLimit",
            CBError.Code.leGattExceededBackgroundNotificationLimit)
        prove("CBError.Code.leGattNearBackgroundNotificationLimit", CBError.Code.leGattNearBackgroundNotificationLimit)
        prove("CBATTError", CBATTError.self)
        prove("CBATTErrorDomain", CBATTErrorDomain)
        prove("CBATTError.Code.success", CBATTError.Code.success)
        prove("CBATTError.Code.invalidHandle", CBATTError.Code.invalidHandle)
        prove("CBATTError.Code.readNotPermitted", CBATTError.Code.readNotPermitted)
        prove("CBATTError.Code.writeNotPermitted", CBATTError.Code.writeNotPermitted)
        prove("CBATTError.Code.invalidPdu", CBATTError.Code.invalidPdu)
        prove("CBATTError.Code.insufficientAuthentication", CBATTError.Code.insufficientAuthentication)
        prove("CBATTError.Code.requestNotSupported", CBATTError.Code.requestNotSupported)
        prove("CBATTError.Code.invalidOffset", CBATTError.Code.invalidOffset)
        prove("CBATTError.Code.insufficientAuthorization", CBATTError.Code.insufficientAuthorization)
        prove("CBATTError.Code.prepareQueueFull", CBATTError.Code.prepareQueueFull)
        prove("CBATTError.Code.attributeNotFound", CBATTError.Code.attributeNotFound)
        prove("CBATTError.Code.attributeNotLong", CBATTError.Code.attributeNotLong)
        prove("CBATTError.Code.insufficientEncryptionKeySize", CBATTError.Code.insufficientEncryptionKeySize)
        prove("CBATTError.Code.invalidAttributeValueLength", CBATTError.Code.invalidAttributeValueLength)
        prove("CBATTError.Code.unlikelyError", CBATTError.Code.unlikelyError)
        prove("CBATTError.Code.insufficientEncryption", CBATTError.Code.insufficientEncryption)
        prove("CBATTError.Code.unsupportedGroupType", CBATTError.Code.unsupportedGroupType)
        prove("CBATTError.Code.insufficientResources", CBATTError.Code.insufficientResources)
    }

    @available(*, deprecated)
    private func proveKeys() {
        prove("CBAdvertisementDataLocalNameKey", CBAdvertisementDataLocalNameKey)
        prove("CBAdvertisementDataTxPowerLevelKey", CBAdvertisementDataTxPowerLevelKey)
        prove("CBAdvertisementDataServiceUUIDsKey", CBAdvertisementDataServiceUUIDsKey)
        prove("CBAdvertisementDataServiceDataKey", CBAdvertisementDataServiceDataKey)
        prove("CBAdvertisementDataManufacturerDataKey", CBAdvertisementDataManufacturerDataKey)
        prove("CBAdvertisementDataOverflowServiceUUIDsKey", CBAdvertisementDataOverflowServiceUUIDsKey)
        prove("CBAdvertisementDataIsConnectable", CBAdvertisementDataIsConnectable)
        prove("CBAdvertisementDataSolicitedServiceUUIDsKey", CBAdvertisementDataSolicitedServiceUUIDsKey)
        prove("CBCentralManagerOptionShowPowerAlertKey", CBCentralManagerOptionShowPowerAlertKey)
        prove("CBCentralManagerOptionRestoreIdentifierKey", CBCentralManagerOptionRestoreIdentifierKey)
        prove("CBCentralManagerOptionDeviceAccessForMedia", CBCentralManagerOptionDeviceAccessForMedia)
        prove("CBCentralManagerScanOptionAllowDuplicatesKey", CBCentralManagerScanOptionAllowDuplicatesKey)
        prove("CBCentralManagerScanOptionSolicitedServiceUUIDsKey", CBCentralManagerScanOptionSolicitedServiceUUIDsKey)
        prove("CBConnectPeripheralOptionNotifyOnConnectionKey", CBConnectPeripheralOptionNotifyOnConnectionKey)
        prove("CBConnectPeripheralOptionNotifyOnDisconnectionKey", CBConnectPeripheralOptionNotifyOnDisconnectionKey)
        prove("CBConnectPeripheralOptionNotifyOnNotificationKey", CBConnectPeripheralOptionNotifyOnNotificationKey)
        prove("CBConnectPeripheralOptionStartDelayKey", CBConnectPeripheralOptionStartDelayKey)
        prove(
            "CBConnectPeripheralOptionEnableTransportBridgingKey", CBConnectPeripheralOptionEnableTransportBridgingKey)
        prove("CBConnectPeripheralOptionRequiresANCS", CBConnectPeripheralOptionRequiresANCS)
        prove("CBConnectPeripheralOptionEnableAutoReconnect", CBConnectPeripheralOptionEnableAutoReconnect)
        prove("CBCentralManagerRestoredStatePeripheralsKey", CBCentralManagerRestoredStatePeripheralsKey)
        prove("CBCentralManagerRestoredStateScanServicesKey", CBCentralManagerRestoredStateScanServicesKey)
        prove("CBCentralManagerRestoredStateScanOptionsKey", CBCentralManagerRestoredStateScanOptionsKey)
        prove("CBConnectionEventMatchingOption.serviceUUIDs", CBConnectionEventMatchingOption.serviceUUIDs)
        prove("CBConnectionEventMatchingOption.peripheralUUIDs", CBConnectionEventMatchingOption.peripheralUUIDs)
    }

    @available(*, deprecated)
    private func proveManagers() {
        prove("CBManagerState.unknown", CBManagerState.unknown)
        prove("CBManagerState.resetting", CBManagerState.resetting)
        prove("CBManagerState.unsupported", CBManagerState.unsupported)
        prove("CBManagerState.unauthorized", CBManagerState.unauthorized)
        prove("CBManagerState.poweredOff", CBManagerState.poweredOff)
        prove("CBManagerState.poweredOn", CBManagerState.poweredOn)
        prove("CBManagerAuthorization.notDetermined", CBManagerAuthorization.notDetermined)
        prove("CBManagerAuthorization.restricted", CBManagerAuthorization.restricted)
        prove("CBManagerAuthorization.denied", CBManagerAuthorization.denied)
        prove("CBManagerAuthorization.allowedAlways", CBManagerAuthorization.allowedAlways)
        prove("CBManager.state", \CBManager.state)
        prove("CBManager.authorization", { (CBManager.authorization, \CBManager.authorization) })
        prove("CBCentralManager.init()", CBCentralManager.init as () -> CBCentralManager)
        prove("CBCentralManager.init(delegate:queue:)", CBCentralManager.init(delegate:queue:))
        prove(
            "CBCentralManager.init(delegate:queue:options:)",
            { CBCentralManager(delegate: nil, queue: nil, options: nil) })
        prove("CBCentralManager.delegate", \CBCentralManager.delegate)
        prove("CBCentralManager.isScanning", \CBCentralManager.isScanning)
        prove("CBCentralManager.supports(_:)", CBCentralManager.supports(_:))
        prove("CBCentralManager.Feature.extendedScanAndConnect", CBCentralManager.Feature.extendedScanAndConnect)
        prove(
            "CBCentralManager.scanForPeripherals(withServices:options:)",
            CBCentralManager.scanForPeripherals(withServices:options:))
        prove("CBCentralManager.stopScan()", CBCentralManager.stopScan)
        prove("CBCentralManager.connect(_:options:)", CBCentralManager.connect(_:options:))
        prove("CBCentralManager.cancelPeripheralConnection(_:)", CBCentralManager.cancelPeripheralConnection(_:))
        prove(
            "CBCentralManager.retrievePeripherals(withIdentifiers:)",
            CBCentralManager.retrievePeripherals(withIdentifiers:))
        prove(
            "CBCentralManager.retrieveConnectedPeripherals(withServices:)",
            CBCentralManager.retrieveConnectedPeripherals(withServices:))
        prove(
            "CBCentralManager.registerForConnectionEvents(options:)",
            CBCentralManager.registerForConnectionEvents(options:))
        prove("CBCentralManager.retrievePeripherals(_:)", CBCentralManager.retrievePeripherals(_:))
        prove(
            "CBCentralManager.retrieveConnectedPeripherals()",
            CBCentralManager.retrieveConnectedPeripherals as (CBCentralManager) -> () -> Void)
        prove("CBCentralManagerState", CBCentralManagerState.self)
        prove("CBConnectionEvent.peerConnected", CBConnectionEvent.peerConnected)
        prove("CBConnectionEvent.peerDisconnected", CBConnectionEvent.peerDisconnected)
        prove(
            "CBCentralManagerDelegate.centralManagerDidUpdateState(_:)",
            { (d: any CBCentralManagerDelegate) in d.centralManagerDidUpdateState(_:) })
        prove(
            "CBCentralManagerDelegate.centralManager(_:willRestoreState:)",
            { (d: any CBCentralManagerDelegate) in d.centralManager(_:willRestoreState:) })
        prove(
            "CBCentralManagerDelegate.centralManager(_:didDiscover:advertisementData:rssi:)",
            { (d: any CBCentralManagerDelegate) in d.centralManager(_:didDiscover:advertisementData:rssi:) })
        prove(
            "CBCentralManagerDelegate.centralManager(_:didConnect:)",
            { (d: any CBCentralManagerDelegate) in d.centralManager(_:didConnect:) })
        prove(
            "CBCentralManagerDelegate.centralManager(_:didFailToConnect:error:)",
            { (d: any CBCentralManagerDelegate) in d.centralManager(_:didFailToConnect:error:) })
        prove(
            "CBCentralManagerDelegate.centralManager(_:didDisconnectPeripheral:error:)",
            { (d: any CBCentralManagerDelegate) in d.centralManager(_:didDisconnectPeripheral:error:) })
        prove(
            "CBCentralManagerDelegate.centralManager(_:didDisconnectPeripheral:timestamp:isReconnecting:error:)",
            { (d: any CBCentralManagerDelegate) in
                d.centralManager(_:didDisconnectPeripheral:timestamp:isReconnecting:error:)
            })
        prove(
            "CBCentralManagerDelegate.centralManager(_:connectionEventDidOccur:for:)",
            { (d: any CBCentralManagerDelegate) in d.centralManager(_:connectionEventDidOccur:for:) })
        prove(
            "CBCentralManagerDelegate.centralManager(_:didUpdateANCSAuthorizationFor:)",
            { (d: any CBCentralManagerDelegate) in d.centralManager(_:didUpdateANCSAuthorizationFor:) })
        prove(
            "CBCentralManagerDelegate.centralManager(_:didRetrievePeripherals:)",
            { (d: any CBCentralManagerDelegate) in d.centralManager(_:didRetrievePeripherals:) })
        prove(
            "CBCentralManagerDelegate.centralManager(_:didRetrieveConnectedPeripherals:)",
            { (d: any CBCentralManagerDelegate) in d.centralManager(_:didRetrieveConnectedPeripherals:) })
    }

    @available(*, deprecated)
    private func provePeripheralsAndAttributes() {
        prove("CBL2CAPPSM", CBL2CAPPSM.self)
        prove("CBPeer.identifier", \CBPeer.identifier)
        prove("CBPeripheralState.disconnected", CBPeripheralState.disconnected)
        prove("CBPeripheralState.connecting", CBPeripheralState.connecting)
        prove("CBPeripheralState.connected", CBPeripheralState.connected)
        prove("CBPeripheralState.disconnecting", CBPeripheralState.disconnecting)
        prove("CBPeripheral.delegate", \CBPeripheral.delegate)
        prove("CBPeripheral.name", \CBPeripheral.name)
        prove("CBPeripheral.state", \CBPeripheral.state)
        prove("CBPeripheral.services", \CBPeripheral.services)
        prove("CBPeripheral.canSendWriteWithoutResponse", \CBPeripheral.canSendWriteWithoutResponse)
        prove("CBPeripheral.ancsAuthorized", \CBPeripheral.ancsAuthorized)
        prove("CBPeripheral.isConnected", \CBPeripheral.isConnected)
        prove("CBPeripheral.rssi", \CBPeripheral.rssi)
        prove("CBPeripheral.readRSSI()", CBPeripheral.readRSSI)
        prove("CBPeripheral.discoverServices(_:)", CBPeripheral.discoverServices(_:))
        prove("CBPeripheral.discoverIncludedServices(_:for:)", CBPeripheral.discoverIncludedServices(_:for:))
        prove("CBPeripheral.discoverCharacteristics(_:for:)", CBPeripheral.discoverCharacteristics(_:for:))
        prove("CBPeripheral.discoverDescriptors(for:)", CBPeripheral.discoverDescriptors(for:))
        prove(
            "CBPeripheral.readValue(for:) of a characteristic",
            CBPeripheral.readValue(for:) as (CBPeripheral) -> (CBCharacteristic) -> Void)
        prove(
            "CBPeripheral.readValue(for:) of a descriptor",
            CBPeripheral.readValue(for:) as (CBPeripheral) -> (CBDescriptor) -> Void)
        prove("CBPeripheral.writeValue(_:for:type:)", CBPeripheral.writeValue(_:for:type:))
        prove("CBPeripheral.writeValue(_:for:) of a descriptor", CBPeripheral.writeValue(_:for:))
        prove("CBPeripheral.setNotifyValue(_:for:)", CBPeripheral.setNotifyValue(_:for:))
        prove("CBPeripheral.maximumWriteValueLength(for:)", CBPeripheral.maximumWriteValueLength(for:))
        prove("CBPeripheral.openL2CAPChannel(_:)", CBPeripheral.openL2CAPChannel(_:))
        prove(
            "CBPeripheralDelegate.peripheralDidUpdateName(_:)",
            { (d: any CBPeripheralDelegate) in d.peripheralDidUpdateName(_:) })
        prove(
            "CBPeripheralDelegate.peripheral(_:didModifyServices:)",
            { (d: any CBPeripheralDelegate) in d.peripheral(_:didModifyServices:) })
        prove(
            "CBPeripheralDelegate.peripheralDidUpdateRSSI(_:error:)",
            { (d: any CBPeripheralDelegate) in d.peripheralDidUpdateRSSI(_:error:) })
        prove(
            "CBPeripheralDelegate.peripheral(_:didReadRSSI:error:)",
            { (d: any CBPeripheralDelegate) in d.peripheral(_:didReadRSSI:error:) })
        prove(
            "CBPeripheralDelegate.peripheral(_:didDiscoverServices:)",
            { (d: any CBPeripheralDelegate) in d.peripheral(_:didDiscoverServices:) })
        prove(
            "CBPeripheralDelegate.peripheral(_:didDiscoverIncludedServicesFor:error:)",
            { (d: any CBPeripheralDelegate) in d.peripheral(_:didDiscoverIncludedServicesFor:error:) })
        prove(
            "CBPeripheralDelegate.peripheral(_:didDiscoverCharacteristicsFor:error:)",
            { (d: any CBPeripheralDelegate) in d.peripheral(_:didDiscoverCharacteristicsFor:error:) })
        prove(
            "CBPeripheralDelegate.peripheral(_:didUpdateValueFor:error:) of a characteristic",
            { (d: any CBPeripheralDelegate) in
                d.peripheral(_:didUpdateValueFor:error:) as (CBPeripheral, CBCharacteristic, (any Error)?) -> Void
            })
        prove(
            "CBPeripheralDelegate.peripheral(_:didUpdateValueFor:error:) of a descriptor",
            { (d: any CBPeripheralDelegate) in
                d.peripheral(_:didUpdateValueFor:error:) as (CBPeripheral, CBDescriptor, (any Error)?) -> Void
            })
        prove(
            "CBPeripheralDelegate.peripheral(_:didWriteValueFor:error:) of a characteristic",
            { (d: any CBPeripheralDelegate) in
                d.peripheral(_:didWriteValueFor:error:) as (CBPeripheral, CBCharacteristic, (any Error)?) -> Void
            })
        prove(
            "CBPeripheralDelegate.peripheral(_:didWriteValueFor:error:) of a descriptor",
            { (d: any CBPeripheralDelegate) in
                d.peripheral(_:didWriteValueFor:error:) as (CBPeripheral, CBDescriptor, (any Error)?) -> Void
            })
        prove(
            "CBPeripheralDelegate.peripheral(_:didUpdateNotificationStateFor:error:)",
            { (d: any CBPeripheralDelegate) in d.peripheral(_:didUpdateNotificationStateFor:error:) })
        prove(
            "CBPeripheralDelegate.peripheral(_:didDiscoverDescriptorsFor:error:)",
            { (d: any CBPeripheralDelegate) in d.peripheral(_:didDiscoverDescriptorsFor:error:) })
        prove(
            "CBPeripheralDelegate.peripheralIsReady(toSendWriteWithoutResponse:)",
            { (d: any CBPeripheralDelegate) in d.peripheralIsReady(toSendWriteWithoutResponse:) })
        prove(
            "CBPeripheralDelegate.peripheral(_:didOpen:error:)",
            { (d: any CBPeripheralDelegate) in d.peripheral(_:didOpen:error:) })
        prove("CBAttribute.uuid", \CBAttribute.uuid)
        prove("CBService.peripheral", \CBService.peripheral)
        prove("CBService.isPrimary", \CBService.isPrimary)
        prove("CBService.includedServices", \CBService.includedServices)
        prove("CBService.characteristics", \CBService.characteristics)
        prove("CBCharacteristic.service", \CBCharacteristic.service)
        prove("CBCharacteristic.properties", \CBCharacteristic.properties)
        prove("CBCharacteristic.value", \CBCharacteristic.value)
        prove("CBCharacteristic.descriptors", \CBCharacteristic.descriptors)
        prove("CBCharacteristic.isNotifying", \CBCharacteristic.isNotifying)
        prove("CBDescriptor.characteristic", \CBDescriptor.characteristic)
        prove("CBDescriptor.value", \CBDescriptor.value)
        prove("CBL2CAPChannel.peer", \CBL2CAPChannel.peer)
        prove("CBL2CAPChannel.inputStream", \CBL2CAPChannel.inputStream)
        prove("CBL2CAPChannel.outputStream", \CBL2CAPChannel.outputStream)
        prove("CBL2CAPChannel.psm", \CBL2CAPChannel.psm)
        prove("CBCharacteristic.isBroadcasted", \CBCharacteristic.isBroadcasted)
        prove("CBCharacteristicProperties.broadcast", CBCharacteristicProperties.broadcast)
        prove("CBCharacteristicProperties.read", CBCharacteristicProperties.read)
        prove("CBCharacteristicProperties.writeWithoutResponse", CBCharacteristicProperties.writeWithoutResponse)
        prove("CBCharacteristicProperties.write", CBCharacteristicProperties.write)
        prove("CBCharacteristicProperties.notify", CBCharacteristicProperties.notify)
        prove("CBCharacteristicProperties.indicate", CBCharacteristicProperties.indicate)
        prove(
            "CBCharacteristicProperties.authenticatedSignedWrites", CBCharacteristicProperties.authenticatedSignedWrites
        )
        prove("CBCharacteristicProperties.extendedProperties", CBCharacteristicProperties.extendedProperties)
        prove(
            "CBCharacteristicProperties.notifyEncryptionRequired", CBCharacteristicProperties.notifyEncryptionRequired)
        prove(
            "CBCharacteristicProperties.indicateEncryptionRequired",
            CBCharacteristicProperties.indicateEncryptionRequired)
        prove("CBCharacteristicWriteType.withResponse", CBCharacteristicWriteType.withResponse)
        prove("CBCharacteristicWriteType.withoutResponse", CBCharacteristicWriteType.withoutResponse)
    }

    @available(*, deprecated)
    private func provePeripheralRole() {
        prove("CBPeripheralManager", CBPeripheralManager.self)
        prove("CBCentral", CBCentral.self)
        prove("CBATTRequest", CBATTRequest.self)
        prove("CBMutableService", CBMutableService.self)
        prove("CBMutableCharacteristic", CBMutableCharacteristic.self)
        prove("CBMutableDescriptor", CBMutableDescriptor.self)
        prove("CBAttributePermissions", CBAttributePermissions.self)
        prove("CBPeripheralManagerConnectionLatency", CBPeripheralManagerConnectionLatency.self)
        prove("CBPeripheralManagerDelegate", (any CBPeripheralManagerDelegate).self)
    }
}
