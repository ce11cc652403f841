import XCTest
import YAML

final class YAMLTests: XCTestCase {
    private func parse(_ text: String) throws -> YAMLNode {
        try YAMLDocument.parse(Array(text.utf8), file: "t.yaml")
    }

    private func message(_ text: String, _ body: (YAMLNode) throws -> Void = { _ in }) -> String {
        do {
            try body(try parse(text))
            return "no error"
        } catch {
            return "\(error)"
        }
    }

    func testScalarsStayWhatWasWritten() throws {
        let node = try parse("a: 0499\nb: 64\nc: 12:34:56:12:34:56\nd: 'true'\ne: 1e3\nf:\n")
        XCTAssertEqual(try node["a"]?.string(), "0499")
        XCTAssertEqual(try node["b"]?.string(), "64")
        XCTAssertEqual(try node["c"]?.string(), "12:34:56:12:34:56")
        XCTAssertEqual(try node["d"]?.string(), "true")
        XCTAssertThrowsError(try node["d"]?.bool())
        XCTAssertEqual(try node["e"]?.double(), 1000)
        XCTAssertEqual(node["f"]?.isNull, true)
        XCTAssertEqual(try node["f"]?.sequence().count, 0)
        XCTAssertNil(node["g"])
    }

    func testTreeWithPlacesAndPaths() throws {
        let node = try parse("devices:\n  - { address: x, subscribe: [a, b] }\n")
        let list = try XCTUnwrap(node["devices"]).sequence()
        let second = try XCTUnwrap(list.first?["subscribe"]).sequence()[1]
        XCTAssertEqual(second.path, "devices[0].subscribe[1]")
        XCTAssertEqual(second.position, YAMLPosition(line: 2, column: 34))
    }

    func testErrorsNamePlaceKeyAndFault() {
        XCTAssertEqual(
            message("bluetooth:\n  scan: { rssi: loud }") { node in
                _ = try node["bluetooth"]?["scan"]?["rssi"]?.integer(in: -127...20)
            }, "t.yaml:2:17: bluetooth.scan.rssi: expected a whole number from -127 to 20, found 'loud'")
        XCTAssertEqual(message("a: 1\nb: 2\na: 3"), "t.yaml:3:1: 'a' stands twice, first in line 1")
        XCTAssertEqual(
            message("mqtt: { usernme: x }") { try $0["mqtt"]?.checkKeys(["url", "username"]) },
            "t.yaml:1:9: mqtt: unknown key 'usernme'; did you mean 'username'?")
        XCTAssertEqual(message("a: &x 1"), "t.yaml:1:4: anchors (&name) are not supported; write the value out")
        XCTAssertEqual(message("a: *x"), "t.yaml:1:4: aliases (*name) are not supported; write the value out")
        XCTAssertEqual(
            message("a: [1, 2\nb: 3"),
            "t.yaml:2:2: did not find expected ',' or ']' while parsing a flow sequence that begins in line 1")
        XCTAssertEqual(
            message("a:\n\t- b"),
            "t.yaml:2:1: a value cannot begin so; a tab cannot indent, and text that begins with @ ` or % needs quotes")
        XCTAssertEqual(
            message("a: !!int 1"), "t.yaml:1:4: tags (!name) are not supported; quote a text that begins with !")
        XCTAssertEqual(message("? [a]\n: b"), "t.yaml:1:3: a key must be text")
        XCTAssertTrue(message("--- a\n--- b\n").contains("a second document"))
    }

    func testErrorsStayOnOneShortLine() {
        let long = "a\\n" + String(repeating: "x", count: 5000)
        let fault = message("a: \"\(long)\"") { _ = try $0["a"]?.integer() }
        XCTAssertEqual(
            fault, "t.yaml:1:4: a: expected a whole number, found 'a\u{fffd}\(String(repeating: "x", count: 58))…'")
        XCTAssertLessThan(message("\"\(long)\": 1") { try $0.checkKeys(["b"]) }.count, 200)
    }

    func testBytesThatAreNoTextHaveAPlace() {
        for bytes: [UInt8] in [[0x61, 0x3a, 0x20, 0xff], [0x61, 0x3a, 0x20, 0x00], [0x61, 0x3a, 0x20, 0xc3]] {
            XCTAssertThrowsError(try YAMLDocument.parse(Array("x: 1\n".utf8) + bytes, file: "t")) {
                XCTAssertTrue("\($0)".hasPrefix("t:2:4: is not UTF-8 text ("), "\($0)")
            }
        }
    }

    func testByteOrderMarkAndCarriageReturnsAreRead() throws {
        let node = try parse("\u{feff}a: 1\r\nb: 2\r\n")
        XCTAssertEqual(try node.mapping().map(\.key), ["a", "b"])
        XCTAssertEqual(try node["b"]?.string(), "2")
        XCTAssertEqual(node["b"]?.position.line, 2)
    }

    func testLimitsHoldAtTheirEdge() throws {
        var limits = YAMLLimits()
        limits.depth = 3
        limits.nodes = 10
        limits.size = 100
        func parse(_ text: String) throws { _ = try YAMLDocument.parse(Array(text.utf8), file: "t", limits: limits) }
        XCTAssertNoThrow(try parse("[[[1]]]"))
        XCTAssertThrowsError(try parse("[[[[1]]]]"))
        XCTAssertNoThrow(try parse("[1, 2, 3, 4, 5, 6, 7, 8, 9]"))
        XCTAssertThrowsError(try parse("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"))
        XCTAssertNoThrow(try parse(String(repeating: "a", count: 100)))
        XCTAssertThrowsError(try parse(String(repeating: "a", count: 101)))
    }

    func testNoTextTrapsOrRunsAway() throws {
        XCTAssertTrue(message(String(repeating: "[", count: 5000)).contains("nested deeper than 64 levels"))
        XCTAssertEqual(try parse("").isNull, true)
        XCTAssertThrowsError(try YAMLDocument.parse([0xff, 0xfe, 0, 0x80, 0x81], file: "t"))
        XCTAssertThrowsError(try YAMLDocument.parse([UInt8](repeating: 0x20, count: (1 << 20) + 1), file: "t"))
        XCTAssertThrowsError(try YAMLDocument.load(path: "/")) {
            XCTAssertEqual("\($0)", "/: cannot be read: Is a directory")
        }
        XCTAssertThrowsError(try YAMLDocument.load(path: "/nowhere/x.yaml")) {
            XCTAssertEqual("\($0)", "/nowhere/x.yaml: cannot be opened: No such file or directory")
        }
    }
}
