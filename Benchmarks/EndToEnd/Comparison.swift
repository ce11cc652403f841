import EventLoop
import Glibc
import Sandbox

/// The table: every scenario with floor and bridge in turn, so that a noisy minute meets both; medians of the runs.
@EventLoopActor
final class Comparison {
    private let options: Options
    private let scenarios: [Scenario]
    private var outcomes: [Scenario: [Contender: [Outcome]]] = [:]

    init(_ options: Options) {
        self.options = options
        scenarios = Scenario.all.filter { scenario in
            options.only.isEmpty || options.only.contains { scenario.name.contains($0) }
        }
    }

    /// Gives back 0 where every budget is met and nothing was lost, 1 otherwise.
    func run() async throws -> Int32 {
        for number in 1...options.runs {
            for scenario in scenarios {
                let order = number % 2 == 0 ? Contender.allCases.reversed() : Contender.allCases
                for who in order {
                    let outcome = try await run(scenario, who)
                    outcomes[scenario, default: [:]][who, default: []].append(outcome)
                    complain("\(number)/\(options.runs) \(Self.line(scenario, who, outcome))")
                }
            }
        }
        let report = Report(outcomes, runs: options.runs)
        print(options.isMarkdown ? report.markdown(Machine.description(commit: options.commit)) : report.text)
        return report.isMet ? 0 : 1
    }

    private func run(_ scenario: Scenario, _ who: Contender) async throws -> Outcome {
        let rig = try await Rig(scenario, who, options)
        do {
            var outcome = try await rig.start(who)
            for phase in scenario.phases(isQuick: options.isQuick) {
                outcome.phases[phase.name] = try await rig.measure(phase)
                let peak = rig.contender.map { ProcessFigures.peakMemory($0.pid) } ?? 0
                if outcome.peakMemory == 0 { outcome.peakMemory = peak }
                outcome.peakMemoryInFlood = peak
            }
            if who == .blueferry, scenario == .advertisements(devices: 200) {
                outcome.wakeUps = try await rig.idle(for: options.isQuick ? 10 : 20)
            }
            await rig.stop()
            return outcome
        } catch {
            await rig.stop()
            throw error
        }
    }

    /// One run, for who watches.
    private static func line(_ scenario: Scenario, _ who: Contender, _ outcome: Outcome) -> String {
        let phases = outcome.phases.sorted { $0.key > $1.key }.map { name, phase in
            "\(name) \(rounded(phase.processor, 1)) µs \(rounded(phase.rate, 0))/s p50 \(rounded(phase.median, 0))"
                + " p99 \(rounded(phase.percentile99, 0)) lost \(phase.lost) late \(rounded(phase.lateness, 0))"
                + (phase.failures > 0 ? " failed \(phase.failures)" : "")
        }
        return "\(scenario.name) \(who.rawValue): \(phases.joined(separator: "; "))"
    }
}

/// A sentence on standard error.
func complain(_ text: String) {
    let line = Array("\(text)\n".utf8)
    _ = write(2, line, line.count)
}

/// A line on standard output, at once.
func tell(_ text: String) {
    print(text)
    fflush(nil)
}

/// A number with so many places.
func rounded(_ number: Double, _ places: Int) -> String {
    var factor = 1.0
    for _ in 0..<places { factor *= 10 }
    let scaled = Int64((abs(number) * factor).rounded())
    let whole = "\(number < 0 && scaled > 0 ? "-" : "")\(scaled / Int64(factor))"
    guard places > 0 else { return whole }
    let fraction = String(scaled % Int64(factor))
    return whole + "." + String(repeating: "0", count: places - fraction.count) + fraction
}

/// Where the figures come from.
enum Machine {
    static func description(commit: String) -> String {
        let model = ProcessFigures.value("model name", "/proc/cpuinfo").map { String($0) } ?? "an unknown processor"
        let kernel = ProcessFigures.text("/proc/sys/kernel/osrelease").split(separator: "\n").first ?? ""
        let system = ProcessFigures.text("/etc/os-release").split(separator: "\n").first {
            $0.hasPrefix("PRETTY_NAME=")
        }
        let name = system?.split(separator: "\"").last ?? "Linux"
        return "Commit \(commit); \(sysconf(Int32(_SC_NPROCESSORS_ONLN))) × \(model); \(name), kernel \(kernel)"
    }
}
