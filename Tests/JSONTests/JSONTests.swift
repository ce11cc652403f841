import JSON
import XCTest

final class JSONTests: XCTestCase {
    private func parse(_ text: String) throws -> JSONValue { try JSONValue.parse(Array(text.utf8)) }

    private func text(_ value: JSONValue) -> String { String(decoding: value.serialised(), as: UTF8.self) }

    func testTextsComeBackAsTheyWent() throws {
        for json in [
            #"{"id":"7","n":-5,"big":9223372036854775807,"d":2.5,"t":true,"f":false,"z":null,"a":[1,[],{}],"s":"a\"\\\n\té"}"#,
            "[]", "\"x\"", "12", "null", #""\u0000""#,
        ] {
            XCTAssertEqual(text(try parse(json)), json)
        }
        XCTAssertEqual(try parse("1.0"), .double(1))
        XCTAssertEqual(try parse(#"{"b":1,"a":2}"#)["a"], .int(2))
        XCTAssertNil(try parse(#"{"b":1}"#)["c"])
        XCTAssertNil(try parse("[1]")["c"])
    }

    func testBadTextsAreRefusedWithTheirPlace() {
        let faults = [
            "": "empty", "{\"value\":": "line 1, column 9: unexpected token near end of file",
            "{\"a\":1,\"a\":2}": "line 1, column 10: duplicate object key",
            "[1] x": "line 1, column 5: end of file expected", "nul": "line 1, column 3: invalid token",
            "[1,\n2,]": "line 2, column 3: unexpected token", "'a'": "line 1, column 1: invalid token",
            "01": "line 1, column 1: invalid token",
            "{\"a\":NaN}": "line 1, column 8: invalid token",
            String(repeating: "[", count: 33): "nested deeper than 32 levels",
        ]
        for (json, expected) in faults {
            XCTAssertThrowsError(try parse(json), json) { XCTAssertEqual("\($0)", expected, json) }
        }
        for bytes: [UInt8] in [[0xff, 0xfe], [0x22, 0xff, 0x22], [0x22, 0xed, 0xa0, 0x80, 0x22], [0]] {
            XCTAssertThrowsError(try JSONValue.parse(bytes))
        }
        XCTAssertThrowsError(try JSONValue.parse([UInt8](repeating: 0x20, count: (1 << 18) + 1))) {
            XCTAssertEqual("\($0)", "longer than 262144 bytes")
        }
    }

    func testBracketsInStringsAreNoNesting() throws {
        let text = "\"" + String(repeating: "[{\\\"", count: 100) + "\""
        XCTAssertEqual(try parse(text).stringValue?.count, 300)
    }

    func testWriterEscapesAndMendsWhatIsNoText() throws {
        let buffer = OutputBuffer(capacity: 1)
        var bytes = Array("a/b+c#d\te\u{7f}é€😀\"\\".utf8)
        bytes += [0xff, 0x41, 0xc3, 0xed, 0xa0, 0x80, 0xf0, 0x9f, 0]
        bytes.withUnsafeBytes { buffer.appendJSONString($0) }
        let parsed = try buffer.withUnsafeBytes { try JSONValue.parse($0) }
        XCTAssertEqual(parsed.stringValue, String(decoding: bytes, as: UTF8.self).replacingInvalid)
        buffer.removeAll()
        for number in [0, 7, -1, Int64.max, Int64.min] {
            buffer.appendNumber(number)
            buffer.append(UInt8(ascii: " "))
        }
        XCTAssertEqual(
            buffer.withUnsafeBytes { String(decoding: $0, as: UTF8.self) },
            "0 7 -1 9223372036854775807 -9223372036854775808 ")
        buffer.removeAll()
        [UInt8(0), 0x9f, 0xff].withUnsafeBytes { buffer.appendHex($0) }
        XCTAssertEqual(buffer.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }, "009fff")
        XCTAssertEqual(text(.double(.nan)), "null")
    }

    func testAnyBytesAsAStringAreValidJSON() throws {
        var generator = SystemRandomNumberGenerator()
        let buffer = OutputBuffer()
        for _ in 0..<2000 {
            let bytes = (0..<Int.random(in: 0...12, using: &generator)).map { _ in
                UInt8.random(in: 0...255, using: &generator)
            }
            buffer.removeAll()
            bytes.withUnsafeBytes { buffer.appendJSONString($0) }
            let value = try buffer.withUnsafeBytes { try JSONValue.parse($0) }
            if let valid = String(validating: bytes, as: UTF8.self) { XCTAssertEqual(value.stringValue, valid) }
        }
    }
}

extension String {
    /// Each byte that is no text counts for itself, as in the writer; Swift merges some of a broken sequence.
    fileprivate var replacingInvalid: String {
        let bad: [UInt8] = [0xef, 0xbf, 0xbd]
        let parts: [[UInt8]] = [
            Array("a/b+c#d\te\u{7f}é€😀\"\\".utf8), bad, [0x41], bad, bad, bad, bad, bad, bad, [0],
        ]
        return String(decoding: parts.joined(), as: UTF8.self)
    }
}
