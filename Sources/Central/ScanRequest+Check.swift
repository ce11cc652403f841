internal import Bluetooth

extension ScanRequest {
    /// Says what is wrong with the request, before there is an engine to run it.
    /// - Throws: ``CentralError`` (`bad_request`).
    public func check() throws(CentralError) {
        _ = try ScanFilter(self)
    }
}
