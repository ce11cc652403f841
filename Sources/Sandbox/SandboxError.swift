/// Why a sandbox, or a program in it, could not be started: one plain sentence that says what to do.
public struct SandboxError: Error, CustomStringConvertible, Sendable {
    public enum Code: Sendable {
        /// The program is not installed.
        case notInstalled
        /// A system call failed.
        case system
        /// The program ended before it was ready, or was not ready in time.
        case notReady
        /// The program did not end in time.
        case stillRuns
    }

    public let code: Code
    public let message: String
    public var description: String { message }

    public init(_ code: Code, _ message: String) {
        self.code = code
        self.message = message
    }
}
