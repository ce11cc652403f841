internal import EventLoop
internal import JSON

@testable internal import Bridge

/// Values of characteristics: bytes to JSON and back, JSON to bytes, and what people type on plain topics.
@EventLoopActor
enum ValueFuzzer {
    static func run(_ input: UnsafeRawBufferPointer) {
        let bytes = Array(input)
        let json = try? JSONValue.parse(input)
        for encoding in ValueEncoding.allCases {
            // A number that is not finite has no JSON.
            if let value = try? encoding.value(of: bytes), value.serialised() != Array("null".utf8) {
                let again = try? JSONValue.parse(value.serialised())
                let read = again.flatMap { try? encoding.bytes(of: $0) }
                precondition(read == bytes || encoding.isRounded, "\(encoding) does not read what it wrote")
            }
            if let json { _ = try? encoding.bytes(of: json) }
        }
        for action in [InboundTopic.Action.get, .set, .notify] { _ = try? PlainCommand.characteristic(action, input) }
        _ = try? PlainCommand.connection(input)
    }
}

extension ValueEncoding {
    /// JSON numbers are doubles where they are no whole numbers of 64 bits.
    fileprivate var isRounded: Bool { self == .uint64 || self == .float || self == .double }
}
