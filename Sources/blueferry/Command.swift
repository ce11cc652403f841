/// The commands, with what they take.
enum Command: String, CaseIterable {
    case run, demo, scan, simulate, check, version

    var summary: String {
        switch self {
        case .run: "the bridge"
        case .demo: "the bridge on a simulated radio, a private bus and a private broker, whose address it prints"
        case .scan: "a live table of what is heard; no broker is needed"
        case .simulate: "the simulated radio alone, on the bus given by its address"
        case .check: "looks at the settings, the bus, the adapters and the broker, and says how to mend what is wrong"
        case .version: "the version"
        }
    }

    /// It goes on until a signal asks for its orderly end; any other command a signal ends at once.
    var endsBySignal: Bool {
        switch self {
        case .run, .demo, .scan, .simulate: true
        case .check, .version: false
        }
    }

    private static let config = Arguments.Option(name: "--config", value: "FILE", help: "the settings (YAML)")
    private static let set = Arguments.Option(
        name: "--set", value: "KEY=VALUE", help: "overrides a setting, such as mqtt.url=mqtt://broker:1883",
        isRepeatable: true)
    private static let bus = Arguments.Option(
        name: "--bus", value: "ADDRESS", help: "a D-Bus address instead of the system bus")
    private static let help = Arguments.Option(name: "--help", value: nil, help: "this text; also -h")
    private static let seconds = Arguments.Option(name: "--for", value: "SECONDS", help: "ends after this time")
    private static let fleet = Arguments.Option(name: "--fleet", value: "FILE", help: "the simulated devices (YAML)")
    private static let control = Arguments.Option(
        name: "--control", value: "SOCKET", help: "a unix socket that the simulated devices are controlled by")

    var options: [Arguments.Option] {
        switch self {
        case .run, .check: [Self.config, Self.set, Self.bus, Self.help]
        case .demo: [Self.seconds, Self.fleet, Self.control, Self.set, Self.help]
        case .scan:
            [
                Arguments.Option(name: "--name", value: "PATTERN", help: "a pattern for the whole name"),
                Arguments.Option(
                    name: "--service", value: "UUID", help: "an advertised service, such as 180f", isRepeatable: true),
                Arguments.Option(name: "--rssi", value: "DBM", help: "nothing weaker"),
                Arguments.Option(name: "--adapter", value: "NAME", help: "by name or address"),
                Self.seconds, Self.bus, Self.help,
            ]
        case .simulate: [Self.fleet, Self.bus, Self.control, Self.help]
        case .version: [Self.help]
        }
    }

    var usage: String {
        var text = "blueferry \(rawValue): \(summary)\n"
        for option in options {
            let head = option.name + (option.value.map { " " + $0 } ?? "")
            text += "  \(head)\(String(repeating: " ", count: max(1, 22 - head.count)))\(option.help)\n"
        }
        return text
    }

    static var usage: String {
        var text = "usage: blueferry COMMAND [OPTIONS]\n"
        for command in allCases {
            let name = command.rawValue
            text += "  \(name)\(String(repeating: " ", count: 10 - name.count))\(command.summary)\n"
        }
        text += "'blueferry COMMAND --help' tells what a command takes. Exit codes: 0 fine, 64 usage, 69 a service is\n"
        text += "missing, 70 a fault of ours, 78 settings.\n"
        return text
    }
}

/// Exit codes. Source: `sysexits.h`.
enum ExitCode {
    static let fine: Int32 = 0
    static let usage: Int32 = 64
    static let unavailable: Int32 = 69
    static let fault: Int32 = 70
    static let configuration: Int32 = 78
}

/// Why the program ends early: one sentence, and the code.
struct Ending: Error {
    let code: Int32
    let message: String
}
