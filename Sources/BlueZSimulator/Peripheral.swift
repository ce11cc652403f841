internal import Bluetooth
internal import EventLoop
internal import JSON

/// One device of the fleet: it advertises, is connected to, and serves its attributes.
@EventLoopActor
final class Peripheral {
    /// What the device itself saw.
    struct Event {
        let time: WallTime
        /// For those who measure, across a jump of the wall clock.
        let at: MonotonicTime
        let name: String
        let details: [(String, JSONValue)]
    }

    let spec: Fleet.Device
    /// Its place in the fleet, and its entry in the schedule.
    let index: Int
    private(set) var address: BluetoothAddress
    private(set) var content: AdvertisedContent
    var isAdvertising: Bool
    var rssi: Int
    /// How many of the next connection attempts fail.
    var dropNext = 0
    var link: Link?
    /// Whether it kept the keys of a pairing.
    var isBonded = false
    private(set) var log: [Event] = []
    private var random: Randomness
    /// Of its own, so that the addresses do not hang on how often it advertised.
    private var addresses: Randomness
    private var rotatesAt: MonotonicTime?
    private let clock: any LoopClock
    private static let longestLog = 20_000

    /// Made when someone connects, so that a large fleet starts at once.
    private(set) lazy var database = AttributeDatabase(spec)
    private(set) var hasDatabase = false

    init(_ spec: Fleet.Device, content: AdvertisedContent, index: Int, seed: UInt64, clock: any LoopClock) {
        self.spec = spec
        self.index = index
        self.content = content
        self.clock = clock
        address = spec.address
        isAdvertising = spec.advertises
        rssi = spec.rssi
        random = Randomness(seed: seed, name: spec.id)
        addresses = Randomness(seed: seed, name: spec.id + "/addresses")
        if spec.rotate > 0 { address = addresses.privateAddress() }
    }

    // MARK: Advertising

    /// The pause before the first advertisement, each device at a moment of its own.
    func firstDelay() -> Duration {
        .milliseconds(Int64.random(in: 0..<Int64(max(1, spec.interval)), using: &random))
    }

    /// The pause before the next, with the random delay of each. Source: Bluetooth Core, Vol 6 Part B §4.4.2.2.
    func nextDelay() -> Duration {
        .milliseconds(Int64(spec.interval)) + .microseconds(Int64.random(in: 0..<10_000, using: &random))
    }

    /// Prepares one advertisement; false where the device is silent now.
    func beginAdvertisement() -> Bool {
        guard isAdvertising, link == nil else { return false }
        if spec.rotate > 0 {
            let now = clock.now
            if let end = rotatesAt {
                if now >= end {
                    address = addresses.privateAddress()
                    rotatesAt = now + .milliseconds(Int64(spec.rotate))
                }
            } else {
                // It had its first address before; so those of a group do not all change theirs at one moment.
                rotatesAt = now + .milliseconds(Int64.random(in: 0..<Int64(spec.rotate), using: &random))
            }
        }
        content.countUp()
        return true
    }

    /// The signal strength of this moment, in dBm.
    func signal() -> Int8 {
        let jitter = spec.rssiJitter > 0 ? Int.random(in: -spec.rssiJitter...spec.rssiJitter, using: &random) : 0
        return Int8(clamping: max(-127, min(20, rssi + jitter)))
    }

    /// False where the parts do not fit; nothing is changed then.
    func advertise(_ change: (inout Advertisement) -> Void) -> Bool {
        guard let changed = content.changed(change) else { return false }
        content = changed
        return true
    }

    // MARK: Links

    /// Whether a controller's attempt to connect succeeds; counts down those that fail.
    func accepts() -> Bool {
        guard spec.refuses || dropNext > 0 else { return true }
        dropNext = max(0, dropNext - 1)
        record("refused")
        return false
    }

    func connected(_ link: Link, by adapter: BluetoothAddress) {
        self.link = link
        hasDatabase = true
        record("connected", ("peer", .string(adapter.description)))
        guard spec.dropsAfter > 0 else { return }
        clock.schedule(after: .milliseconds(Int64(spec.dropsAfter))) { [weak self, weak link] in
            guard let self, let link, self.link === link else { return }
            link.drop()
        }
    }

    /// - Parameter reason: the HCI error code: 0x13 the other side, 0x16 this side, 0x08 supervision timeout.
    func disconnected(reason: UInt8) {
        link = nil
        record("disconnected", ("reason", .int(Int64(reason))))
        for characteristic in database.characteristics {
            characteristic.stopSending()
            // A peer that is not bonded subscribes anew. Source: Bluetooth Core, Vol 3 Part G §3.3.3.3.
            if !isBonded { characteristic.configuration = 0 }
        }
    }

    func record(_ event: String, _ details: (String, JSONValue)...) {
        if log.count >= Self.longestLog { log.removeFirst(Self.longestLog / 10) }
        log.append(Event(time: clock.wallNow, at: clock.now, name: event, details: details))
    }

    // MARK: Requests of the peer

    func read(_ characteristic: PeerCharacteristic, offset: Int) -> ATTAnswer {
        guard let link else { return .unlikely }
        let answer = database.read(characteristic, offset: offset, mtu: link.mtu, isEncrypted: link.isEncrypted)
        // A long value's further parts are not counted.
        if answer != .silence, characteristic.attError == 0, offset == 0 {
            record("read", ("characteristic", .string(characteristic.name)))
        }
        return answer
    }

    func write(_ value: [UInt8], to characteristic: PeerCharacteristic, offset: Int) -> ATTAnswer {
        guard let link else { return .unlikely }
        let answer = database.write(value, to: characteristic, offset: offset, isEncrypted: link.isEncrypted)
        if case .value = answer { recordWrite(characteristic, "request") }
        return answer
    }

    func command(_ value: [UInt8], to characteristic: PeerCharacteristic) {
        guard let link, database.command(value, to: characteristic, isEncrypted: link.isEncrypted) else { return }
        recordWrite(characteristic, "command")
    }

    private func recordWrite(_ characteristic: PeerCharacteristic, _ kind: String) {
        record(
            "write", ("characteristic", .string(characteristic.name)),
            ("value", .string(Hex.encode(characteristic.value))), ("kind", .string(kind)))
    }

    /// A write to the configuration descriptor.
    func configure(_ characteristic: PeerCharacteristic, _ bits: UInt16) -> ATTAnswer {
        guard database.answers, characteristic.answers else { return .silence }
        if characteristic.attError != 0 { return .error(characteristic.attError) }
        guard let link else { return .unlikely }
        if characteristic.spec.isEncrypted, !link.isEncrypted { return .insufficientAuthentication }
        characteristic.configuration = bits
        record(bits == 0 ? "unsubscribe" : "subscribe", ("characteristic", .string(characteristic.name)))
        characteristic.stopSending()
        if bits != 0, characteristic.spec.notifyEvery > 0 { sendEvery(characteristic) }
        return .value([])
    }

    // MARK: Values to the peer

    private func sendEvery(_ characteristic: PeerCharacteristic) {
        let pause = Duration.milliseconds(Int64(characteristic.spec.notifyEvery))
        characteristic.timer = clock.schedule(after: pause) { [weak self, weak characteristic] in
            guard let self, let characteristic, link != nil else { return }
            sendCounted(characteristic, size: 4)
            sendEvery(characteristic)
        }
    }

    /// Sends the next numbered value, of `size` bytes.
    func sendCounted(_ characteristic: PeerCharacteristic, size: Int) {
        let number = characteristic.nextSequence
        send(characteristic.counted(size), of: characteristic, number: number)
    }

    /// Sends a notification, or an indication where that was asked for, cut to the MTU.
    func send(_ value: [UInt8], of characteristic: PeerCharacteristic, number: UInt32? = nil) {
        guard let link, characteristic.configuration != 0 else { return }
        if let number { characteristic.noteSent(number, at: clock.now) }
        if characteristic.configuration & 1 != 0 {
            characteristic.notifications += 1
        } else {
            record("indicate", ("characteristic", .string(characteristic.name)))
        }
        link.deliver(Array(value.prefix(max(0, link.mtu - ATT.valueHeader))), of: characteristic)
    }
}
