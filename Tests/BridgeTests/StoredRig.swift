import EventLoop
import Glibc
import Sandbox
import Store
import XCTest

@testable import Bridge

/// A state on the disk that a test opens, and opens again as it would be found after a crash.
@EventLoopActor
final class StoredRig {
    let directory: TemporaryDirectory
    let clock = ManualClock()
    let state: StoredState
    private(set) var warnings: [String] = []
    var path: String { directory.file("outbox.db") }

    init(
        _ directory: TemporaryDirectory? = nil, limit: Int = 100_000, sizeLimit: Int = 128 << 20
    ) async throws {
        self.directory = try directory ?? TemporaryDirectory(prefix: "blueferry-test")
        state = await StoredState.open(
            path: self.directory.file("outbox.db"), limit: limit, sizeLimit: sizeLimit, clock: clock)
        state.outbox.onWarning = { [weak self] _, message in self?.warnings.append(message) }
    }

    func outbox(file: StaticString = #filePath, line: UInt = #line) throws -> StoredOutbox {
        try XCTUnwrap(state.outbox as? StoredOutbox, file: file, line: line)
    }

    /// What was given so far is committed.
    func commit() async throws {
        for _ in 0..<3 {
            clock.advance(by: StateStore.tick)
            await settle()
        }
    }

    /// The worker has done what it was given, and the loop knows.
    func settle() async {
        for _ in 0..<3 {
            _ = await StateStore.run {}
            for _ in 0..<5 { await Task.yield() }
        }
    }

    /// The files as a SIGKILL at this moment would leave them.
    func crashImage() throws -> TemporaryDirectory {
        let image = try TemporaryDirectory(prefix: "blueferry-test")
        for name in ["outbox.db", "outbox.db-wal", "outbox.db.sequences"] {
            try copy(directory.file(name), to: image.file(name))
        }
        return image
    }

    private func copy(_ source: String, to target: String) throws {
        let input = open(source, O_RDONLY)
        guard input >= 0 else { return }
        let output = open(target, O_WRONLY | O_CREAT, 0o600)
        XCTAssertGreaterThanOrEqual(output, 0)
        var bytes = [UInt8](repeating: 0, count: 1 << 16)
        while true {
            let count = read(input, &bytes, bytes.count)
            guard count > 0 else { break }
            XCTAssertEqual(write(output, bytes, count), count)
        }
        close(input)
        close(output)
    }

    static func message(_ text: String, size: Int = 0) -> OutboxMessage {
        OutboxMessage(topic: "t", payload: Array(text.utf8) + [UInt8](repeating: 0x20, count: size))
    }

    static func text(_ message: OutboxMessage) -> String {
        String(decoding: message.payload.prefix { $0 != 0x20 }, as: UTF8.self)
    }

    /// Takes all that waits, in order, as a broker does that acknowledges at once.
    func drain(_ outbox: any Outbox) async -> [String] {
        var texts: [String] = []
        var misses = 0
        while outbox.count > 0, misses < 1000 {
            if let (id, message) = outbox.next(after: nil, in: .ordered) {
                misses = 0
                texts.append(Self.text(message))
                outbox.remove(id)
            } else {
                misses += 1
                await settle()
            }
        }
        return texts
    }

    /// The texts of messages that are numbered.
    static func names(_ numbers: Range<Int>) -> [String] { numbers.map { "\($0)" } }
}
