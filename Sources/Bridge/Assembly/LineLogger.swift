internal import Bluetooth
public import EventLoop
internal import Glibc
internal import JSON

/// Lines for people on standard error: text, or one JSON object each.
@EventLoopActor
public final class LineLogger {
    private let level: LogLevel
    private let isJSON: Bool

    public init(level: LogLevel, isJSON: Bool) {
        self.level = level
        self.isJSON = isJSON
    }

    /// What the bridge writes to.
    public var sink: LogSink {
        { [self] level, code, message, device in write(level, code, message, device?.description) }
    }

    public func write(_ level: LogLevel, _ code: String, _ message: String, _ device: String? = nil) {
        guard level >= self.level else { return }
        writeToStandardError(Self.line(level, code, message, device, at: .now, isJSON: isJSON) + "\n")
    }

    /// Pure: control characters are kept out of text, so that a line is a line and no terminal obeys a device's name.
    nonisolated static func line(
        _ level: LogLevel, _ code: String, _ message: String, _ device: String?, at time: WallTime, isJSON: Bool
    ) -> String {
        guard isJSON else {
            let safe = message.unicodeScalars.map { $0.properties.generalCategory == .control ? " " : $0 }
            let place = device.map { " [\($0)]" } ?? ""
            return "\(timestamp(time)) \(level.name) \(code)\(place): \(String(String.UnicodeScalarView(safe)))"
        }
        let line = JSONValue.object([
            ("time", .string(timestamp(time))), ("level", .string(level.name)), ("code", .string(code)),
            ("message", .string(message)), ("device", .optional(device)),
        ])
        return String(decoding: line.serialised(), as: UTF8.self)
    }
}

/// Writes a text to standard error, unbuffered. Source: `write(2)`.
public func writeToStandardError(_ text: String) {
    var text = text
    text.withUTF8 { bytes in
        var done = 0
        while done < bytes.count {
            let written = write(STDERR_FILENO, bytes.baseAddress.map { $0 + done }, bytes.count - done)
            if written > 0 {
                done += written
            } else if errno != EINTR {
                return
            }
        }
    }
}
