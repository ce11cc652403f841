/// What is allowed.
enum Budget {
    case ratioAtMost(Double)
    case ratioAtLeast(Double)
    case atMost(Double)
    case none

    var text: String {
        switch self {
        case .ratioAtMost(let limit): "≤ \(rounded(limit, 2)) ×"
        case .ratioAtLeast(let limit): "≥ \(rounded(limit, 2)) ×"
        case .atMost(let limit): "≤ \(rounded(limit, limit < 10 && limit != 1 ? 1 : 0))"
        case .none: ""
        }
    }
}

/// A line of the table.
struct Row {
    let name: String
    let unit: String
    let floor: Double?
    let ours: Double
    let budget: Budget
    var places = 1

    var ratio: Double? { floor.flatMap { $0 > 0 ? ours / $0 : nil } }

    /// Nil where nothing is asked for.
    var isMet: Bool? {
        switch budget {
        case .ratioAtMost(let limit): ratio.map { $0 <= limit }
        case .ratioAtLeast(let limit): ratio.map { $0 >= limit }
        case .atMost(let limit): ours <= limit
        case .none: nil
        }
    }

    var cells: [String] {
        [
            name, unit, floor.map { rounded($0, places) } ?? "", rounded(ours, places),
            ratio.map { rounded($0, 2) } ?? "", budget.text, isMet.map { $0 ? "yes" : "NO" } ?? "",
        ]
    }

    static let head = ["what", "unit", "floor", "blueferry", "ratio", "budget", "met"]
}

/// The rows of all that was measured, from medians.
struct Report {
    private(set) var rows: [Row] = []
    private(set) var losses: [String] = []
    private let runs: Int
    private let outcomes: [Scenario: [Contender: [Outcome]]]

    init(_ outcomes: [Scenario: [Contender: [Outcome]]], runs: Int) {
        self.outcomes = outcomes
        self.runs = runs
        for devices in [200, 10_000] { addAdvertisements(.advertisements(devices: devices), devices) }
        addGrowthWithDevices()
        addNotifications(.sockets, "sockets")
        addNotifications(.signals, "signals")
        addReads()
        addProcess()
        noteLosses()
    }

    var isMet: Bool { losses.isEmpty && rows.allSatisfy { $0.isMet ?? true } }

    // MARK: Rows

    private func median(_ scenario: Scenario, _ who: Contender, _ value: (Outcome) -> Double?) -> Double? {
        let values = (outcomes[scenario]?[who] ?? []).compactMap(value).sorted()
        guard !values.isEmpty else { return nil }
        return (values[(values.count - 1) / 2] + values[values.count / 2]) / 2
    }

    private mutating func add(
        _ name: String, _ unit: String, _ scenario: Scenario, _ phase: String, _ budget: Budget,
        places: Int = 1, scale: Double = 1, _ value: KeyPath<Measurement, Double>
    ) {
        let figure = { (outcome: Outcome) in outcome.phases[phase].map { $0[keyPath: value] * scale } }
        guard let ours = median(scenario, .blueferry, figure) else { return }
        let floor = median(scenario, .floor, figure)
        rows.append(Row(name: name, unit: unit, floor: floor, ours: ours, budget: budget, places: places))
    }

    private mutating func addAdvertisements(_ scenario: Scenario, _ devices: Int) {
        let text = devices == 200 ? "200 devices" : "10,000 devices"
        add("advertisement, 1,000/s, \(text)", "µs", scenario, "paced", .ratioAtMost(1.15), \.processor)
        add("its latency, p99", "ms", scenario, "paced", .ratioAtMost(1.25), places: 2, scale: 0.001, \.percentile99)
        add("advertisement, flood, \(text)", "µs", scenario, "flood", .ratioAtMost(1.25), \.processor)
        add("its rate", "/s", scenario, "flood", .none, places: 0, \.rate)
    }

    private mutating func addGrowthWithDevices() {
        for (phase, text) in [("paced", "1,000/s"), ("flood", "flood")] {
            let figure = { (outcome: Outcome) in outcome.phases[phase]?.processor }
            guard let few = median(.advertisements(devices: 200), .blueferry, figure), few > 0,
                let many = median(.advertisements(devices: 10_000), .blueferry, figure)
            else { continue }
            rows.append(
                Row(
                    name: "10,000 devices against 200, \(text)", unit: "×", floor: nil, ours: many / few,
                    budget: .atMost(1.1), places: 2))
        }
    }

    private mutating func addNotifications(_ scenario: Scenario, _ text: String) {
        add("notification by \(text), QoS 1, 1,000/s", "µs", scenario, "paced", .ratioAtMost(1.25), \.processor)
        add("notification by \(text), QoS 1, flood", "µs", scenario, "flood", .ratioAtMost(2), \.processor)
        add("its rate", "/s", scenario, "flood", .none, places: 0, \.rate)
    }

    private mutating func addReads() {
        add(
            "read command, one in flight, p50", "ms", .reads, "one", .ratioAtMost(1.3), places: 2, scale: 0.001,
            \.median)
        add("its processor time", "µs", .reads, "one", .none, \.processor)
        add("read commands, 32 in flight", "/s", .reads, "many", .ratioAtLeast(0.8), places: 0, \.rate)
    }

    private mutating func addProcess() {
        let small = Scenario.advertisements(devices: 200)
        let large = Scenario.advertisements(devices: 10_000)
        let megabytes = { (outcome: Outcome) in ProcessFigures.megabytes(outcome.peakMemory) }
        let limits: [(Scenario, String, Double, Double)] = [
            (small, "200 devices", 12, 100), (large, "10,000 devices", 20, 400),
        ]
        for (scenario, text, memory, _) in limits {
            guard let ours = median(scenario, .blueferry, megabytes) else { continue }
            let floor = median(scenario, .floor, megabytes)
            rows.append(
                Row(name: "peak memory, \(text)", unit: "MB", floor: floor, ours: ours, budget: .atMost(memory)))
        }
        if let ours = median(large, .blueferry, { ProcessFigures.megabytes($0.peakMemoryInFlood) }) {
            let floor = median(large, .floor) { ProcessFigures.megabytes($0.peakMemoryInFlood) }
            rows.append(
                Row(name: "the same, after a flood", unit: "MB", floor: floor, ours: ours, budget: .none))
        }
        if let few = median(small, .blueferry, megabytes), let many = median(large, .blueferry, megabytes) {
            let each = (many - few) * 1000 / 9800
            rows.append(
                Row(
                    name: "memory of a further device", unit: "KB", floor: nil, ours: each, budget: .atMost(1),
                    places: 2))
        }
        for (scenario, text, _, time) in limits {
            guard let ours = median(scenario, .blueferry, \.start) else { continue }
            let floor = median(scenario, .floor, \.start)
            rows.append(
                Row(
                    name: "start to first publish, \(text)", unit: "ms", floor: floor, ours: ours,
                    budget: .atMost(time), places: 0))
        }
        for (scenario, text) in [(Scenario.sockets, "sockets"), (Scenario.signals, "signals")] {
            guard let ours = median(scenario, .blueferry, \.subscribing) else { continue }
            rows.append(
                Row(
                    name: "20 devices notify after their links, \(text)", unit: "ms", floor: nil, ours: ours,
                    budget: .atMost(50)))
        }
        if let ours = median(small, .blueferry, \.wakeUps) {
            rows.append(
                Row(name: "wake-ups at rest", unit: "/s", floor: nil, ours: ours, budget: .atMost(1), places: 2))
        }
    }

    private mutating func noteLosses() {
        for scenario in Scenario.all {
            for (who, runs) in outcomes[scenario] ?? [:] {
                for (phase, measurements) in Dictionary(grouping: runs.flatMap(\.phases), by: \.key) {
                    let lost = measurements.reduce(0) { $0 + $1.value.lost }
                    let failed = measurements.reduce(0) { $0 + $1.value.failures }
                    let doubled = measurements.reduce(0) { $0 + $1.value.doubles }
                    guard lost + failed + doubled > 0 else { continue }
                    losses.append(
                        "\(who.rawValue), \(scenario.name), \(phase): \(lost) lost, \(failed) failed, \(doubled) twice")
                }
            }
        }
        losses.sort()
    }

    // MARK: Texts

    private var notes: [String] {
        ["Medians of \(runs) interleaved run\(runs == 1 ? "" : "s")."]
            + (losses.isEmpty ? ["Nothing was lost, refused or sent twice."] : losses)
    }

    var text: String {
        let cells = [Row.head] + rows.map(\.cells)
        let widths = Row.head.indices.map { column in cells.map { $0[column].count }.max() ?? 0 }
        let lines = cells.map { row in
            row.indices.map { column in
                let pad = String(repeating: " ", count: widths[column] - row[column].count)
                return column < 2 ? row[column] + pad : pad + row[column]
            }.joined(separator: "  ")
        }
        return (lines + [""] + notes).joined(separator: "\n")
    }

    func markdown(_ machine: String) -> String {
        let rule = "|---|---|---:|---:|---:|---|---|"
        let lines = ([Row.head] + rows.map(\.cells)).map { "| " + $0.joined(separator: " | ") + " |" }
        return ([machine + ". " + notes.joined(separator: " "), "", lines[0], rule] + lines.dropFirst())
            .joined(separator: "\n")
    }
}
