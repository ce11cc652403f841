import Bluetooth
import XCTest

final class ValueTests: XCTestCase {
    func testAddressReadsEachFormAndWritesEachForm() throws {
        for text in ["A4:C1:38:5E:07:D3", "a4-c1-38-5e-07-d3", "A4_C1_38_5E_07_D3", "a4c1385e07D3"] {
            let address = try XCTUnwrap(BluetoothAddress(parsing: text), text)
            XCTAssertEqual(address.description, "A4:C1:38:5E:07:D3")
            XCTAssertEqual(address.topicForm, "a4c1385e07d3")
            XCTAssertEqual(address.pathForm, "A4_C1_38_5E_07_D3")
            XCTAssertEqual(address.bytes, [0xa4, 0xc1, 0x38, 0x5e, 0x07, 0xd3])
        }
        for text in [
            "", "A4:C1:38:5E:07", "A4:C1:38:5E:07:D", "A4:C1-38:5E:07:D3", "a4c1385e07dg", "A4.C1.38.5E.07.D3",
        ] {
            XCTAssertNil(BluetoothAddress(parsing: text), text)
        }
    }

    func testAddressKindsByTheTopBits() throws {
        let kinds: [(String, AddressKind, Bool)] = [
            ("C0:00:00:00:00:01", .staticRandom, true), ("40:00:00:00:00:01", .resolvablePrivate, false),
            ("7F:FF:00:00:00:01", .resolvablePrivate, false), ("3F:00:00:00:00:01", .nonResolvablePrivate, false),
            ("80:00:00:00:00:01", .reserved, false),
        ]
        for (text, kind, isStable) in kinds {
            let address = try XCTUnwrap(BluetoothAddress(parsing: text))
            XCTAssertEqual(AddressType.random.kind(of: address), kind, text)
            XCTAssertEqual(kind.isStable, isStable, text)
            XCTAssertEqual(AddressType.public.kind(of: address), .public)
        }
    }

    func testUUIDFormsAreEqualOnTheBase() throws {
        let battery = BluetoothUUID(0x180f)
        for text in [
            "180f", "180F", "0x180F", "0000180f", "0000180F-0000-1000-8000-00805F9B34FB",
            "0000180f00001000800000805f9b34fb",
        ] {
            XCTAssertEqual(BluetoothUUID(parsing: text), battery, text)
        }
        XCTAssertEqual(battery.topicForm, "180f")
        XCTAssertEqual(battery.description, "0000180f-0000-1000-8000-00805f9b34fb")
        XCTAssertEqual(battery.littleEndianBytes, [0x0f, 0x18])
        let own = try XCTUnwrap(BluetoothUUID(parsing: "0000180f-1234-4321-abcd-0123456789ab"))
        XCTAssertNotEqual(own, battery)
        XCTAssertNil(own.short)
        XCTAssertEqual(own.topicForm, "0000180f-1234-4321-abcd-0123456789ab")
        XCTAssertEqual(BluetoothUUID(littleEndian: own.littleEndianBytes), own)
        let wide = BluetoothUUID(short32: 0x1234_5678)
        XCTAssertNil(wide.short)
        XCTAssertEqual(wide.topicForm, "12345678-0000-1000-8000-00805f9b34fb")
        for text in [
            "", "18", "180g", "0x", "0000180f-0000-1000-8000-00805F9B34F", "0000180f_0000_1000_8000_00805F9B34FB",
        ] {
            XCTAssertNil(BluetoothUUID(parsing: text), text)
        }
    }

    func testAdvertisingDataReadsWhatTheBuilderWrote() {
        var builder = AdvertisingDataBuilder()
        XCTAssertTrue(builder.append(ADType.flags, [6]))
        XCTAssertTrue(builder.append(ADType.completeServices16, [0x0f, 0x18, 0x02, 0x18]))
        XCTAssertTrue(builder.append(ADType.manufacturerData, [0x99, 0x04, 1, 2]))
        XCTAssertTrue(builder.append(ADType.serviceData16, [0xd2, 0xfc, 0x40]))
        XCTAssertFalse(builder.append(ADType.completeName, Array("a name too long".utf8)))
        var advertisement = Advertisement()
        advertisement.merge(advertisingData: builder.bytes)
        XCTAssertEqual(advertisement.flags, 6)
        XCTAssertEqual(advertisement.services, [BluetoothUUID(0x180f), BluetoothUUID(0x1802)])
        XCTAssertEqual(advertisement.manufacturerData, [.init(company: 0x0499, data: [1, 2])])
        XCTAssertEqual(advertisement.serviceData, [.init(uuid: BluetoothUUID(0xfcd2), data: [0x40])])
        XCTAssertNil(advertisement.name)
    }

    func testShortenedNameDoesNotReplaceTheWholeName() {
        var advertisement = Advertisement()
        advertisement.merge(advertisingData: [3, ADType.shortenedName, 0x41, 0x42])
        XCTAssertEqual(advertisement.name, "AB")
        advertisement.merge(advertisingData: [4, ADType.completeName, 0x41, 0x42, 0x43])
        advertisement.merge(advertisingData: [3, ADType.shortenedName, 0x41, 0x42])
        XCTAssertEqual(advertisement.name, "ABC")
        advertisement.merge(advertisingData: [2, ADType.shortenedName, 0x58])
        XCTAssertEqual(advertisement.name, "X")
    }

    func testAdvertisingDataCutShortKeepsWhatStoodBefore() {
        var advertisement = Advertisement()
        advertisement.merge(advertisingData: [2, ADType.flags, 6, 9, ADType.completeName, 0x41])
        XCTAssertEqual(advertisement.flags, 6)
        XCTAssertNil(advertisement.name)
        advertisement.merge(advertisingData: [2, ADType.txPower, 0xec, 0, 2, ADType.txPower, 4])
        XCTAssertEqual(advertisement.txPower, -20, "nothing counts after the zero that ends the data")
        advertisement.merge(advertisingData: [2, ADType.manufacturerData, 0x99, 1, ADType.flags])
        XCTAssertEqual(advertisement.manufacturerData, [])
    }

    func testAdvertisingDataOfAnyBytesNeverTraps() {
        var generator = SystemRandomNumberGenerator()
        for _ in 0..<2000 {
            let bytes = (0..<Int.random(in: 0...40, using: &generator)).map { _ in
                UInt8.random(in: 0...255, using: &generator)
            }
            var advertisement = Advertisement()
            advertisement.merge(advertisingData: bytes)
            let carried = advertisement.manufacturerData.reduce(0) { $0 + $1.data.count }
            XCTAssertLessThanOrEqual(carried, bytes.count)
        }
    }

    func testHexBothWays() {
        XCTAssertEqual(Hex.encode([0, 0x9f, 0xff]), "009fff")
        XCTAssertEqual(Hex.decode("009FfF"), [0, 0x9f, 0xff])
        XCTAssertEqual(Hex.decode(""), [])
        XCTAssertNil(Hex.decode("0"))
        XCTAssertNil(Hex.decode("0x"))
        XCTAssertNil(Hex.decode("é0"))
    }

    func testPropertiesKeepTheNamesOfBlueZ() {
        let properties: CharacteristicProperties = [.read, .notify, .writeWithoutResponse]
        XCTAssertEqual(properties.names, ["read", "write-without-response", "notify"])
        XCTAssertEqual(CharacteristicProperties(name: "indicate"), .indicate)
        XCTAssertNil(CharacteristicProperties(name: "encrypt-read"))
        XCTAssertEqual(ATTError(code: 2).description, "Read not permitted by the device")
        XCTAssertEqual(ATTError(code: 0x80).description, "Application error 0x80")
    }
}
