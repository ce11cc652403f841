import Bluetooth
import EventLoop
import JSON
import XCTest

@testable import Bridge

/// Answers to topics of the sender's choice, patterns and payloads that would take long: what is refused, and how.
final class HostileInputTests: LoopTestCase {
    /// Sends a request with this response topic; gives where it was answered, and with which error.
    @EventLoopActor
    private func answered(_ topic: String) async throws -> (topic: String, code: JSONValue?) {
        let bench = Bench()
        var properties = MessageProperties()
        properties.responseTopic = topic
        properties.correlationData = [1, 2]
        bench.broker.messages = []
        bench.broker.send("blueferry/gw/request/devices", #"{"id":1}"#, properties: properties)
        await bench.settle()
        let answers = bench.broker.messages.filter { $0.payload.contains("\"status\"") }
        XCTAssertEqual(answers.count, 1, topic)
        let answer = try XCTUnwrap(answers.first)
        XCTAssertEqual(answer.properties?.correlationData, [1, 2])
        return (answer.topic, try JSONValue.parse(Array(answer.payload.utf8))["error"]?["code"])
    }

    @EventLoopActor
    func testAnswersGoWhereTheSenderWants() async throws {
        for topic in [
            "mine", "mine/answers", "blueferry2/gw/status", "blueferr", "homeassistants/x", "/", "/blueferry/gw/status",
            "blueferry/gw/response/devices", "blueferry/other/response/me", "blueferry/gw/response/a/b/c", "é/ü",
            "Blueferry/gw/status",
        ] {
            let answer = try await answered(topic)
            XCTAssertEqual(answer.topic, topic)
            XCTAssertNil(answer.code, topic)
        }
    }

    @EventLoopActor
    func testAnswersNeverGoWhereOthersListenForSomethingElse() async throws {
        let long = String(repeating: "a", count: 65_536)
        let refused = [
            "blueferry": "forbidden", "blueferry/": "forbidden", "blueferry/gw": "forbidden",
            "blueferry/gw/status": "forbidden", "blueferry/gw/request/forget": "forbidden",
            "blueferry/gw/response": "forbidden", "blueferry/response/x": "forbidden",
            "blueferry/gw/devices/a4c1385e07d3/connection/set": "forbidden", "blueferry//status": "forbidden",
            "blueferry/gw/x/response/y": "forbidden", "blueferry/gw/Response/x": "forbidden",
            // A letter's accent is a part of the slash to a person's eye, and not to a broker.
            "blueferry/\u{301}gw/status": "forbidden", "homeassistant/\u{301}sensor/x/config": "forbidden",
            "homeassistant": "forbidden", "homeassistant/sensor/x/config": "forbidden", "$SYS/broker": "forbidden",
            "$share/group/x": "forbidden", "$": "forbidden", "mine/+": "bad_request", "mine/#": "bad_request",
            "#": "bad_request", "+": "bad_request", "mine\0": "bad_request", "": "bad_request", long: "bad_request",
        ]
        for (topic, code) in refused {
            let answer = try await answered(topic)
            XCTAssertEqual(answer.topic, "blueferry/gw/response/devices", "\(topic.prefix(60))")
            XCTAssertEqual(answer.code, .string(code), "\(topic.prefix(60))")
        }
    }

    @EventLoopActor
    func testAnAnswerToAVerbThatIsNoTopicLevelStaysBelowResponse() async throws {
        for verb in ["x+y", "", "é", "a b", String(repeating: "v", count: 65)] {
            let bench = Bench()
            bench.broker.send("blueferry/gw/request/\(verb)", #"{"id":1}"#)
            let answer = try await bench.broker.take("blueferry/gw/response/unknown")
            XCTAssertEqual(answer["error"]?["code"], .string("unknown_verb"))
        }
    }

    @EventLoopActor
    func testAPayloadIsMeasuredBeforeItIsRead() async throws {
        let bench = Bench()
        // One byte more than is taken: not even what is wrong with it is looked at.
        let large = [UInt8](repeating: UInt8(ascii: "["), count: Request.maximumSize + 1)
        bench.broker.send("blueferry/gw/request/devices", large)
        let answer = try await bench.broker.take("blueferry/gw/response/devices")
        XCTAssertEqual(answer["error"]?["code"], .string("bad_request"))
        XCTAssertTrue(answer["error"]?["message"]?.string?.contains("nothing of it was read") == true)
        // The largest that is taken, and nested without an end.
        bench.broker.send("blueferry/gw/request/devices", Array(large.dropLast()))
        let nested = try await bench.broker.take("blueferry/gw/response/devices")
        XCTAssertTrue(nested["error"]?["message"]?.string?.contains("nested deeper than 32") == true)
        let plain = [UInt8](repeating: UInt8(ascii: "0"), count: PlainCommand.maximumSize + 1)
        bench.broker.send("blueferry/gw/devices/c00000000001/characteristics/180f/2a19/set", plain)
        let event = try await bench.broker.take("blueferry/gw/events")
        XCTAssertTrue(event["message"]?.string?.contains("longer than 4096 bytes") == true)
        XCTAssertFalse(bench.radio.calls.contains { $0.hasPrefix("write") })
        let next = try await bench.request("devices", #"{"id":2}"#)
        XCTAssertEqual(next["status"], .string("ok"))
    }
}
