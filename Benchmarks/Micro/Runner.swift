import BenchmarkCounters
import EventLoop
import Glibc

/// Runs one case after another and prints what an operation of each costs.
@EventLoopActor
final class Runner {
    private final class Body {
        let operation: @EventLoopActor (Int) -> Void
        let rounds: Int
        var next = 0

        init(_ operation: @escaping @EventLoopActor (Int) -> Void, rounds: Int) {
            self.operation = operation
            self.rounds = rounds
        }
    }

    private let isCounting: Bool
    private let instructions: Int32

    init(isCounting: Bool) {
        self.isCounting = isCounting
        instructions = isCounting ? -1 : counters_open_instructions()
        if !isCounting { print(Self.line("operation", "ns", "allocations", "instructions")) }
    }

    /// Measures `operation`, which gets the number of its round. It runs as often before, so that what grows has grown.
    func measure(_ name: String, rounds: Int = 20_000, _ operation: @escaping @EventLoopActor (Int) -> Void) {
        let rounds = isCounting ? 500 : rounds
        let body = Body(operation, rounds: rounds)
        for _ in 0..<rounds {
            operation(body.next)
            body.next += 1
        }
        let context = Unmanaged.passUnretained(body).toOpaque()
        let start = MonotonicTime.now
        let counted = instructions >= 0 ? counters_instructions(instructions) : 0
        let allocated = counters_allocations()
        counters_region(
            { context in
                guard let context else { return }
                let body = Unmanaged<Body>.fromOpaque(context).takeUnretainedValue()
                EventLoopActor.assumeIsolated {
                    for _ in 0..<body.rounds {
                        body.operation(body.next)
                        body.next += 1
                    }
                }
            }, context)
        let allocations = counters_allocations() - allocated
        let executed = instructions >= 0 ? counters_instructions(instructions) - counted : 0
        let time = MonotonicTime.now - start
        if isCounting { return print("\(name)\t\(rounds)\t\(allocations)") }
        print(
            Self.line(
                name, Self.each(UInt64(time.clampedNanoseconds), rounds), Self.each(allocations, rounds),
                instructions >= 0 ? Self.each(executed, rounds) : "-"))
    }

    /// A quotient with two places.
    private static func each(_ count: UInt64, _ rounds: Int) -> String {
        let hundredths = (Double(count) * 100 / Double(rounds)).rounded()
        let whole = Int(hundredths)
        return "\(whole / 100).\(whole % 100 < 10 ? "0" : "")\(whole % 100)"
    }

    private static func line(_ cells: String...) -> String {
        cells.enumerated().map { index, cell in
            let pad = String(repeating: " ", count: max(0, (index == 0 ? 48 : 14) - cell.count))
            return index == 0 ? cell + pad : pad + cell
        }.joined()
    }

}

/// A sentence on standard error.
func complain(_ text: String) {
    let line = Array("\(text)\n".utf8)
    _ = write(2, line, line.count)
}
