// Apple's module shows Foundation and Dispatch to whoever imports it, and programs rely on that.
@_exported public import Dispatch
@_exported public import Foundation

/// Seconds since 2001-01-01T00:00:00Z. Foundation on Linux lacks this name of Core Foundation's.
public typealias CFAbsoluteTime = Double
