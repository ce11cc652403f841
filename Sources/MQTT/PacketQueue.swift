internal import Glibc

/// PUBLISH packets on their way to a plain socket, one after another: a whole batch leaves in one `write(2)`, where
/// libmosquitto makes two system calls and takes three locks for each packet.
///
/// It grows to what a batch needs and is then reused, so that a packet takes no memory.
/// Source: MQTT 5.0 and MQTT 3.1.1, sections 2.1, 2.2 and 3.3.
struct PacketQueue: ~Copyable {
    /// What is kept while nothing waits.
    private static let restingCapacity = 16 << 10

    private var start: UnsafeMutablePointer<UInt8>
    private var capacity: Int
    private var head = 0
    private var end = 0

    /// Bytes of the first packet that wait, where a part of it was written; else 0.
    private(set) var begun = 0

    /// Bytes that wait.
    var count: Int { end - head }
    /// The bytes that wait, until the next call that changes them.
    var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: start + head, count: end - head) }

    init() {
        capacity = 2 << 10
        start = .allocate(capacity: capacity)
    }

    deinit { start.deallocate() }

    /// Adds a packet with QoS 0 and without properties. False, and nothing is added, where the topic is anything but
    /// plain ASCII without wildcards, or the packet is larger than MQTT allows: libmosquitto then has the last word.
    mutating func append(
        topic: UnsafePointer<CChar>, payload: UnsafeRawBufferPointer, hasProperties: Bool
    ) -> Bool {
        let length = strlen(topic)
        guard length > 0, length <= 65_535 else { return false }
        let name = UnsafeRawPointer(topic).assumingMemoryBound(to: UInt8.self)
        for index in 0..<length where !Self.isPlain(name[index]) { return false }
        let rest = 2 + length + (hasProperties ? 1 : 0) + payload.count
        guard rest <= Self.longest else { return false }
        var place = begin(0x30, rest)
        place = Self.put(UnsafeRawBufferPointer(start: name, count: length), prefixed: true, at: place)
        if hasProperties { place = Self.put(0, at: place) }
        end = Self.put(payload, prefixed: false, at: place) - start
        return true
    }

    /// Adds a packet with QoS 1, whose topic the caller has looked at. False where it is larger than MQTT allows.
    /// - Parameter properties: their bytes without their length; nil: MQTT 3.1.1, which has none.
    mutating func append(
        topic: UnsafeRawBufferPointer, payload: UnsafeRawBufferPointer, retain: Bool, identifier: UInt16,
        properties: [UInt8]?
    ) -> Bool {
        let length = (properties?.count).map { $0 + Self.lengthSize($0) } ?? 0
        let rest = 2 + topic.count + 2 + length + payload.count
        guard rest <= Self.longest, topic.count <= 65_535 else { return false }
        var place = begin(retain ? 0x33 : 0x32, rest)
        place = Self.put(topic, prefixed: true, at: place)
        place = Self.put(UInt8(identifier >> 8), at: place)
        place = Self.put(UInt8(identifier & 0xff), at: place)
        if let properties {
            place = Self.put(length: properties.count, at: place)
            for byte in properties { place = Self.put(byte, at: place) }
        }
        end = Self.put(payload, prefixed: false, at: place) - start
        return true
    }

    /// Moves the first packet to the end of another queue.
    mutating func moveFirst(to other: inout PacketQueue) {
        guard count > 0 else { return }
        let length = min(packetLength(at: head), count)
        other.reserve(length)
        (other.start + other.end).update(from: start + head, count: length)
        other.end += length
        removeFirst(length)
    }

    private static let longest = 268_435_455

    /// Makes room for a packet and writes its fixed header.
    private mutating func begin(_ type: UInt8, _ rest: Int) -> UnsafeMutablePointer<UInt8> {
        reserve(5 + rest)
        return Self.put(length: rest, at: Self.put(type, at: start + end))
    }

    /// Drops the first bytes, which were written.
    mutating func removeFirst(_ written: Int) {
        let target = head + min(max(0, written), count)
        if target < end {
            // Where the packet ends that was cut.
            var edge = head + begun
            while edge < target { edge += packetLength(at: edge) }
            begun = edge - target
        }
        head = target
        guard head == end else { return }
        begun = 0
        head = 0
        end = 0
        guard capacity > Self.restingCapacity else { return }
        start.deallocate()
        capacity = Self.restingCapacity
        start = .allocate(capacity: capacity)
    }

    /// Of the packet that begins here. Source: MQTT 5.0, section 1.5.5.
    private func packetLength(at place: Int) -> Int {
        var length = 0
        var index = place + 1
        var shift = 0
        while index < end, shift < 28 {
            let byte = start[index]
            length |= Int(byte & 0x7f) << shift
            index += 1
            shift += 7
            if byte < 0x80 { break }
        }
        return index - place + length
    }

    private static func lengthSize(_ length: Int) -> Int {
        length < 1 << 7 ? 1 : length < 1 << 14 ? 2 : length < 1 << 21 ? 3 : 4
    }

    private static func put(length: Int, at start: UnsafeMutablePointer<UInt8>) -> UnsafeMutablePointer<UInt8> {
        var place = start
        var left = length
        repeat {
            place = put(UInt8(left & 0x7f) | (left > 0x7f ? 0x80 : 0), at: place)
            left >>= 7
        } while left > 0
        return place
    }

    /// - Parameter prefixed: behind their number in two bytes.
    private static func put(
        _ bytes: UnsafeRawBufferPointer, prefixed: Bool, at start: UnsafeMutablePointer<UInt8>
    ) -> UnsafeMutablePointer<UInt8> {
        var place = start
        if prefixed {
            place = put(UInt8(truncatingIfNeeded: bytes.count >> 8), at: place)
            place = put(UInt8(truncatingIfNeeded: bytes.count), at: place)
        }
        if let from = bytes.baseAddress { memcpy(place, from, bytes.count) }
        return place + bytes.count
    }

    private static func put(_ byte: UInt8, at place: UnsafeMutablePointer<UInt8>) -> UnsafeMutablePointer<UInt8> {
        place.pointee = byte
        return place + 1
    }

    private static func isPlain(_ byte: UInt8) -> Bool {
        byte >= 0x20 && byte < 0x7f && byte != UInt8(ascii: "+") && byte != UInt8(ascii: "#")
    }

    private mutating func reserve(_ more: Int) {
        guard end + more > capacity else { return }
        let waiting = count
        if waiting + more <= capacity / 2 {
            // The front was written: there is room once the rest moves there.
            start.update(from: start + head, count: waiting)
        } else {
            let larger = max(capacity * 2, waiting + more)
            let fresh = UnsafeMutablePointer<UInt8>.allocate(capacity: larger)
            fresh.update(from: start + head, count: waiting)
            start.deallocate()
            start = fresh
            capacity = larger
        }
        head = 0
        end = waiting
    }
}
