internal import CMosquitto
internal import Glibc

/// Bytes from a plain socket, taken apart into packets: many come by one `recv(2)`, where libmosquitto makes three
/// system calls for each. Source: MQTT 5.0 and MQTT 3.1.1, section 2.1.
struct InboundPackets: ~Copyable {
    /// What `next()` finds.
    enum Next {
        /// Valid until the next ``fill(from:)``.
        case packet(first: UInt8, body: PacketCursor)
        case incomplete
        /// Its length is none.
        case malformed
    }

    private static let usualCapacity = 8 << 10

    private var start: UnsafeMutablePointer<UInt8>
    private(set) var capacity = InboundPackets.usualCapacity
    private var head = 0
    private var end = 0
    /// Bytes of the packet that stands at the head in part.
    private var needed = 0

    /// A part of a packet is here.
    var isInsidePacket: Bool { end > head }

    init() {
        start = .allocate(capacity: capacity)
    }

    deinit { start.deallocate() }

    /// Reads once. Gives back what `recv(2)` does, and whether there may be more.
    mutating func fill(from socket: Int32) -> (count: Int, isFull: Bool) {
        makeRoom()
        let room = capacity - end
        let count = recv(socket, start + end, room, Int32(MSG_DONTWAIT))
        if count > 0 { end += count }
        return (count, count == room)
    }

    private mutating func makeRoom() {
        let waiting = end - head
        // A packet's length is only what the broker says: room is made as its bytes come.
        let wanted = max(min(needed, max(capacity, 2 * waiting)), Self.usualCapacity)
        if wanted > capacity || (capacity > Self.usualCapacity && waiting < wanted && wanted < capacity) {
            let fresh = UnsafeMutablePointer<UInt8>.allocate(capacity: wanted)
            fresh.update(from: start + head, count: waiting)
            start.deallocate()
            start = fresh
            capacity = wanted
        } else if head > 0, waiting > 0 {
            start.update(from: start + head, count: waiting)
        }
        head = 0
        end = waiting
    }

    /// Takes the next packet that is here as a whole.
    mutating func next() -> Next {
        needed = 0
        var length = 0
        var shift = 0
        var place = head + 1
        while true {
            guard place < end else { return .incomplete }
            let byte = start[place]
            length |= Int(byte & 0x7f) << shift
            place += 1
            if byte < 0x80 { break }
            shift += 7
            if shift > 21 { return .malformed }
        }
        guard end - place >= length else {
            needed = place - head + length
            return .incomplete
        }
        let first = start[head]
        head = place + length
        return .packet(
            first: first, body: PacketCursor(UnsafeRawBufferPointer(start: start + place, count: length)))
    }
}

/// Reads a packet's fields, one after another; what is not there is nil. Source: MQTT 5.0, section 1.5.
struct PacketCursor {
    private(set) var rest: UnsafeRawBufferPointer

    init(_ bytes: UnsafeRawBufferPointer) {
        rest = bytes
    }

    mutating func bytes(_ count: Int) -> UnsafeRawBufferPointer? {
        guard count >= 0, count <= rest.count else { return nil }
        defer { rest = UnsafeRawBufferPointer(rebasing: rest[count...]) }
        return UnsafeRawBufferPointer(rebasing: rest[..<count])
    }

    mutating func byte() -> UInt8? { bytes(1)?.first }

    mutating func uint16() -> UInt16? {
        bytes(2).map { UInt16($0[0]) << 8 | UInt16($0[1]) }
    }

    mutating func uint32() -> UInt32? {
        bytes(4).map { $0.reduce(0) { $0 << 8 | UInt32($1) } }
    }

    /// A number of one to four bytes.
    mutating func variableLength() -> Int? {
        var value = 0
        for shift in stride(from: 0, through: 21, by: 7) {
            guard let byte = byte() else { return nil }
            value |= Int(byte & 0x7f) << shift
            if byte < 0x80 { return value }
        }
        return nil
    }

    /// Bytes behind their count.
    mutating func counted() -> UnsafeRawBufferPointer? {
        uint16().flatMap { bytes(Int($0)) }
    }

    /// Text as MQTT has it: UTF-8 without control characters.
    mutating func text() -> UnsafeRawBufferPointer? {
        guard let bytes = counted(), Self.isText(bytes) else { return nil }
        return bytes
    }

    static func isText(_ bytes: UnsafeRawBufferPointer) -> Bool {
        var isPlain = true
        for byte in bytes where byte < 0x20 || byte > 0x7e { isPlain = false }
        if isPlain { return true }
        let start = bytes.baseAddress?.assumingMemoryBound(to: CChar.self)
        return mosquitto_validate_utf8(start, Int32(clamping: bytes.count)) == 0
    }
}

extension PublishProperties {
    /// Reads the properties of a PUBLISH packet; nil where they are not what MQTT allows there.
    /// Source: MQTT 5.0, sections 2.2.2.2 and 3.3.2.3.
    init?(reading cursor: inout PacketCursor) {
        self.init()
        guard let length = cursor.variableLength(), let bytes = cursor.bytes(length) else { return nil }
        var list = PacketCursor(bytes)
        while let identifier = list.byte() {
            guard read(identifier, &list) else { return nil }
        }
    }

    /// One property; false where it is none, or cut short.
    private mutating func read(_ identifier: UInt8, _ list: inout PacketCursor) -> Bool {
        func string(_ bytes: UnsafeRawBufferPointer) -> String { String(decoding: bytes, as: UTF8.self) }
        switch UInt32(identifier) {
        case MQTT_PROP_PAYLOAD_FORMAT_INDICATOR.rawValue: return list.byte() != nil
        case MQTT_PROP_SUBSCRIPTION_IDENTIFIER.rawValue: return list.variableLength() != nil
        case MQTT_PROP_MESSAGE_EXPIRY_INTERVAL.rawValue:
            messageExpiry = list.uint32()
            return messageExpiry != nil
        case MQTT_PROP_CONTENT_TYPE.rawValue:
            contentType = list.text().map(string)
            return contentType != nil
        case MQTT_PROP_RESPONSE_TOPIC.rawValue:
            responseTopic = list.text().map(string)
            return responseTopic != nil
        case MQTT_PROP_CORRELATION_DATA.rawValue:
            correlationData = list.counted().map { Array($0) }
            return correlationData != nil
        case MQTT_PROP_USER_PROPERTY.rawValue:
            guard let name = list.text(), let value = list.text() else { return false }
            userProperties.append(UserProperty(name: string(name), value: string(value)))
            return true
        default:
            // A topic's alias is among them: we have not allowed any.
            return false
        }
    }
}
