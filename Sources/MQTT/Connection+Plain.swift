internal import CMosquitto
internal import EventLoop
internal import Glibc

/// The plain socket once the broker has taken us: packets are read and written here in batches. libmosquitto has made
/// the connection, and still writes SUBSCRIBE, UNSUBSCRIBE and DISCONNECT. Over TLS it does everything.
extension Connection {
    /// Reads without a turn of the loop; others have to have theirs.
    private static var readsInTurn: Int { 8 }
    private static var fewBytes: Int { 8 << 10 }

    var isPlain: Bool { settings.tls == nil && info != nil }

    // MARK: Reading

    func readPlain() {
        let socket = mosquitto_socket(instance.pointer)
        var status: mosq_err_t?
        depth += 1
        for _ in 0..<Self.readsInTurn where !isClosed && status == nil {
            let (count, isFull) = inbound.fill(from: socket)
            if count > 0 {
                heardAt = .now
                hasHeard = true
                if mark.isRaised { mark.wasReached() }
                status = takePackets()
                if !isFull { break }
            } else if count == 0 {
                status = MOSQ_ERR_CONN_LOST
            } else if errno == EAGAIN {
                break
            } else if errno != EINTR {
                brokenBy = errno
                status = MOSQ_ERR_ERRNO
            }
        }
        depth -= 1
        guard let status, !isClosed else { return FlushQueue.shared.add(self) }
        end(isDisconnecting ? fault : fault ?? ended(Int32(status.rawValue)))
    }

    /// Takes what is here as a whole; what ends the connection, or nil.
    private func takePackets() -> mosq_err_t? {
        while !isClosed {
            switch inbound.next() {
            case .incomplete: return nil
            case .malformed: return MOSQ_ERR_MALFORMED_PACKET
            case .packet(let first, let body):
                if let status = take(first, body) { return status }
            }
        }
        return nil
    }

    private func take(_ first: UInt8, _ body: PacketCursor) -> mosq_err_t? {
        var body = body
        // Source: MQTT 5.0, table 2-1.
        switch first >> 4 {
        case 3: return takeMessage(first, &body)
        case 4:
            guard let packet = body.uint16() else { return MOSQ_ERR_MALFORMED_PACKET }
            if let token = tokens.remove(packet: packet) {
                messages.acknowledged()
                delegate?.connection(self, acknowledged: token, reason: body.byte() ?? 0)
            }
        case 9:
            guard let packet = body.uint16(), settings.version == .v311 || Self.skipProperties(&body) else {
                return MOSQ_ERR_MALFORMED_PACKET
            }
            delegate?.connection(self, answeredSubscription: Int32(packet), granted: Array(body.rest))
        case 11: break
        case 13: askedAt = nil
        case 14 where settings.version == .v5:
            if !isDisconnecting { fault = Answer.disconnect(body.byte() ?? 0, clientID: settings.clientID) }
            return MOSQ_ERR_CONN_LOST
        default: return MOSQ_ERR_PROTOCOL
        }
        return nil
    }

    private static func skipProperties(_ body: inout PacketCursor) -> Bool {
        guard let length = body.variableLength() else { return false }
        return body.bytes(length) != nil
    }

    /// Source: MQTT 5.0, section 3.3. We have asked for QoS 1 at most, and for no topic aliases.
    private func takeMessage(_ first: UInt8, _ body: inout PacketCursor) -> mosq_err_t? {
        let qos = first >> 1 & 3
        guard qos < 2 else { return MOSQ_ERR_PROTOCOL }
        guard let topic = body.text(), !topic.isEmpty else { return MOSQ_ERR_MALFORMED_PACKET }
        var packet: UInt16?
        if qos == 1 {
            packet = body.uint16()
            if packet == nil { return MOSQ_ERR_MALFORMED_PACKET }
        }
        var properties = PublishProperties()
        if settings.version == .v5 {
            guard let given = PublishProperties(reading: &body) else { return MOSQ_ERR_MALFORMED_PACKET }
            properties = given
        }
        if let packet { control.append(acknowledgementOf: packet) }
        mark.received()
        received(topic: topic, payload: body.rest, qos: qos, retain: first & 1 != 0, properties: properties)
        return nil
    }

    // MARK: Publishing

    /// Queues one message of QoS 1; libmosquitto's status.
    func publishAcknowledged(
        topic: UnsafePointer<CChar>, payload: UnsafeRawBufferPointer, retain: Bool, properties: PublishProperties?,
        size: Int, token: PublishToken
    ) -> Int32 {
        let name = UnsafeRawBufferPointer(start: topic, count: strlen(topic))
        // Source: `mosquitto_publish_v5`, which asks for the same.
        guard !name.isEmpty, name.count <= MQTTTopic.maximumLength, PacketCursor.isText(name),
            mosquitto_pub_topic_check2(topic, name.count) == 0
        else { return Int32(MOSQ_ERR_INVAL.rawValue) }
        guard properties?.isValid != false else { return Int32(MOSQ_ERR_MALFORMED_PACKET.rawValue) }
        let packet = messages.append(
            topic: name, payload: payload, retain: retain, hasProperties: settings.version == .v5,
            properties: properties)
        tokens.append(packet: packet, token: token.number, size: size)
        queued(size)
        return 0
    }

    // MARK: Writing

    /// Bytes of our own packets that may be written now.
    var plainBytes: Int { control.count + messages.count + packets.count }

    var isInsidePlainPacket: Bool { control.begun > 0 || messages.begun > 0 || packets.begun > 0 }

    /// Ends the packet that the socket took in part. False where it cannot be ended now.
    func endBegunPacket() -> Bool {
        while !isClosed, isInsidePlainPacket {
            let written: Int?
            if control.begun > 0 {
                written = write(control.bytes, control.begun)
                control.removeFirst(written ?? 0)
            } else if messages.begun > 0 {
                written = write(messages.bytes, messages.begun)
                messages.removeFirst(written ?? 0)
            } else {
                written = write(packets.bytes, packets.begun)
                packets.removeFirst(written ?? 0)
            }
            if written == nil { return false }
        }
        return !isClosed
    }

    /// Writes what may be written, or as much of it as the socket takes: what must arrive before what need not.
    func writePlain() {
        while !isClosed {
            let written: Int?
            if control.count == 0, messages.count == 0 {
                if packets.count == 0 { return }
                written = write(packets.bytes, packets.count)
                packets.removeFirst(written ?? 0)
            } else if control.count == 0, packets.count == 0 {
                written = write(messages.bytes, messages.count)
                messages.removeFirst(written ?? 0)
            } else {
                written = writeTogether()
            }
            if written == nil { return }
        }
    }

    /// The bytes that the socket took; nil where it takes none.
    private func write(_ bytes: UnsafeRawBufferPointer, _ count: Int) -> Int? {
        sent(send(mosquitto_socket(instance.pointer), bytes.baseAddress, min(count, bytes.count), Int32(MSG_NOSIGNAL)))
    }

    /// All of them by one call, few advertisements before what the broker has to acknowledge, which takes it longer.
    /// Many would hold that up for as long as they come. Source: `sendmsg(2)`.
    private func writeTogether() -> Int? {
        func part(_ bytes: UnsafeRawBufferPointer) -> iovec {
            iovec(iov_base: UnsafeMutableRawPointer(mutating: bytes.baseAddress), iov_len: bytes.count)
        }
        let isPacketsFirst = packets.count <= Self.fewBytes
        let (first, second) = (control.count, isPacketsFirst ? packets.count : messages.count)
        var parts = (part(control.bytes), part(packets.bytes), part(messages.bytes))
        if !isPacketsFirst { swap(&parts.1, &parts.2) }
        let socket = mosquitto_socket(instance.pointer)
        let count = withUnsafeMutableBytes(of: &parts) { parts in
            var header = msghdr()
            header.msg_iov = parts.baseAddress?.assumingMemoryBound(to: iovec.self)
            header.msg_iovlen = 3
            return sendmsg(socket, &header, Int32(MSG_NOSIGNAL))
        }
        guard let written = sent(count) else { return nil }
        control.removeFirst(min(written, first))
        let ofSecond = min(max(0, written - first), second)
        let ofThird = max(0, written - first - second)
        packets.removeFirst(isPacketsFirst ? ofSecond : ofThird)
        messages.removeFirst(isPacketsFirst ? ofThird : ofSecond)
        return written
    }

    private func sent(_ count: Int) -> Int? {
        if count >= 0 {
            let now = MonotonicTime.now
            mark.wrote(at: now, after: sentAt)
            sentAt = now
            return count
        }
        if errno == EINTR { return 0 }
        if errno != EAGAIN { writingFailed(errno) }
        return nil
    }

    /// The broker closed the connection; what it said before still stands to be read.
    private func writingFailed(_ number: Int32) {
        control.removeFirst(control.count)
        messages.removeAll()
        packets.removeFirst(packets.count)
        read()
        guard !isClosed else { return }
        brokenBy = number
        end(ended(Int32(MOSQ_ERR_ERRNO.rawValue)))
    }

    // MARK: Keeping alive

    /// Asks the broker whether it is there, where either side was silent for long; ends the connection where it does not
    /// answer. Source: MQTT 5.0, section 3.1.2.10.
    /// - Parameter pause: until this is called again.
    func keepPlainAlive(_ pause: Duration) {
        let seconds = info?.serverKeepAlive ?? (settings.keepAlive == 0 ? 0 : max(settings.keepAlive, 5))
        guard seconds > 0 else { return }
        let interval = Duration.seconds(Int(seconds))
        let now = MonotonicTime.now
        if let askedAt {
            if now - askedAt >= interval { end(ended(Int32(MOSQ_ERR_KEEPALIVE.rawValue))) }
        } else if now - min(heardAt, sentAt) + pause >= interval {
            askedAt = now
            control.appendPing()
        }
    }
}
