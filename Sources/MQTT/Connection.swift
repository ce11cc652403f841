internal import CMosquitto
internal import EventLoop
internal import Glibc

/// What a connection tells its client.
@EventLoopActor
protocol ConnectionDelegate: AnyObject {
    func connectionOpened(_ connection: Connection, _ info: ConnectInfo)
    /// The connection is closed; it says nothing after this. A nil fault is an end that we asked for.
    func connectionEnded(_ connection: Connection, _ fault: MQTTFault?)
    func connection(_ connection: Connection, received message: MQTTInbound)
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
    private(set) weak var delegate: (any ConnectionDelegate)?
    @exclusivity(unchecked) private var registration: IORegistration?

    @exclusivity(unchecked) private(set) var info: ConnectInfo?
    /// The largest packet that the broker takes.
    @exclusivity(unchecked) private(set) var maximumPacketSize = 0
    /// QoS 0 messages that libmosquitto holds.
    @exclusivity(unchecked) private var pending = SizeQueue()
    // What leaves past it: messages of QoS 0 and 1, and what is said to the broker itself. They are written while
    // libmosquitto is between two packets, and it writes while these are: `mosquitto_threaded_set` keeps every call but
    // `mosquitto_loop_write` from the socket.
    @exclusivity(unchecked) var packets = PacketQueue()
    @exclusivity(unchecked) var messages = AcknowledgedQueue()
    @exclusivity(unchecked) var control = PacketQueue()
    @exclusivity(unchecked) var inbound = InboundPackets()
    @exclusivity(unchecked) var tokens = TokenQueue()
    @exclusivity(unchecked) var mark = ReceiveMark()
    var isMarkWatched = false

    /// For ``keepPlainAlive(_:)``: the last packets of either side, and a question that is not answered.
    @exclusivity(unchecked) var heardAt = MonotonicTime.now
    @exclusivity(unchecked) var sentAt = MonotonicTime.now
    var askedAt: MonotonicTime?

    @exclusivity(unchecked) var depth = 0
    private var isReading = false
    private var callbacks = 0
    var fault: MQTTFault?
    /// errno as it was when the connection was given up.
    var brokenBy: Int32 = 0
    @exclusivity(unchecked) private(set) var isClosed = false
    private(set) var isDisconnecting = false
    /// DISCONNECT is still to be sent.
    @exclusivity(unchecked) private var isLeaving = false
    @exclusivity(unchecked) private var isTCP = false
    /// Something came in this batch of events.
    @exclusivity(unchecked) var hasHeard = false
    /// Tokens whose QoS the broker does not offer: done once they are written.
    @exclusivity(unchecked) private var unacknowledgeable: [PublishToken] = []

    // For FlushQueue.
    @exclusivity(unchecked) var isDirty = false
    @exclusivity(unchecked) private var packetsInLibrary = 0
    @exclusivity(unchecked) private var bytesSinceFlush = 0
    /// The socket took a part of what there is.
    @exclusivity(unchecked) private var isBlocked = false
    /// libmosquitto holds the rest of a packet.
    @exclusivity(unchecked) private var isInsidePacket = false

    var isOpen: Bool { info != nil && !isClosed && !isDisconnecting }
    /// Bytes of QoS 0 messages that wait for the socket.
    var pendingBytes: Int { pending.bytes + packets.count }

    /// Room for one more message of QoS 0. Where much waits already, none for what would come late; libmosquitto's queue
    /// tells only how long it is. One message may be over the limit on its own; else it could never leave.
    func hasRoom(for size: Int) -> Bool {
        let waiting = pendingBytes
        if waiting + size <= min(Self.muchBytes, settings.pendingLimit) || waiting == 0 { return true }
        guard waiting + size <= settings.pendingLimit else { return false }
        return pending.bytes + size <= Self.muchBytes && !packets.isLate(at: .now)
    }

    private static var muchBytes: Int { 512 << 10 }

    init(_ instance: Instance, delegate: any ConnectionDelegate) {
        self.instance = instance
        self.delegate = delegate
        settings = instance.settings
    }

    /// Watches the socket that the worker has connected, and sends the CONNECT packet.
    func attach() {
        let socket = mosquitto_socket(instance.pointer)
        setCallbacks()
        instance.connection = self
        _ = fcntl(socket, F_SETFD, FD_CLOEXEC)
        isTCP = settings.unixSocketPath == nil
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

    func read() {
        // libmosquitto reads one packet at a time: go on for as long as packets come, but let others have their turn.
        for _ in 0..<32 where !isClosed {
            if isPlain { return readPlain() }
            let before = callbacks
            call {
                isReading = true
                defer { isReading = false }
                return mosquitto_loop_read(instance.pointer, 1)
            }
            if callbacks == before { break }
        }
        if !isClosed { flush() }
    }

    private func write() {
        bytesSinceFlush = 0
        // A packet that was begun is ended first, whoever began it. Then come libmosquitto's, which must arrive: a flood
        // of advertisements would hold them up for as long as it lasts.
        if endBegunPacket() { writeLibrary() }
        if !isClosed, !isInsidePacket { writePlain() }
        if !isClosed, isLeaving, !isInsidePacket, plainBytes == 0 { leave() }
        guard !isClosed else { return }
        isBlocked = isInsidePacket || plainBytes > 0
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
        let isCorked = isTCP && packetsInLibrary > 1
        packetsInLibrary = 0
        if isCorked { cmosquitto_cork(socket, 1) }
        call { mosquitto_loop_write(instance.pointer, 1) }
        guard !isClosed else { return }
        if isCorked { cmosquitto_cork(socket, 0) }
        isInsidePacket = mosquitto_want_write(instance.pointer)
        if !isInsidePacket { pending.removeAll() }
    }

    /// Writes what is queued.
    func flush() {
        guard !isClosed, depth == 0, !isBlocked else { return }
        if plainBytes > 0 || isLeaving || mosquitto_want_write(instance.pointer) {
            write()
        } else if hasHeard, isTCP, !mark.isRaised {
            // A broker with Nagle's algorithm, which is usual, keeps the next packet back until then.
            cmosquitto_quick_ack(mosquitto_socket(instance.pointer))
        }
        hasHeard = false
        settleMark()
    }

    /// Keeps the connection alive, or finds it dead. Source: `mosquitto_loop_misc`.
    /// - Parameter pause: until this is called again.
    func tick(_ pause: Duration) {
        guard !isClosed else { return }
        if isPlain { keepPlainAlive(pause) } else { call { mosquitto_loop_misc(instance.pointer) } }
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

    func ended(_ status: Int32) -> MQTTFault {
        let endpoint = settings.endpoint
        if let tls = instance.tlsFault() { return tls }
        switch mosq_err_t(status) {
        case MOSQ_ERR_CONN_LOST, MOSQ_ERR_NO_CONN, MOSQ_ERR_ERRNO, MOSQ_ERR_TLS:
            let isTold = status == Int32(MOSQ_ERR_ERRNO.rawValue) && settings.tls == nil
            let why = isTold && brokenBy != 0 ? ": \(Instance.systemWords(brokenBy))" : ""
            let hint = info == nil && settings.tls != nil ? Instance.certificateHint : ""
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
        guard settings.tls == nil,
            packets.append(topic: topic, payload: payload, hasProperties: settings.version == .v5)
        else { return false }
        queued(payload.count)
        return true
    }

    /// Queues one message; it leaves with the end of this batch of events. Source: `mosquitto_publish_v5`.
    func publish(
        topic: UnsafePointer<CChar>, payload: UnsafeRawBufferPointer, qos: QoS, retain: Bool,
        properties: PublishProperties?, size: Int, token: PublishToken
    ) -> Int32 {
        let allowed = min(qos.rawValue, info?.maximumQoS ?? 0)
        // As libmosquitto has it, which is not asked for a plain socket's. Source: MQTT 5.0, section 3.2.2.3.5.
        let retain = retain && info?.retainAvailable != false
        if allowed > 0, isPlain {
            return publishAcknowledged(
                topic: topic, payload: payload, retain: retain, properties: properties, size: size, token: token)
        }
        guard let properties, settings.version == .v5, !properties.isEmpty else {
            return publish(topic, payload, qos, allowed, retain, nil, size, token)
        }
        guard let list = PropertyList(properties) else { return Int32(MOSQ_ERR_MALFORMED_PACKET.rawValue) }
        return publish(topic, payload, qos, allowed, retain, list.head, size, token)
    }

    private func publish(
        _ topic: UnsafePointer<CChar>, _ payload: UnsafeRawBufferPointer, _ qos: QoS, _ allowed: UInt8, _ retain: Bool,
        _ properties: OpaquePointer?, _ size: Int, _ token: PublishToken
    ) -> Int32 {
        guard let length = Int32(exactly: payload.count) else { return Int32(MOSQ_ERR_PAYLOAD_SIZE.rawValue) }
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

    func queued(_ size: Int) {
        bytesSinceFlush += size
        // Who publishes without an acknowledgement has to have the token before it is told of.
        if bytesSinceFlush >= 64 << 10, depth == 0, unacknowledgeable.isEmpty {
            flush()
        } else if !isDirty {
            FlushQueue.shared.add(self)
        }
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

    /// Sends DISCONNECT behind all that is queued: the broker drops our will.
    func disconnect() {
        guard !isClosed, !isDisconnecting else { return }
        isDisconnecting = true
        isLeaving = true
        flush()
    }

    /// All that was queued has left. Source: `mosquitto_disconnect_v5`.
    private func leave() {
        isLeaving = false
        mosquitto_disconnect_v5(instance.pointer, 0, nil)
        writeLibrary()
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
        messages.open(window: min(Int(settings.inFlight), Int(info.receiveMaximum)))
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
        let length = message.payload == nil ? 0 : Int(max(message.payloadlen, 0))
        received(
            topic: UnsafeRawBufferPointer(start: topic, count: strlen(topic)),
            payload: UnsafeRawBufferPointer(start: message.payload, count: length),
            qos: UInt8(clamping: message.qos), retain: message.retain,
            properties: PublishProperties(reading: properties))
    }

    func received(
        topic: UnsafeRawBufferPointer, payload: UnsafeRawBufferPointer, qos: UInt8, retain: Bool,
        properties: PublishProperties
    ) {
        let isTooLarge = payload.count > settings.receivedPayloadLimit
        delegate?.connection(
            self,
            received: MQTTInbound(
                topic: topic, payload: isTooLarge ? UnsafeRawBufferPointer(start: nil, count: 0) : payload,
                payloadLength: payload.count, isTooLarge: isTooLarge, qos: qos, retain: retain,
                properties: properties))
    }
}
