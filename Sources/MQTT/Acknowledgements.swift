internal import CMosquitto
internal import Glibc

/// Messages of QoS 1 that leave past libmosquitto, as many at a time as the broker takes; the others wait.
struct AcknowledgedPackets: ~Copyable {
    /// On their way to the socket.
    var out = PacketQueue()
    private var held = PacketQueue()
    /// Sent, and not acknowledged.
    private var open = 0
    private var lastIdentifier = Self.first

    /// Identifiers come from the upper half: libmosquitto counts its own, which only subscriptions need, from 1.
    private static let first: UInt16 = 0x8000

    init() {}

    /// Adds a message; nil where it is larger than MQTT allows.
    /// - Parameter limit: unacknowledged ones that the broker takes.
    mutating func append(
        topic: UnsafeRawBufferPointer, payload: UnsafeRawBufferPointer, retain: Bool, properties: [UInt8]?, limit: Int
    ) -> UInt16? {
        let identifier = lastIdentifier == .max ? Self.first : lastIdentifier + 1
        let isHeld = open >= limit
        let isTaken =
            isHeld
            ? held.append(
                topic: topic, payload: payload, retain: retain, identifier: identifier, properties: properties)
            : out.append(topic: topic, payload: payload, retain: retain, identifier: identifier, properties: properties)
        guard isTaken else { return nil }
        lastIdentifier = identifier
        if !isHeld { open += 1 }
        return identifier
    }

    /// The broker has acknowledged one that was sent: the next one may leave.
    mutating func acknowledged(limit: Int) {
        if open > 0 { open -= 1 }
        while open < limit, held.count > 0 {
            held.moveFirst(to: &out)
            open += 1
        }
    }
}

/// Reads PUBACK packets from their bytes, in whatever pieces they come. Source: MQTT 5.0 and 3.1.1, section 3.4.
struct AcknowledgementReader {
    private enum Part {
        case start, length, high, low, reason, rest
    }

    static let type: UInt8 = 0x40

    private var part = Part.start
    private var left = 0
    private var shift = 0
    private var identifier: UInt16 = 0

    /// Inside of a packet.
    var isInside: Bool { part != .start }

    /// Reads on. Gives back what was acknowledged, and why the broker refused it where that is 0x80 or more; nil where the
    /// bytes end, or another packet begins, to which `place` then points. Throws where they are no MQTT.
    mutating func next(
        _ bytes: UnsafeRawBufferPointer, _ place: inout Int
    ) throws(MQTTFault) -> (identifier: UInt16, reason: UInt8)? {
        while place < bytes.count {
            let byte = bytes[place]
            if part == .start, byte != Self.type { return nil }
            place += 1
            switch part {
            case .start:
                (part, left, shift) = (.length, 0, 0)
            case .length:
                left |= Int(byte & 0x7f) << shift
                shift += 7
                if byte < 0x80 {
                    guard left >= 2 else { throw Self.fault }
                    part = .high
                } else if shift > 21 {
                    throw Self.fault
                }
            case .high:
                identifier = UInt16(byte) << 8
                (part, left) = (.low, left - 1)
            case .low:
                identifier |= UInt16(byte)
                left -= 1
                part = left > 0 ? .reason : .start
                if left == 0 { return (identifier, 0) }
            case .reason:
                left -= 1
                part = left > 0 ? .rest : .start
                return (identifier, byte)
            case .rest:
                // The reason in words.
                let skipped = min(left - 1, bytes.count - place)
                place += skipped
                left -= skipped + 1
                if left == 0 { part = .start }
            }
        }
        return nil
    }

    private static var fault: MQTTFault {
        MQTTFault(.protocolError, "the broker sent a PUBACK that MQTT does not allow")
    }
}

extension PublishProperties {
    /// Their bytes, without their length. Nil where a value does not fit MQTT. Source: MQTT 5.0, section 3.3.2.3.
    var encoded: [UInt8]? {
        var bytes: [UInt8] = []
        func put(_ text: String) -> Bool {
            guard text.utf8.count <= 65_535, !text.utf8.contains(0) else { return false }
            return put(Array(text.utf8))
        }
        func put(_ data: [UInt8]) -> Bool {
            guard let count = UInt16(exactly: data.count) else { return false }
            bytes += [UInt8(count >> 8), UInt8(count & 0xff)]
            bytes += data
            return true
        }
        func put(_ identifier: mqtt5_property) { bytes.append(UInt8(truncatingIfNeeded: identifier.rawValue)) }
        if let messageExpiry {
            put(MQTT_PROP_MESSAGE_EXPIRY_INTERVAL)
            bytes += [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: messageExpiry >> $0) }
        }
        if let contentType {
            put(MQTT_PROP_CONTENT_TYPE)
            guard put(contentType) else { return nil }
        }
        if let responseTopic {
            put(MQTT_PROP_RESPONSE_TOPIC)
            guard MQTTTopic.isValid(responseTopic), put(responseTopic) else { return nil }
        }
        if let correlationData {
            put(MQTT_PROP_CORRELATION_DATA)
            guard put(correlationData) else { return nil }
        }
        for property in userProperties {
            put(MQTT_PROP_USER_PROPERTY)
            guard put(property.name), put(property.value) else { return nil }
        }
        return bytes
    }
}
