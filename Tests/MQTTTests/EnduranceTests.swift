import EventLoop
import Glibc
import MQTT
import Sandbox
import TestKit
import XCTest

/// What goes wrong only after a while, or under load.
final class EnduranceTests: BrokerTestCase {
    @EventLoopActor
    func testEveryTokenIsAcknowledgedOrLostOnceThroughManyBreaks() async throws {
        let broker = try await PrivateBroker.start()
        for version in [MQTTVersion.v5, .v311] {
            let recorder = Recorder(settings(broker, "bridge", version))
            try await recorder.connect()
            var sent: [PublishToken] = []
            for round in 0..<6 {
                for _ in 0..<200 {
                    if case .sent(let token) = recorder.client.publish("t", [1], qos: .atLeastOnce) {
                        sent.append(token)
                    }
                }
                // Some are acknowledged, some are under way, when the broker dies.
                if round % 2 == 0 {
                    let before = recorder.acknowledged.count
                    try await recorder.monitor.wait("some") { recorder.acknowledged.count > before + 20 }
                }
                let faults = recorder.faults.count
                await broker.killBroker()
                // The break, and a try that found nobody: a broker that is back before the first try would look like a
                // takeover after some rounds.
                try await recorder.monitor.wait("the break and a try") { recorder.faults.count > faults + 1 }
                XCTAssertEqual(recorder.client.statistics.unacknowledged, 0)
                try await broker.startBroker()
                try await recorder.monitor.wait("the connection") { recorder.client.state == .connected }
            }
            await recorder.client.stop(flushWithin: .seconds(2))
            XCTAssertEqual((recorder.acknowledged + recorder.lost).sorted(), sent)
            XCTAssertEqual(recorder.faults.filter { $0.code != .unreachable }, [])
            XCTAssertGreaterThan(recorder.lost.count, 0)
            XCTAssertGreaterThan(recorder.acknowledged.count, 60)
        }
        await broker.stop()
    }

    /// Packet identifiers come back after 65,535 packets of either QoS.
    @EventLoopActor
    func testAPacketOfQoS0IsNeverTakenForAnAcknowledgement() async throws {
        let broker = try ScriptedBroker(answer: [0x20, 3, 0, 0, 0])
        let recorder = Recorder(MQTTSettings(host: "127.0.0.1", port: broker.port, clientID: "bridge"))
        try await recorder.connect()
        guard case .sent(let token) = recorder.client.publish("t", [1], qos: .atLeastOnce) else {
            return XCTFail("not sent")
        }
        var count = 0
        while count < 140_000 {
            if recorder.client.publish("t", [0]) == .sent(.none) { count += 1 } else { await Task.yield() }
        }
        XCTAssertEqual(recorder.acknowledged, [])
        await recorder.client.stop(flushWithin: .milliseconds(10))
        XCTAssertEqual(recorder.acknowledged, [])
        XCTAssertEqual(recorder.lost, [token])
        broker.stop()
    }

    @EventLoopActor
    func testPublishingAndSubscribingFromWithinHandlers() async throws {
        let broker = try await PrivateBroker.start()
        for version in [MQTTVersion.v5, .v311] {
            let recorder = Recorder(settings(broker, "bridge", version))
            let client = recorder.client
            var rounds = 0
            client.onMessage = { message in
                rounds += 1
                guard rounds < 2_000 else { return recorder.monitor.changed() }
                if rounds == 1_000 { client.subscribe("other/#") }
                client.publish("ball/\(rounds)", message.payload, qos: rounds % 2 == 0 ? .atMostOnce : .atLeastOnce)
            }
            client.onConnect = { _ in
                client.subscribe("ball/#")
                client.publish("ball/start", Array("serve".utf8), qos: .atLeastOnce)
            }
            client.start()
            try await recorder.monitor.wait("the last ball", within: .seconds(30)) { rounds >= 2_000 }
            XCTAssertEqual(recorder.faults, [])
            await client.stop(flushWithin: .seconds(1))
        }
        await broker.stop()
    }

    @EventLoopActor
    func testAHandlerMayEndTheClient() async throws {
        let broker = try await PrivateBroker.start()
        let probe = try await MQTTProbe.connect(port: broker.port, subscribing: [])
        let recorder = Recorder(settings(broker))
        let client = recorder.client
        let monitor = recorder.monitor
        var isStopped = false
        client.subscribe("end")
        client.onSubscribed = { _, _ in monitor.changed() }
        client.onMessage = { _ in
            Task { @EventLoopActor in
                await client.stop(flushWithin: .seconds(1))
                isStopped = true
                monitor.changed()
            }
        }
        try await recorder.connect()
        try await probe.publish("end", "now", retain: true)
        try await monitor.wait("the end") { isStopped }
        XCTAssertEqual(client.state, .stopped)
        // Two at once, and one too many.
        async let first: Void = client.stop(flushWithin: .seconds(1))
        async let second: Void = client.stop(flushWithin: .seconds(1))
        _ = await (first, second)
        client.start()
        try await monitor.wait("a new start") { client.state == .connected }
        async let third: Void = client.stop(flushWithin: .seconds(1))
        async let fourth: Void = client.stop(flushWithin: .seconds(1))
        _ = await (third, fourth)
        XCTAssertEqual(client.state, .stopped)
        await probe.stop()
        await broker.stop()
    }

    @EventLoopActor
    func testAClientThatIsLetGoClosesItsConnection() async throws {
        let broker = try await PrivateBroker.start()
        let probe = try await MQTTProbe.connect(port: broker.port, subscribing: ["gone"])
        var settings = settings(broker)
        settings.will = MQTTMessage(topic: "gone", payload: [1])
        var client: MQTTClient? = MQTTClient(settings)
        let monitor = Monitor()
        client?.onConnect = { _ in monitor.changed() }
        client?.start()
        try await monitor.wait("the connection") { client?.state == .connected }
        client = nil
        try await probe.wait(for: "gone")
        await probe.stop()
        await broker.stop()
    }

    @EventLoopActor
    func testReconnectsLeaveNoDescriptorsAndNoThreadsBehind() async throws {
        let broker = try await PrivateBroker.start()
        let thief = settings(broker, "twin")
        let warmUp = Recorder(thief)
        try await warmUp.connect()
        await warmUp.client.stop(flushWithin: .seconds(1))
        let before = (entries("/proc/self/fd"), entries("/proc/self/task"))
        for _ in 0..<30 {
            let recorder = Recorder(thief)
            try await recorder.connect()
            await recorder.client.stop(flushWithin: .seconds(1))
        }
        await broker.killBroker()
        let refused = Recorder(thief)
        refused.client.start()
        _ = try await refused.fault(5)
        await refused.client.stop(flushWithin: .zero)
        XCTAssertLessThanOrEqual(entries("/proc/self/fd"), before.0 + 2)
        XCTAssertLessThanOrEqual(entries("/proc/self/task"), before.1 + 2)
        await broker.stop()
    }

    /// A listener whose queue is full drops what comes: connect(2) then blocks for minutes.
    @EventLoopActor
    func testAConnectThatHangsHoldsUpNeitherItsClientNorOthers() async throws {
        let listener = socket(AF_INET, Int32(bitPattern: SOCK_STREAM.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        var fillers: [Int32] = []
        withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { generic in
                XCTAssertEqual(bind(listener, generic, length), 0)
                XCTAssertEqual(listen(listener, 0), 0)
                XCTAssertEqual(getsockname(listener, generic, &length), 0)
                for _ in 0..<3 {
                    let kind = Int32(bitPattern: SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue)
                    let filler = socket(AF_INET, kind, 0)
                    _ = Glibc.connect(filler, generic, length)
                    fillers.append(filler)
                }
            }
        }
        var hanging = MQTTSettings(
            host: "127.0.0.1", port: UInt16(bigEndian: address.sin_port), clientID: "bridge")
        hanging.connectTimeout = .milliseconds(50)
        let stuck = Recorder(hanging)
        stuck.client.start()
        let fault = try await stuck.fault(3)
        XCTAssertTrue(fault.message.contains("within 50 ms"), fault.message)

        let broker = try await PrivateBroker.start()
        let other = Recorder(settings(broker))
        let start = MonotonicTime.now
        try await other.connect()
        XCTAssertLessThan(MonotonicTime.now - start, .seconds(2))
        await other.client.stop(flushWithin: .seconds(1))
        await broker.stop()

        let stopping = MonotonicTime.now
        await stuck.client.stop(flushWithin: .seconds(5))
        XCTAssertLessThan(MonotonicTime.now - stopping, .seconds(1))
        for descriptor in fillers + [listener] { close(descriptor) }
    }

    @EventLoopActor
    func testMemoryStaysWhereItIsOverManyMessages() async throws {
        var options = PrivateBroker.Options()
        options.lines = ["log_type error"]
        let broker = try await PrivateBroker.start(options)
        let recorder = Recorder(settings(broker))
        try await recorder.connect()
        recorder.client.onPublished = { _, _ in recorder.monitor.changed() }
        var first = 0
        for round in 0..<10 {
            for number in 0..<5_000 {
                recorder.client.publish("t/\(number % 50)", [UInt8](repeating: 1, count: 200))
                if number % 50 == 0 { await Task.yield() }
            }
            recorder.client.publish("t", [], qos: .atLeastOnce)
            try await recorder.monitor.wait("the acknowledgement") {
                recorder.client.statistics.unacknowledged == 0
            }
            if round == 2 { first = residentKilobytes() }
        }
        XCTAssertLessThan(residentKilobytes() - first, 3_000)
        await recorder.client.stop(flushWithin: .seconds(1))
        await broker.stop()
    }

    private nonisolated func entries(_ path: String) -> Int {
        guard let directory = opendir(path) else { return 0 }
        defer { closedir(directory) }
        var count = 0
        while readdir(directory) != nil { count += 1 }
        return count
    }
}
