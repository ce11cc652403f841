internal import EventLoop
internal import JSON

/// Writes `devices/<dev>/characteristics/<svc>/<chr>`: one value.
struct ValuePayload {
    private var timestamps = TimestampWriter()

    @EventLoopActor
    mutating func write(
        _ bytes: UnsafeRawBufferPointer, isRead: Bool, epoch: UInt32, sequence: UInt64, at time: WallTime,
        to output: OutputBuffer
    ) {
        timestamps.set(time)
        output.appendInPlace(192 + 2 * bytes.count) { start in
            var writer = PlaceWriter(start)
            writer.put("{\"time\":\"")
            writer.put(timestamps)
            writer.put("\",\"epoch\":\"")
            writer.put(hex: UInt64(epoch), digits: 8)
            writer.put("\",\"sequence\":")
            writer.put(decimal: sequence)
            writer.put(",\"value\":")
            writer.put(hex: bytes)
            writer.put(",\"length\":")
            writer.put(decimal: UInt64(bytes.count))
            writer.put(isRead ? ",\"source\":\"read\"}" : ",\"source\":\"notify\"}")
            return writer.count
        }
    }
}
