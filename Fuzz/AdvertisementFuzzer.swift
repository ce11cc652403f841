internal import Bluetooth
internal import EventLoop
internal import JSON

@testable internal import Bridge

/// Advertising data as a radio hears it, to the payload that is published.
@EventLoopActor
enum AdvertisementFuzzer {
    private struct Heard: AdvertisementSource {
        let content: Advertisement
        let nameBytes: [UInt8]

        var address: BluetoothAddress { BluetoothAddress(value: 0xa4c1_385e_07d3) }
        var addressType: AddressType { .random }
        var adapterAddress: BluetoothAddress? { nil }
        var rssi: Int8? { content.rssi }
        var txPower: Int8? { content.txPower }
        var advertisedServices: [BluetoothUUID] { content.services }

        func withName(_ body: (UnsafeRawBufferPointer) -> Void) { nameBytes.withUnsafeBytes(body) }
        func forEachServiceData(_ body: (BluetoothUUID, UnsafeRawBufferPointer) -> Void) {
            for item in content.serviceData { item.data.withUnsafeBytes { body(item.uuid, $0) } }
        }
        func forEachManufacturerData(_ body: (UInt16, UnsafeRawBufferPointer) -> Void) {
            for item in content.manufacturerData { item.data.withUnsafeBytes { body(item.company, $0) } }
        }
    }

    static func run(_ input: UnsafeRawBufferPointer) {
        let bytes = Array(input)
        var content = Advertisement()
        content.merge(advertisingData: bytes)
        // A scan response is merged with what came before.
        content.merge(advertisingData: bytes.reversed())
        let output = OutputBuffer()
        var writer = AdvertisementPayload()
        writer.write(Heard(content: content, nameBytes: bytes), at: WallTime(milliseconds: 0), to: output)
        let written = output.withUnsafeBytes { try? JSONValue.parse($0) }
        precondition(written?["manufacturer_data"] != nil, "the payload is no JSON")
    }
}
