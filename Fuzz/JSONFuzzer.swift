internal import EventLoop

@testable internal import JSON

/// JSON as it comes in requests: what is read is written again so that it reads the same, and what is read past jansson is
/// what jansson reads.
@EventLoopActor
enum JSONFuzzer {
    static func run(_ input: UnsafeRawBufferPointer) {
        if let flat = FlatObject.parse(input) {
            let value = try? JSONValue.parseByLibrary(input, limits: JSONLimits())
            precondition(value == flat, "jansson reads a flat object otherwise")
        }
        guard let value = try? JSONValue.parse(input) else { return }
        let text = value.serialised()
        let again = try? JSONValue.parse(text)
        precondition(again?.serialised() == text, "written JSON does not read the same")
    }
}
