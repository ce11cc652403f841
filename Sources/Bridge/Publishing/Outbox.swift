public import EventLoop

/// A message that must arrive: a notification, an answer or an event.
public struct OutboxMessage: Equatable, Sendable {
    /// Which of two queues it waits in; each is sent in order.
    public enum Lane: Int, Sendable, CaseIterable {
        /// Values and events, the oldest first.
        case ordered
        /// Answers: someone waits for them, so they pass what was kept while the broker was away.
        case prompt
    }

    /// Closed by a NUL.
    public var topic: [UInt8]
    public var payload: [UInt8]
    public var responseCorrelation: [UInt8]?
    /// When the message has lost its use (MQTT 5 tells the broker).
    public var expires: WallTime?
    public var lane: Lane

    public init(
        topic: String, payload: [UInt8], responseCorrelation: [UInt8]? = nil, expires: WallTime? = nil,
        lane: Lane = .ordered
    ) {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(topic.utf8.count + 1)
        bytes.append(contentsOf: topic.utf8)
        bytes.append(0)
        self.init(
            topicBytes: bytes, payload: payload, responseCorrelation: responseCorrelation, expires: expires, lane: lane)
    }

    init(
        topicBytes: [UInt8], payload: [UInt8], responseCorrelation: [UInt8]? = nil, expires: WallTime? = nil,
        lane: Lane = .ordered
    ) {
        topic = topicBytes
        self.payload = payload
        self.responseCorrelation = responseCorrelation
        self.expires = expires
        self.lane = lane
    }

    var size: Int { Self.size(topic: topic.count, payload: payload.count + (responseCorrelation?.count ?? 0)) }

    /// What a message counts for, with what it costs beside its bytes.
    static func size(topic: Int, payload: Int) -> Int { topic + payload + 64 }
}

/// A value's place among those of its characteristic.
public struct ValueNumber: Equatable, Sendable {
    public var epoch: UInt32
    public var sequence: UInt64
}

/// Keeps what must arrive until the broker acknowledged it, oldest first. Bounded: the oldest go first, and are counted.
@EventLoopActor
public protocol Outbox: AnyObject {
    /// New where numbers begin anew: with it and the sequence a subscriber tells a repeat from news.
    var epoch: UInt32 { get }
    var count: Int { get }
    /// Bytes of what waits, with what each message costs beside them.
    var bytes: Int { get }
    /// Messages that were dropped since the start, for want of room.
    var dropped: UInt64 { get }
    /// Nil where all is kept on the disk, else why it is not.
    var problem: String? { get }
    /// The id of the newest message; 0 before the first.
    var newestID: UInt64 { get }
    /// Messages that ``next(after:in:)`` did not have came from the disk.
    var onReady: (@EventLoopActor () -> Void)? { get set }
    /// Something that a person should see: a code and a sentence. What there was to say before is told at once.
    var onWarning: (@EventLoopActor (_ code: String, _ message: String) -> Void)? { get set }

    /// Takes a message to keep.
    func enqueue(_ message: OutboxMessage)
    /// The oldest message of a lane after `id` that is ready to be sent; after nil, the oldest of all.
    func next(after id: UInt64?, in lane: OutboxMessage.Lane) -> (id: UInt64, message: OutboxMessage)?
    /// The broker has it, or it is of no use any more.
    func remove(_ id: UInt64)
    /// All sequences begin anew.
    func renewEpoch()
    /// A characteristic's next number; sequences count from 0.
    func nextNumber(of channel: ValueChannel) -> ValueNumber
    /// Brings to the disk what is not there, within `limit`. Nothing is taken afterwards.
    func close(within limit: Duration) async
}

/// A characteristic as the stream of its values.
@EventLoopActor
public final class ValueChannel {
    /// The topic, closed by a NUL; it is the channel's key in a store.
    public let topic: [UInt8]
    var sequence: UInt64 = 0
    /// The epoch that the sequence belongs to; nil before the first number.
    var epoch: UInt32?
    /// Where the sequence is kept.
    var slot: Int?

    init(topic: String) {
        self.topic = Array(topic.utf8) + [0]
    }
}

/// An outbox that lives as long as the process.
@EventLoopActor
public final class MemoryOutbox: Outbox {
    public static let sizeLimit = 32 << 20

    public private(set) var epoch: UInt32
    public private(set) var dropped: UInt64 = 0
    public private(set) var newestID: UInt64 = 0
    public var onReady: (@EventLoopActor () -> Void)?
    public var onWarning: (@EventLoopActor (_ code: String, _ message: String) -> Void)? {
        didSet {
            if let warning { onWarning?(warning.code, warning.message) }
            warning = nil
        }
    }
    public var problem: String?
    private var warning: (code: String, message: String)?
    private let limit: Int
    private let sizeLimit: Int
    private var ordered = MessageQueue()
    private var prompt = MessageQueue()

    /// - Parameter problem: why nothing is kept on the disk, where it should be.
    public init(
        limit: Int, sizeLimit: Int = MemoryOutbox.sizeLimit, epoch: UInt32 = .random(in: 0...(.max)),
        problem: String? = nil
    ) {
        self.limit = max(1, limit)
        self.sizeLimit = sizeLimit
        self.epoch = epoch
        self.problem = problem
        warning = problem.map { ("outbox", $0) }
    }

    public var count: Int { ordered.count + prompt.count }
    public var bytes: Int { ordered.bytes + prompt.bytes }

    public func enqueue(_ message: OutboxMessage) {
        newestID += 1
        switch message.lane {
        case .ordered: ordered.append(newestID, message)
        case .prompt: prompt.append(newestID, message)
        }
        while count > limit || (bytes > sizeLimit && count > 1) {
            guard ordered.popFirst() != nil || prompt.popFirst() != nil else { break }
            dropped += 1
        }
    }

    public func next(after id: UInt64?, in lane: OutboxMessage.Lane) -> (id: UInt64, message: OutboxMessage)? {
        switch lane {
        case .ordered: ordered.next(after: id)
        case .prompt: prompt.next(after: id)
        }
    }

    public func remove(_ id: UInt64) {
        if !ordered.remove(id) { _ = prompt.remove(id) }
    }

    public func renewEpoch() { epoch &+= 1 }

    public func nextNumber(of channel: ValueChannel) -> ValueNumber {
        if channel.epoch != epoch {
            channel.epoch = epoch
            channel.sequence = 0
        }
        defer { channel.sequence += 1 }
        return ValueNumber(epoch: epoch, sequence: channel.sequence)
    }

    public func close(within limit: Duration) async {}
}
