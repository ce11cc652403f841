// Apple's names.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

// MARK: Advertisement data

/// The local name: `String`. From BlueZ's `Name`; left out until really known.
public let CBAdvertisementDataLocalNameKey = "kCBAdvDataLocalName"
/// The transmit power in dBm: `NSNumber`.
public let CBAdvertisementDataTxPowerLevelKey = "kCBAdvDataTxPowerLevel"
/// The services: `[CBUUID]`.
public let CBAdvertisementDataServiceUUIDsKey = "kCBAdvDataServiceUUIDs"
/// Data by service: `[CBUUID: Data]`.
public let CBAdvertisementDataServiceDataKey = "kCBAdvDataServiceData"
/// `Data`: the company identifier in two bytes, least significant first, and what follows it. Of several companies in
/// one advertisement, the one with the lowest identifier.
public let CBAdvertisementDataManufacturerDataKey = "kCBAdvDataManufacturerData"
/// Services in Apple's overflow area: never there on Linux.
public let CBAdvertisementDataOverflowServiceUUIDsKey = "kCBAdvDataHashedServiceUUIDs"
/// `NSNumber`, a Boolean. BlueZ does not tell: always true.
public let CBAdvertisementDataIsConnectable = "kCBAdvDataIsConnectable"
/// The services that the peripheral asks for: `[CBUUID]`.
public let CBAdvertisementDataSolicitedServiceUUIDsKey = "kCBAdvDataSolicitedServiceUUIDs"

// MARK: Options of a central manager

/// Accepted; there is nobody to alert on Linux.
public let CBCentralManagerOptionShowPowerAlertKey = "kCBInitOptionShowPowerAlert"
/// `String`: the name under which this manager's scan and connections are kept for the next start of the process.
public let CBCentralManagerOptionRestoreIdentifierKey = "kCBInitOptionRestoreIdentifier"
/// Accepted, without effect.
public let CBCentralManagerOptionDeviceAccessForMedia = "kCBInitOptionDeviceAccessForMedia"
/// `NSNumber`, a Boolean: a callback for each advertisement, not one for each peripheral.
public let CBCentralManagerScanOptionAllowDuplicatesKey = "kCBScanOptionAllowDuplicates"
/// `[CBUUID]`: peripherals that ask for one of these match too.
public let CBCentralManagerScanOptionSolicitedServiceUUIDsKey = "kCBScanOptionSolicitedServiceUUIDs"

// MARK: Options of a connection

/// Accepted; there is nobody to notify on Linux.
public let CBConnectPeripheralOptionNotifyOnConnectionKey = "kCBConnectOptionNotifyOnConnection"
/// Accepted; there is nobody to notify on Linux.
public let CBConnectPeripheralOptionNotifyOnDisconnectionKey = "kCBConnectOptionNotifyOnDisconnection"
/// Accepted; there is nobody to notify on Linux.
public let CBConnectPeripheralOptionNotifyOnNotificationKey = "kCBConnectOptionNotifyOnNotification"
/// `NSNumber`: seconds to wait before connecting.
public let CBConnectPeripheralOptionStartDelayKey = "kCBConnectOptionStartDelay"
/// Accepted; BlueZ bridges transports by itself.
public let CBConnectPeripheralOptionEnableTransportBridgingKey = "kCBConnectOptionEnableTransportBridging"
/// Apple's notification centre service does not exist on Linux: connecting with it fails with an error.
public let CBConnectPeripheralOptionRequiresANCS = "kCBConnectOptionRequiresANCS"
/// `NSNumber`, a Boolean: connect again by itself after a link was lost.
public let CBConnectPeripheralOptionEnableAutoReconnect = "kCBConnectOptionEnableAutoReconnect"

// MARK: Restored state

/// `[CBPeripheral]`: those that were connected, or about to be.
public let CBCentralManagerRestoredStatePeripheralsKey = "kCBRestoredPeripherals"
/// `[CBUUID]`: the services that were scanned for.
public let CBCentralManagerRestoredStateScanServicesKey = "kCBRestoredScanServices"
/// `[String: Any]`: the options of the scan that ran.
public let CBCentralManagerRestoredStateScanOptionsKey = "kCBRestoredScanOptions"

/// What ``CBCentralManager/registerForConnectionEvents(options:)`` matches.
public struct CBConnectionEventMatchingOption: RawRepresentable, Hashable, Sendable {
    public let rawValue: String
    public init(rawValue: String) { self.rawValue = rawValue }

    /// `[CBUUID]`: services that the peripheral offers.
    public static let serviceUUIDs = CBConnectionEventMatchingOption(rawValue: "kCBConnectionEventMatchingServiceUUIDs")
    /// `[UUID]`: identifiers of peripherals.
    public static let peripheralUUIDs = CBConnectionEventMatchingOption(
        rawValue: "kCBConnectionEventMatchingPeripheralUUIDs")
}

/// A link that any program of this machine made or lost.
public enum CBConnectionEvent: Int, Sendable {
    /// The link is down.
    case peerDisconnected = 0
    /// The link is up.
    case peerConnected = 1
}
