internal import EventLoop
internal import Pattern

/// A line with a name pattern, and the name of a device.
@EventLoopActor
enum PatternFuzzer {
    static func run(_ input: UnsafeRawBufferPointer) {
        let parts = input.parts(2)
        guard let pattern = try? Pattern(String(decoding: parts[0], as: UTF8.self)) else { return }
        // A device's name has at most 248 bytes. Source: Core Specification, Vol 3, Part C, 2.2.1.
        parts[1].prefix(248).withUnsafeBytes { _ = pattern.matchesWhole($0) }
    }
}
