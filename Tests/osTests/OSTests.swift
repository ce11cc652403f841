import XCTest
import os.log

@testable import os

final class OSTests: XCTestCase {
    func testFormats() {
        XCTAssertEqual(LogFormat.text("a %{public}@ b %d", ["x" as NSString, 7]), "a x b 7")
        XCTAssertEqual(LogFormat.text("100 %%", []), "100 %")
        XCTAssertEqual(LogFormat.text("%s %d", [1]), "%s %d", "an argument is missing")
    }

    func testInterpolation() {
        let message: OSLogMessage = "n \(3, privacy: .public) \("x", privacy: .private) \(255, format: .hex)"
        XCTAssertEqual(message.text, "n 3 <private> ff")
        let prefixed: OSLogMessage =
            "\(16, format: .hex(includePrefix: true)) \(-16, format: .hex(includePrefix: true))"
        XCTAssertEqual(prefixed.text, "0x10 -0x10")
        let logger = Logger(subsystem: "a", category: "b")
        logger.debug("not shown \(1)")
        os_log("not shown", log: .disabled, type: .error)
        XCTAssertFalse(OSLog.disabled.isEnabled(type: .fault))
    }

    func testLock() {
        let lock = OSAllocatedUnfairLock(initialState: 1)
        lock.withLock { $0 += 1 }
        XCTAssertEqual(lock.withLock { $0 }, 2)
        let bare = OSAllocatedUnfairLock()
        bare.lock()
        XCTAssertFalse(bare.lockIfAvailable())
        bare.unlock()
    }
}
