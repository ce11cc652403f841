import Pattern
import XCTest

final class PatternTests: XCTestCase {
    func testAPatternMatchesTheWholeName() throws {
        let cases: [(String, String, Bool)] = [
            ("Tracker.*", "Tracker 7", true), ("Tracker.*", "My Tracker", false), ("Tracker", "Tracker 7", false),
            ("a|ab", "ab", true), ("", "", true), ("", "x", false), ("(?i)hr.*", "HR strap", true), ("é+", "éé", true),
            ("a\\nb", "a\nb", true), ("abc", "abc\n", false),
        ]
        for (pattern, name, isMatch) in cases {
            XCTAssertEqual(try Pattern(pattern).matchesWhole(name), isMatch, "\(pattern) on \(name)")
        }
    }

    func testFaultsAreNamedWithTheirPlace() {
        XCTAssertThrowsError(try Pattern("a(b")) {
            XCTAssertEqual("\($0)", "at character 4: missing closing parenthesis")
        }
        XCTAssertThrowsError(try Pattern(String(repeating: "a", count: 1025)))
        XCTAssertThrowsError(try Pattern("\\C"))
    }

    func testNoPatternHoldsTheLoop() throws {
        let pattern = try Pattern("(a+)+$")
        XCTAssertFalse(pattern.matchesWhole(String(repeating: "a", count: 200) + "!"))
        XCTAssertEqual(pattern.givenUp, 1)
        XCTAssertTrue(pattern.matchesWhole("aaa"))
    }

    func testBytesThatAreNoTextDoNotMatch() throws {
        let pattern = try Pattern(".*")
        [UInt8(0x41), 0xff].withUnsafeBytes { XCTAssertFalse(pattern.matchesWhole($0)) }
        XCTAssertTrue(pattern.matchesWhole(UnsafeRawBufferPointer(start: nil, count: 0)))
    }
}
