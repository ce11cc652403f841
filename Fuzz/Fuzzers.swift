internal import Glibc

@testable internal import EventLoop

/// Takes one input. What must hold whatever the input, it states as preconditions: a trap is a finding.
typealias Fuzzer = @EventLoopActor (_ input: UnsafeRawBufferPointer) -> Void

private let fuzzers: [String: Fuzzer] = [
    "advertisement": AdvertisementFuzzer.run,
    "json": JSONFuzzer.run,
    "commands": CommandFuzzer.run,
    "values": ValueFuzzer.run,
    "topics": TopicFuzzer.run,
    "packets": PacketFuzzer.run,
    "settings": SettingsFuzzer.run,
    "url": URLFuzzer.run,
    "pattern": PatternFuzzer.run,
    "fleet": FleetFuzzer.run,
    "dbus": MessageFuzzer.run,
    "mirror": MirrorFuzzer.run,
]

/// The fuzzer that the environment names; this thread is the loop's from here on.
private let chosen: Fuzzer = {
    let name = getenv("BLUEFERRY_FUZZER").map { String(cString: $0) } ?? ""
    guard let fuzzer = fuzzers[name] else {
        print("BLUEFERRY_FUZZER is '\(name)'; it must be one of \(fuzzers.keys.sorted())")
        exit(64)
    }
    EventLoop.shared.adoptThread()
    return fuzzer
}()

/// What libFuzzer calls with each input.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> Int32 {
    let fuzzer = chosen
    // A pointer may not cross into the actor, although it is the same thread.
    let address = UInt(bitPattern: start)
    EventLoopActor.assumeIsolated {
        fuzzer(UnsafeRawBufferPointer(start: UnsafeRawPointer(bitPattern: address), count: count))
    }
    return 0
}

extension UnsafeRawBufferPointer {
    /// The input's lines: the first `count - 1` of them and the rest, which may hold more lines; missing ones are empty.
    func parts(_ count: Int) -> [[UInt8]] {
        let found = split(separator: 0x0a, maxSplits: count - 1, omittingEmptySubsequences: false).map { Array($0) }
        return found + Array(repeating: [], count: count - found.count)
    }
}
