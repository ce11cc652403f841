import Bluetooth
import EventLoop
import JSON
import XCTest

@testable import Bridge

/// What needs neither a radio nor a broker.
final class PureTests: LoopTestCase {
    private let space = TopicSpace(base: "home/ble/b1", gateway: "attic")

    private func inbound(_ topic: String) -> InboundTopic? {
        Array(topic.utf8).withUnsafeBytes { InboundTopic($0, in: space) }
    }

    func testCommandTopicsAreReadRelativeToABaseWithSlashes() {
        XCTAssertEqual(inbound("home/ble/b1/attic/request/scan"), .request(verb: "scan"))
        XCTAssertEqual(
            inbound("home/ble/b1/attic/devices/a4c1385e07d3/connection/set"), .connectionSet(device: "a4c1385e07d3"))
        XCTAssertEqual(
            inbound("home/ble/b1/attic/devices/a4c1385e07d3/characteristics/180f/2a06_0017/notify"),
            .characteristic(device: "a4c1385e07d3", service: "180f", characteristic: "2a06_0017", action: .notify))
        for topic in [
            "home/ble/b1x/attic/request/scan", "home/ble/b1/atticx/request/scan", "home/ble/b1/attic/request",
            "home/ble/b1/attic/request/scan/x", "home/ble/b1/attic/devices/x/connection", "request/scan", "",
            "home/ble/b1/attic/devices/x/characteristics/a/b/put",
        ] {
            XCTAssertNil(inbound(topic), topic)
        }
        XCTAssertNil([0xff, 0xfe].withUnsafeBytes { InboundTopic($0, in: space) })
    }

    @EventLoopActor
    func testTheAddressIsWrittenIntoTheTopicInPlace() async {
        var template = DeviceTopicTemplate(space, suffix: "/advertisement")
        for (value, digits) in [(UInt64(0xa4c1_385e_07d3), "a4c1385e07d3"), (1, "000000000001")] {
            let topic = template.withTopic(of: BluetoothAddress(value: value)) { String(decoding: $0, as: UTF8.self) }
            XCTAssertEqual(topic, "home/ble/b1/attic/devices/\(digits)/advertisement\0")
        }
    }

    func testTimestampsAgreeWithTheCalendar() {
        // From `date -u -d @… --rfc-3339=seconds`.
        for (milliseconds, text) in [
            (Int64(0), "1970-01-01T00:00:00.000Z"), (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
            (951_827_696_789, "2000-02-29T12:34:56.789Z"), (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"), (-1, "1969-12-31T23:59:59.999Z"),
            (.max, "9999-12-31T23:59:59.999Z"), (.min, "0000-01-01T00:00:00.000Z"),
        ] {
            XCTAssertEqual(timestamp(WallTime(milliseconds: milliseconds)), text)
        }
        var writer = TimestampWriter()
        XCTAssertEqual(writer.string(WallTime(milliseconds: 1_700_000_000_123)), "2023-11-14T22:13:20.123Z")
        XCTAssertEqual(writer.string(WallTime(milliseconds: 1_700_000_000_999)), "2023-11-14T22:13:20.999Z")
        XCTAssertEqual(writer.string(WallTime(milliseconds: 1_700_000_001_000)), "2023-11-14T22:13:21.000Z")
    }

    @EventLoopActor
    func testAnAdvertisementHasTheShapeOfTheContract() async {
        var heard = FakeAdvertisement()
        heard.advertisedServices = [BluetoothUUID(0x181a)]
        heard.serviceData = [(BluetoothUUID(0xfcd2), [0x40, 0x02, 0x4e, 0x0c])]
        heard.manufacturerData = [(0x0499, [0x05, 0x12, 0xfc])]
        XCTAssertEqual(
            write(heard),
            #"{"time":"2023-11-14T22:13:20.000Z","adapter":"00:1A:7D:DA:71:13","address":"A4:C1:38:5E:07:D3","#
                + #""address_type":"public","name":"ATC_5E07D3","rssi":-67,"tx_power":null,"services":["181a"],"#
                + #""service_data":{"fcd2":"40024e0c"},"manufacturer_data":{"0499":"0512fc"}}"#)
    }

    @EventLoopActor
    func testWhatIsNotKnownIsNull() async throws {
        var heard = FakeAdvertisement()
        heard.name = ""
        heard.rssi = nil
        heard.adapterAddress = nil
        heard.addressType = .random
        heard.txPower = 4
        heard.advertisedServices = [
            try XCTUnwrap(BluetoothUUID(parsing: "4e6ee6c3-62a6-4bdf-b014-b6281d46d25c")), BluetoothUUID(0x180f),
        ]
        XCTAssertEqual(
            write(heard),
            #"{"time":"2023-11-14T22:13:20.000Z","adapter":null,"address":"A4:C1:38:5E:07:D3","#
                + #""address_type":"random","name":null,"rssi":null,"tx_power":4,"#
                + #""services":["4e6ee6c3-62a6-4bdf-b014-b6281d46d25c","180f"],"service_data":{},"#
                + #""manufacturer_data":{}}"#)
    }

    @EventLoopActor
    private func write(_ heard: FakeAdvertisement) -> String {
        var payload = AdvertisementPayload()
        let output = OutputBuffer()
        payload.write(heard, at: WallTime(milliseconds: 1_700_000_000_000), to: output)
        return output.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
    }

    func testNumbersWrittenInPlace() {
        func text(_ body: (inout PlaceWriter) -> Void) -> String {
            let output = OutputBuffer()
            output.appendInPlace(64) { start in
                var writer = PlaceWriter(start)
                body(&writer)
                return writer.count
            }
            return output.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
        }
        for value in Int8.min...Int8.max { XCTAssertEqual(text { $0.put(value) }, "\(value)") }
        for value in [0, 7, 10, 99, 100, 65_535, UInt64.max] {
            XCTAssertEqual(text { $0.put(decimal: value) }, "\(value)")
        }
    }

    func testAttributeNames() throws {
        let names = [("180f", "180f"), ("0x180F", "180f"), ("2a06_0017", "2a06_0017"), ("2A06_17", "2a06_0017")]
        for (text, name) in names {
            XCTAssertEqual(try XCTUnwrap(AttributeName(parsing: text)).description, name)
        }
        XCTAssertEqual(
            try XCTUnwrap(AttributeName(parsing: "0000180f-0000-1000-8000-00805f9b34fb")).description, "180f")
        for text in ["", "180", "180g", "180f_", "180f_0", "180f_+1", "180f_12345", "180f_xyz", "_0010"] {
            XCTAssertNil(AttributeName(parsing: text), text)
        }
    }

    func testValuesInEveryEncoding() throws {
        let cases: [(ValueEncoding, JSONValue, [UInt8])] = [
            (.hex, .string("0164ff"), [1, 0x64, 0xff]), (.text, .string("Aä"), [0x41, 0xc3, 0xa4]),
            (.base64, .string("AQID/w=="), [1, 2, 3, 0xff]), (.base64, .string("AQI="), [1, 2]),
            (.base64, .string("AQID"), [1, 2, 3]), (.base64, .string(""), []),
            (.uint8, .int(255), [255]), (.uint16, .int(0x1234), [0x34, 0x12]), (.uint24, .int(1), [1, 0, 0]),
            (.uint32, .int(0xffff_ffff), [255, 255, 255, 255]), (.int8, .int(-1), [255]),
            (.int16, .int(-2), [0xfe, 255]), (.int24, .int(-3), [0xfd, 255, 255]),
            (.int64, .int(.min), [0, 0, 0, 0, 0, 0, 0, 0x80]), (.uint64, .int(1), [1, 0, 0, 0, 0, 0, 0, 0]),
            (.float, .double(1.5), [0, 0, 0xc0, 0x3f]), (.double, .double(-2), [0, 0, 0, 0, 0, 0, 0, 0xc0]),
        ]
        for (encoding, value, bytes) in cases {
            XCTAssertEqual(try encoding.bytes(of: value), bytes, encoding.rawValue)
            XCTAssertEqual(try encoding.value(of: bytes), value, encoding.rawValue)
        }
        XCTAssertEqual(try ValueEncoding.hex.bytes(of: .string("0x01:64 FF")), [1, 0x64, 0xff])
        XCTAssertEqual(try ValueEncoding.uint8.bytes(of: .double(7)), [7])
    }

    func testValuesThatDoNotFitAreRefusedByName() {
        let wrong: [(ValueEncoding, JSONValue)] = [
            (.hex, .string("012")), (.hex, .string("zz")), (.hex, .int(1)), (.base64, .string("AQI")),
            (.base64, .string("A===")), (.base64, .string("AQJ=")), (.uint8, .int(256)), (.uint8, .int(-1)),
            (.int8, .int(128)), (.uint8, .double(1.5)), (.uint8, .string("1")), (.text, .int(1)), (.float, .null),
            (.uint64, .int(-1)),
        ]
        for (encoding, value) in wrong {
            XCTAssertThrowsError(try encoding.bytes(of: value), encoding.rawValue) { error in
                XCTAssertEqual((error as? CommandError)?.code, .badRequest)
                XCTAssertTrue("\(error)".contains("'value'"), "\(error)")
            }
        }
        XCTAssertThrowsError(try ValueEncoding.uint16.value(of: [1]))
        XCTAssertThrowsError(try ValueEncoding.text.value(of: [0xff]))
        XCTAssertThrowsError(try ValueEncoding(parsing: "decoded")) { error in
            XCTAssertEqual((error as? CommandError)?.code, .notSupported)
        }
    }

    private func plain(_ action: InboundTopic.Action, _ payload: String) throws -> PlainCommand {
        try Array(payload.utf8).withUnsafeBytes { try PlainCommand.characteristic(action, $0) }
    }

    func testPlainPayloads() throws {
        XCTAssertEqual(try plain(.set, "0x64"), .write([0x64]))
        XCTAssertEqual(try plain(.set, "0x"), .write([]))
        XCTAssertEqual(try plain(.set, #"{"value":100,"encoding":"uint8"}"#), .write([100]))
        XCTAssertEqual(try plain(.get, "whatever"), .get)
        XCTAssertEqual(try plain(.notify, " on\n"), .notify(true))
        XCTAssertEqual(try plain(.notify, "off"), .notify(false))
        for payload in [
            "64", "", "on", #"{"value":100}"#, #"{"encoding":"uint8"}"#, "{", #"{"value":300,"encoding":"uint8"}"#,
            "0x1", #"{"value":1,"encoding":"decoded"}"#,
        ] {
            XCTAssertThrowsError(try plain(.set, payload), payload) { error in
                XCTAssertEqual((error as? CommandError)?.code, .ambiguousValue, payload)
            }
        }
        XCTAssertThrowsError(try plain(.notify, "yes"))
        XCTAssertThrowsError(try [0xff, 0xfe].withUnsafeBytes { try PlainCommand.characteristic(.set, $0) })
    }

    func testResponseTopicsStayWhereAnswersMayGo() {
        func topic(_ response: String?, replyTo: String? = nil) -> (String, CommandError.Code?) {
            let properties = MessageProperties(responseTopic: response, correlationData: [1])
            let (route, refused) = AnswerRoute.of(
                verb: "read", properties: properties, replyTo: replyTo, in: space, homeAssistantPrefix: "homeassistant")
            XCTAssertEqual(route.correlationData, [1])
            return (route.topic, refused?.code)
        }
        let usual = "home/ble/b1/attic/response/read"
        for (response, expected, code) in [
            (nil, usual, nil), ("my/answers", "my/answers", nil),
            ("home/ble/b1/attic/response/mine", "home/ble/b1/attic/response/mine", nil),
            ("home/ble/b1/attic/devices/a4c1385e07d3", usual, .forbidden), ("home/ble/b1", usual, .forbidden),
            ("home/ble/b1/attic/response", usual, .forbidden), ("$SYS/x", usual, .forbidden),
            ("homeassistant/x/config", usual, .forbidden), ("homeassistant", usual, .forbidden),
            ("homeassistants", "homeassistants", nil), ("home/ble/b1x/y", "home/ble/b1x/y", nil),
            ("a/+/b", usual, .badRequest), ("a/#", usual, .badRequest), ("", usual, .badRequest),
        ] as [(String?, String, CommandError.Code?)] {
            let (route, refused) = topic(response)
            XCTAssertEqual(route, expected)
            XCTAssertEqual(refused, code, response ?? "nil")
        }
        XCTAssertEqual(topic(nil, replyTo: "client-1").0, usual + "/client-1")
    }

    func testMissingAdaptersAreNamed() {
        let hci0 = AdapterReport(
            address: BluetoothAddress(value: 0x1a7d_da71_13), systemName: "hci0", name: "lab", state: .poweredOn,
            isSelected: false)
        XCTAssertEqual(
            Bridge.missingAdapter(["hci7"], [hci0]),
            "the configured adapter 'hci7' is not there; there is hci0 (00:1A:7D:DA:71:13); change bluetooth.adapters"
                + " or plug it in")
        XCTAssertNotNil(Bridge.missingAdapter([], []))
        var selected = hci0
        selected.isSelected = true
        XCTAssertNil(Bridge.missingAdapter(["hci0"], [selected]))
        selected.isPresent = false
        XCTAssertNotNil(Bridge.missingAdapter(["hci0"], [selected]))
    }

    func testIntervalsAreLearned() {
        var interval = LearnedInterval()
        XCTAssertEqual(interval.silence, .seconds(60))
        for _ in 0..<50 { interval.learn(gap: .milliseconds(200)) }
        XCTAssertEqual(interval.silence, .seconds(60))
        for _ in 0..<20 { interval.learn(gap: .seconds(300)) }
        XCTAssertGreaterThan(interval.silence, .seconds(1190))
        XCTAssertLessThanOrEqual(interval.silence, .seconds(1200))
        interval.learn(gap: .seconds(86_400))
        XCTAssertLessThanOrEqual(interval.silence, .seconds(1200), "a day away is no interval")
    }
}
