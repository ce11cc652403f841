/// A value that a peer sent, by the radio's own log. Times are milliseconds of the machine's monotonic clock.
public struct SentValue: Equatable, Sendable {
    public var number: UInt32
    public var at: Double

    public init(number: UInt32, at: Double) {
        (self.number, self.at) = (number, at)
    }
}

/// A value as it came out of the broker.
public struct ReceivedValue: Sendable {
    public var channel: Int
    public var epoch: String
    public var sequence: UInt64
    public var number: UInt32
    public var at: Double

    public init(channel: Int, epoch: String, sequence: UInt64, number: UInt32, at: Double) {
        (self.channel, self.epoch, self.sequence, self.number, self.at) = (channel, epoch, sequence, number, at)
    }
}

/// What a peer saw of its link.
public struct PeerEvent: Sendable {
    public enum Kind: String, Sendable {
        case connected, disconnected
        case subscribed = "subscribe"
        case unsubscribed = "unsubscribe"
    }

    public var kind: Kind
    public var at: Double

    public init(_ kind: Kind, at: Double) {
        (self.kind, self.at) = (kind, at)
    }
}

/// A time in which something between the peers and the bridge was out of order.
public struct FaultWindow: Sendable {
    /// When the bridge hears again after the end of the fault.
    public enum Healing: Sendable {
        /// Nothing between peers and bridge is touched: everything sent must arrive.
        case neverDeaf
        /// At once.
        case atTheEnd
        /// As soon as the peer sees a new subscription.
        case bySubscribing
    }

    public var begins: Double
    public var ends: Double
    public var healing: Healing
    /// What was sent so shortly before the fault may have been on its way still.
    public var allowance: Double

    public init(begins: Double, ends: Double, healing: Healing, allowance: Double) {
        (self.begins, self.ends, self.healing, self.allowance) = (begins, ends, healing, allowance)
    }
}

/// Everything that was noted in one row, of all channels.
public struct Notes: Sendable {
    /// By channel.
    public var sent: [[SentValue]] = []
    /// In the order of arrival.
    public var received: [ReceivedValue] = []
    /// What the broker acknowledged to the bridge; see ``key(_:_:)``.
    public var acknowledged: Set<UInt64> = []
    /// By channel.
    public var peers: [[PeerEvent]] = []
    public var faults: [FaultWindow] = []
    /// How long a value may be on its way from the peer to the bridge.
    public var transit: Double = 250
    /// For how long a link may have had nobody at its other end when the peer saw it end.
    public var deserted: Double = 0
    /// Whether the broker may forget what it has acknowledged: it was killed, or keeps nothing.
    public var brokerForgets = false

    public init() {}

    public static func key(_ channel: Int, _ number: UInt32) -> UInt64 { UInt64(channel) << 32 | UInt64(number) }
}

/// What became of the values.
public struct Reckoning: Equatable, Sendable {
    public var sent = 0
    /// Different values that arrived.
    public var received = 0
    /// Were to arrive and did not.
    public var lost = 0
    /// Acknowledged by a broker that then forgot them.
    public var lostByBroker = 0
    /// Sent within the allowance before a fault or the end of a link, and not received.
    public var inFlight = 0
    /// The longest time between such a value and its fault, in milliseconds.
    public var oldestInFlight = 0.0
    /// Sent by a peer that nobody listened to: from the fault to the new subscription.
    public var unheard = 0
    /// The same again under its epoch and sequence, as a subscriber expects it of QoS 1.
    public var repeated = 0
    /// The same again under another epoch or sequence.
    public var doubled = 0
    public var disordered = 0
    /// Never sent by a peer.
    public var unknown = 0
    /// Links that ended, or were unsubscribed from.
    public var endedLinks = 0
    /// The first of what was lost, doubled or out of order, in words.
    public var examples: [String] = []

    public init() {}
}

extension Reckoning {
    private struct Window {
        let begins: Double
        let instant: Double
        let ends: Double
    }

    /// Counts. Pure.
    public init(_ notes: Notes) {
        self.init()
        let arrived = takeReceived(notes)
        for (channel, sent) in notes.sent.enumerated() {
            let events = channel < notes.peers.count ? notes.peers[channel] : []
            endedLinks += events.count { $0.kind == .disconnected || $0.kind == .unsubscribed }
            let windows = Self.windows(notes, sent, events, arrived, channel)
            for value in sent {
                self.sent += 1
                if arrived.contains(Notes.key(channel, value.number)) {
                    received += 1
                } else {
                    miss(value, channel, windows, notes)
                }
            }
        }
    }

    /// What a subscriber keeps: the first of each epoch and sequence. Gives the values that are in it.
    private mutating func takeReceived(_ notes: Notes) -> Set<UInt64> {
        struct Place: Hashable {
            let channel: Int
            let epoch: String
            let sequence: UInt64
        }
        let known = notes.sent.map { Set($0.map(\.number)) }
        var places: Set<Place> = []
        var arrived: Set<UInt64> = []
        var highest: [Int: UInt32] = [:]
        var newest: [Place: UInt64] = [:]
        for value in notes.received {
            let place = Place(channel: value.channel, epoch: value.epoch, sequence: value.sequence)
            guard places.insert(place).inserted else {
                repeated += 1
                continue
            }
            let described = "channel \(value.channel), \(value.epoch)/\(value.sequence), value \(value.number)"
            guard value.channel < known.count, known[value.channel].contains(value.number) else {
                unknown += 1
                note("never sent: \(described)")
                continue
            }
            guard arrived.insert(Notes.key(value.channel, value.number)).inserted else {
                doubled += 1
                note("doubled: \(described)")
                continue
            }
            let epoch = Place(channel: value.channel, epoch: value.epoch, sequence: 0)
            if value.number < highest[value.channel] ?? 0 || value.sequence < newest[epoch] ?? 0 {
                disordered += 1
                note("out of order: \(described) after value \(highest[value.channel] ?? 0)")
            }
            highest[value.channel] = max(highest[value.channel] ?? 0, value.number)
            newest[epoch] = max(newest[epoch] ?? 0, value.sequence)
        }
        return arrived
    }

    private mutating func miss(_ value: SentValue, _ channel: Int, _ windows: [Window], _ notes: Notes) {
        if notes.acknowledged.contains(Notes.key(channel, value.number)) {
            if notes.brokerForgets {
                lostByBroker += 1
            } else {
                lost += 1
                note("lost after the broker's acknowledgement: channel \(channel), value \(value.number)")
            }
            return
        }
        let around = windows.filter { $0.begins <= value.at && value.at < $0.ends }
        if around.contains(where: { value.at >= $0.instant }) {
            unheard += 1
        } else if let age = around.map({ $0.instant - value.at }).min() {
            inFlight += 1
            oldestInFlight = max(oldestInFlight, age)
        } else {
            lost += 1
            let near = (notes.faults.map { value.at - $0.begins }).min { abs($0) < abs($1) }
            note("lost: channel \(channel), value \(value.number), \(near.map { "\(Int($0)) ms after a fault" } ?? "")")
        }
    }

    private mutating func note(_ example: String) {
        if examples.count < 12 { examples.append(example) }
    }

    /// When what a peer sends need not arrive.
    private static func windows(
        _ notes: Notes, _ sent: [SentValue], _ events: [PeerEvent], _ arrived: Set<UInt64>, _ channel: Int
    ) -> [Window] {
        let subscriptions = events.filter { $0.kind == .subscribed }.map(\.at)
        func next(after time: Double) -> Double? { subscriptions.first { $0 > time } }
        var windows: [Window] = []
        for fault in notes.faults {
            let ends: Double
            switch fault.healing {
            case .neverDeaf: continue
            case .atTheEnd: ends = fault.ends + notes.transit
            case .bySubscribing:
                // A link that the fault left alone is heard again from its first value on.
                let heard = sent.first { $0.at > fault.ends && arrived.contains(Notes.key(channel, $0.number)) }
                ends = next(after: fault.ends) ?? heard?.at ?? .infinity
            }
            windows.append(Window(begins: fault.begins - fault.allowance, instant: fault.begins, ends: ends))
        }
        for event in events where event.kind == .disconnected || event.kind == .unsubscribed {
            let instant = event.kind == .disconnected ? event.at - notes.deserted : event.at
            windows.append(
                Window(begins: instant - notes.transit, instant: instant, ends: next(after: event.at) ?? .infinity))
        }
        return windows
    }
}
