/// What SQLite could not do: one plain sentence with the file's path.
public struct StoreError: Error, Sendable, Equatable, CustomStringConvertible {
    public enum Code: Sendable {
        /// The file or its directory cannot be opened or written.
        case cannotOpen
        /// Another process holds the file.
        case busy
        case diskFull
        /// The file is damaged, or no SQLite file.
        case corrupt
        case readOnly
        case inputOutput
        /// A row breaks a constraint of its table.
        case constraint
        /// A fault of ours: wrong SQL, a wrong type.
        case misuse
        case other
    }

    public let code: Code
    public let message: String
    /// SQLite's extended result code. Source: sqlite.org/rescode.html.
    public let result: Int32

    public init(code: Code, message: String, result: Int32) {
        self.code = code
        self.message = message
        self.result = result
    }

    public var description: String { message }
}
