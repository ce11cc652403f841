import XCTest

@testable import JSON

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

    /// What is read past jansson is what jansson reads, and what is not is left to it.
    func testFlatObjectsAreReadAsByTheLibrary() throws {
        let flat = [
            "{}", " { } ", #"{"a":"b"}"#, "\t{\r\n\"a\" : 1 , \"b\":-7,\"c\" :true, \"d\":false,\"e\":null }\n",
            #"{"id":"q00000001","device":"C0:FE:00:00:00:01","service":"fff0","characteristic":"fff1"}"#,
            #"{"a":0,"b":123456789012345678,"c":-123456789012345678,"":""}"#,
        ]
        let others = [
            "", "{", "}", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":1,}", "{,}", "{\"a\" 1}", "{\"a\":1}x", "{a:1}",
            "[]", "1",
            #"{"a":"\u0041"}"#, #"{"a":"é"}"#, #"{"a":{}}"#, #"{"a":[1]}"#, #"{"a":1.5}"#, #"{"a":1e3}"#, #"{"a":01}"#,
            #"{"a":-0}"#, #"{"a":-}"#, #"{"a":+1}"#, #"{"a":tru}"#, #"{"a":truely}"#, #"{"a":1,"a":2}"#, #"{"a":"b}"#,
            #"{"a":1234567890123456789}"#, "{\"a\":\"\u{7f}\"}", "{\"a\":\"\u{1}\"}", "{\"a\":1\0}",
            "{" + (0..<17).map { "\"\($0)\":1" }.joined(separator: ",") + "}",
        ]
        for (text, isFlat) in flat.map({ ($0, true) }) + others.map({ ($0, false) }) {
            var bytes = Array(text.utf8)
            try bytes.withUnsafeMutableBytes { bytes in
                let bytes = UnsafeRawBufferPointer(bytes)
                let read = FlatObject.parse(bytes)
                XCTAssertEqual(read != nil, isFlat, text)
                if let read { XCTAssertEqual(read, try JSONValue.parseByLibrary(bytes, limits: JSONLimits()), text) }
            }
        }
    }
}
