/// What stands on the command line.
struct Arguments {
    /// One word that a command takes.
    struct Option {
        let name: String
        /// What its value is, for the help text; nil for a switch.
        let value: String?
        let help: String
        var isRepeatable = false
    }

    struct UsageError: Error {
        let message: String
    }

    private var values: [String: [String]] = [:]

    /// Takes the words after a command apart.
    /// - Throws: ``UsageError`` that names the word.
    init(_ words: [String], options: [Option]) throws(UsageError) {
        var index = 0
        while index < words.count {
            let parts = words[index].split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            let name = String(parts.first ?? "")
            index += 1
            guard let option = options.first(where: { $0.name == name }) else {
                throw UsageError(message: "'\(words[index - 1])' is not understood here")
            }
            guard let what = option.value else {
                guard parts.count == 1 else { throw UsageError(message: "\(name) takes no value") }
                values[name] = [""]
                continue
            }
            var value = parts.count == 2 ? String(parts[1]) : nil
            if value == nil, index < words.count {
                value = words[index]
                index += 1
            }
            guard let value else { throw UsageError(message: "\(name) needs a value: \(name) \(what)") }
            guard option.isRepeatable || values[name] == nil else {
                throw UsageError(message: "\(name) is given twice")
            }
            values[name, default: []].append(value)
        }
    }

    func has(_ name: String) -> Bool { values[name] != nil }
    func value(_ name: String) -> String? { values[name]?.last }
    func all(_ name: String) -> [String] { values[name] ?? [] }

    /// A whole number in a range.
    func number(_ name: String, in range: ClosedRange<Int>) throws(UsageError) -> Int? {
        guard let text = value(name) else { return nil }
        guard let number = Int(text), range.contains(number) else {
            throw UsageError(
                message: "\(name) needs a whole number from \(range.lowerBound) to \(range.upperBound), not '\(text)'")
        }
        return number
    }

    /// Each `--set key=value`.
    func overrides() throws(UsageError) -> [(key: String, value: String)] {
        var overrides: [(key: String, value: String)] = []
        for text in all("--set") {
            let parts = text.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            guard parts.count == 2, !parts[0].isEmpty else {
                throw UsageError(message: "--set needs key=value, such as mqtt.url=mqtt://broker, not '\(parts[0])'")
            }
            overrides.append((String(parts[0]), String(parts[1])))
        }
        return overrides
    }
}
