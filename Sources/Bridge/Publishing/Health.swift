internal import EventLoop
internal import Glibc
internal import JSON

/// What the process uses of the machine.
struct ProcessUsage {
    /// Processor time since the start, in milliseconds. Source: `clock_gettime(2)`, CLOCK_PROCESS_CPUTIME_ID.
    var cpuMilliseconds: Int64
    /// Resident memory in bytes; 0 where /proc does not say. Source: `proc_pid_statm(5)`.
    var residentBytes: Int64

    static var now: ProcessUsage {
        var time = timespec()
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time)
        return ProcessUsage(
            cpuMilliseconds: Int64(time.tv_sec) * 1000 + Int64(time.tv_nsec) / 1_000_000,
            residentBytes: residentPages * Int64(getpagesize()))
    }

    private static var residentPages: Int64 {
        guard let file = fopen("/proc/self/statm", "re") else { return 0 }
        defer { fclose(file) }
        var line = [CChar](repeating: 0, count: 128)
        guard fgets(&line, Int32(line.count), file) != nil else { return 0 }
        let fields = line.prefix { $0 != 0 }.split(separator: CChar(bitPattern: UInt8(ascii: " ")))
        guard fields.count > 1 else { return 0 }
        return Int64(String(decoding: fields[1].map { UInt8(bitPattern: $0) }, as: UTF8.self)) ?? 0
    }
}

/// `health`: each minute, counted since the start; rates are those of the minute.
@EventLoopActor
final class HealthReport {
    private let clock: any LoopClock
    private let started: MonotonicTime
    private var last: (time: MonotonicTime, usage: ProcessUsage, heard: UInt64, published: UInt64, notified: UInt64)

    init(clock: any LoopClock) {
        self.clock = clock
        started = clock.now
        last = (clock.now, .now, 0, 0, 0)
    }

    /// The counts of one moment, gathered by the bridge.
    struct Sources {
        var radio: RadioCounts
        var publisher: Publisher.Counts
        var outboxCount: Int
        var outboxDropped: UInt64
        var outboxProblem: String?
        var unacknowledged: Int
        var pendingStates: Int
        var pendingAdvertisements: Int
        var brokerReconnects: UInt64
        var brokerQueuedBytes: Int
        var commandsReceived: UInt64
        var commandsFailed: UInt64
        var commandsRunning: Int
        var eventsSuppressed: UInt64
        var knownDevices: Int
        var connections: Int
        var problem: String?
    }

    func payload(_ sources: Sources) -> JSONValue {
        let now = clock.now
        let usage = ProcessUsage.now
        let elapsed = max(1, (now - last.time).clampedMilliseconds)
        let radio = sources.radio
        let publisher = sources.publisher
        func rate(_ count: UInt64, _ before: UInt64) -> JSONValue {
            .double((Double(count &- before) * 10_000 / Double(elapsed)).rounded() / 10)
        }
        // A share of no time at all says nothing.
        let cpu =
            elapsed < 1000
            ? JSONValue.null
            : .double(Double((usage.cpuMilliseconds - last.usage.cpuMilliseconds) * 1000 / elapsed) / 10)
        let rates: [(String, JSONValue)] = [
            ("advertisements_received", rate(radio.advertisements, last.heard)),
            ("advertisements_published", rate(publisher.advertisements, last.published)),
            ("notifications", rate(radio.notifications, last.notified)),
        ]
        last = (now, usage, radio.advertisements, publisher.advertisements, radio.notifications)
        return .object([
            ("time", .string(timestamp(clock.wallNow))),
            ("uptime", .int((now - started).clampedMilliseconds / 1000)),
            ("cpu_percent", cpu),
            ("memory_bytes", .int(usage.residentBytes)),
            ("rates", .object(rates)),
            ("counts", counts(sources)),
            ("queues", queues(sources)),
            ("drops", drops(sources)),
            (
                "reconnects",
                .object([
                    ("broker", number(sources.brokerReconnects)), ("bus", number(radio.busLosses)),
                    ("bluez", number(radio.blueZLosses)), ("silences", number(radio.silences)),
                    ("scan_starts", number(radio.scanStarts)),
                ])
            ),
            ("connections", .object([("used", .int(Int64(sources.connections))), ("free", .null)])),
            ("devices", .object([("seen", .int(Int64(radio.devices))), ("known", .int(Int64(sources.knownDevices)))])),
            ("bluetooth", .string(sources.problem ?? "ok")),
            ("storage", .string(sources.outboxProblem ?? "ok")),
        ])
    }

    private func counts(_ sources: Sources) -> JSONValue {
        .object([
            ("advertisements_received", number(sources.radio.advertisements)),
            ("advertisements_published", number(sources.publisher.advertisements)),
            ("notifications", number(sources.radio.notifications)),
            ("connects", number(sources.radio.connects)),
            ("links_lost", number(sources.radio.linksLost)),
            ("messages", number(sources.publisher.messages)),
            ("states", number(sources.publisher.states)),
            ("commands", number(sources.commandsReceived)),
            ("commands_failed", number(sources.commandsFailed)),
        ])
    }

    private func queues(_ sources: Sources) -> JSONValue {
        .object([
            ("outbox", .int(Int64(sources.outboxCount))),
            ("unacknowledged", .int(Int64(sources.unacknowledged))),
            ("states", .int(Int64(sources.pendingStates))),
            ("advertisements", .int(Int64(sources.pendingAdvertisements))),
            ("commands", .int(Int64(sources.commandsRunning))),
            ("bluetooth_calls", .int(Int64(sources.radio.callsInFlight))),
            ("broker_bytes", .int(Int64(sources.brokerQueuedBytes))),
        ])
    }

    private func drops(_ sources: Sources) -> JSONValue {
        .object([
            ("advertisements_offline", number(sources.publisher.droppedOffline)),
            ("advertisements_slow", number(sources.publisher.droppedSlow)),
            ("discovery_offline", number(sources.publisher.droppedDiscoveries)),
            ("outbox", number(sources.outboxDropped)),
            ("expired", number(sources.publisher.expired)),
            ("too_large", number(sources.publisher.impossible)),
            ("events", number(sources.eventsSuppressed)),
        ])
    }

    private func number(_ count: UInt64) -> JSONValue { .int(Int64(clamping: count)) }
}
