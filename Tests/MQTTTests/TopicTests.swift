import MQTT
import XCTest

final class TopicTests: XCTestCase {
    func testFilterMatchesAsTheSpecificationSays() throws {
        let cases: [(filter: String, topic: String, matches: Bool)] = [
            ("a/b", "a/b", true), ("a/b", "a/b/c", false), ("a/b", "a", false), ("a/b", "A/b", false),
            ("a/+", "a/b", true), ("a/+", "a/", true), ("a/+", "a", false), ("a/+", "a/b/c", false),
            ("+", "a", true), ("+", "/a", false), ("+/+", "/a", true), ("/+", "/a", true),
            ("a/#", "a", true), ("a/#", "a/b/c", true), ("a/#", "ab", false), ("#", "a/b", true), ("#", "/", true),
            ("a/+/c", "a/b/c", true), ("a/+/c", "a//c", true), ("a//c", "a//c", true), ("a//c", "a/b/c", false),
            ("a/b/", "a/b", false), ("a/b", "a/b/", false), ("+/b/#", "a/b", true), ("+/b/#", "a/c", false),
            ("#", "$SYS/x", false), ("+/x", "$SYS/x", false), ("$SYS/#", "$SYS/x", true), ("$SYS/+", "$SYS/x", true),
            ("é", "e\u{301}", false),
        ]
        for (text, topic, expected) in cases {
            let filter = try XCTUnwrap(TopicFilter(text), text)
            XCTAssertEqual(filter.matches(topic), expected, "\(text) on \(topic)")
        }
    }

    func testFilterRefusesWhatIsNone() {
        for text in ["", "a#", "#/a", "a/#/b", "a+", "a/+b", "+a/b", "a\0b", String(repeating: "x", count: 65_536)] {
            XCTAssertNil(TopicFilter(text), String(text.prefix(10)))
        }
        for text in ["#", "+", "/", "a/+/#", "$share/group/a", String(repeating: "x", count: 65_535)] {
            XCTAssertNotNil(TopicFilter(text), String(text.prefix(10)))
        }
    }

    func testTopicNames() {
        for name in ["a", "/", "a b", "$SYS/x", "ü", String(repeating: "x", count: 65_535)] {
            XCTAssertTrue(MQTTTopic.isValid(name), String(name.prefix(10)))
        }
        for name in ["", "a/+", "#", "a\0", String(repeating: "x", count: 65_536)] {
            XCTAssertFalse(MQTTTopic.isValid(name), String(name.prefix(10)))
        }
    }
}
