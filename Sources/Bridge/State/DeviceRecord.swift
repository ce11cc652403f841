internal import Bluetooth
internal import EventLoop

/// What the bridge itself keeps of a device.
@EventLoopActor
final class DeviceRecord {
    let address: BluetoothAddress

    // What each advertisement touches is here, in few bytes: there may be thousands of strangers.
    /// Not a number before the first RSSI.
    @exclusivity(unchecked) private var smoothedRSSI = Float.nan
    @exclusivity(unchecked) private(set) var interval = LearnedInterval()
    /// Nanoseconds of the monotonic clock, 0 for never, and milliseconds of the wall clock.
    @exclusivity(unchecked) private var heardAt: UInt64 = 0
    @exclusivity(unchecked) private var heardAtWall = DeviceRecord.never
    @exclusivity(unchecked) private var published: Published?
    /// The scan that told of this device last, by kind.
    @exclusivity(unchecked) var configuredScan: UInt32 = 0
    @exclusivity(unchecked) var commandedScan: UInt32 = 0
    @exclusivity(unchecked) private(set) var isRotating = false
    var isBonded = false
    /// A command asked for a connection.
    var isRequested = false
    /// A command asked for a connection that is to be kept, and none ended it.
    var isWantedByCommand = false
    var isConnected = false
    /// RSSI or time changed since the last report.
    var hasMinorChange = false
    /// It is no record of the directory's any more.
    @exclusivity(unchecked) var isForgotten = false
    /// What made it unreachable at once: it lasts until the device is heard again.
    var absence: Absence?

    private static let never = Int64.min

    /// What only known devices have: their settings, and what was published of them.
    private final class Published {
        let configured: BridgeSettings.Device?
        var isAvailable: Bool?
        var lastReport: MonotonicTime?
        var lastMajor: MajorFields?

        init(_ configured: BridgeSettings.Device?) {
            self.configured = configured
        }
    }

    /// The fields of `devices/<dev>` whose change is published at once.
    struct MajorFields: Equatable {
        var report: DeviceReport
        var availability: Availability
        var why: String?
    }

    init(address: BluetoothAddress, configured: BridgeSettings.Device?) {
        self.address = address
        published = configured.map { Published($0) }
    }

    private func makePublished() -> Published {
        if let published { return published }
        let made = Published(nil)
        published = made
        return made
    }

    /// The settings' entry, where there is one.
    var configured: BridgeSettings.Device? { published?.configured }
    var isAvailable: Bool? {
        get { published?.isAvailable }
        set { makePublished().isAvailable = newValue }
    }
    var lastReport: MonotonicTime? {
        get { published?.lastReport }
        set { makePublished().lastReport = newValue }
    }
    var lastMajor: MajorFields? {
        get { published?.lastMajor }
        set { makePublished().lastMajor = newValue }
    }
    private var isConfigured: Bool { published?.configured != nil }

    var isWanted: Bool { configured?.connectsAlways == true || isWantedByCommand }
    var isKnown: Bool { isBonded || isRequested || isConfigured }
    /// A rotating private address never makes a retained topic, unless a person wrote it in the settings.
    var mayRetain: Bool { !isRotating || isConfigured }
    var rssi: Int? { smoothedRSSI.isNaN ? nil : Int(smoothedRSSI.rounded()) }
    var lastHeard: MonotonicTime? { heardAt > 0 ? MonotonicTime(nanoseconds: heardAt) : nil }
    /// Nil before the first advertisement: the end of a link is no such.
    var lastHeardWall: WallTime? { heardAtWall != Self.never ? WallTime(milliseconds: heardAtWall) : nil }

    func note(type: AddressType?) {
        if let type { isRotating = !type.kind(of: address).isStable }
    }

    /// Takes in an advertisement. No allocation.
    func note(rssi: Int8?, at now: MonotonicTime, wall: WallTime) {
        if let rssi {
            let value = Float(rssi)
            smoothedRSSI = smoothedRSSI.isNaN ? value : smoothedRSSI + (value - smoothedRSSI) * 0.125
        }
        if heardAt > 0 { interval.learn(from: MonotonicTime(nanoseconds: heardAt), to: now) }
        heardAt = now.nanoseconds
        heardAtWall = wall.milliseconds
        absence = nil
        hasMinorChange = true
    }

    /// The link ended: there were no advertisements while it was up, so its length is no interval.
    func noteLinkEnd(at now: MonotonicTime) {
        heardAt = now.nanoseconds
        absence = .linkEnded
    }

    /// Whether the device can be reached, and if not, why. Pure.
    func availability(at now: MonotonicTime, since start: MonotonicTime) -> Availability {
        if isConnected { return .online }
        if isWanted { return .offline(.notConnected) }
        if let absence { return .offline(absence) }
        guard let lastHeard else {
            return now - start > LearnedInterval.floor ? .offline(.neverHeard) : .undecided
        }
        return now - lastHeard > interval.silence ? .offline(.silent) : .online
    }

    enum Availability: Equatable {
        case online
        case offline(Absence)
        /// Nothing was heard yet, and it is too early to say that nothing will be.
        case undecided
    }

    /// Why a device cannot be reached.
    enum Absence: Equatable {
        case notConnected, linkEnded, removed, neverHeard, silent
    }

    func text(_ absence: Absence) -> String {
        switch absence {
        case .notConnected: "it is to be connected, and is not"
        case .linkEnded: "its connection ended"
        case .removed: "BlueZ removed it"
        case .neverHeard: "not heard since the start"
        case .silent: "not heard since \(lastHeardWall.map(timestamp) ?? "the start")"
        }
    }
}
