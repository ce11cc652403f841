internal import EventLoop

@testable internal import MQTT

/// The body of a PUBLISH packet: a topic, properties, a payload. What is read is written again so that it reads the same.
@EventLoopActor
enum PacketFuzzer {
    static func run(_ input: UnsafeRawBufferPointer) {
        var cursor = PacketCursor(input)
        guard let topic = cursor.text(), let properties = PublishProperties(reading: &cursor) else { return }
        let payload = cursor.rest
        var queue = AcknowledgedQueue()
        queue.open(window: 1)
        let packet = queue.append(
            topic: topic, payload: payload, retain: false, hasProperties: true, properties: properties)
        var again = PacketCursor(queue.bytes)
        precondition(again.byte() == 0x32, "another packet was written")
        precondition(again.variableLength() == again.rest.count, "the length is wrong")
        precondition(again.text().map { $0.elementsEqual(topic) } == true, "the topic reads otherwise")
        precondition(again.uint16() == packet, "the identifier reads otherwise")
        precondition(PublishProperties(reading: &again) == properties, "the properties read otherwise")
        precondition(again.rest.elementsEqual(payload), "the payload reads otherwise")
    }
}
