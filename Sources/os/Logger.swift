/// Whether a value may stand in the log. Nothing is collected on Linux: only what is asked to be hidden is.
public struct OSLogPrivacy: Sendable {
    public enum Mask: Sendable {
        case hash
        case none
    }

    let isHidden: Bool
    let mask: Mask

    public static var `public`: OSLogPrivacy { OSLogPrivacy(isHidden: false, mask: .none) }
    public static var `private`: OSLogPrivacy { OSLogPrivacy(isHidden: true, mask: .none) }
    public static var sensitive: OSLogPrivacy { OSLogPrivacy(isHidden: true, mask: .none) }
    public static var auto: OSLogPrivacy { OSLogPrivacy(isHidden: false, mask: .none) }
    public static func `private`(mask: Mask) -> OSLogPrivacy { OSLogPrivacy(isHidden: true, mask: mask) }
    public static func sensitive(mask: Mask) -> OSLogPrivacy { OSLogPrivacy(isHidden: true, mask: mask) }
    public static func auto(mask: Mask) -> OSLogPrivacy { OSLogPrivacy(isHidden: false, mask: mask) }
}

/// How an integer stands in the log.
public enum OSLogIntegerFormatting: Sendable {
    case decimal
    case hex
    /// With `0x` before it.
    case prefixedHex
    case octal
    public static func hex(explicitPositiveSign: Bool = false, includePrefix: Bool = false) -> OSLogIntegerFormatting {
        includePrefix ? .prefixedHex : .hex
    }
}

/// A line of the log, by interpolation.
public struct OSLogMessage: ExpressibleByStringInterpolation, ExpressibleByStringLiteral, Sendable {
    public let text: String

    public init(stringLiteral value: String) { text = value }
    public init(stringInterpolation: OSLogInterpolation) { text = stringInterpolation.text }
}

public struct OSLogInterpolation: StringInterpolationProtocol, Sendable {
    var text = ""

    public init(literalCapacity: Int, interpolationCount: Int) { text.reserveCapacity(literalCapacity) }

    public mutating func appendLiteral(_ literal: String) { text += literal }

    public mutating func appendInterpolation<Value>(
        _ value: @autoclosure () -> Value, privacy: OSLogPrivacy = .auto
    ) {
        let shown = String(describing: value())
        guard privacy.isHidden else {
            text += shown
            return
        }
        text += privacy.mask == .hash ? "<mask.hash: \(shown.hashValue)>" : "<private>"
    }

    public mutating func appendInterpolation(
        _ value: @autoclosure () -> some BinaryInteger, format: OSLogIntegerFormatting, privacy: OSLogPrivacy = .auto
    ) {
        let radix =
            switch format {
            case .decimal: 10
            case .hex, .prefixedHex: 16
            case .octal: 8
            }
        let digits = String(value(), radix: radix)
        guard case .prefixedHex = format else { return appendInterpolation(digits, privacy: privacy) }
        let (sign, number) = digits.hasPrefix("-") ? ("-", digits.dropFirst()) : ("", digits[...])
        appendInterpolation(sign + "0x" + number, privacy: privacy)
    }
}

/// Writes lines of a subsystem and category to the log.
public struct Logger: Sendable {
    private let target: OSLog

    public init(subsystem: String, category: String) { target = OSLog(subsystem: subsystem, category: category) }
    public init(_ logObj: OSLog) { target = logObj }
    public init() { target = .default }

    public func log(_ message: @autoclosure () -> OSLogMessage) { target.write(.default, message().text) }
    public func log(level: OSLogType, _ message: @autoclosure () -> OSLogMessage) {
        target.write(level, message().text)
    }
    public func trace(_ message: @autoclosure () -> OSLogMessage) { target.write(.debug, message().text) }
    public func debug(_ message: @autoclosure () -> OSLogMessage) { target.write(.debug, message().text) }
    public func info(_ message: @autoclosure () -> OSLogMessage) { target.write(.info, message().text) }
    public func notice(_ message: @autoclosure () -> OSLogMessage) { target.write(.default, message().text) }
    public func warning(_ message: @autoclosure () -> OSLogMessage) { target.write(.error, message().text) }
    public func error(_ message: @autoclosure () -> OSLogMessage) { target.write(.error, message().text) }
    public func critical(_ message: @autoclosure () -> OSLogMessage) { target.write(.fault, message().text) }
    public func fault(_ message: @autoclosure () -> OSLogMessage) { target.write(.fault, message().text) }
}
