internal import Bluetooth
internal import EventLoop
internal import JSON

/// `devices/<dev>/characteristics/<svc>/<chr>`: each value with its epoch and sequence, kept until the broker has it.
@EventLoopActor
final class ValuePublisher {
    private struct Key: Hashable {
        let address: BluetoothAddress
        let service: String
        let characteristic: String
    }

    /// Beyond so many characteristics the numbers begin anew, under a new epoch.
    private static let limit = 20_000

    private let space: TopicSpace
    private let publisher: Publisher
    private let clock: any LoopClock
    private var channels: [Key: ValueChannel] = [:]
    private let buffer = OutputBuffer()
    private var payload = ValuePayload()

    init(space: TopicSpace, publisher: Publisher, clock: any LoopClock) {
        self.space = space
        self.publisher = publisher
        self.clock = clock
    }

    func publish(_ value: HeardValue) {
        let key = Key(address: value.address, service: value.service, characteristic: value.characteristic)
        let channel: ValueChannel
        if let known = channels[key] {
            channel = known
        } else {
            if channels.count >= Self.limit {
                channels = [:]
                publisher.outbox.renewEpoch()
            }
            channel = ValueChannel(
                topic: space.characteristic(value.address, value.service, value.characteristic))
            channels[key] = channel
        }
        let number = publisher.outbox.nextNumber(of: channel)
        buffer.removeAll()
        payload.write(
            value.bytes, isRead: value.isRead, epoch: number.epoch, sequence: number.sequence, at: clock.wallNow,
            to: buffer)
        let bytes = buffer.withUnsafeBytes { Array($0) }
        let message = OutboxMessage(topicBytes: channel.topic, payload: bytes)
        // Who has asked waits for the answer, which is written next: the value leaves together with it, behind it.
        if value.isRead { publisher.sendInGroup(message) } else { publisher.send(message) }
    }
}
