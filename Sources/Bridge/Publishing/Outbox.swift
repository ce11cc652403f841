public import EventLoop

/// A message that must arrive: a notification, an answer or an event.
public struct OutboxMessage: Equatable, Sendable {
    /// Closed by a NUL.
    public var topic: [UInt8]
    public var payload: [UInt8]
    public var responseCorrelation: [UInt8]?
    /// When the message has lost its use (MQTT 5 tells the broker).
    public var expires: WallTime?

    public init(topic: String, payload: [UInt8], responseCorrelation: [UInt8]? = nil, expires: WallTime? = nil) {
        self.init(
            topicBytes: Array(topic.utf8) + [0], payload: payload, responseCorrelation: responseCorrelation,
            expires: expires)
    }

    init(topicBytes: [UInt8], payload: [UInt8], responseCorrelation: [UInt8]? = nil, expires: WallTime? = nil) {
        topic = topicBytes
        self.payload = payload
        self.responseCorrelation = responseCorrelation
        self.expires = expires
    }

    var size: Int { topic.count + payload.count + (responseCorrelation?.count ?? 0) + 64 }
}

/// Keeps what must arrive until the broker acknowledged it, oldest first. Bounded: the oldest go first, and are counted.
@EventLoopActor
public protocol Outbox: AnyObject {
    /// New for each store: with it and the sequence a subscriber tells a repeat from news.
    var epoch: UInt32 { get }
    var count: Int { get }
    /// Messages that were dropped since the start, for want of room.
    var dropped: UInt64 { get }

    /// Takes a message to keep.
    func enqueue(_ message: OutboxMessage)
    /// The oldest message after `id` that is ready to be sent; after nil, the oldest of all.
    func next(after id: UInt64?) -> (id: UInt64, message: OutboxMessage)?
    /// The broker has it, or it is of no use any more.
    func remove(_ id: UInt64)
    /// All sequences begin anew.
    func renewEpoch()
    /// A characteristic's next sequence number, from 0.
    func nextSequence(of channel: ValueChannel) -> UInt64
}

/// A characteristic as the stream of its values.
@EventLoopActor
public final class ValueChannel {
    /// The topic, closed by a NUL; it is the channel's key in a store.
    public let topic: [UInt8]
    public var sequence: UInt64 = 0

    init(topic: String) {
        self.topic = Array(topic.utf8) + [0]
    }
}

/// An outbox that lives as long as the process.
@EventLoopActor
public final class MemoryOutbox: Outbox {
    public private(set) var epoch: UInt32
    public private(set) var dropped: UInt64 = 0
    private let limit: Int
    private let sizeLimit: Int
    /// A queue in an array: what was removed in front is cut off now and then. The ids ascend without gaps.
    private var messages: [OutboxMessage?] = []
    private var firstID: UInt64 = 1
    private var head = 0
    private var size = 0
    public private(set) var count = 0

    public init(limit: Int, sizeLimit: Int = 32 << 20, epoch: UInt32 = .random(in: 0...(.max))) {
        self.limit = max(1, limit)
        self.sizeLimit = sizeLimit
        self.epoch = epoch
    }

    public func enqueue(_ message: OutboxMessage) {
        messages.append(message)
        count += 1
        size += message.size
        while count > limit || (size > sizeLimit && count > 1) {
            guard head < messages.count else { break }
            take(head)
            dropped += 1
        }
    }

    public func next(after id: UInt64?) -> (id: UInt64, message: OutboxMessage)? {
        var index = head
        if let id, id >= firstID { index = max(head, Int(id - firstID) + 1) }
        while index < messages.count {
            if let message = messages[index] { return (firstID + UInt64(index), message) }
            index += 1
        }
        return nil
    }

    public func remove(_ id: UInt64) {
        guard id >= firstID, id - firstID < UInt64(messages.count) else { return }
        take(Int(id - firstID))
    }

    public func renewEpoch() { epoch &+= 1 }

    public func nextSequence(of channel: ValueChannel) -> UInt64 {
        defer { channel.sequence += 1 }
        return channel.sequence
    }

    private func take(_ index: Int) {
        guard let message = messages[index] else { return }
        messages[index] = nil
        size -= message.size
        count -= 1
        while head < messages.count, messages[head] == nil { head += 1 }
        if head == messages.count || head >= 1024 {
            messages.removeFirst(head)
            firstID += UInt64(head)
            head = 0
        }
    }
}
