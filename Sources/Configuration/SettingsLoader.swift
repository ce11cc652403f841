internal import Glibc
internal import YAML

/// A fault in the settings: what is wrong, in which key, and where it was written.
public struct ConfigurationError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The file, or the variable or argument that held the value.
    public var source: String
    public var line: Int?
    public var column: Int?
    public var key: String
    public var message: String

    public var description: String {
        var place = source
        if let line, let column { place += ":\(line):\(column)" }
        return key.isEmpty ? "\(place): \(message)" : "\(place): \(key): \(message)"
    }

    init(_ error: YAMLError) {
        self.init(
            source: error.file, line: error.position?.line, column: error.position?.column, key: error.path,
            message: error.message)
    }

    public init(source: String, line: Int? = nil, column: Int? = nil, key: String = "", message: String) {
        self.source = source
        self.line = line
        self.column = column
        self.key = key
        self.message = message
    }
}

extension Settings {
    /// Reads the file, where there is one, then the environment, then the arguments; each overrides what came before.
    /// - Parameters:
    ///   - path: a YAML file; nil: defaults.
    ///   - environment: of which `BLUEFERRY_<SECTION>_<KEY>` counts, for each key that holds one value.
    ///   - overrides: key paths such as `mqtt.url` with their values, from arguments.
    /// - Throws: ``ConfigurationError`` for the first fault.
    public static func load(
        path: String?, environment: [String: String] = [:], overrides: [(key: String, value: String)] = []
    ) throws(ConfigurationError) -> Settings {
        var settings = Settings()
        if let path {
            do {
                try SettingsReader.read(try YAMLDocument.load(path: path), into: &settings)
            } catch { throw ConfigurationError(error) }
        }
        for key in SettingKey.scalars {
            let variable = key.environmentVariable
            guard let value = environment[variable] else { continue }
            try settings.override(key.path, with: value, source: variable)
        }
        for (key, value) in overrides {
            guard SettingKey.scalars.contains(where: { $0.path == key }) else {
                let hint = YAMLNode.nearest(to: key, among: SettingKey.scalars.map(\.path))
                throw ConfigurationError(
                    source: "argument", key: key,
                    message: "is no setting that holds one value" + (hint.map { "; did you mean '\($0)'?" } ?? ""))
            }
            try settings.override(key, with: value, source: "argument")
        }
        try settings.readPasswordFile()
        return settings
    }

    /// Reads settings from a text, as ``load(path:environment:overrides:)`` reads a file.
    public static func parse(_ text: String, file: String) throws(ConfigurationError) -> Settings {
        var settings = Settings()
        do {
            try SettingsReader.read(try YAMLDocument.parse(Array(text.utf8), file: file), into: &settings)
        } catch { throw ConfigurationError(error) }
        return settings
    }

    private mutating func override(_ path: String, with value: String, source: String) throws(ConfigurationError) {
        // The value is read as the YAML scalar that it would be in the file, quoted, so that it stays one value.
        var text = ""
        let parts = path.split(separator: ".")
        for (depth, part) in parts.enumerated() {
            text += String(repeating: " ", count: depth) + part + ":" + (depth == parts.count - 1 ? "" : "\n")
        }
        var quoted = ""
        for scalar in value.unicodeScalars {
            guard scalar.value >= 0x20, scalar.value != 0x7f else {
                throw ConfigurationError(source: source, key: path, message: "holds a control character")
            }
            quoted.unicodeScalars.append(scalar)
            if scalar == "'" { quoted.unicodeScalars.append(scalar) }
        }
        let isBoolean = SettingKey.scalars.contains { $0.path == path && $0.isBoolean }
        text += isBoolean ? " \(value)\n" : " '\(quoted)'\n"
        do {
            try SettingsReader.read(try YAMLDocument.parse(Array(text.utf8), file: source), into: &self)
        } catch {
            throw ConfigurationError(source: source, key: path, message: error.message)
        }
    }

    private mutating func readPasswordFile() throws(ConfigurationError) {
        guard let path = mqtt.passwordFile else { return }
        func fault(_ message: String) -> ConfigurationError {
            ConfigurationError(source: path, key: "mqtt.password_file", message: message)
        }
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw fault("cannot be opened: \(String(cString: strerror(errno)))") }
        defer { close(descriptor) }
        var bytes = [UInt8](repeating: 0, count: 4096)
        let count = read(descriptor, &bytes, bytes.count)
        guard count >= 0 else { throw fault("cannot be read: \(String(cString: strerror(errno)))") }
        let line = bytes[0..<count].prefix { $0 != 0x0a && $0 != 0x0d }
        guard !line.isEmpty, let text = String(validating: line, as: UTF8.self) else {
            throw fault("its first line is not a password")
        }
        mqtt.password = Secret(text)
    }
}

/// One setting that holds a single value, by its path in the file.
public struct SettingKey: Sendable {
    public let path: String
    public let isBoolean: Bool

    /// `BLUEFERRY_MQTT_URL` for `mqtt.url`.
    public var environmentVariable: String {
        "BLUEFERRY_" + String(path.uppercased().map { $0 == "." ? "_" : $0 })
    }

    /// Every key that holds one value, in the order of the file.
    public static let scalars: [SettingKey] = [
        "gateway.id", "mqtt.url", "mqtt.base_topic", "mqtt.version", "mqtt.client_id", "mqtt.username", "mqtt.password",
        "mqtt.password_file", "mqtt.keep_alive", "mqtt.tls.ca_file", "mqtt.tls.certificate_file", "mqtt.tls.key_file",
        "bluetooth.scan.enabled?", "bluetooth.scan.mode", "bluetooth.scan.name", "bluetooth.scan.rssi",
        "bluetooth.scan.allow_duplicates?", "bluetooth.scan.renew_interval", "publish.advertisements?",
        "publish.unknown_devices?", "commands.enabled?", "outbox.path", "outbox.limit", "homeassistant.enabled?",
        "homeassistant.prefix", "logging.level", "logging.format",
    ].map { SettingKey(path: $0.hasSuffix("?") ? String($0.dropLast()) : $0, isBoolean: $0.hasSuffix("?")) }
}
