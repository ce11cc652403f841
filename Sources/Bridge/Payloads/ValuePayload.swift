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
        output.append("{\"time\":" as StaticString)
        timestamps.append(time, to: output)
        output.append(",\"epoch\":\"" as StaticString)
        output.appendHex(UInt64(epoch), digits: 8)
        output.append("\",\"sequence\":" as StaticString)
        output.appendNumber(Int64(clamping: sequence))
        output.append(",\"value\":" as StaticString)
        output.appendQuotedHex(bytes)
        output.append(",\"length\":" as StaticString)
        output.appendNumber(Int64(bytes.count))
        output.append(isRead ? ",\"source\":\"read\"}" : ",\"source\":\"notify\"}" as StaticString)
    }
}
