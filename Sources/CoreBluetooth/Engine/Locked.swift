internal import Foundation

/// A value behind a lock.
///
/// `@unchecked Sendable`: `value` is touched by the holder of `lock` alone.
package final class Locked<Value>: @unchecked Sendable {
    private let lock = NSLock()
    private var value: Value

    package init(_ value: Value) { self.value = value }

    package func withLock<Result>(_ body: (inout Value) throws -> Result) rethrows -> Result {
        lock.lock()
        defer { lock.unlock() }
        return try body(&value)
    }
}

/// Errors of the program that uses the library: said on standard error, as Apple's says them in the system's log.
enum Misuse {
    static func log(_ message: String) {
        FileHandle.standardError.write(Data("CoreBluetooth: API misuse: \(message)\n".utf8))
    }

    static func warn(_ message: String) {
        FileHandle.standardError.write(Data("CoreBluetooth: \(message)\n".utf8))
    }
}
