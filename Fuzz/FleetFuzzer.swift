internal import BlueZSimulator
internal import EventLoop

/// The simulator's fleet file.
@EventLoopActor
enum FleetFuzzer {
    static func run(_ input: UnsafeRawBufferPointer) {
        _ = try? FleetFile.parse(String(decoding: input, as: UTF8.self))
    }
}
