internal import EventLoop
internal import JSON

/// JSON as it comes in requests: what is read is written again so that it reads the same.
@EventLoopActor
enum JSONFuzzer {
    static func run(_ input: UnsafeRawBufferPointer) {
        guard let value = try? JSONValue.parse(input) else { return }
        let text = value.serialised()
        let again = try? JSONValue.parse(text)
        precondition(again?.serialised() == text, "written JSON does not read the same")
    }
}
