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
