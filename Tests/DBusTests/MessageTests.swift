import DBus
import EventLoop
import Sandbox
import XCTest

/// What goes into messages, and what must not.
final class MessageTests: BusTestCase {
    private typealias Fill = @EventLoopActor (inout MessageWriter) -> Void

    @EventLoopActor
    private func filled(_ fill: Fill) -> DBusMessage {
        let message = DBusMessage(signal: "/a", interface: "a.b", member: "C")
        var writer = message.writer()
        fill(&writer)
        return message
    }

    @EventLoopActor
    func testNamesThatAreNoneAreFaultsThatTellThem() async throws {
        let long = String(repeating: "a.", count: 200) + "b"
        for name in ["", "/", "a", "with space.x", "a.\0b", "a.b\0", "ü.b", long] {
            for message in [
                DBusMessage(call: "a.b", path: "/a", interface: name, member: "C"),
                DBusMessage(call: name, path: "/a", interface: "a.b", member: "C"),
                DBusMessage(signal: "/a", interface: name, member: "C"),
            ] {
                XCTAssertEqual(message.fault?.code, .invalidMessage, name.debugDescription)
                let told = message.fault?.message.contains(name.prefix(100).debugDescription)
                XCTAssertEqual(told, true, name.debugDescription)
            }
        }
        for path in ["", "a", "/a/", "//", "/a b", "/a\0", "/é"] {
            let call = DBusMessage(call: "a.b", path: path, interface: "a.b", member: "C")
            XCTAssertEqual(call.fault?.message, "\(path.debugDescription) is not a valid object path")
            XCTAssertNotNil(DBusMessage(signal: path, interface: "a.b", member: "C").fault, path.debugDescription)
            XCTAssertNotNil(filled { $0.append(objectPath: path) }.fault, path.debugDescription)
        }
        for member in ["", "a.b", "1a", "a-b", "A\0"] {
            XCTAssertNotNil(DBusMessage(call: "a.b", path: "/a", interface: "a.b", member: member).fault, member)
            XCTAssertNotNil(DBusMessage(signal: "/a", interface: "a.b", member: member).fault, member)
        }
        let signal = filled { _ in }
        signal.setDestination(":1.1")
        XCTAssertNil(signal.fault)
        signal.setDestination("nobody")
        XCTAssertEqual(signal.fault?.message, "\"nobody\" is not a valid bus name")
    }

    @EventLoopActor
    func testAMessageWithAFaultStillAnswersEveryQuestion() async throws {
        let faulty = DBusMessage(call: "", path: "", interface: "", member: "")
        XCTAssertNil(faulty.path)
        XCTAssertNil(faulty.member)
        XCTAssertEqual(faulty.signature, "")
        XCTAssertTrue(faulty.reader().isAtEnd)
        var writer = faulty.writer()
        writer.append(string: "x")
        writer.append(.properties([("a", .byte(1))]))
        XCTAssertTrue(faulty.reader().isAtEnd)
        XCTAssertNotNil(faulty.reply().fault)
        XCTAssertNotNil(faulty.error("a.b", "").fault)
        XCTAssertEqual(faulty.copy().fault, faulty.fault)
        XCTAssertNotNil(filled { _ in }.reply().fault, "a signal was answered")
    }

    @EventLoopActor
    func testContentsThatDoNotFitAreFaults() async throws {
        let deep = (0..<100).reduce(DBusValue.byte(1)) { value, _ in .variant(value) }
        let wrong: [(String, Fill)] = [
            ("NUL in a string", { $0.append(string: "a\0b") }),
            ("wrong element", { $0.array(of: "s") { $0.append(uint32: 1) } }),
            ("wrong element's type", { $0.array(of: "{vs}") { _ in } }),
            ("two elements' types", { $0.array(of: "ss") { _ in } }),
            ("no element's type", { $0.array(of: "") { _ in } }),
            ("half an element's type", { $0.array(of: "a{s") { _ in } }),
            ("an element's type with NUL", { $0.array(of: "s\0") { _ in } }),
            ("bytes in another array", { $0.array(of: "s") { $0.append(bytes: [1]) } }),
            ("empty variant", { $0.variant(of: "s") { _ in } }),
            ("wrong value in a variant", { $0.variant(of: "s") { $0.append(bool: true) } }),
            ("no type in a variant", { $0.variant(of: "") { _ in } }),
            ("two types in a variant", { $0.variant(of: "ss") { _ in } }),
            ("entry outside", { $0.entry { $0.append(string: "k") } }),
            ("half an entry", { $0.array(of: "{sv}") { $0.entry { $0.append(string: "k") } } }),
            ("entry in a list", { $0.array(of: "s") { $0.entry { $0.append(string: "k") } } }),
            ("value without entry", { $0.array(of: "{sv}") { $0.append(string: "k") } }),
            ("empty structure", { $0.structure { _ in } }),
            ("half a structure", { $0.array(of: "(ss)") { $0.structure { $0.append(string: "a") } } }),
            ("structure in a list", { $0.array(of: "s") { $0.structure { $0.append(string: "a") } } }),
            ("no descriptor", { $0.append(descriptor: -1) }),
            ("mixed list", { $0.append(.array(of: "s", [.string("a"), .byte(1)])) }),
            ("list of no type", { $0.append(.array(of: "nonsense", [])) }),
            ("mixed dictionary", { $0.append(.dictionary("sv", [(.string("a"), .byte(1))])) }),
            ("dictionary of no type", { $0.append(.dictionary("v", [])) }),
            ("variant of nothing", { $0.append(.variant(.structure([]))) }),
            ("variant of no type", { $0.append(.variant(.array(of: "!", []))) }),
            ("deep inside", { $0.append(.properties([("a", .array(of: "q", [.byte(1)]))])) }),
            ("too deep", { $0.append(deep) }),
            ("a signature of 256", { writer in for _ in 0..<256 { writer.append(byte: 0) } }),
            ("a structure's signature of 256", { $0.append(.structure([DBusValue](repeating: .byte(0), count: 254))) }),
        ]
        for (name, fill) in wrong {
            XCTAssertEqual(filled(fill).fault?.code, .invalidMessage, name)
        }
        XCTAssertEqual(
            filled { $0.append(.array(of: "s", [.uint32(1)])) }.fault?.message,
            "a value of type u stands in an array of s")
        XCTAssertFalse(filled { $0.append(string: "secret\0") }.fault?.message.contains("secret") ?? true)
    }

    @EventLoopActor
    func testContentsAtTheLimitsCross() async throws {
        try await withBus { bus in
            let server = try await open(bus)
            let client = try await open(bus)
            try await serve(server)
            let deep = (0..<64).reduce(DBusValue.byte(1)) { value, _ in .variant(value) }
            let dictionaries = (0..<21).reduce(DBusValue.byte(1)) { value, _ in .properties([("a", value)]) }
            let right: [(String, Fill)] = [
                ("64 levels", { $0.append(deep) }),
                ("63 levels", { $0.append(dictionaries) }),
                ("a signature of 255", { writer in for _ in 0..<255 { writer.append(byte: 0) } }),
                ("a structure's signature", { $0.append(.structure([DBusValue](repeating: .byte(0), count: 253))) }),
                (
                    "structures in structures",
                    {
                        $0.array(of: "(s(yay)a{sv})") {
                            $0.structure {
                                $0.append(string: "")
                                $0.append(.structure([.byte(1), .bytes([])]))
                                let pair = DBusValue.structure([.string("a"), .string("b")])
                                $0.appendOptions([("k", .array(of: "(ss)", [pair]))])
                            }
                        }
                    }
                ),
            ]
            for (name, fill) in right {
                let message = call("Accept", fill)
                XCTAssertNil(message.fault, name)
                _ = try await client.call(message, timeout: .seconds(5))
            }
            client.close()
            server.close()
        }
    }

    @EventLoopActor
    func testStructuresNestedTooDeeplyAreNotSent() async throws {
        try await withBus { bus in
            let client = try await open(bus)
            let value = (0..<33).reduce(DBusValue.byte(1)) { value, _ in .structure([value]) }
            let message = filled { $0.append(value) }
            XCTAssertEqual(client.send(message)?.code, .invalidMessage)
            let owner = try await client.nameOwner(of: client.uniqueName)
            XCTAssertEqual(owner, client.uniqueName)
            client.close()
        }
    }

    @EventLoopActor
    func testFaultsAreToldWhereMessagesAreSent() async throws {
        try await withBus { bus in
            let client = try await open(bus)
            let faulty = DBusMessage(call: Self.name, path: "bad path", interface: Self.name, member: "Echo")
            let error = await errorOf { try await client.call(faulty, timeout: .seconds(5)) }
            XCTAssertEqual(error, faulty.fault)
            XCTAssertEqual(error?.code, .invalidMessage)
            XCTAssertEqual(client.send(faulty), faulty.fault)
            XCTAssertNil(client.send(filled { $0.append(string: "right") }))
            let signal = await errorOf { try await client.call(filled { _ in }, timeout: .seconds(5)) }
            XCTAssertEqual(signal?.code, .invalidMessage)
            let quiet = call("Echo")
            quiet.setNoReply()
            let unanswered = await errorOf { try await client.call(quiet, timeout: .seconds(5)) }
            XCTAssertEqual(unanswered?.code, .invalidMessage)
            let name = await errorOf { try await client.requestName("a.b\0c") }
            XCTAssertEqual(name?.code, .invalidMessage)
            client.close()
            XCTAssertEqual(client.send(filled { _ in })?.code, .disconnected)
        }
    }

    @EventLoopActor
    func testTheCallerOfAFaultyAnswerIsTold() async throws {
        try await withBus { bus in
            let server = try await open(bus)
            let client = try await open(bus)
            try await server.requestName(Self.name)
            server.export(path: "/", subtree: true) { [weak server] message in
                let reply = message.reply()
                var writer = reply.writer()
                writer.append(.array(of: "s", [.byte(1)]))
                if message.member == "Now" { return reply }
                server?.send(reply)
                return nil
            }
            for member in ["Now", "Later"] {
                let error = await errorOf { try await client.call(call(member), timeout: .seconds(5)) }
                XCTAssertEqual(
                    error,
                    DBusError(
                        code: .remote, name: "org.freedesktop.DBus.Error.Failed",
                        message: "a value of type y stands in an array of s"))
            }
            server.export(path: "/", subtree: true) { $0.error("a.b", "one\0two") }
            let error = await errorOf { try await client.call(call("Now"), timeout: .seconds(5)) }
            XCTAssertEqual(error, DBusError(code: .remote, name: "a.b", message: "one\u{FFFD}two"))
            client.close()
            server.close()
        }
    }

    @EventLoopActor
    func testAMessageThatWasSentIsNotChangedButMayBeCalledAgain() async throws {
        try await withBus { bus in
            let server = try await open(bus)
            let client = try await open(bus)
            try await serve(server)
            let message = call("Echo") { $0.append(byte: 1) }
            for _ in 0..<2 {
                let reply = try await client.call(message, timeout: .seconds(5))
                XCTAssertEqual(reply.reader().byte(), 1)
            }
            var writer = message.writer()
            writer.append(byte: 2)
            XCTAssertEqual(message.fault?.code, .invalidMessage)
            XCTAssertEqual(message.signature, "y")
            let other = call("Accept")
            _ = try await client.call(other, timeout: .seconds(5))
            other.setDestination(":1.1")
            other.setNoReply()
            XCTAssertTrue(other.wantsReply)
            XCTAssertNotNil(other.fault)
            client.close()
            server.close()
        }
    }

    @EventLoopActor
    func testAWriterKeepsItsMessage() async throws {
        var writer = filled { _ in }.writer()
        for _ in 0..<100 { _ = filled { $0.append(string: "other") } }
        writer.append(string: "kept")
        writer.append(.properties([("a", .bytes([1, 2, 3]))]))
    }
}
