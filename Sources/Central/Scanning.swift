public import Bluetooth
public import EventLoop
internal import Pattern

/// Who runs a scan. A new configured or commanded one takes the place of the former; library ones stand side by side.
public enum ScanKind: String, Sendable {
    case configured
    case commanded
    case library
}

/// What a scan is to find. Filters are applied here and not in BlueZ, since several scans share one discovery.
public struct ScanRequest: Sendable {
    public var kind: ScanKind
    /// A pattern for the whole name. A device whose name is not known yet matches once it is.
    public var name: String?
    /// Any of these must be advertised; empty: no condition.
    public var services: [BluetoothUUID] = []
    /// Any of these must be solicited; empty: no condition.
    public var solicited: [BluetoothUUID] = []
    /// The least RSSI in dBm. An advertisement whose RSSI is unknown passes: nothing says that it is too far.
    public var rssi: Int?
    /// False: each device once in this scan.
    public var allowDuplicates = true
    public var adapter: AdapterSelector?
    /// The scan ends by itself after this time.
    public var timeout: Duration?
    public var owner = ""

    public init(kind: ScanKind) {
        self.kind = kind
    }
}

/// Scans, as bits. At most 64 run at a time.
public struct ScanSessionSet: OptionSet, Sendable, Hashable {
    public let rawValue: UInt64
    public init(rawValue: UInt64) { self.rawValue = rawValue }
}

public enum ScanEndReason: String, Sendable {
    case stopped
    case timeout
    case replaced
    case shutdown
}

/// A scan that runs, or has run.
@EventLoopActor
public final class ScanSession {
    public nonisolated let id: String
    public nonisolated let request: ScanRequest
    /// The bit of this scan in ``AdvertisementEvent/sessions``.
    public nonisolated let set: ScanSessionSet
    public nonisolated let startedAt: WallTime
    public nonisolated let endsAt: WallTime?
    public internal(set) var isActive = true
    /// Devices that matched so far.
    public internal(set) var deviceCount = 0

    let filter: ScanFilter
    /// A name took the pattern beyond its limit, and a person was told.
    var hasToldOfLimit = false
    var timer: LoopTimer?
    private weak var central: Central?

    init(id: String, slot: Int, request: ScanRequest, filter: ScanFilter, central: Central, now: WallTime) {
        self.id = id
        self.request = request
        self.filter = filter
        self.central = central
        set = ScanSessionSet(rawValue: 1 << UInt64(slot))
        startedAt = now
        endsAt = request.timeout.map { WallTime(milliseconds: now.milliseconds + $0.clampedMilliseconds) }
    }

    /// Ends the scan. Harmless once it has ended.
    public func stop() {
        central?.stopScan(self)
    }
}

/// The conditions of one scan, without I/O.
struct ScanFilter {
    let services: [BluetoothUUID]
    let solicited: [BluetoothUUID]
    let rssi: Int?
    let name: Pattern?

    /// - Throws: ``CentralError`` (`bad_request`) that says what is wrong with the request.
    init(_ request: ScanRequest) throws(CentralError) {
        services = request.services
        solicited = request.solicited
        rssi = request.rssi
        if let timeout = request.timeout, timeout <= .zero {
            throw CentralError(.badRequest, "'timeout' must be more than 0")
        }
        guard let name = request.name else {
            self.name = nil
            return
        }
        do {
            self.name = try Pattern(name)
        } catch {
            throw CentralError(.badRequest, "'name' is not a pattern: \(error)")
        }
    }

    /// The conditions on what a device has said of itself; they change seldom.
    func admits(name: [UInt8], services advertised: [BluetoothUUID], solicited asked: [BluetoothUUID]) -> Bool {
        if !services.isEmpty, !services.contains(where: { advertised.contains($0) }) { return false }
        if !solicited.isEmpty, !solicited.contains(where: { asked.contains($0) }) { return false }
        guard let pattern = self.name else { return true }
        return !name.isEmpty && name.withUnsafeBytes { pattern.matchesWhole($0) }
    }
}

/// The scans that run, and which of them get an advertisement. Asking it takes no memory.
@EventLoopActor
struct ScanTable {
    private struct Limit {
        let set: ScanSessionSet
        let rssi: Int
    }

    private(set) var sessions: [ScanSession] = []
    /// Raised by each change, so that devices know that what they hold of a former table is stale; never 0.
    private(set) var generation: UInt32 = 1
    private var used: ScanSessionSet = []
    private var once: ScanSessionSet = []
    private var limits: [Limit] = []

    nonisolated init() {}

    var isEmpty: Bool { sessions.isEmpty }
    var freeSlot: Int? { used.rawValue == .max ? nil : (~used.rawValue).trailingZeroBitCount }

    mutating func add(_ session: ScanSession) {
        sessions.append(session)
        changed()
    }

    mutating func remove(_ session: ScanSession) {
        sessions.removeAll { $0 === session }
        changed()
    }

    private mutating func changed() {
        used = []
        once = []
        limits = []
        for session in sessions {
            used.insert(session.set)
            if !session.request.allowDuplicates { once.insert(session.set) }
            if let rssi = session.filter.rssi { limits.append(Limit(set: session.set, rssi: rssi)) }
        }
        generation = generation == .max ? 1 : generation + 1
    }

    /// Which scans the device suits, by what it has said of itself.
    func candidates(name: [UInt8], services: [BluetoothUUID], solicited: [BluetoothUUID]) -> ScanSessionSet {
        var set: ScanSessionSet = []
        for session in sessions
        where session.filter.admits(name: name, services: services, solicited: solicited) {
            set.insert(session.set)
        }
        return set
    }

    /// Of `candidates`, those that take this advertisement: near enough, and not reported before where once is enough.
    func admit(_ candidates: ScanSessionSet, rssi: Int8?, reported: ScanSessionSet) -> ScanSessionSet {
        var set = candidates.subtracting(once.intersection(reported))
        if let rssi {
            for limit in limits where Int(rssi) < limit.rssi { set.subtract(limit.set) }
        }
        return set
    }
}
