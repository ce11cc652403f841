internal import Bluetooth
internal import EventLoop

/// What the bridge itself keeps of a device.
@EventLoopActor
final class DeviceRecord {
    let address: BluetoothAddress
    /// The settings' entry, where there is one.
    var configured: BridgeSettings.Device? { entry?.value }
    private let entry: Box<BridgeSettings.Device>?
    private(set) var isRotating = false
    var isBonded = false
    /// A command asked for a connection.
    var isRequested = false
    /// A command asked for a connection that is to be kept, and none ended it.
    var isWantedByCommand = false
    /// What made it unreachable at once: it lasts until the device is heard again.
    var absence: Absence?

    private var smoothedRSSI: Float?
    private(set) var lastHeard: MonotonicTime?
    private(set) var lastHeardWall: WallTime?
    private(set) var interval = LearnedInterval()
    var isConnected = false
    /// The scan that told of this device last, by kind.
    var configuredScan: UInt32 = 0
    var commandedScan: UInt32 = 0

    /// What was published of a known device.
    var isAvailable: Bool?
    var lastReport: MonotonicTime?
    var lastMajor: MajorFields? {
        get { major?.value }
        set { major = newValue.map { Box($0) } }
    }
    private var major: Box<MajorFields>?
    /// RSSI or time changed since the last report.
    var hasMinorChange = false

    /// The fields of `devices/<dev>` whose change is published at once.
    struct MajorFields: Equatable {
        var report: DeviceReport
        var availability: Availability
        var why: String?
    }

    init(address: BluetoothAddress, configured: BridgeSettings.Device?) {
        self.address = address
        entry = configured.map { Box($0) }
    }

    /// What only known devices have: of strangers there may be thousands, and their records are to stay small.
    private final class Box<Value> {
        let value: Value

        init(_ value: Value) {
            self.value = value
        }
    }

    var isWanted: Bool { configured?.connectsAlways == true || isWantedByCommand }
    var isKnown: Bool { configured != nil || isBonded || isRequested }
    /// A rotating private address never makes a retained topic, unless a person wrote it in the settings.
    var mayRetain: Bool { configured != nil || !isRotating }
    var rssi: Int? { smoothedRSSI.map { Int($0.rounded()) } }

    func note(type: AddressType?) {
        if let type { isRotating = !type.kind(of: address).isStable }
    }

    /// Takes in an advertisement. No allocation.
    func note(rssi: Int8?, at now: MonotonicTime, wall: WallTime) {
        if let rssi {
            let value = Float(rssi)
            if let before = smoothedRSSI {
                smoothedRSSI = before + (value - before) * 0.125
            } else {
                smoothedRSSI = value
            }
        }
        if let lastHeard { interval.learn(gap: now - lastHeard) }
        lastHeard = now
        lastHeardWall = wall
        absence = nil
        hasMinorChange = true
    }

    /// The link ended: there were no advertisements while it was up, so its length is no interval.
    func noteLinkEnd(at now: MonotonicTime) {
        lastHeard = now
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
