import EventLoop
import XCTest

@testable import DBus

/// Arguments read from their bytes: the same as libdbus reads, and nothing worse than an end from bytes that lie.
final class WireReaderTests: BusTestCase {
    private static let types: [DBusType] = [
        .byte, .bool, .int16, .uint16, .int32, .uint32, .int64, .uint64, .double, .string, .objectPath, .signature,
        .unixFd, .array, .variant, .structure, .dictEntry,
    ]

    /// Everything that the protocol shows of the arguments, as text. `steps` bounds what bytes that lie may cost.
    private static func text(_ first: some ArgumentReader, _ steps: inout Int, depth: Int = 0) -> String {
        var reader = first
        var text = ""
        while !reader.isAtEnd, steps > 0, depth < 70 {
            steps -= 1
            let names = types.filter { reader.isAt($0) }
            text += names.map { String(UnicodeScalar($0.character)) }.joined()
            if let value = reader.byte() { text += "\(value)" }
            if let value = reader.bool() { text += "\(value)" }
            if let value = reader.int16() { text += "\(value)" }
            if let value = reader.uint16() { text += "\(value)" }
            if let value = reader.string() { text += value.debugDescription }
            if let bytes = reader.withByteArray({ Array($0) }) { text += "\(bytes)" }
            text += "<" + Self.text(reader.enter(), &steps, depth: depth + 1) + ">"
            reader.next()
        }
        return text
    }

    private struct Random: RandomNumberGenerator {
        var state: UInt64

        mutating func next() -> UInt64 {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return state ^ state >> 29
        }
    }

    private static func value(_ random: inout Random, depth: Int) -> DBusValue {
        let word = String("héllo wörld".prefix(Int.random(in: 0...11, using: &random)))
        switch Int.random(in: 0...(depth > 0 ? 15 : 11), using: &random) {
        case 0: return .byte(.random(in: 0...255, using: &random))
        case 1: return .bool(.random(using: &random))
        case 2: return .int16(.random(in: -300...300, using: &random))
        case 3: return .uint16(.random(in: 0...9999, using: &random))
        case 4: return .int32(-7)
        case 5: return .uint32(7)
        case 6: return .int64(-8)
        case 7: return .uint64(8)
        case 8: return .double(0.5)
        case 9: return .string(word)
        case 10: return .objectPath("/a/b")
        case 11: return .bytes((0..<Int.random(in: 0...9, using: &random)).map { UInt8($0) })
        case 12: return .variant(value(&random, depth: depth - 1))
        case 13:
            return .structure((0...Int.random(in: 0...3, using: &random)).map { _ in value(&random, depth: depth - 1) })
        case 14:
            let count = Int.random(in: 0...4, using: &random)
            return .array(of: "v", (0..<count).map { _ in .variant(value(&random, depth: depth - 1)) })
        default:
            let count = Int.random(in: 0...4, using: &random)
            return .properties((0..<count).map { ("key\($0)", value(&random, depth: depth - 1)) })
        }
    }

    @EventLoopActor
    private func message(_ random: inout Random) -> DBusMessage {
        let message = DBusMessage(signal: "/a", interface: "a.b", member: "C")
        var writer = message.writer()
        for _ in 0..<Int.random(in: 1...4, using: &random) { writer.append(Self.value(&random, depth: 4)) }
        XCTAssertNil(message.fault)
        return message
    }

    @EventLoopActor
    func testItReadsWhatLibdbusReads() async throws {
        var random = Random(state: 1)
        for _ in 0..<500 {
            let message = message(&random)
            var steps = 100_000
            let expected = Self.text(message.reader(), &steps)
            XCTAssertFalse(expected.isEmpty)
            let copy = try XCTUnwrap(MarshalledMessage(message.pointer))
            defer { copy.free() }
            let signature = Array(message.signature.utf8)
            signature.withUnsafeBytes {
                XCTAssertEqual(Self.text(WireReader(copy.arguments, signature: $0), &steps), expected)
            }
        }
    }

    @EventLoopActor
    func testBytesThatLieLeadNowhere() async throws {
        var random = Random(state: 2)
        for _ in 0..<300 {
            let message = message(&random)
            let copy = try XCTUnwrap(MarshalledMessage(message.pointer))
            defer { copy.free() }
            for _ in 0..<40 {
                // Each in memory of its own exact size, so that a tool that watches memory sees a step outside.
                var bytes = Array(copy.arguments.prefix(Int.random(in: 0...copy.arguments.count, using: &random)))
                var signature = Array(message.signature.utf8)
                for _ in 0..<Int.random(in: 0...3, using: &random) where !bytes.isEmpty {
                    let index = Int.random(in: 0..<bytes.count, using: &random)
                    bytes[index] = [0, 1, 4, 0x28, 0x61, 0x76, 0x7b, 0x7f, 0xff].randomElement(using: &random) ?? 0
                }
                if Bool.random(using: &random), !signature.isEmpty {
                    let index = Int.random(in: 0..<signature.count, using: &random)
                    signature[index] = Array("aybnqiuxtdsogv(){}z".utf8).randomElement(using: &random) ?? 0
                }
                var steps = 5_000
                bytes.withUnsafeBytes { bytes in
                    signature.withUnsafeBytes {
                        _ = Self.text(WireReader(bytes, signature: $0), &steps)
                    }
                }
                XCTAssertGreaterThan(steps, 0, "it went on for ever")
            }
        }
    }

    @EventLoopActor
    func testArgumentsAreReadWhereTheyLie() async throws {
        try await withBus { bus in
            let server = try await open(bus)
            try await serve(server)
            let client = try await open(bus)
            let text = String(repeating: "x", count: 10_000)
            let object = DBusValue.dictionary(
                "sa{sv}", [(.string("a.b"), .properties([("a", .string(text)), ("b", .uint16(7))]))])
            for arguments: [DBusValue] in [
                [.string(text), .properties([("a", .byte(1))]), .array(of: "s", [.string("b")])],
                [.objectPath("/a"), object],
                [.dictionary("oa{sa{sv}}", [(.objectPath("/a"), object), (.objectPath("/b"), object)]), .uint16(3)],
                [.array(of: "s", [.string(""), .string("c")])],
            ] {
                let sent = call("Echo") { writer in for value in arguments { writer.append(value) } }
                let reply = try await client.call(sent, timeout: .seconds(5))
                for message in [sent, reply] {
                    var steps = 1_000
                    let expected = Self.text(message.reader(), &steps)
                    let seen = message.withWireReader { Self.text($0, &steps) }
                    XCTAssertEqual(seen, expected, message.signature)
                }
            }
        }
    }

    @EventLoopActor
    func testArgumentsThatDoNotBeginWithATextAreNotReadWhereTheyLie() async throws {
        for arguments: [DBusValue] in [[], [.uint16(1), .string("a")], [.bytes([1])], [.array(of: "s", [])]] {
            let message = call("Echo") { writer in for value in arguments { writer.append(value) } }
            XCTAssertNil(message.withWireReader { $0.isAtEnd })
        }
    }

    @EventLoopActor
    func testThousandsOfSignalsAtOnceComeWholeAndInOrder() async throws {
        try await withBus { bus in
            let sender = try await open(bus)
            let receiver = try await open(bus)
            try await receiver.addMatch(MatchRule(interface: "a.b", member: "C"))
            let count: UInt16 = 5_000
            let all = Pending<Void>()
            var numbers: [UInt16] = []
            receiver.addSignalHandler { view in
                guard view.memberEquals("C") else { return }
                guard var reader = view.wireReader() else { return XCTFail("no reader") }
                reader.next()
                XCTAssertEqual(reader.withByteArray { $0.count }, 100)
                reader.next()
                numbers.append(reader.uint16() ?? .max)
                if numbers.count == count { all.succeed(()) }
            }
            for number in 0..<count {
                let signal = DBusMessage(signal: "/a", interface: "a.b", member: "C")
                var writer = signal.writer()
                writer.append(string: "a")
                writer.append(.bytes([UInt8](repeating: 1, count: 100)))
                writer.append(uint16: number)
                sender.send(signal)
            }
            try await all.value(timeout: .seconds(20))
            XCTAssertEqual(numbers, Array(0..<count))
        }
    }
}
