/// The table of the rows, in plain text. Pure.
public enum Table {
    private static let head = [
        "row", "sent", "received", "lost", "broker's", "in flight", "unheard", "repeated", "doubled", "disorder",
        "commands", "once", "twice", "unknown", "refused", "silent", "first", "all", "scan", "MiB", "verdict",
    ]

    public static func lines(_ rows: [RowResult]) -> [String] {
        let cells = [head] + rows.map(cells)
        let widths = head.indices.map { column in cells.map { $0[column].count }.max() ?? 0 }
        return cells.map { row in
            row.enumerated().map { index, cell in
                // Words to the left, figures to the right.
                index == 0 || index == head.count - 1
                    ? cell + (index == 0 ? spaces(widths[index] - cell.count) : "")
                    : spaces(widths[index] - cell.count) + cell
            }.joined(separator: "  ")
        }
    }

    private static func cells(_ row: RowResult) -> [String] {
        if let why = row.skipped {
            return [row.name] + [String](repeating: "", count: head.count - 2) + ["not run: \(why)"]
        }
        let values = row.values
        let commands = row.commands
        let counts = [
            values.sent, values.received, values.lost, values.lostByBroker, values.inFlight, values.unheard,
            values.repeated, values.doubled, values.disordered, commands.asked, commands.once, commands.twice,
            commands.unknown, commands.refused.values.reduce(0, +), commands.unanswered,
        ]
        let times = [row.first, row.all, row.scan].map { $0.map { seconds($0) } ?? "–" }
        return [row.name] + counts.map { String($0) } + times
            + ["\(mebibytes(row.memoryBefore))→\(mebibytes(row.memoryAfter))", row.isGreen ? "ok" : "FAILED"]
    }

    /// The sentences under the table.
    public static func notes(_ rows: [RowResult]) -> [String] {
        rows.flatMap { row in
            var notes: [String] = []
            if row.values.inFlight > 0 {
                notes.append(
                    "the oldest value in flight was sent \(Int(row.values.oldestInFlight)) ms before its fault")
            }
            if !row.commands.refused.isEmpty {
                let codes = row.commands.refused.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)" }
                notes.append("commands refused: \(codes.joined(separator: ", "))")
            }
            if !row.events.isEmpty {
                let codes = row.events.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)" }
                notes.append("events: \(codes.joined(separator: ", "))")
            }
            notes += row.remarks
            notes += row.failures.map { "FAILED: \($0)" }
            return notes.map { "\(row.name): \($0)" }
        }
    }

    /// With one decimal.
    static func seconds(_ value: Double) -> String {
        let tenths = Int((value * 10).rounded())
        return "\(tenths / 10).\(tenths % 10)"
    }

    static func mebibytes(_ bytes: Int) -> String { seconds(Double(bytes) / 1_048_576) }

    private static func spaces(_ count: Int) -> String { String(repeating: " ", count: max(0, count)) }
}
