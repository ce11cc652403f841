internal import Bluetooth
internal import Foundation

extension Advertisement {
    /// The dictionary of `didDiscover`, with the types that programs cast to.
    var dictionary: [String: Any] {
        var dictionary: [String: Any] = [CBAdvertisementDataIsConnectable: NSNumber(value: true)]
        if let name { dictionary[CBAdvertisementDataLocalNameKey] = name }
        if let txPower { dictionary[CBAdvertisementDataTxPowerLevelKey] = NSNumber(value: Int(txPower)) }
        if !services.isEmpty {
            dictionary[CBAdvertisementDataServiceUUIDsKey] = services.map { CBUUID($0) }
        }
        if !solicited.isEmpty {
            dictionary[CBAdvertisementDataSolicitedServiceUUIDsKey] = solicited.map { CBUUID($0) }
        }
        if !serviceData.isEmpty {
            var byService: [CBUUID: Data] = [:]
            for item in serviceData { byService[CBUUID(item.uuid)] = Data(item.data) }
            dictionary[CBAdvertisementDataServiceDataKey] = byService
        }
        if let item = manufacturerData.min(by: { $0.company < $1.company }) {
            let company = [UInt8(truncatingIfNeeded: item.company), UInt8(truncatingIfNeeded: item.company >> 8)]
            dictionary[CBAdvertisementDataManufacturerDataKey] = Data(company + item.data)
        }
        return dictionary
    }
}
