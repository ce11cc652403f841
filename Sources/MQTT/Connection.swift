internal import CMosquitto
internal import EventLoop
internal import Glibc

/// What a connection tells its client.
@EventLoopActor
protocol ConnectionDelegate: AnyObject {
    func connectionOpened(_ connection: Connection, _ info: ConnectInfo)
    /// The connection is closed; it says nothing after this. A nil fault is an end that we asked for.
    func connectionEnded(_ connection: Connection, _ fault: MQTTFault?)
    func connection(_ connection: Connection, received message: MQTTReceived)
    func connection(_ connection: Connection, acknowledged token: PublishToken, reason: UInt8)
    func connection(_ connection: Connection, answeredSubscription packet: Int32, granted: [UInt8])
}

/// A socket to the broker, on the loop: moves bytes, and turns libmosquitto's callbacks into the delegate's calls.
///
/// Callbacks run inside of a call to libmosquitto, which then holds locks and goes on with its instance afterwards.
/// There, publishing only queues, and the end of the connection waits until the call has returned.
@EventLoopActor
final class Connection {
    let instance: Instance
    let settings: MQTTSettings
    private weak var delegate: (any ConnectionDelegate)?
    private var registration: IORegistration?

    private(set) var info: ConnectInfo?
    /// QoS 0 messages that libmosquitto holds.
    private var pending = SizeQueue()
    /// Those that leave past it. They are written while libmosquitto is between two packets, and it writes while these
    /// are: `mosquitto_threaded_set` keeps every call but `mosquitto_loop_write` from the socket.
    private var packets = PacketQueue()
    /// Without TLS those of QoS 1 leave past it as well, and their acknowledgements are read before it looks.
    private var acknowledged = AcknowledgedPackets()
    private var acknowledgements = AcknowledgementReader()
    /// libmosquitto has read a part of a packet.
    private var isLibraryReading = false
    private(set) var tokens = TokenQueue()

    private var depth = 0
    private var isReading = false
    private var callbacks = 0
    private var fault: MQTTFault?
    /// errno as libmosquitto left it when it gave the connection up.
    private var brokenBy: Int32 = 0
    private var isClosed = false
    private var isDisconnecting = false
    private var canCork = false
    /// Tokens whose QoS the broker does not offer: done once they are written.
    private var unacknowledgeable: [PublishToken] = []

    // For FlushQueue.
    var isDirty = false
    private var packetsInLibrary = 0
    private var bytesSinceFlush = 0
    /// The socket took a part of what there is.
    private var isBlocked = false
    /// libmosquitto holds the rest of a packet.
    private var isInsidePacket = false

    private let isPlain: Bool
    private let isVersion5: Bool
    /// Unacknowledged messages that the broker takes, and the largest packet.
    private var receiveMaximum = 1
    private(set) var maximumPacketSize = 0

    var isOpen: Bool { info != nil && !isClosed && !isDisconnecting }
    /// Bytes of QoS 0 messages that wait for the socket.
    var pendingBytes: Int { pending.bytes + packets.count }

    init(_ instance: Instance, delegate: any ConnectionDelegate) {
        self.instance = instance
        self.delegate = delegate
        settings = instance.settings
        isPlain = settings.tls == nil
        isVersion5 = settings.version == .v5
    }

    /// Watches the socket that the worker has connected, and sends the CONNECT packet.
    func attach() {
        let socket = mosquitto_socket(instance.pointer)
        setCallbacks()
        instance.connection = self
        _ = fcntl(socket, F_SETFD, FD_CLOEXEC)
        canCork = settings.unixSocketPath == nil
        do {
            registration = try EventLoop.shared.register(socket, [.read, .readHangUp]) { events in self.ready(events) }
        } catch {
            return end(MQTTFault(.unreachable, "the socket to \(settings.endpoint) cannot be watched: \(error)"))
        }
        write()
    }

    // MARK: Events

    private func ready(_ events: IOEvents) {
        guard !isClosed, delegate != nil else { return close() }
        if events.contains(.write) {
            isBlocked = false
            write()
            // During TLS's handshake a wish to write is met by the reading call.
            if info == nil, settings.tls != nil { read() }
        }
        if !events.isDisjoint(with: [.read, .hangUp, .error, .readHangUp]) { read() }
        // A failed handshake may leave the socket open, and reported for ever.
        if !isClosed, info == nil, !events.isDisjoint(with: [.hangUp, .error, .readHangUp]) {
            end(instance.tlsFault() ?? MQTTFault(.unreachable, "\(settings.endpoint) closed the connection at once"))
        }
    }

    private func read() {
        // libmosquitto reads one packet at a time: go on for as long as packets come, but let others have their turn.
        for _ in 0..<32 where !isClosed {
            if isPlain, info != nil, !isLibraryReading {
                let front = readAcknowledgements()
                if front == .nothing { break }
                if front == .acknowledgements { continue }
            }
            let before = callbacks
            call {
                isReading = true
                defer { isReading = false }
                errno = 0
                let status = mosquitto_loop_read(instance.pointer, 1)
                // A packet without a callback that was read whole leaves errno alone.
                isLibraryReading = callbacks == before && errno == EAGAIN
                return status
            }
            if callbacks == before { break }
        }
        if !isClosed { flush() }
    }

    private enum Front {
        /// What there was is read.
        case nothing
        case acknowledgements
        /// A packet for libmosquitto, or the end of the connection.
        case other
    }

    /// Takes the acknowledgements at the front of what there is to read.
    private func readAcknowledgements() -> Front {
        let socket = mosquitto_socket(instance.pointer)
        let room = Self.readBuffer
        let count = recv(socket, room.baseAddress, room.count, Int32(MSG_PEEK))
        guard count > 0 else { return count < 0 && errno == EAGAIN ? .nothing : .other }
        let bytes = UnsafeRawBufferPointer(rebasing: room[..<count])
        guard acknowledgements.isInside || bytes[0] == AcknowledgementReader.type else { return .other }
        var place = 0
        // What is called here only queues.
        depth += 1
        do throws(MQTTFault) {
            while !isClosed, let (identifier, reason) = try acknowledgements.next(bytes, &place) {
                guard let token = tokens.remove(packet: identifier) else { continue }
                acknowledged.acknowledged(limit: receiveMaximum)
                delegate?.connection(self, acknowledged: token, reason: reason)
            }
        } catch {
            fault = error
        }
        depth -= 1
        guard !isClosed else { return .nothing }
        if let fault {
            end(fault)
            return .nothing
        }
        // They are still the first to be read.
        _ = recv(socket, room.baseAddress, place, 0)
        if place < count { return .other }
        return count < room.count ? .nothing : .acknowledgements
    }

    /// One for all connections: it is used within one call.
    private static let readBuffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 4 << 10, alignment: 8)

    private func write() {
        bytesSinceFlush = 0
        // A packet that was begun is ended first, whoever began it. Then come libmosquitto's, which must arrive: a flood
        // of advertisements would hold them up for as long as it lasts.
        if packets.begun > 0 { writePackets(0, packets.begun) }
        if !isClosed, acknowledged.out.begun > 0 { writePackets(acknowledged.out.begun, 0) }
        if !isClosed, packets.begun == 0, acknowledged.out.begun == 0 { writeLibrary() }
        if !isClosed, !isInsidePacket, packets.begun == 0 { writePackets(acknowledged.out.count, packets.count) }
        guard !isClosed else { return }
        isBlocked = isInsidePacket || packets.count > 0 || acknowledged.out.count > 0
        registration?.events = isBlocked ? [.read, .readHangUp, .write] : [.read, .readHangUp]
        if !isBlocked { finishUnacknowledgeable() }
    }

    /// Lets libmosquitto write. Several packets leave in as few segments as they fit in.
    private func writeLibrary() {
        guard mosquitto_want_write(instance.pointer) else {
            isInsidePacket = false
            return
        }
        let socket = mosquitto_socket(instance.pointer)
        let isCorked = canCork && packetsInLibrary > 1
        packetsInLibrary = 0
        if isCorked { cmosquitto_cork(socket, 1) }
        call { mosquitto_loop_write(instance.pointer, 1) }
        guard !isClosed else { return }
        if isCorked { cmosquitto_cork(socket, 0) }
        isInsidePacket = mosquitto_want_write(instance.pointer)
        if !isInsidePacket { pending.removeAll() }
    }

    /// Writes so many bytes of our own packets of QoS 1, and then of QoS 0, or as many as the socket takes.
    private func writePackets(_ limit1: Int, _ limit0: Int) {
        let socket = mosquitto_socket(instance.pointer)
        var left1 = limit1
        var left0 = limit0
        while left1 + left0 > 0 {
            let first = UnsafeRawBufferPointer(rebasing: acknowledged.out.bytes.prefix(left1))
            let second = UnsafeRawBufferPointer(rebasing: packets.bytes.prefix(left0))
            let count =
                left0 == 0
                ? send(socket, first.baseAddress, first.count, Int32(MSG_NOSIGNAL))
                : left1 == 0
                    ? send(socket, second.baseAddress, second.count, Int32(MSG_NOSIGNAL))
                    : cmosquitto_send_both(socket, first.baseAddress, first.count, second.baseAddress, second.count)
            if count >= 0 {
                let count1 = min(count, left1)
                if count1 > 0 { acknowledged.out.removeFirst(count1) }
                if count > count1 { packets.removeFirst(count - count1) }
                left1 -= count1
                left0 -= count - count1
            } else if errno != EINTR {
                if errno != EAGAIN { writingFailed(errno) }
                return
            }
        }
    }

    /// The broker closed the connection; what it said before still stands to be read.
    private func writingFailed(_ number: Int32) {
        packets.removeFirst(packets.count)
        acknowledged.out.removeFirst(acknowledged.out.count)
        read()
        guard !isClosed else { return }
        brokenBy = number
        end(ended(Int32(MOSQ_ERR_ERRNO.rawValue)))
    }

    /// Writes what is queued.
    func flush() {
        guard !isClosed, depth == 0, !isBlocked else { return }
        if packets.count > 0 || acknowledged.out.count > 0 || mosquitto_want_write(instance.pointer) { write() }
    }

    /// Keeps the connection alive, or finds it dead. Source: `mosquitto_loop_misc`.
    func tick() {
        guard !isClosed else { return }
        call { mosquitto_loop_misc(instance.pointer) }
        flush()
    }

    /// One call that may call back, and what follows from it.
    private func call(_ body: () -> Int32) {
        depth += 1
        brokenBy = 0
        let status = body()
        depth -= 1
        if status != 0, fault == nil, !isDisconnecting { fault = ended(status) }
        let isOver = status != 0 || fault != nil || mosquitto_socket(instance.pointer) < 0
        if depth == 0, !isClosed, isOver { end(fault) }
    }

    private func ended(_ status: Int32) -> MQTTFault {
        let endpoint = settings.endpoint
        if let tls = instance.tlsFault() { return tls }
        switch mosq_err_t(status) {
        case MOSQ_ERR_CONN_LOST, MOSQ_ERR_NO_CONN, MOSQ_ERR_ERRNO, MOSQ_ERR_TLS:
            let isTold = status == Int32(MOSQ_ERR_ERRNO.rawValue) && settings.tls == nil
            let why = isTold && brokenBy != 0 ? ": \(Instance.systemWords(brokenBy))" : ""
            let hint = info == nil && settings.tls != nil ? "; it may want a certificate of ours (mqtt.tls)" : ""
            let before = info == nil ? " before it had answered" : ""
            return MQTTFault(.unreachable, "the broker at \(endpoint) closed the connection\(before)\(why)\(hint)")
        case MOSQ_ERR_KEEPALIVE:
            return MQTTFault(.unreachable, "the broker at \(endpoint) is silent")
        case MOSQ_ERR_PROTOCOL, MOSQ_ERR_MALFORMED_PACKET, MOSQ_ERR_MALFORMED_UTF8, MOSQ_ERR_OVERSIZE_PACKET:
            // What a broker of 3.1.1 says to MQTT 5 is malformed in the newer version's terms.
            let hint =
                info == nil && settings.version == .v5
                ? "; where it is older than MQTT 5, set mqtt.version to 3.1.1" : ""
            return MQTTFault(
                .protocolError, "\(endpoint) sent what MQTT does not allow (\(Instance.words(status)))\(hint)")
        default:
            return MQTTFault(.unreachable, "the connection to \(endpoint) failed: \(Instance.words(status))")
        }
    }

    /// Closes and tells the delegate, once.
    func end(_ fault: MQTTFault?) {
        guard !isClosed else { return }
        close()
        delegate?.connectionEnded(self, fault)
    }

    /// Closes without a word. The broker publishes our will.
    func close() {
        guard !isClosed else { return }
        isClosed = true
        registration?.cancel()
        registration = nil
        instance.connection = nil
    }

    /// Everything that was not acknowledged.
    func takeLostTokens() -> [PublishToken] {
        defer { unacknowledgeable = [] }
        return tokens.removeAll() + unacknowledgeable
    }

    // MARK: Calls

    /// Queues one message of QoS 0 that is not retained, without libmosquitto; false where it has to have it.
    func publishPlain(topic: UnsafePointer<CChar>, payload: UnsafeRawBufferPointer) -> Bool {
        guard isPlain, packets.append(topic: topic, payload: payload, hasProperties: isVersion5) else { return false }
        queued(payload.count)
        return true
    }

    /// Queues one message of QoS 1 without libmosquitto; nil where it has to have it.
    func publishAcknowledged(
        topic: UnsafePointer<CChar>, payload: UnsafeRawBufferPointer, retain: Bool, properties: PublishProperties?,
        size: Int, token: PublishToken
    ) -> PublishOutcome? {
        guard isPlain, let info, info.maximumQoS > 0, info.retainAvailable || !retain else { return nil }
        let length = strlen(topic)
        // Source: `mosquitto_pub_topic_check`, `mosquitto_validate_utf8`.
        guard length > 0, length <= 65_535, mosquitto_pub_topic_check(topic) == 0,
            mosquitto_validate_utf8(topic, Int32(length)) == 0
        else { return .dropped(.invalidTopic) }
        var encoded: [UInt8]? = isVersion5 ? [] : nil
        if isVersion5, let properties {
            guard let bytes = properties.encoded else { return .dropped(.failed) }
            encoded = bytes
        }
        let identifier = acknowledged.append(
            topic: UnsafeRawBufferPointer(start: topic, count: length), payload: payload, retain: retain,
            properties: encoded, limit: receiveMaximum)
        guard let identifier else { return .dropped(.tooLarge) }
        tokens.append(packet: identifier, token: token.number, size: size)
        queued(size)
        return .sent(token)
    }

    /// Queues one message; it leaves with the end of this batch of events. Source: `mosquitto_publish_v5`.
    func publish(
        topic: UnsafePointer<CChar>, payload: UnsafeRawBufferPointer, qos: QoS, retain: Bool,
        properties: OpaquePointer?, size: Int, token: PublishToken
    ) -> Int32 {
        guard let length = Int32(exactly: payload.count) else { return Int32(MOSQ_ERR_PAYLOAD_SIZE.rawValue) }
        let allowed = min(qos.rawValue, info?.maximumQoS ?? 0)
        var packet: Int32 = 0
        let status = mosquitto_publish_v5(
            instance.pointer, &packet, topic, length, payload.baseAddress, Int32(allowed), retain, properties)
        guard status == 0 else { return status }
        if allowed == 0 { pending.append(size) }
        if allowed > 0 {
            tokens.append(packet: UInt16(truncatingIfNeeded: packet), token: token.number, size: size)
        } else if qos == .atLeastOnce {
            unacknowledgeable.append(token)
        }
        packetsInLibrary += 1
        queued(size)
        return 0
    }

    private func queued(_ size: Int) {
        bytesSinceFlush += size
        if bytesSinceFlush >= 64 << 10, depth == 0 { flush() } else if !isDirty { FlushQueue.shared.add(self) }
    }

    /// The packet's identifier, or nil where libmosquitto refuses. Source: `mosquitto_subscribe_v5`.
    func subscribe(_ filter: String, _ options: SubscribeOptions) -> Int32? {
        var packet: Int32 = 0
        var flags: UInt32 = 0
        if options.noLocal { flags |= MQTT_SUB_OPT_NO_LOCAL.rawValue }
        if options.retainAsPublished { flags |= MQTT_SUB_OPT_RETAIN_AS_PUBLISHED.rawValue }
        let status = mosquitto_subscribe_v5(
            instance.pointer, &packet, filter, Int32(options.qos.rawValue), Int32(flags), nil)
        FlushQueue.shared.add(self)
        return status == 0 ? packet : nil
    }

    func unsubscribe(_ filter: String) {
        mosquitto_unsubscribe(instance.pointer, nil, filter)
        FlushQueue.shared.add(self)
    }

    /// Sends DISCONNECT behind what is queued: the broker drops our will. Source: `mosquitto_disconnect_v5`.
    func disconnect() {
        guard !isClosed, !isDisconnecting else { return }
        isDisconnecting = true
        mosquitto_disconnect_v5(instance.pointer, 0, nil)
        flush()
    }

    private func finishUnacknowledgeable() {
        guard !unacknowledgeable.isEmpty else { return }
        let done = unacknowledgeable
        unacknowledgeable = []
        for token in done { delegate?.connection(self, acknowledged: token, reason: 0) }
    }

    // MARK: Callbacks

    private func setCallbacks() {
        let client = instance.pointer
        mosquitto_connect_v5_callback_set(client) { _, context, code, flags, properties in
            Connection.with(context) { $0.answered(code: code, flags: flags, properties) }
        }
        mosquitto_disconnect_v5_callback_set(client) { _, context, status, _ in
            let number = errno
            Connection.with(context) {
                $0.brokenBy = number
                $0.disconnected(status)
            }
        }
        mosquitto_publish_v5_callback_set(client) { _, context, packet, reason, _ in
            Connection.with(context) { $0.published(packet, reason: reason) }
        }
        mosquitto_message_v5_callback_set(client) { _, context, message, properties in
            Connection.with(context) { $0.received(message, properties) }
        }
        mosquitto_subscribe_v5_callback_set(client) { _, context, packet, count, granted, _ in
            let codes = UnsafeBufferPointer(start: granted, count: granted == nil ? 0 : Int(max(count, 0)))
            let granted = codes.map { UInt8(clamping: $0) }
            Connection.with(context) {
                $0.callbacks &+= 1
                $0.delegate?.connection($0, answeredSubscription: packet, granted: granted)
            }
        }
    }

    private nonisolated static func with(
        _ context: UnsafeMutableRawPointer?, _ body: @EventLoopActor (Connection) -> Void
    ) {
        guard let context else { return }
        let instance = Unmanaged<Instance>.fromOpaque(context).takeUnretainedValue()
        guard let connection = instance.connection else { return }
        EventLoopActor.assumeIsolated { body(connection) }
    }

    private func answered(code: Int32, flags: Int32, _ properties: OpaquePointer?) {
        callbacks &+= 1
        let code = UInt8(clamping: code)
        guard code == 0 else {
            let said = PublishProperties.string(properties, MQTT_PROP_REASON_STRING)
            fault =
                settings.version == .v5
                ? Answer.refusal5(code, said: said, clientID: settings.clientID)
                : Answer.refusal311(code, clientID: settings.clientID)
            return
        }
        instance.stopLogging()
        var info = ConnectInfo()
        info.sessionPresent = flags & 1 != 0
        if let value = PublishProperties.int16(properties, MQTT_PROP_RECEIVE_MAXIMUM) { info.receiveMaximum = value }
        if let value = PublishProperties.int32(properties, MQTT_PROP_MAXIMUM_PACKET_SIZE) {
            info.maximumPacketSize = value
        }
        if let value = PublishProperties.byte(properties, MQTT_PROP_MAXIMUM_QOS) { info.maximumQoS = value }
        if let value = PublishProperties.byte(properties, MQTT_PROP_RETAIN_AVAILABLE) {
            info.retainAvailable = value != 0
        }
        info.serverKeepAlive = PublishProperties.int16(properties, MQTT_PROP_SERVER_KEEP_ALIVE)
        self.info = info
        receiveMaximum = max(1, Int(min(info.receiveMaximum, settings.inFlight)))
        maximumPacketSize = Int(min(info.maximumPacketSize, 268_435_455))
        delegate?.connectionOpened(self, info)
    }

    /// libmosquitto has closed the socket. The watch ends at once, before its number is given to another file.
    private func disconnected(_ status: Int32) {
        callbacks &+= 1
        registration?.cancel()
        registration = nil
        if fault == nil, !isDisconnecting, let code = UInt8(exactly: status), code >= 0x80 || code == 0 {
            fault = Answer.disconnect(code, clientID: settings.clientID)
        }
    }

    private func published(_ packet: Int32, reason: Int32) {
        // While libmosquitto writes, this says that a packet of QoS 0 has left; while it reads, that one of QoS 1 was
        // acknowledged. Their identifiers come from one counter and may be equal.
        guard isReading else { return pending.removeFirst() }
        callbacks &+= 1
        guard let token = tokens.remove(packet: UInt16(truncatingIfNeeded: packet)) else { return }
        delegate?.connection(self, acknowledged: token, reason: UInt8(clamping: reason))
    }

    private func received(_ message: UnsafePointer<mosquitto_message>?, _ properties: OpaquePointer?) {
        callbacks &+= 1
        guard let message = message?.pointee, let topic = message.topic else { return }
        let length = Int(max(message.payloadlen, 0))
        let isTooLarge = length > settings.receivedPayloadLimit
        let bytes = UnsafeRawBufferPointer(start: message.payload, count: message.payload == nil ? 0 : length)
        delegate?.connection(
            self,
            received: MQTTReceived(
                topic: String(cString: topic), payload: isTooLarge ? [] : Array(bytes), payloadLength: length,
                isTooLarge: isTooLarge, qos: UInt8(clamping: message.qos), retain: message.retain,
                properties: PublishProperties(reading: properties)))
    }
}
