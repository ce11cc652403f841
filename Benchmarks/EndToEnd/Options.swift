/// What scripts/bench asks for.
struct Options: Sendable {
    enum Mode: Sendable {
        case compare, scale, profile
    }

    struct UsageError: Error, CustomStringConvertible {
        let description: String
    }

    var mode = Mode.compare
    /// The program that is measured.
    var binary = ""
    /// Where the programs in C are.
    var programs = ""
    var runs = 5
    var isQuick = false
    var isMarkdown = false
    /// Parts of names: only scenarios that have one of them.
    var only: [String] = []
    var commit = "unknown"
    var seconds = 300
    var rate = 5000
    var devices = 10_000
    /// Where the profile goes.
    var output = ""

    init(_ words: [String]) throws(UsageError) {
        var rest = words[...]
        while let word = rest.popFirst() {
            switch word {
            case "--quick":
                isQuick = true
                runs = 1
            case "--markdown": isMarkdown = true
            case "--scale": mode = .scale
            case "--profile": mode = .profile
            case "--binary": binary = try Self.value(word, &rest)
            case "--programs": programs = try Self.value(word, &rest)
            case "--output": output = try Self.value(word, &rest)
            case "--commit": commit = try Self.value(word, &rest)
            case "--only": only.append(try Self.value(word, &rest))
            case "--runs": runs = try Self.number(word, &rest)
            case "--seconds": seconds = try Self.number(word, &rest)
            case "--rate": rate = try Self.number(word, &rest)
            case "--devices": devices = try Self.number(word, &rest)
            default: throw UsageError(description: "there is no option '\(word)'; see the head of scripts/bench")
            }
        }
        guard !binary.isEmpty, !programs.isEmpty else {
            throw UsageError(description: "--binary and --programs are missing; scripts/bench gives them")
        }
    }

    private static func value(_ name: String, _ rest: inout ArraySlice<String>) throws(UsageError) -> String {
        guard let value = rest.popFirst() else { throw UsageError(description: "\(name) needs a value") }
        return value
    }

    private static func number(_ name: String, _ rest: inout ArraySlice<String>) throws(UsageError) -> Int {
        let text = try value(name, &rest)
        guard let number = Int(text), (1...1_000_000).contains(number) else {
            throw UsageError(description: "\(name) needs a number from 1 up, not '\(text)'")
        }
        return number
    }
}
