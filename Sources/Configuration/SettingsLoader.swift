internal import Glibc
internal import YAML

extension Settings {
    /// Reads the file, where there is one, then the environment, then the arguments; each overrides what came before.
    /// - Parameters:
    ///   - path: a YAML file; nil: defaults.
    ///   - environment: of which `BLUEFERRY_<SECTION>_<KEY>` counts, for each key but those of devices.
    ///   - overrides: key paths such as `mqtt.url` with their values, from arguments. Lists take commas.
    /// - Throws: ``ConfigurationError`` for the first fault.
    public static func load(
        path: String?, environment: [String: String] = [:], overrides: [(key: String, value: String)] = []
    ) throws(ConfigurationError) -> Settings {
        var settings = Settings()
        var root: YAMLNode?
        if let path {
            do {
                let node = try YAMLDocument.load(path: path)
                try SettingsReader.read(node, into: &settings)
                root = node
            } catch { throw ConfigurationError(error) }
        }
        for key in SettingKey.all {
            let variable = key.environmentVariable
            guard let value = environment[variable] else { continue }
            try settings.override(key, with: value, source: variable)
        }
        for (path, value) in overrides {
            guard let key = SettingKey.all.first(where: { $0.path == path }) else {
                let hint = YAMLNode.nearest(to: path, among: SettingKey.all.map(\.path))
                throw ConfigurationError(
                    source: "argument", key: path,
                    message: "is no setting that an argument can give"
                        + (hint.map { "; did you mean '\($0)'?" } ?? ""))
            }
            try settings.override(key, with: value, source: "argument")
        }
        try settings.finish(root, source: path ?? "settings")
        try settings.readPasswordFiles()
        return settings
    }

    /// Reads settings from a text, as ``load(path:environment:overrides:)`` reads a file, but opens no password file.
    public static func parse(_ text: String, file: String) throws(ConfigurationError) -> Settings {
        var settings = Settings()
        let root: YAMLNode
        do {
            root = try YAMLDocument.parse(Array(text.utf8), file: file)
            try SettingsReader.read(root, into: &settings)
        } catch { throw ConfigurationError(error) }
        try settings.finish(root, source: file)
        return settings
    }

    /// The variables that look like settings and are none, each with the nearest that is one, for a warning.
    public static func unknownVariables(in environment: [String: String]) -> [(name: String, nearest: String?)] {
        let known = SettingKey.all.map(\.environmentVariable)
        return environment.keys.filter { $0.hasPrefix("BLUEFERRY_") && !known.contains($0) }.sorted()
            .map { ($0, YAMLNode.nearest(to: $0, among: known)) }
    }

    /// Reads the value as it would stand in the file: in quotes, so that it stays one value. An empty one is the key
    /// without a value.
    private mutating func override(
        _ key: SettingKey, with value: String, source: String
    ) throws(ConfigurationError) {
        guard !Self.hasControlCharacters(value) else {
            throw ConfigurationError(source: source, key: key.path, message: "holds a control character")
        }
        let levels = key.path.split(separator: ".")
        var text = ""
        for (depth, level) in levels.enumerated() {
            text += (depth == 0 ? "" : "\n") + String(repeating: " ", count: depth) + level + ":"
        }
        text += " " + Self.written(value, as: key.kind) + "\n"
        do {
            try SettingsReader.read(try YAMLDocument.parse(Array(text.utf8), file: source), into: &self)
        } catch {
            throw ConfigurationError(source: source, key: key.path, message: error.message)
        }
    }

    private static func written(_ value: String, as kind: SettingKey.Kind) -> String {
        func quoted(_ text: some StringProtocol) -> String {
            "'" + text.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "''") + "'"
        }
        switch kind {
        case .list:
            let items = value.split(separator: ",").map { item in
                var item = item.drop { $0 == " " }
                while item.last == " " { item.removeLast() }
                return quoted(item)
            }
            return "[" + items.joined(separator: ", ") + "]"
        case .flag where value.utf8.allSatisfy({ 0x61...0x7a ~= $0 | 0x20 }): return value
        case .flag, .text: return value.isEmpty ? "" : quoted(value)
        }
    }

    private mutating func readPasswordFiles() throws(ConfigurationError) {
        if let path = mqtt.passwordFile { mqtt.password = try Self.secret(in: path, "mqtt.password_file") }
        if let path = mqtt.tls.keyPasswordFile {
            mqtt.tls.keyPassword = try Self.secret(in: path, "mqtt.tls.key_password_file")
        }
    }

    /// The first line of a file.
    private static func secret(in path: String, _ key: String) throws(ConfigurationError) -> Secret {
        func fault(_ message: String) -> ConfigurationError {
            ConfigurationError(source: path, key: key, message: message)
        }
        let bytes: [UInt8]
        do { bytes = try YAMLDocument.readFile(path, limit: 65536) } catch { throw fault(error.message) }
        let line = bytes.prefix { $0 != 0x0a && $0 != 0x0d }
        guard !line.isEmpty, line.count <= 65535, let text = String(validating: line, as: UTF8.self) else {
            throw fault("its first line is not a password")
        }
        return Secret(text)
    }

    /// True for text with characters that are no part of any name, path or word.
    static func hasControlCharacters(_ text: some StringProtocol) -> Bool {
        text.unicodeScalars.contains { $0.value < 0x20 || 0x7f...0x9f ~= $0.value }
    }
}

/// One setting that a variable or an argument can give, by its path in the file.
public struct SettingKey: Sendable {
    public enum Kind: Sendable {
        case text, flag, list
    }

    public let path: String
    public let kind: Kind

    /// `BLUEFERRY_MQTT_URL` for `mqtt.url`.
    public var environmentVariable: String {
        "BLUEFERRY_" + String(path.uppercased().map { $0 == "." ? "_" : $0 })
    }

    /// Every key but those of devices, in the order of ``Settings/scalarEntries`` and ``Settings/listEntries``.
    public static let all: [SettingKey] = {
        let defaults = Settings()
        return (defaults.scalarEntries + defaults.listEntries).map { entry in
            switch entry.value {
            case .flag: SettingKey(path: entry.key, kind: .flag)
            case .list: SettingKey(path: entry.key, kind: .list)
            case .none, .number, .text: SettingKey(path: entry.key, kind: .text)
            }
        }
    }()
}
