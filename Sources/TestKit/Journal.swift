internal import Foundation

// The programs that run for minutes use this module too, and are built without XCTest.
#if canImport(XCTest)
    internal import XCTest
#endif

/// What a delegate was told, line by line. Tests wait for it, with a deadline; they never sleep.
///
/// `@unchecked Sendable`: its variables are behind a condition.
public final class Journal: @unchecked Sendable {
    private let condition = NSCondition()
    private var lines: [String] = []

    public init() {}

    public var all: [String] {
        condition.lock()
        defer { condition.unlock() }
        return lines
    }

    public func add(_ line: String) {
        condition.lock()
        lines.append(line)
        condition.broadcast()
        condition.unlock()
    }

    public func clear() {
        condition.lock()
        lines = []
        condition.unlock()
    }

    public func count(_ line: String) -> Int { all.filter { $0 == line }.count }

    /// Waits until `isEnough` says so of all lines; false at the deadline. Blocks the thread.
    @discardableResult
    public func wait(within seconds: Double, until isEnough: ([String]) -> Bool) -> Bool {
        let deadline = Date(timeIntervalSinceNow: seconds)
        condition.lock()
        defer { condition.unlock() }
        while !isEnough(lines) {
            guard condition.wait(until: deadline) else { return isEnough(lines) }
        }
        return true
    }

    #if canImport(XCTest)
        /// Waits until the journal holds `line`, `count` times; else the test fails. Blocks the thread.
        public func wait(
            for line: String, count: Int = 1, within seconds: Double = 15, file: StaticString = #filePath,
            at number: UInt = #line
        ) {
            if wait(within: seconds, until: { $0.filter { $0 == line }.count >= count }) { return }
            XCTFail("no '\(line)' (\(count)) among \(all)", file: file, line: number)
        }
    #endif

    /// Waits for the first line with this beginning, and gives the rest of it. Leaves the thread free.
    /// - Throws: ``Expired``.
    @discardableResult
    public func rest(
        of beginning: String, count: Int = 1, within seconds: Double = 30
    ) async throws -> String {
        let isThere = await withCheckedContinuation { continuation in
            DispatchQueue.global().async { [self] in
                let isThere = wait(within: seconds) { $0.filter { $0.hasPrefix(beginning) }.count >= count }
                continuation.resume(returning: isThere)
            }
        }
        let found = all.filter { $0.hasPrefix(beginning) }
        guard isThere, let line = found.last else {
            throw Expired(message: "no '\(beginning)…' (\(count)) among \(all)")
        }
        return String(line.dropFirst(beginning.count))
    }
}
