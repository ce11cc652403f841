internal import EventLoop
internal import JSON
internal import Sandbox
internal import TestKit

/// What must hold after the end of a fault. Seconds.
struct RecoveryLimits {
    /// Until the first value arrives.
    var first: Double
    /// Until a value of each peer arrives that was sent after the end of the fault.
    var all: Double
    /// Until an advertisement arrives; nil: 3 s more than for the first value.
    var scan: Double?
}

/// One row of the matrix: a fault, what it may cost, and what it may not.
struct FaultCase {
    let name: String
    /// In words, for the table.
    let title: String
    var healing = FaultWindow.Healing.neverDeaf
    /// What was received so shortly before need not be kept yet (ms), beside the time of its way.
    var uncommitted = 0.0
    var limits = RecoveryLimits(first: 2, all: 60)
    /// bluetoothd gives links up. Linux holds a link that nobody uses any more for 2 s (HCI_DISCONN_TIMEOUT), in which the
    /// peer sends to no one; the simulator ends it at once.
    var desertsLinks = false
    /// Links must not end.
    var keepsLinks = false
    /// The broker forgets what it acknowledged.
    var brokerForgets = false
    var isSmoke = false
    /// Only on request: it takes many minutes.
    var isLong = false
    /// Why it cannot be run here; nil: it can.
    var obstacle: @EventLoopActor () -> String? = { nil }
    var options: @EventLoopActor (inout StageOptions) throws -> Void = { _ in }
    /// Does it. Each fault is noted between ``FaultRun/began()`` and ``FaultRun/ended()``.
    let body: @Sendable @EventLoopActor (FaultRun) async throws -> Void

    static let all: [FaultCase] = brokerCases + bluetoothCases + bridgeCases
}

/// What a case works on while it runs.
@EventLoopActor
final class FaultRun {
    let stage: Stage
    let faultCase: FaultCase
    private var faults: [FaultWindow] = []
    /// Of the faults that ended with a start of the bridge: when its first message came.
    private var starts: [Int: Double] = [:]
    /// What else is to be told in the table.
    var remarks: [String] = []
    /// What went wrong that no column shows.
    var failures: [String] = []
    private var begunAt = 0.0

    init(_ stage: Stage, _ faultCase: FaultCase) {
        (self.stage, self.faultCase) = (stage, faultCase)
    }

    func began() { begunAt = milliseconds() }

    /// A bridge can have subscribed from its first message on: what peers see before is an order of the one that died.
    var windows: [FaultWindow] {
        var windows = faults
        for index in windows.indices.reversed() where starts[index] != nil {
            if let first = starts[index], first < .infinity {
                windows[index].ends = max(windows[index].ends, first)
            } else if index + 1 < windows.count {
                windows[index].ends = windows[index + 1].ends
            }
        }
        return windows
    }

    /// Starts the bridge as the end of the fault that is under way.
    func startBridge() throws {
        let index = faults.count
        starts[index] = .infinity
        stage.onFirstPublish = { [weak self] at in self?.starts[index] = at }
        try stage.startBridge()
    }

    /// In the lab nobody starts a bluetoothd that crashed, as systemd does elsewhere by way of the bus.
    func noteCrash(from: Double) {
        let now = milliseconds()
        faults.append(FaultWindow(begins: from, ends: now, healing: .bySubscribing, allowance: transit))
        remarks.append("bluetoothd itself had died, and was started again")
    }

    func ended() {
        faults.append(
            FaultWindow(
                begins: begunAt, ends: milliseconds(), healing: faultCase.healing,
                allowance: transit + faultCase.uncommitted))
        stage.recorder.watch()
    }

    /// The fault is what happens in `body`.
    func during(_ body: () async throws -> Void) async throws {
        began()
        try await body()
        ended()
    }

    func sleep(_ seconds: Double) async throws {
        try await SystemClock.shared.sleep(for: .milliseconds(Int64(seconds * 1000)))
    }

    /// How long a value may be on its way from peer to bridge, in milliseconds.
    var transit: Double { Stage.isLab ? 500 : 250 }

    /// How long a link may have had nobody at its other end when it ends, in milliseconds.
    var deserted: Double { Stage.isLab && faultCase.desertsLinks ? 2000 : 0 }
}

// MARK: The broker

extension FaultCase {
    static let brokerCases: [FaultCase] = [
        FaultCase(name: "none", title: "no fault", keepsLinks: true) { run in
            try await run.sleep(5)
            run.began()
            run.ended()
        },
        FaultCase(
            name: "broker-kill", title: "broker: SIGKILL, back after 3 s", keepsLinks: true, brokerForgets: true,
            isSmoke: true
        ) { run in
            try await run.during {
                await run.stage.broker.killBroker()
                try await run.stage.withoutBroker { try await run.sleep(3) }
            }
        },
        // What waited 30 s is sent at a bounded rate, and fresh values come behind it.
        FaultCase(
            name: "broker-freeze", title: "broker: SIGSTOP for 30 s", limits: .init(first: 2, all: 110),
            keepsLinks: true
        ) { run in
            try await run.during {
                run.stage.broker.freeze()
                try await run.sleep(30)
                run.stage.broker.thaw()
            }
        },
        FaultCase(
            name: "broker-restart", title: "broker: restart, with its persistence", keepsLinks: true,
            options: { $0.isBrokerPersistent = true }, body: restartBroker),
        FaultCase(
            name: "broker-empty", title: "broker: restart, without persistence", keepsLinks: true, brokerForgets: true,
            body: restartBroker),
        FaultCase(
            name: "broker-refuses", title: "broker: connection refused for 10 s", keepsLinks: true, isSmoke: true
        ) { run in
            try await run.during {
                run.stage.relay.refuse()
                try await run.sleep(10)
                try run.stage.relay.open()
            }
        },
        // After a refusal for authorisation the next attempt may be 8 s away.
        FaultCase(
            name: "broker-denies", title: "broker: bad credentials for 5 s", limits: .init(first: 9, all: 60),
            keepsLinks: true
        ) { run in
            // Another broker, which lets no one in; the probe stays with the first.
            var options = PrivateBroker.Options()
            options.listener = ["listener {port} 127.0.0.1", "allow_anonymous false"]
            let stranger = try await PrivateBroker.start(options)
            try await run.during {
                run.stage.relay.lead(to: stranger.port)
                try await run.sleep(5)
                run.stage.relay.lead(to: run.stage.broker.port)
            }
            await stranger.stop()
        },
        FaultCase(
            name: "tcp-cut", title: "TCP: cut in the middle of a packet, 3 times", keepsLinks: true, isSmoke: true
        ) { run in try await run.cut(3) },
        // So many short connections in a row look like another client under the same id, which is left in peace.
        FaultCase(
            name: "tcp-cut-often", title: "TCP: cut in the middle of a packet, 5 times",
            limits: .init(first: 10, all: 60), keepsLinks: true
        ) { run in try await run.cut(5) },
    ]
}

extension FaultCase {
    @Sendable @EventLoopActor
    private static func restartBroker(_ run: FaultRun) async throws {
        try await run.during {
            try await run.stage.withoutBroker {
                await run.stage.broker.stopBroker()
                try await run.sleep(3)
            }
        }
    }
}

// MARK: bluetoothd, the bus, the radio

extension FaultCase {
    private static let hci0: [String: JSONText] = ["adapter": "hci0"]

    /// BlueZ refuses discovery for about 9 s after a bluetoothd that was killed while it discovered.
    private static let afterKill = RecoveryLimits(first: 20, all: 45, scan: 15)
    private static let afterReturn = RecoveryLimits(first: 10, all: 35, scan: 5)

    static let bluetoothCases: [FaultCase] = [
        FaultCase(
            name: "bluetoothd-kill", title: "bluetoothd: SIGKILL, back after 1 s", healing: .bySubscribing,
            limits: afterKill, isSmoke: true
        ) { run in
            try await run.during {
                try await run.stage.order("daemon_kill")
                try await run.sleep(1)
                try await run.stage.startBluetoothd()
            }
        },
        FaultCase(
            name: "bluetoothd-term", title: "bluetoothd: SIGTERM, back after 1 s", healing: .bySubscribing,
            limits: afterReturn
        ) { run in
            try await run.during {
                try await run.stage.order("daemon_stop")
                try await run.sleep(1)
                try await run.stage.startBluetoothd()
                try await run.powerOn()
            }
        },
        FaultCase(
            name: "bluetoothd-freeze", title: "bluetoothd: SIGSTOP for 5 s", healing: .atTheEnd, limits: afterReturn
        ) { run in
            try await run.during {
                try await run.stage.order("daemon_freeze")
                try await run.sleep(5)
                try await run.stage.order("daemon_thaw")
            }
        },
        FaultCase(
            name: "bus-restart", title: "dbus-daemon: SIGKILL, back after 1 s", healing: .bySubscribing,
            limits: afterKill, isSmoke: true
        ) { run in
            try await run.during {
                try await run.stage.restartBus(pause: .seconds(1))
                try await run.stage.startBluetoothd()
            }
        },
        FaultCase(
            name: "adapter-replug", title: "adapter: unplugged for 2 s", healing: .bySubscribing, limits: afterReturn
        ) { run in
            try await run.during {
                try await run.stage.order("adapter_remove", hci0.json)
                try await run.sleep(2)
                try await run.stage.order("adapter_add", hci0.json)
            }
        },
        FaultCase(
            name: "adapter-renamed", title: "adapter: unplugged, back as hci1", healing: .bySubscribing,
            limits: afterReturn
        ) { run in
            try await run.during {
                try await run.stage.order("adapter_remove", hci0.json)
                try await run.sleep(2)
                try await run.stage.order("adapter_add", ["adapter": "hci0", "name": "hci1"].json)
            }
        },
        FaultCase(
            name: "power", title: "adapter: off for 3 s", healing: .bySubscribing, limits: afterReturn, isSmoke: true
        ) { run in
            try await run.during {
                try await run.stage.order("power", hci0.json.merging(["on": .bool(false)]) { $1 })
                try await run.sleep(3)
                try await run.powerOn()
            }
        },
        FaultCase(
            name: "link-loss", title: "all peers drop their links", healing: .bySubscribing,
            limits: .init(first: 5, all: 30)
        ) { run in
            try await run.during {
                // One whose link ended by itself just now has nothing to drop.
                for peer in 0..<Stage.peers {
                    try? await run.stage.order("disconnect", ["device": "peer-\(peer)"].json)
                }
            }
        },
        // BlueZ ends a link whose peer has left a request without an answer for 30 s.
        FaultCase(
            name: "att-hang", title: "two peers answer no request for 10 s; their links end after 30 s",
            limits: .init(first: 2, all: 30), desertsLinks: true, body: hangPeers),
    ]

    @Sendable @EventLoopActor
    private static func hangPeers(_ run: FaultRun) async throws {
        func hang(_ on: Bool) async throws {
            for peer in 0..<2 {
                try await run.stage.order("hang", ["device": .string("peer-\(peer)"), "on": .bool(on)])
            }
        }
        try await run.during {
            try await hang(true)
            try await run.sleep(10)
            try await hang(false)
        }
        try await run.sleep(24)
    }
}

extension FaultRun {
    /// Each time as soon as there is a connection again, and a second of it.
    func cut(_ times: Int) async throws {
        for _ in 0..<times {
            let connections = stage.relay.connections
            try await during { stage.relay.cutInTheMiddle() }
            let deadline = milliseconds() + 10_000
            while stage.relay.connections == connections, milliseconds() < deadline { try await sleep(0.05) }
            if stage.relay.connections == connections { failures.append("the connection did not come back") }
            try await sleep(1)
        }
    }

    func powerOn() async throws {
        try await stage.order("power", ["adapter": .string("hci0"), "on": .bool(true)])
    }
}

// MARK: The bridge itself

extension FaultCase {
    private static let afterStart = RecoveryLimits(first: 5, all: 30, scan: 5)
    /// What is committed within 50 ms must outlive a kill.
    private static let commitWithin = 50.0

    static let bridgeCases: [FaultCase] = [
        FaultCase(
            name: "bridge-kill", title: "bridge: SIGKILL, 20 times", healing: .bySubscribing,
            uncommitted: commitWithin, limits: afterStart
        ) { run in
            for _ in 0..<20 {
                try await run.sleep(Double.random(in: 0.1...2.5))
                try await run.during {
                    try await run.stage.killBridge()
                    try run.startBridge()
                }
            }
        },
        FaultCase(
            name: "bridge-kill-offline", title: "bridge: SIGKILL while the broker is away", healing: .bySubscribing,
            uncommitted: commitWithin, limits: .init(first: 2, all: 60), isSmoke: true
        ) { run in
            run.stage.relay.refuse()
            try await run.sleep(5)
            try await run.during {
                try await run.stage.killBridge()
                try run.startBridge()
            }
            try await run.sleep(4)
            try run.stage.relay.open()
            run.stage.recorder.watch()
        },
        FaultCase(
            name: "bridge-term", title: "bridge: SIGTERM, started again after 1 s", healing: .bySubscribing,
            limits: afterStart, isSmoke: true
        ) { run in
            try await run.during {
                try await run.terminateBridge()
                try await run.sleep(1)
                try run.startBridge()
            }
        },
        FaultCase(
            name: "bridge-term-offline", title: "bridge: SIGTERM while the broker is away", healing: .bySubscribing,
            limits: .init(first: 2, all: 60)
        ) { run in
            run.stage.relay.refuse()
            try await run.sleep(5)
            try await run.during {
                try await run.terminateBridge()
                try await run.sleep(1)
                try run.startBridge()
            }
            try await run.sleep(4)
            try run.stage.relay.open()
            run.stage.recorder.watch()
        },
        FaultCase(
            name: "disk-full", title: "disk full, the broker away for 12 s", keepsLinks: true,
            options: { try $0.limitDisk() }, body: fillDisk),
        FaultCase(
            name: "clock-jump", title: "wall clock: an hour on, two back, one on", keepsLinks: true,
            obstacle: { WallClock.obstacle }, options: { WallClock.prepare(&$0) }, body: shiftClock),
        FaultCase(
            name: "start", title: "bridge: from its start to its first message, 5 times", healing: .bySubscribing,
            limits: afterStart, isSmoke: true, body: timeStarts),
        FaultCase(
            name: "outage", title: "broker: away for ten minutes", limits: .init(first: 2, all: 900, scan: 2),
            keepsLinks: true, isLong: true, options: { $0.outboxLimit = 400_000 }, body: endureOutage),
    ]

    @Sendable @EventLoopActor
    private static func fillDisk(_ run: FaultRun) async throws {
        try await run.during {
            run.stage.relay.refuse()
            try await run.sleep(12)
            try run.stage.relay.open()
        }
    }

    @Sendable @EventLoopActor
    private static func shiftClock(_ run: FaultRun) async throws {
        for hours in [1, -1, 0] {
            try await run.during { try WallClock.shift(to: hours, run.stage) }
            try await run.sleep(3)
        }
    }

    /// Milliseconds; the lab's one processor has the whole world to carry besides.
    private static let longestStart = 300.0

    @Sendable @EventLoopActor
    private static func timeStarts(_ run: FaultRun) async throws {
        var taken: [Double] = []
        for _ in 0..<5 {
            try await run.during {
                try await run.terminateBridge()
                try run.startBridge()
            }
            let stage = run.stage
            try await stage.recorder.monitor.wait("the first message") { stage.firstPublishAt != nil }
            taken.append((stage.firstPublishAt ?? 0) - stage.bridgeStartedAt)
            try await run.sleep(1)
        }
        taken.sort()
        run.remarks.append(
            "start to first message: fastest \(Int(taken[0])) ms, median \(Int(taken[2])) ms, longest \(Int(taken[4])) ms"
        )
        // What else runs on the machine only delays a start: the fastest tells what the bridge takes.
        if !Stage.isLab, taken[0] > longestStart {
            run.failures.append("the first message came after \(Int(taken[0])) ms; the limit is \(Int(longestStart))")
        }
    }

    private static let mostGrowth = 10 << 20

    @Sendable @EventLoopActor
    private static func endureOutage(_ run: FaultRun) async throws {
        let before = run.stage.bridgeMemory
        var most = before
        try await run.during {
            run.stage.relay.refuse()
            for minute in 1...10 {
                for _ in 0..<12 {
                    try await run.sleep(5)
                    most = max(most, run.stage.bridgeMemory)
                }
                Endurance.say("    minute \(minute): \(Table.mebibytes(run.stage.bridgeMemory)) MiB")
            }
            try run.stage.relay.open()
        }
        run.remarks.append("memory grew by \(Table.mebibytes(most - before)) MiB at most during the outage")
        if most - before >= mostGrowth { run.failures.append("memory grew by \(Table.mebibytes(most - before)) MiB") }
    }
}

extension FaultRun {
    func terminateBridge() async throws {
        let exit = try await stage.stopBridge()
        if exit != .code(0) { failures.append("SIGTERM ended the bridge with \(exit.map { "\($0)" } ?? "nothing")") }
    }
}
