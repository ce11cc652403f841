// Apple's names.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

// Apple's module shows Foundation and Dispatch to whoever imports it, and programs rely on that.
@_exported public import Dispatch
@_exported public import Foundation

/// Seconds since 2001-01-01T00:00:00Z. Foundation on Linux lacks this name of Core Foundation's.
public typealias CFAbsoluteTime = Double

/// Seconds. Foundation on Linux lacks this name of Core Foundation's.
public typealias CFTimeInterval = Double

/// The seconds since 2001-01-01T00:00:00Z. Foundation on Linux lacks this function of Core Foundation's.
public func CFAbsoluteTimeGetCurrent() -> CFAbsoluteTime { Date.timeIntervalSinceReferenceDate }
