/// Who is measured.
enum Contender: String, CaseIterable {
    case floor, blueferry
}

/// One way in which messages come, and the runs that are measured of it.
enum Scenario: Hashable {
    case advertisements(devices: Int)
    case sockets
    case signals
    case reads

    static let all: [Scenario] = [
        .advertisements(devices: 200), .advertisements(devices: 10_000), .sockets, .signals, .reads,
    ]
    static let connectable = 20

    var name: String {
        switch self {
        case .advertisements(let devices): "advertisements-\(devices)"
        case .sockets: "sockets"
        case .signals: "signals"
        case .reads: "reads"
        }
    }

    var devices: Int {
        if case .advertisements(let devices) = self { return devices }
        return Self.connectable
    }

    /// The floor's name for it.
    var kind: String {
        if case .advertisements = self { return "advertisements" }
        return name
    }

    var isScan: Bool { kind == "advertisements" }
    var notifies: Bool { self == .sockets || self == .signals }

    /// A stretch of messages: at a rate, or with a rate of 0 as many as go; for reads a window instead.
    struct Phase: Hashable {
        var name: String
        var rate = 0
        var window = 0
        var count: Int
    }

    func phases(isQuick: Bool) -> [Phase] {
        let seconds = isQuick ? 2 : 5
        if self == .reads {
            return [
                Phase(name: "one", window: 1, count: isQuick ? 1000 : 3000),
                Phase(name: "many", window: 32, count: isQuick ? 5000 : 20_000),
            ]
        }
        return [
            Phase(name: "paced", rate: 1000, count: 1000 * seconds),
            Phase(name: "flood", count: isQuick ? 20_000 : 60_000),
        ]
    }

    /// The addresses of the devices that are connected to.
    static let addresses: [String] = (0..<connectable).map {
        "C0:FE:00:00:00:" + ($0 < 16 ? "0" : "") + String($0, radix: 16, uppercase: true)
    }
}

/// What a phase showed.
struct Measurement {
    /// Processor time of the contender for each message, in µs.
    var processor = 0.0
    /// Messages that arrived per second.
    var rate = 0.0
    /// From the load's clock to the probe's, or from a command to its answer, in µs.
    var median = 0.0
    var percentile99 = 0.0
    var lost = 0
    var doubles = 0
    var failures = 0
    /// How late the load was, in µs: a load that lags is the bottleneck.
    var lateness = 0.0
}

/// What one run of a scenario with a contender showed.
struct Outcome {
    var phases: [String: Measurement] = [:]
    /// From its start to the first publish, in ms; for scans.
    var start: Double?
    /// From the last link to the last notifying characteristic, in ms.
    var subscribing: Double?
    /// In KiB, until the paced phase had ended, and until all had.
    var peakMemory = 0
    var peakMemoryInFlood = 0
    /// Wake-ups per second while nothing comes.
    var wakeUps: Double?
}
