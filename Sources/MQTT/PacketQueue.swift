internal import EventLoop
internal import Glibc

/// PUBLISH packets of QoS 0 on their way to a plain socket, one after another: a whole batch leaves in one `write(2)`,
/// where libmosquitto makes two system calls and takes three locks for each packet.
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

    /// So many of the bytes were here at this time; see ``isLate(at:)``.
    private var bytesMarked = 0
    private var markedAt = MonotonicTime(nanoseconds: 0)
    /// How long it may wait.
    private static let patience: Duration = .seconds(1)

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
        guard rest <= 268_435_455 else { return false }
        var writer = PacketWriter(room(for: 1 + PacketWriter.sizeOfLength(rest) + rest))
        writer.put(byte: 0x30)
        writer.put(length: rest)
        writer.put(counted: UnsafeRawBufferPointer(start: name, count: length))
        if hasProperties { writer.put(byte: 0) }
        writer.put(payload)
        return true
    }

    /// Adds so many bytes, which the caller fills with a packet.
    mutating func room(for size: Int) -> UnsafeMutablePointer<UInt8> {
        reserve(size)
        defer { end += size }
        return start + end
    }

    /// Whether something has waited for more than a second or two. To be asked while much waits.
    mutating func isLate(at now: MonotonicTime) -> Bool {
        if bytesMarked == 0 {
            bytesMarked = count
            markedAt = now
        }
        return bytesMarked > 0 && now - markedAt > Self.patience
    }

    /// Drops the first bytes, which were written.
    mutating func removeFirst(_ written: Int) {
        bytesMarked = max(0, bytesMarked - max(0, written))
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
