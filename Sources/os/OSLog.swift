// Apple's names.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

@_exported public import Foundation

/// How important a line of the log is.
public struct OSLogType: RawRepresentable, Hashable, Sendable {
    public let rawValue: UInt8
    public init(_ rawValue: UInt8) { self.rawValue = rawValue }
    public init(rawValue: UInt8) { self.rawValue = rawValue }

    public static let `default` = OSLogType(0x00)
    public static let info = OSLogType(0x01)
    public static let debug = OSLogType(0x02)
    public static let error = OSLogType(0x10)
    public static let fault = OSLogType(0x11)

    var name: String {
        switch self {
        case .info: "info"
        case .debug: "debug"
        case .error: "error"
        case .fault: "fault"
        default: "notice"
        }
    }
}

/// Where lines of the log come from. They go to standard error; `info` and `debug` only where the environment has
/// `OS_ACTIVITY_MODE=debug`, as in Apple's tools.
///
/// `@unchecked Sendable`: immutable.
open class OSLog: NSObject, @unchecked Sendable {
    public struct Category: Hashable, Sendable {
        let name: String
        public static let pointsOfInterest = Category(name: "PointsOfInterest")
        public static let dynamicTracing = Category(name: "DynamicTracing")
    }

    let subsystem: String
    let category: String
    private let isEnabled: Bool

    public init(subsystem: String, category: String) {
        self.subsystem = subsystem
        self.category = category
        isEnabled = true
        super.init()
    }

    public convenience init(subsystem: String, category: Category) {
        self.init(subsystem: subsystem, category: category.name)
    }

    private init(isEnabled: Bool) {
        subsystem = ""
        category = ""
        self.isEnabled = isEnabled
        super.init()
    }

    public static let `default` = OSLog(isEnabled: true)
    public static let disabled = OSLog(isEnabled: false)

    private static let isVerbose = ProcessInfo.processInfo.environment["OS_ACTIVITY_MODE"] == "debug"

    open func isEnabled(type: OSLogType) -> Bool {
        isEnabled && (Self.isVerbose || (type != .info && type != .debug))
    }

    func write(_ type: OSLogType, _ message: @autoclosure () -> String) {
        guard isEnabled(type: type) else { return }
        let place = subsystem.isEmpty ? "" : "[\(subsystem):\(category)] "
        FileHandle.standardError.write(Data("\(type.name): \(place)\(message())\n".utf8))
    }
}

/// Writes a line by a format of `printf`; `%{public}` and the like, `%@` and all of `String(format:)` are understood.
public func os_log(
    _ message: StaticString, dso: UnsafeRawPointer? = nil, log: OSLog = .default, type: OSLogType = .default,
    _ args: any CVarArg...
) {
    log.write(type, LogFormat.text("\(message)", args))
}

/// The same with the type first.
public func os_log(
    _ type: OSLogType, dso: UnsafeRawPointer? = nil, log: OSLog = .default, _ message: StaticString,
    _ args: any CVarArg...
) {
    log.write(type, LogFormat.text("\(message)", args))
}

/// Writes a line with interpolation.
public func os_log(_ type: OSLogType = .default, log: OSLog = .default, _ message: OSLogMessage) {
    log.write(type, message.text)
}

enum LogFormat {
    /// Takes the `{…}` of privacy and types out of a format, and formats what is left.
    static func text(_ format: String, _ arguments: [any CVarArg]) -> String {
        var plain = ""
        var rest = Substring(format)
        while let percent = rest.firstIndex(of: "%") {
            plain += rest[...percent]
            rest = rest[rest.index(after: percent)...]
            if rest.first == "{", let end = rest.firstIndex(of: "}") {
                rest = rest[rest.index(after: end)...]
            } else if rest.first == "%" {
                plain += "%"
                rest = rest.dropFirst()
            }
        }
        plain += rest
        guard specifiers(plain) <= arguments.count else { return format }
        return String(format: plain, arguments: arguments)
    }

    /// How many arguments a format takes; more than there are would read memory that is not there.
    private static func specifiers(_ format: String) -> Int {
        var count = 0
        var isEscaped = false
        var isOpen = false
        for character in format {
            if isOpen {
                isOpen = false
                if character != "%" { count += 1 } else { isEscaped = true }
            } else if character == "%" {
                isOpen = true
            } else if character == "*" {
                count += 1
            }
        }
        return count + (isEscaped && isOpen ? 1 : 0)
    }
}
