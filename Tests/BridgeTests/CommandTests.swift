import Bluetooth
import Configuration
import EventLoop
import JSON
import XCTest

@testable import Bridge

/// Commands as clients send them, each answered.
final class CommandTests: LoopTestCase {
    @EventLoopActor
    func testAReadIsAnsweredInTheShapeOfTheContract() async throws {
        let bench = Bench()
        bench.addDevice(state: .connected)
        bench.broker.send(
            "blueferry/gw/request/read",
            #"{"id":"7","device":"C0:00:00:00:00:01","service":"180f","characteristic":"2a19","timeout":5000}"#)
        let answer = try await bench.broker.take("blueferry/gw/response/read")
        XCTAssertEqual(
            String(decoding: answer.serialised(), as: UTF8.self),
            #"{"id":"7","status":"ok","data":{"value":"64","length":1}}"#)
        XCTAssertTrue(bench.radio.calls.contains("read 180f/2a19"))
    }

    @EventLoopActor
    func testAnErrorOfTheRadioIsPassedOn() async throws {
        let bench = Bench()
        bench.radio.failure = CommandError(
            .attError, "Read not permitted by the device", att: 2, bluez: "org.bluez.Error.NotPermitted")
        let answer = try await bench.request(
            "read", #"{"id":7,"device":"c00000000001","service":"180f","characteristic":"2a19"}"#)
        XCTAssertEqual(
            String(decoding: answer.serialised(), as: UTF8.self),
            #"{"id":7,"status":"error","error":{"code":"att_error","message":"Read not permitted by the device","#
                + #""att":2,"bluez":"org.bluez.Error.NotPermitted"}}"#)
    }

    @EventLoopActor
    func testEachBadRequestIsAnsweredAndNamesItsFault() async throws {
        let bench = Bench()
        let cases: [(String, [UInt8], String, String)] = [
            ("read", [0xff, 0xfe], "bad_request", "JSON"), ("read", [], "bad_request", "JSON"),
            ("read", Array(#"{"value":"#.utf8), "bad_request", "JSON"),
            ("read", [UInt8](repeating: 0x20, count: 1 << 20), "bad_request", "longer than"),
            ("read", Array("[1]".utf8), "bad_request", "object"), ("read", Array("{}".utf8), "bad_request", "'device'"),
            ("read", Array(#"{"device":"x"}"#.utf8), "unknown_device", "'x'"),
            ("read", Array(#"{"device":7}"#.utf8), "bad_request", "'device'"),
            ("read", Array(#"{"device":"c00000000001"}"#.utf8), "bad_request", "'service' is missing"),
            (
                "read", Array(#"{"device":"c00000000001","service":"zz","characteristic":"2a19"}"#.utf8),
                "bad_request", "'service' is 'zz'"
            ),
            (
                "write", Array(#"{"device":"c00000000001","service":"180f","characteristic":"2a19"}"#.utf8),
                "bad_request", "'value' is missing"
            ),
            (
                "write",
                Array(
                    #"{"device":"c00000000001","service":"180f","characteristic":"2a19","value":"00","type":"x"}"#.utf8
                ), "bad_request", "'type'"
            ),
            ("scan", Array(#"{"timeout":0}"#.utf8), "bad_request", "'timeout'"),
            ("scan", Array(#"{"rssi":"x"}"#.utf8), "bad_request", "'rssi'"),
            ("scan", Array(#"{"services":["180f",1]}"#.utf8), "bad_request", "'services'"),
            ("stop_scan", Array(#"{"session":"nope"}"#.utf8), "bad_request", "'session'"),
            ("devices", Array(#"{"limit":0}"#.utf8), "bad_request", "'limit'"),
            ("connect", Array(#"{"device":"c00000000001","keep":1}"#.utf8), "bad_request", "'keep'"),
            ("config", Array(#"{"set":{"a":1}}"#.utf8), "not_supported", "'set'"),
            ("fly", Array("{}".utf8), "unknown_verb", "'fly'"),
            ("read", Array(#"{"id":{}}"#.utf8), "bad_request", "'id'"),
            ("read", Array(#"{"device":"c00000000001","sevice":"180f"}"#.utf8), "bad_request", "'sevice'"),
            ("scan", Array(#"{"duration":5}"#.utf8), "bad_request", "allow_duplicates"),
            ("read", Array(#"{"reply_to":"a/b"}"#.utf8), "bad_request", "'reply_to'"),
        ]
        for (verb, payload, code, text) in cases {
            bench.broker.send("blueferry/gw/request/\(verb)", payload)
            let answer = try await bench.broker.take("blueferry/gw/response/\(verb)")
            XCTAssertEqual(answer["id"], .null, verb)
            XCTAssertEqual(answer["status"], .string("error"), verb)
            XCTAssertEqual(answer["error"]?["code"], .string(code), "\(verb) \(text)")
            let message = answer["error"]?["message"]?.string ?? ""
            XCTAssertTrue(message.contains(text), message)
        }
        // The next valid command runs.
        let answer = try await bench.request("devices", "{}")
        XCTAssertEqual(answer["status"], .string("ok"))
    }

    @EventLoopActor
    func testARepeatGetsTheFirstAnswerAndActsOnce() async throws {
        let bench = Bench()
        let write = #"{"id":"w","device":"c00000000001","service":"1802","characteristic":"2a06","value":"01"}"#
        let first = try await bench.request("write", write)
        let second = try await bench.request("write", write)
        XCTAssertEqual(first, second)
        XCTAssertEqual(bench.radio.calls.filter { $0.hasPrefix("write") }, ["write 1802/2a06 01 automatic"])
        let other = #"{"id":"w","device":"c00000000001","service":"1802","characteristic":"2a06","value":"02"}"#
        let reused = try await bench.request("write", other)
        XCTAssertEqual(reused["error"]?["code"], .string("id_reused"))
        XCTAssertEqual(reused["id"], .string("w"))
        bench.clock.advance(by: .seconds(301))
        let later = try await bench.request("write", other)
        XCTAssertEqual(later["status"], .string("ok"))
    }

    @EventLoopActor
    func testARepeatOfWhatRunsIsAnsweredOnceToEachRoute() async throws {
        let bench = Bench()
        bench.radio.holdsCalls = true
        let connect = #"{"id":"c","device":"c00000000001"}"#
        for topic in ["a/one", "a/two", "a/one"] {
            bench.broker.send(
                "blueferry/gw/request/connect", connect,
                properties: MessageProperties(responseTopic: topic, correlationData: Array(topic.utf8)))
        }
        await bench.settle()
        XCTAssertEqual(bench.radio.pendingCalls.count, 1)
        bench.radio.pendingCalls.first?.succeed(())
        _ = try await bench.broker.take("a/one")
        _ = try await bench.broker.take("a/two")
        await bench.settle()
        XCTAssertEqual(bench.broker.all("a/one").count + bench.broker.all("a/two").count, 0)
    }

    @EventLoopActor
    func testAnswersGoWhereTheyAreAskedFor() async throws {
        let bench = Bench()
        bench.broker.send(
            "blueferry/gw/request/config", #"{"id":1}"#,
            properties: MessageProperties(responseTopic: "mine/answers", correlationData: [1, 2]))
        await bench.settle()
        let message = try XCTUnwrap(bench.broker.messages.first { $0.topic == "mine/answers" })
        XCTAssertEqual(message.properties?.correlationData, [1, 2])
        XCTAssertEqual(message.properties?.expiry, 10)
        XCTAssertEqual(message.qos, 1)
        XCTAssertFalse(message.retain)
        bench.broker.send("blueferry/gw/request/config", #"{"id":2,"reply_to":"me"}"#)
        let answer = try await bench.broker.take("blueferry/gw/response/config/me")
        XCTAssertEqual(answer["id"], .int(2))
        bench.broker.send(
            "blueferry/gw/request/connect", #"{"id":3,"device":"c00000000001"}"#,
            properties: MessageProperties(responseTopic: "homeassistant/x/config"))
        let refused = try await bench.broker.take("blueferry/gw/response/connect")
        XCTAssertEqual(refused["error"]?["code"], .string("forbidden"))
        XCTAssertFalse(bench.radio.calls.contains { $0.hasPrefix("connect") })
    }

    @EventLoopActor
    func testARetainedCommandIsRefusedWithAWarning() async throws {
        let bench = Bench()
        bench.broker.send("blueferry/gw/request/connect", #"{"id":3,"device":"c00000000001"}"#, retain: true)
        let event = try await bench.broker.take("blueferry/gw/events")
        XCTAssertEqual(event["level"], .string("warning"))
        XCTAssertEqual(event["code"], .string("retained_command"))
        bench.broker.send("blueferry/gw/devices/c00000000001/connection/set", "connect", retain: true)
        let plain = try await bench.broker.take("blueferry/gw/events")
        XCTAssertEqual(plain["code"], .string("retained_command"))
        XCTAssertEqual(plain["device"], .string("C0:00:00:00:00:01"))
        await bench.settle()
        XCTAssertFalse(bench.radio.calls.contains { $0.hasPrefix("connect") })
    }

    @EventLoopActor
    func testAHungCallEndsAtItsDeadlineAndNothingElseWaits() async throws {
        let bench = Bench()
        bench.radio.holdsCalls = true
        let read = #""service":"180f","characteristic":"2a19","timeout":500}"#
        bench.broker.send("blueferry/gw/request/read", #"{"id":"hung","device":"c00000000001","# + read)
        await bench.settle()
        bench.radio.holdsCalls = false
        let other = try await bench.request("read", #"{"id":"other","device":"c00000000002","# + read)
        XCTAssertEqual(other["status"], .string("ok"))
        bench.clock.advance(by: .milliseconds(700))
        let answer = try await bench.broker.take("blueferry/gw/response/read")
        XCTAssertEqual(answer["id"], .string("hung"))
        XCTAssertEqual(answer["error"]?["code"], .string("timeout"))
        // The late reply of the radio changes nothing.
        bench.radio.pendingCalls.first?.succeed(())
        await bench.settle()
        XCTAssertEqual(bench.broker.all("blueferry/gw/response/read"), [])
    }

    @EventLoopActor
    func testCallsOnOneDeviceGoOneByOneAndSoManyWait() async throws {
        let bench = Bench()
        bench.radio.holdsCalls = true
        for number in 0..<40 {
            bench.broker.send(
                "blueferry/gw/request/write",
                #"{"id":\#(number),"device":"c00000000001","service":"1802","characteristic":"2a06","#
                    + #""value":\#(number),"encoding":"uint8"}"#)
        }
        await bench.settle()
        XCTAssertEqual(bench.radio.pendingCalls.count, 1)
        let busy = bench.broker.all("blueferry/gw/response/write").filter { $0.contains(#""code":"busy""#) }
        XCTAssertEqual(busy.count, 40 - 1 - DeviceLanes.limit)
        bench.radio.holdsCalls = false
        bench.radio.pendingCalls.first?.succeed(())
        for _ in 0..<100 where bench.radio.calls.filter({ $0.hasPrefix("write") }).count <= DeviceLanes.limit {
            await bench.settle()
        }
        XCTAssertEqual(
            bench.radio.calls.filter { $0.hasPrefix("write") },
            (0...DeviceLanes.limit).map { "write 1802/2a06 \(Hex.encode([UInt8($0)])) automatic" })
        // What was refused so did nothing, and may come again.
        bench.broker.messages = []
        let last = try await bench.request(
            "write",
            #"{"id":39,"device":"c00000000001","service":"1802","characteristic":"2a06","#
                + #""value":39,"encoding":"uint8"}"#)
        XCTAssertEqual(last["id"]?.intValue, 39)
        XCTAssertEqual(last["status"], .string("ok"))
        XCTAssertEqual(bench.radio.calls.last, "write 1802/2a06 27 automatic")
    }

    @EventLoopActor
    func testAPendingConnectIsCancelledByDisconnect() async throws {
        let bench = Bench()
        bench.radio.holdsCalls = true
        bench.broker.send("blueferry/gw/request/connect", #"{"id":"c","device":"C0-00-00-00-00-01"}"#)
        await bench.settle()
        bench.clock.advance(by: .seconds(3600))
        XCTAssertEqual(bench.broker.all("blueferry/gw/response/connect"), [], "no timeout: it waits")
        let answer = try await bench.request("disconnect", #"{"device":"c00000000001"}"#)
        XCTAssertEqual(answer["data"]?["disconnected"], .bool(false))
        let cancelled = try await bench.broker.take("blueferry/gw/response/connect")
        XCTAssertEqual(cancelled["error"]?["code"], .string("cancelled"))
    }

    @EventLoopActor
    func testAConnectIsAnsweredWithTheConnection() async throws {
        let bench = Bench()
        bench.addDevice(state: .connected)
        let answer = try await bench.request("connect", #"{"id":"c","device":"c00000000001"}"#)
        XCTAssertEqual(answer["data"]?["state"], .string("connected"))
    }

    @EventLoopActor
    func testPlainTopicsRun() async throws {
        let bench = Bench()
        bench.addDevice(state: .connected)
        let device = "blueferry/gw/devices/c00000000001"
        bench.broker.send(device + "/connection/set", "connect")
        bench.broker.send(device + "/characteristics/180f/2a19/get", "")
        bench.broker.send(device + "/characteristics/1802/2a06_0017/set", "0x02")
        bench.broker.send(device + "/characteristics/180f/2a19/notify", "on")
        bench.broker.send(device + "/characteristics/180f/2a19/notify", "off")
        bench.broker.send(device + "/connection/set", "disconnect")
        for _ in 0..<10 { await bench.settle() }
        for call in [
            "connect C0:00:00:00:00:01", "read 180f/2a19", "write 1802/2a06_0017 02 automatic", "subscribe 180f/2a19",
            "unsubscribe 180f/2a19", "disconnect C0:00:00:00:00:01 false",
        ] {
            XCTAssertTrue(bench.radio.calls.contains(call), call)
        }
        bench.broker.send(device + "/characteristics/180f/2a19/set", "100")
        let event = try await bench.broker.take("blueferry/gw/events")
        XCTAssertEqual(event["code"], .string("ambiguous_value"))
    }

    @EventLoopActor
    func testDevicesInPages() async throws {
        let bench = Bench { settings in
            settings.devices = [BridgeSettings.Device(address: Bench.strap, name: "living_room")]
        }
        for number in 2...7 { bench.addDevice(BluetoothAddress(value: 0xc000_0000_0000 + UInt64(number))) }
        var addresses: [String] = []
        var after: JSONValue? = .null
        for _ in 0..<4 {
            let cursor = after?.string.map { #","after":"\#($0)""# } ?? ""
            let answer = try await bench.request("devices", #"{"limit":3\#(cursor)}"#)
            guard case .array(let devices)? = answer["data"]?["devices"] else { return XCTFail("no list") }
            addresses += devices.compactMap { $0["address"]?.string }
            after = answer["data"]?["after"]
            if after == .null { break }
        }
        XCTAssertEqual(addresses, (1...7).map { "C0:00:00:00:00:0\($0)" })
        let named = try await bench.request("devices", #"{"ids":["living_room"]}"#)
        XCTAssertEqual(named["data"]?["devices"]?[0]?["name"], .string("living_room"))
        XCTAssertEqual(named["data"]?["devices"]?.count, 1)
        let none = try await bench.request("devices", #"{"connected":true}"#)
        XCTAssertEqual(none["data"]?["devices"]?.count, 0)
    }

    @EventLoopActor
    func testScansByCommandReplaceEachOtherAndTheConfiguredOneGoesOn() async throws {
        let bench = Bench()
        let first = try await bench.request("scan", #"{"name":"ATC_.*","services":["181a"],"timeout":5000}"#)
        let session = try XCTUnwrap(first["data"]?["session"]?.string)
        _ = try await bench.request("scan", "{}")
        XCTAssertEqual(bench.radio.scans.count, 2)
        XCTAssertEqual(bench.radio.scans.first?.command.isConfigured, true)
        XCTAssertFalse(bench.radio.scans.contains { $0.id == session })
        let configured = try XCTUnwrap(bench.radio.scans.first?.id)
        let refused = try await bench.request("stop_scan", #"{"session":"\#(configured)"}"#)
        XCTAssertEqual(refused["error"]?["code"], .string("forbidden"))
        let stopped = try await bench.request("stop_scan", "{}")
        XCTAssertEqual(stopped["data"]?["stopped"], .bool(true))
        XCTAssertEqual(bench.radio.scans.count, 1)
    }

    @EventLoopActor
    func testCommandsCanBeSwitchedOff() async throws {
        let bench = Bench { $0.commands.isEnabled = false }
        let answer = try await bench.request("devices", #"{"id":1}"#)
        XCTAssertEqual(answer["error"]?["code"], .string("forbidden"))
    }

    @EventLoopActor
    func testWhatRunsAtTheEndIsAnswered() async throws {
        let bench = Bench()
        bench.radio.holdsCalls = true
        bench.broker.send("blueferry/gw/request/connect", #"{"id":"c","device":"c00000000001"}"#)
        await bench.settle()
        await bench.bridge.stop()
        let answer = try await bench.broker.take("blueferry/gw/response/connect")
        XCTAssertEqual(answer["error"]?["code"], .string("cancelled"))
        XCTAssertEqual(bench.broker.retained["blueferry/gw/status"], "offline")
        XCTAssertTrue(bench.radio.calls.contains("stop"))
    }

    @EventLoopActor
    func testCommandsAreLimitedByVerbAndByDevice() async throws {
        let bench = Bench { settings in
            settings.devices = [BridgeSettings.Device(address: Bench.strap, name: "strap")]
            settings.commands.verbs = [.read, .devices, .subscribe]
            settings.commands.devices = [Bench.strap]
        }
        let attribute = #""service":"180f","characteristic":"2a19""#
        let read = try await bench.request("read", #"{"device":"strap",\#(attribute)}"#)
        XCTAssertEqual(read["status"], .string("ok"))
        let other = try await bench.request("read", #"{"device":"c00000000002",\#(attribute)}"#)
        XCTAssertEqual(other["error"]?["code"], .string("forbidden"))
        XCTAssertTrue(other["error"]?["message"]?.string?.contains("commands.devices") == true)
        // The others are not told of either, though they are there.
        bench.addDevice(BluetoothAddress(value: 0xc000_0000_0002))
        let list = try await bench.request("devices", "{}")
        XCTAssertEqual(list["data"]?["devices"]?.count, 1)
        XCTAssertEqual(list["data"]?["devices"]?[0]?["name"], .string("strap"))
        let named = try await bench.request("devices", #"{"ids":["strap","c00000000002"]}"#)
        XCTAssertEqual(named["error"]?["code"], .string("forbidden"))
        let write = try await bench.request("write", #"{"id":1,"device":"strap",\#(attribute),"value":"00"}"#)
        XCTAssertEqual(write["error"]?["code"], .string("forbidden"))
        XCTAssertTrue(write["error"]?["message"]?.string?.contains("commands.verbs") == true)
        for topic in [
            "c00000000001/connection/set connect", "c00000000001/characteristics/180f/2a19/set 0x00",
            "c00000000001/characteristics/180f/2a19/notify off", "c00000000002/characteristics/180f/2a19/get x",
        ] {
            let parts = topic.split(separator: " ")
            bench.broker.send("blueferry/gw/devices/\(parts[0])", "\(parts[1])")
            let event = try await bench.broker.take("blueferry/gw/events")
            XCTAssertEqual(event["code"], .string("forbidden"), topic)
        }
        XCTAssertEqual(bench.radio.calls.filter { $0 != "start" && !$0.hasPrefix("want") }, ["read 180f/2a19"])
        bench.broker.send("blueferry/gw/devices/c00000000001/characteristics/180f/2a19/notify", "on")
        await bench.settle()
        XCTAssertTrue(bench.radio.calls.contains("subscribe 180f/2a19"))
    }
}
