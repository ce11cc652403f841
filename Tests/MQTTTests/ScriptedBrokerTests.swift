import EventLoop
import Glibc
import MQTT
import TestKit
import XCTest

/// A listener that answers whatever comes first with given bytes: for what no real broker can be made to say.
@EventLoopActor
final class ScriptedBroker {
    let port: UInt16
    private let listener: Int32
    private var registrations: [IORegistration] = []
    private var connections: [Int32] = []
    /// What came on the newest connection, and whether it has ended.
    private(set) var received: [UInt8] = []
    private(set) var isEnded = false
    var onReceive: @EventLoopActor () -> Void = {}
    /// It reads no more once it has answered, until ``hear()``.
    private let isDeaf: Bool

    init(answer: [UInt8], closes: Bool = false, isDeaf: Bool = false) throws {
        self.isDeaf = isDeaf
        let listener = socket(AF_INET, Int32(bitPattern: SOCK_STREAM.rawValue), 0)
        var room: Int32 = isDeaf ? 4_096 : 1 << 20
        setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &room, socklen_t(MemoryLayout<Int32>.size))
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isBound = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(listener, $0, length) == 0 && listen(listener, 8) == 0 && getsockname(listener, $0, &length) == 0
            }
        }
        XCTAssertTrue(isBound)
        self.listener = listener
        port = UInt16(bigEndian: address.sin_port)
        registrations.append(
            try EventLoop.shared.register(listener, .read) { [unowned self] _ in
                let connection = accept(listener, nil, nil)
                if connection >= 0 { serve(connection, answer, closes) }
            })
    }

    private func serve(_ connection: Int32, _ answer: [UInt8], _ closes: Bool) {
        connections.append(connection)
        received = []
        isEnded = false
        follow(connection) { [unowned self] in
            _ = write(connection, answer, answer.count)
            if closes { shutdown(connection, Int32(SHUT_RDWR)) }
            return !isDeaf
        }
    }

    /// Reads what comes. `first` is called once, behind the first bytes; where it gives back false, no more is read.
    private func follow(_ connection: Int32, _ first: @escaping @EventLoopActor () -> Bool) {
        var first: (@EventLoopActor () -> Bool)? = first
        var own: IORegistration?
        own = try? EventLoop.shared.register(connection, .read) { [unowned self] _ in
            var buffer = [UInt8](repeating: 0, count: 65_536)
            let count = read(connection, &buffer, buffer.count)
            if count > 0 {
                received += buffer[..<count]
                if first?() == false { own?.cancel() }
                first = nil
            } else {
                isEnded = true
                own?.cancel()
            }
            onReceive()
        }
        if let own { registrations.append(own) }
    }

    func hear() {
        if let connection = connections.last { follow(connection) { true } }
    }

    /// Says more on the newest connection.
    func send(_ bytes: [UInt8]) {
        if let connection = connections.last { _ = write(connection, bytes, bytes.count) }
    }

    func stop() {
        for registration in registrations { registration.cancel() }
        for descriptor in connections + [listener] { close(descriptor) }
    }
}

final class ScriptedBrokerTests: BrokerTestCase {
    /// Acknowledgements are read past libmosquitto, and what stands between them by it.
    @EventLoopActor
    func testWhatTheBrokerSaysIsUnderstoodInWhateverPiecesItComes() async throws {
        let packets: [[UInt8]] = [
            [0x40, 2, 0x10, 0], [0x30, 6, 0, 2, 0x69, 0x6e, 0, 0x31], [0xd0, 0], [0x40, 3, 0x10, 1, 0x10],
            [0x40, 6, 0x10, 2, 0x10, 2, 0x1f, 0], [0x30, 6, 0, 2, 0x69, 0x6e, 0, 0x32], [0x40, 2, 0x10, 3],
        ]
        let said = packets.flatMap { $0 }
        for size in [1, 2, 3, 5, 7, 11, said.count] {
            let broker = try ScriptedBroker(answer: [0x20, 3, 0, 0, 0])
            let recorder = Recorder(MQTTSettings(host: "127.0.0.1", port: broker.port, clientID: "bridge"))
            try await recorder.connect()
            for number: UInt8 in 0..<4 { recorder.client.publish("t", [number], qos: .atLeastOnce) }
            for start in stride(from: 0, to: said.count, by: size) {
                broker.send(Array(said[start..<min(start + size, said.count)]))
                // The loop looks at its descriptors in between.
                await Task.yield()
            }
            try await recorder.monitor.wait("all of it") {
                recorder.acknowledged.count == 4 && recorder.messages.count == 2
            }
            XCTAssertEqual(recorder.messages.map(\.payload), [[0x31], [0x32]], "pieces of \(size)")
            XCTAssertEqual(recorder.client.statistics.unacknowledged, 0)
            XCTAssertEqual(recorder.faults, [])
            await recorder.client.stop(flushWithin: .zero)
            broker.stop()
        }
    }

    /// Source: MQTT 5.0, section 3.2.2.3.5.
    @EventLoopActor
    func testABrokerThatRetainsNothingIsAskedForNothingRetained() async throws {
        for qos in [QoS.atMostOnce, .atLeastOnce] {
            let broker = try ScriptedBroker(answer: [0x20, 5, 0, 0, 2, 0x25, 0])
            let recorder = Recorder(MQTTSettings(host: "127.0.0.1", port: broker.port, clientID: "bridge"))
            broker.onReceive = { recorder.monitor.changed() }
            try await recorder.connect()
            let before = broker.received.count
            recorder.client.publish("t", [1], qos: qos, retain: true)
            try await recorder.monitor.wait("the message") { broker.received.count > before }
            XCTAssertEqual(broker.received[before], qos == .atMostOnce ? 0x30 : 0x32)
            await recorder.client.stop(flushWithin: .zero)
            broker.stop()
        }
    }

    /// Leaving while a packet is half written, with others behind it: all of them leave, and DISCONNECT last.
    @EventLoopActor
    func testLeavingWaitsForWhatIsHalfWritten() async throws {
        // Without QoS 1 libmosquitto writes these messages, and not we.
        let broker = try ScriptedBroker(answer: [0x20, 5, 0, 0, 2, 0x24, 0], isDeaf: true)
        var settings = MQTTSettings(host: "127.0.0.1", port: broker.port, clientID: "bridge")
        settings.pendingLimit = 64 << 20
        let recorder = Recorder(settings)
        broker.onReceive = { recorder.monitor.changed() }
        try await recorder.connect()
        let payload = [UInt8](repeating: 7, count: 200_000)
        for _ in 0..<40 { recorder.client.publish("t", payload, qos: .atLeastOnce) }
        await Task.yield()
        recorder.client.publish("plain", [1])
        let leaving = Task { @EventLoopActor in await recorder.client.stop(flushWithin: .seconds(20)) }
        await Task.yield()
        broker.hear()
        try await recorder.monitor.wait("the end", within: .seconds(20)) { broker.isEnded }
        XCTAssertEqual(broker.received.suffix(2), [0xe0, 0])
        XCTAssertGreaterThan(broker.received.count, 40 * payload.count)
        await leaving.value
        broker.stop()
    }

    @EventLoopActor
    private func firstFault(_ answer: [UInt8], closes: Bool = false, _ version: MQTTVersion) async throws -> MQTTFault {
        let broker = try ScriptedBroker(answer: answer, closes: closes)
        var settings = MQTTSettings(host: "127.0.0.1", port: broker.port, clientID: "bridge")
        settings.version = version
        let recorder = Recorder(settings)
        recorder.client.start()
        let fault = try await recorder.fault()
        await recorder.client.stop(flushWithin: .zero)
        broker.stop()
        return fault
    }

    @EventLoopActor
    func testATakeoverIsNamedWhereTheBrokerNamesIt() async throws {
        let fault = try await firstFault([0x20, 3, 0, 0, 0, 0xe0, 2, 0x8e, 0], .v5)
        XCTAssertEqual(fault.code, .takenOver)
        XCTAssertTrue(fault.wasConnected)
        XCTAssertEqual(fault.reason, 0x8e)
        XCTAssertTrue(fault.message.contains("session taken over"), fault.message)
        XCTAssertTrue((Duration.milliseconds(500)...(.seconds(1))).contains(try XCTUnwrap(fault.retryDelay)))
    }

    @EventLoopActor
    func testEveryRefusalIsToldInPlainWords() async throws {
        let cases: [(code: UInt8, version: MQTTVersion, class_: MQTTFault.Code, words: String)] = [
            (1, .v311, .refused, "does not speak MQTT 3.1.1"), (2, .v311, .refused, "client identifier rejected"),
            (3, .v311, .unreachable, "not available"), (4, .v311, .notAuthorised, "bad user name or password"),
            (5, .v311, .notAuthorised, "not authorised"), (0x84, .v5, .refused, "does not speak MQTT 5"),
            (0x85, .v5, .refused, "client identifier rejected"), (0x86, .v5, .notAuthorised, "bad user name"),
            (0x87, .v5, .notAuthorised, "not authorised"), (0x88, .v5, .unreachable, "not available"),
            (0x9f, .v5, .refused, "connection rate exceeded"),
        ]
        for (code, version, class_, words) in cases {
            let answer: [UInt8] = version == .v5 ? [0x20, 3, 0, code, 0] : [0x20, 2, 0, code]
            let fault = try await firstFault(answer, version)
            XCTAssertEqual(fault.code, class_, "\(code)")
            XCTAssertFalse(fault.wasConnected)
            XCTAssertEqual(fault.reason, code)
            XCTAssertTrue(fault.message.contains(words), fault.message)
        }
    }

    @EventLoopActor
    func testABrokerOf311IsRecognised() async throws {
        // What such a broker says to MQTT 5: a CONNACK of its own version, without properties.
        let fault = try await firstFault([0x20, 2, 0, 1], closes: true, .v5)
        XCTAssertTrue(fault.message.contains("set mqtt.version to 3.1.1"), fault.message)
    }

    @EventLoopActor
    func testAReasonInWordsIsPassedOn() async throws {
        let text = Array("no such tenant".utf8)
        let answer = [0x20, UInt8(6 + text.count), 0, 0x87, UInt8(3 + text.count), 31, 0, UInt8(text.count)] + text
        let fault = try await firstFault(answer, .v5)
        XCTAssertTrue(fault.message.hasSuffix("(it says: no such tenant)"), fault.message)
    }

    @EventLoopActor
    func testGarbageIsAFaultAndNothingWorse() async throws {
        for answer in [Array("HTTP/1.1 400 Bad Request\r\n\r\n".utf8), [0xff, 0xff, 0xff, 0xff, 0xff], [0x20, 0]] {
            let fault = try await firstFault(answer, closes: true, .v5)
            XCTAssertTrue([.protocolError, .unreachable].contains(fault.code), "\(fault)")
        }
        let closed = try await firstFault([], closes: true, .v5)
        XCTAssertEqual(closed.code, .unreachable)
    }

    @EventLoopActor
    func testWithoutQoS1OfTheBrokerMessagesLeaveAtQoS0AndAreDone() async throws {
        let broker = try ScriptedBroker(answer: [0x20, 5, 0, 0, 2, 36, 0])
        let recorder = Recorder(MQTTSettings(host: "127.0.0.1", port: broker.port, clientID: "bridge"))
        try await recorder.connect()
        guard case .sent(let token) = recorder.client.publish("t", [1], qos: .atLeastOnce) else {
            return XCTFail("not sent")
        }
        try await recorder.monitor.wait("the end") { recorder.acknowledged == [token] }
        await recorder.client.stop(flushWithin: .seconds(1))
        broker.stop()
    }
}
