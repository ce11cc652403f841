internal import CMosquitto
internal import Glibc

/// PUBLISH packets of QoS 1 on their way to a plain socket. So many may be without an acknowledgement at a time; those
/// behind them wait here. Source: MQTT 5.0, section 4.9.
struct AcknowledgedQueue: ~Copyable {
    private var packets = PacketQueue()
    /// Of the packets that have to wait for an acknowledgement of others.
    private var held = SizeQueue()
    /// Packets that may be without an acknowledgement.
    private(set) var window = 0
    /// Packets that may still leave.
    private var allowance = 0
    /// libmosquitto counts its subscriptions from 1, and an identifier stands for one packet at a time.
    private static let firstPacket: UInt16 = 0x1000
    private var nextPacket = AcknowledgedQueue.firstPacket

    init() {}

    mutating func open(window: Int) {
        self.window = max(1, window)
        allowance = self.window
    }

    /// Bytes that may be written now.
    var count: Int { packets.count - held.bytes }
    /// The same bytes, until the next call that changes them.
    var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: packets.bytes[..<max(0, count)]) }
    var begun: Int { packets.begun }

    /// Adds a packet and gives back its identifier. The topic and the properties are known to be valid.
    mutating func append(
        topic: UnsafeRawBufferPointer, payload: UnsafeRawBufferPointer, retain: Bool, hasProperties: Bool,
        properties: PublishProperties?
    ) -> UInt16 {
        let packet = nextPacket
        nextPacket = packet == .max ? Self.firstPacket : packet + 1
        let before = packets.count
        packets.append(
            topic: topic, payload: payload, packet: packet, retain: retain, hasProperties: hasProperties,
            properties: properties)
        if allowance > 0 { allowance -= 1 } else { held.append(packets.count - before) }
        return packet
    }

    /// One of them was acknowledged: another may leave.
    mutating func acknowledged() {
        if held.count > 0 { held.removeFirst() } else { allowance += 1 }
    }

    /// Drops the first bytes, which were written.
    mutating func removeFirst(_ written: Int) { packets.removeFirst(written) }

    mutating func removeAll() {
        packets.removeFirst(packets.count)
        held.removeAll()
    }
}

extension PacketQueue {
    /// Adds a PUBLISH packet of QoS 1. Source: MQTT 5.0, section 3.3.
    fileprivate mutating func append(
        topic: UnsafeRawBufferPointer, payload: UnsafeRawBufferPointer, packet: UInt16, retain: Bool,
        hasProperties: Bool, properties: PublishProperties?
    ) {
        var length = 2 + topic.count + 2 + payload.count
        let propertiesLength = properties?.bytes ?? 0
        if hasProperties { length += PacketWriter.sizeOfLength(propertiesLength) + propertiesLength }
        var writer = PacketWriter(room(for: 1 + PacketWriter.sizeOfLength(length) + length))
        writer.put(byte: retain ? 0x33 : 0x32)
        writer.put(length: length)
        writer.put(counted: topic)
        writer.put(uint16: packet)
        if hasProperties {
            writer.put(length: propertiesLength)
            properties?.write(to: &writer)
        }
        writer.put(payload)
    }

    /// Adds an answer of two bytes to a packet: PUBACK. Source: MQTT 5.0, section 3.4.
    mutating func append(acknowledgementOf packet: UInt16) {
        var writer = PacketWriter(room(for: 4))
        writer.put(byte: 0x40)
        writer.put(byte: 2)
        writer.put(uint16: packet)
    }

    /// Adds PINGREQ. Source: MQTT 5.0, section 3.12.
    mutating func appendPing() {
        var writer = PacketWriter(room(for: 2))
        writer.put(byte: 0xc0)
        writer.put(byte: 0)
    }
}

/// Writes a packet's fields one after another to where there is room for them. Source: MQTT 5.0, section 1.5.
struct PacketWriter {
    private var place: UnsafeMutablePointer<UInt8>

    init(_ place: UnsafeMutablePointer<UInt8>) {
        self.place = place
    }

    /// Bytes that a length takes.
    static func sizeOfLength(_ length: Int) -> Int {
        length < 128 ? 1 : length < 16_384 ? 2 : length < 2_097_152 ? 3 : 4
    }

    mutating func put(byte: UInt8) {
        place.pointee = byte
        place += 1
    }

    mutating func put(uint16 number: UInt16) {
        put(byte: UInt8(number >> 8))
        put(byte: UInt8(number & 0xff))
    }

    mutating func put(uint32 number: UInt32) {
        put(uint16: UInt16(number >> 16))
        put(uint16: UInt16(number & 0xffff))
    }

    mutating func put(length: Int) {
        var left = length
        repeat {
            put(byte: UInt8(left & 0x7f) | (left > 0x7f ? 0x80 : 0))
            left >>= 7
        } while left > 0
    }

    mutating func put(_ bytes: UnsafeRawBufferPointer) {
        guard let from = bytes.baseAddress else { return }
        UnsafeMutableRawPointer(place).copyMemory(from: from, byteCount: bytes.count)
        place += bytes.count
    }

    /// Bytes behind their count, of which there are at most 65,535.
    mutating func put(counted bytes: UnsafeRawBufferPointer) {
        put(uint16: UInt16(truncatingIfNeeded: bytes.count))
        put(bytes)
    }

    mutating func put(text: String) {
        var text = text
        text.withUTF8 { put(counted: UnsafeRawBufferPointer($0)) }
    }
}

extension PublishProperties {
    /// Writes them, ``bytes`` long. Source: MQTT 5.0, section 3.3.2.3.
    fileprivate func write(to writer: inout PacketWriter) {
        func put(_ identifier: mqtt5_property) { writer.put(byte: UInt8(truncatingIfNeeded: identifier.rawValue)) }
        if let responseTopic {
            put(MQTT_PROP_RESPONSE_TOPIC)
            writer.put(text: responseTopic)
        }
        if let correlationData {
            put(MQTT_PROP_CORRELATION_DATA)
            correlationData.withUnsafeBytes { writer.put(counted: $0) }
        }
        if let messageExpiry {
            put(MQTT_PROP_MESSAGE_EXPIRY_INTERVAL)
            writer.put(uint32: messageExpiry)
        }
        if let contentType {
            put(MQTT_PROP_CONTENT_TYPE)
            writer.put(text: contentType)
        }
        for property in userProperties {
            put(MQTT_PROP_USER_PROPERTY)
            writer.put(text: property.name)
            writer.put(text: property.value)
        }
    }
}
