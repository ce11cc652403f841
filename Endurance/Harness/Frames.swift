/// Cuts a stream of MQTT into its packets. Source: MQTT 5.0, section 2.1.
public struct FrameSplitter {
    public struct Frame: Equatable, Sendable {
        /// Type and flags.
        public var header: UInt8
        public var body: [UInt8]

        public init(header: UInt8, body: [UInt8]) {
            (self.header, self.body) = (header, body)
        }
    }

    private var buffer: [UInt8] = []
    private var start = 0

    public init() {}

    /// Whether the stream stands between two packets.
    public var isAtBoundary: Bool { start == buffer.count }

    public mutating func append(_ bytes: some Sequence<UInt8>) {
        if start > 0, start == buffer.count || start > 65_536 {
            buffer.removeFirst(start)
            start = 0
        }
        buffer.append(contentsOf: bytes)
    }

    /// The next whole packet.
    public mutating func next() -> Frame? {
        var index = start + 1
        guard let (length, after) = Self.length(buffer, at: index) else { return nil }
        index = after
        guard buffer.count - index >= length else { return nil }
        let frame = Frame(header: buffer[start], body: Array(buffer[index..<index + length]))
        start = index + length
        return frame
    }

    /// A variable byte integer and the index after it; nil where it is not whole. Source: section 1.5.5.
    static func length(_ bytes: [UInt8], at index: Int) -> (value: Int, after: Int)? {
        var value = 0
        for position in 0..<4 {
            guard index + position < bytes.count else { return nil }
            let byte = bytes[index + position]
            value |= Int(byte & 0x7f) << (7 * position)
            if byte & 0x80 == 0 { return (value, index + position + 1) }
        }
        return (value, index + 4)
    }
}

/// A PUBLISH of MQTT 5. Source: section 3.3.
public struct PublishFrame: Equatable, Sendable {
    public var topic: String
    public var qos: UInt8
    public var packet: UInt16
    public var payload: [UInt8]

    /// Nil where the packet is another, or broken.
    public init?(_ frame: FrameSplitter.Frame) {
        guard frame.header >> 4 == 3, frame.body.count >= 2 else { return nil }
        let body = frame.body
        qos = frame.header >> 1 & 3
        let length = Int(body[0]) << 8 | Int(body[1])
        var index = 2 + length
        guard index <= body.count else { return nil }
        topic = String(decoding: body[2..<index], as: UTF8.self)
        packet = 0
        if qos > 0 {
            guard index + 2 <= body.count else { return nil }
            packet = UInt16(body[index]) << 8 | UInt16(body[index + 1])
            index += 2
        }
        guard let (properties, after) = FrameSplitter.length(body, at: index), after + properties <= body.count else {
            return nil
        }
        payload = Array(body[(after + properties)...])
    }
}

/// A PUBACK: the packet, and whether the broker took it. Source: section 3.4.
public func acknowledgement(_ frame: FrameSplitter.Frame) -> (packet: UInt16, isTaken: Bool)? {
    guard frame.header >> 4 == 4, frame.body.count >= 2 else { return nil }
    let isTaken = frame.body.count < 3 || frame.body[2] < 0x80
    return (UInt16(frame.body[0]) << 8 | UInt16(frame.body[1]), isTaken)
}
