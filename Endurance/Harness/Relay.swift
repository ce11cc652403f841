internal import EventLoop
internal import Glibc
internal import TestKit

/// Stands between the bridge and the broker, and is the network: it can refuse, and cut a connection in the middle of a
/// packet. It also notes what the broker acknowledged to the bridge.
@EventLoopActor
final class Relay {
    let port: UInt16
    /// A message of QoS 1 or 0 that the bridge sent.
    var onPublish: (@EventLoopActor (PublishFrame) -> Void)?
    /// A message that the broker took.
    var onAcknowledged: (@EventLoopActor (PublishFrame) -> Void)?
    private(set) var connections = 0

    private var brokerPort: UInt16
    private var listener: Int32 = -1
    private var registration: IORegistration?
    private var pipes: [ObjectIdentifier: Pipe] = [:]

    init(port: UInt16, brokerPort: UInt16) throws {
        (self.port, self.brokerPort) = (port, brokerPort)
        try open()
    }

    /// Accepts connections.
    func open() throws {
        guard listener < 0 else { return }
        let flags = SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue
        let descriptor = socket(AF_INET, Int32(flags), 0)
        var on: Int32 = 1
        setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, socklen_t(MemoryLayout<Int32>.size))
        guard descriptor >= 0, Pipe.withAddress(port, { bind(descriptor, $0, $1) }) == 0, listen(descriptor, 8) == 0
        else { throw Expired(message: "the relay cannot listen on \(port): \(String(cString: strerror(errno)))") }
        listener = descriptor
        registration = try EventLoop.shared.register(descriptor, .read) { [weak self] _ in self?.accept() }
    }

    /// Refuses new connections, and ends those that are there.
    func refuse() {
        registration?.cancel()
        registration = nil
        if listener >= 0 { close(listener) }
        listener = -1
        for pipe in pipes.values { pipe.end(resets: true) }
    }

    /// Ends the connections that are there, and leads new ones to another broker.
    func lead(to port: UInt16) {
        brokerPort = port
        for pipe in pipes.values { pipe.end(resets: true) }
    }

    /// Forwards a part of the next packet from the bridge, then resets both connections.
    func cutInTheMiddle() {
        for pipe in pipes.values { pipe.cuts = true }
    }

    private func accept() {
        let client = Glibc.accept(listener, nil, nil)
        guard client >= 0 else { return }
        _ = fcntl(client, F_SETFL, O_NONBLOCK)
        _ = fcntl(client, F_SETFD, FD_CLOEXEC)
        guard let pipe = Pipe(client, to: brokerPort, relay: self) else {
            Pipe.reset(client)
            return
        }
        connections += 1
        pipes[ObjectIdentifier(pipe)] = pipe
    }

    fileprivate func ended(_ pipe: Pipe) { pipes[ObjectIdentifier(pipe)] = nil }
}

/// One connection of the bridge and its counterpart to the broker.
@EventLoopActor
private final class Pipe {
    private struct Side {
        var descriptor: Int32
        var registration: IORegistration?
        /// What waits to be written to it.
        var pending: [UInt8] = []
    }

    private static let most = 256 << 10

    private weak var relay: Relay?
    private var bridge: Side
    private var broker: Side
    private var isEnding = false
    private var isEnded = false
    private var fromBridge = FrameSplitter()
    private var fromBroker = FrameSplitter()
    private var published: [UInt16: PublishFrame] = [:]
    var cuts = false

    init?(_ client: Int32, to port: UInt16, relay: Relay) {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        // On this machine a connection is made, or refused, at once.
        guard descriptor >= 0, Self.withAddress(port, { connect(descriptor, $0, $1) }) == 0 else {
            if descriptor >= 0 { close(descriptor) }
            return nil
        }
        _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
        var on: Int32 = 1
        for end in [client, descriptor] {
            setsockopt(end, Int32(IPPROTO_TCP), TCP_NODELAY, &on, socklen_t(MemoryLayout<Int32>.size))
        }
        self.relay = relay
        bridge = Side(descriptor: client)
        broker = Side(descriptor: descriptor)
        bridge.registration = try? EventLoop.shared.register(client, .read) { [weak self] events in
            self?.handle(events, \.bridge, \.broker)
        }
        broker.registration = try? EventLoop.shared.register(descriptor, .read) { [weak self] events in
            self?.handle(events, \.broker, \.bridge)
        }
    }

    static func withAddress(_ port: UInt16, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32) -> Int32 {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        return withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                body($0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
    }

    /// Closes by a reset.
    static func reset(_ descriptor: Int32) {
        var option = linger(l_onoff: 1, l_linger: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &option, socklen_t(MemoryLayout<linger>.size))
        close(descriptor)
    }

    private func handle(
        _ events: IOEvents, _ from: ReferenceWritableKeyPath<Pipe, Side>, _ to: ReferenceWritableKeyPath<Pipe, Side>
    ) {
        if events.contains(.write) { flush(from) }
        if events.contains(.read), !isEnded { read(from, to) }
        if !isEnded, events.contains(.error) || (events.contains(.hangUp) && !events.contains(.read)) {
            end(resets: true)
        }
        update()
    }

    private func read(_ from: ReferenceWritableKeyPath<Pipe, Side>, _ to: ReferenceWritableKeyPath<Pipe, Side>) {
        let descriptor = self[keyPath: from].descriptor
        let bytes = [UInt8](unsafeUninitializedCapacity: 65_536) { buffer, count in
            count = max(0, Glibc.read(descriptor, buffer.baseAddress, buffer.count))
        }
        guard !bytes.isEmpty else {
            // What was sent before the end still goes out.
            isEnding = true
            if self[keyPath: to].pending.isEmpty { end() }
            return
        }
        if from == \.bridge, cuts { return cut(bytes) }
        self[keyPath: to].pending += bytes
        flush(to)
        if from == \.bridge { noteBridge(bytes[...]) } else { noteBroker(bytes) }
    }

    private func cut(_ bytes: [UInt8]) {
        var part = bytes.prefix(max(1, bytes.count / 2))
        noteBridge(part)
        if fromBridge.isAtBoundary, part.count < bytes.count {
            noteBridge(bytes[part.count...part.count])
            part = bytes.prefix(part.count + 1)
        }
        // At a boundary there was one whole packet of one byte more: the next one is cut.
        cuts = fromBridge.isAtBoundary
        broker.pending += part
        flush(\.broker)
        if !cuts { end(resets: true) } else { broker.pending += bytes[part.count...] }
    }

    private func noteBridge(_ bytes: ArraySlice<UInt8>) {
        fromBridge.append(bytes)
        while let frame = fromBridge.next() {
            guard let message = PublishFrame(frame) else { continue }
            if message.qos > 0 { published[message.packet] = message }
            relay?.onPublish?(message)
        }
    }

    private func noteBroker(_ bytes: [UInt8]) {
        fromBroker.append(bytes)
        while let frame = fromBroker.next() {
            guard let (packet, isTaken) = acknowledgement(frame), let message = published.removeValue(forKey: packet)
            else { continue }
            if isTaken { relay?.onAcknowledged?(message) }
        }
    }

    private func flush(_ side: ReferenceWritableKeyPath<Pipe, Side>) {
        let count = self[keyPath: side].pending.withUnsafeBytes {
            send(self[keyPath: side].descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
        }
        if count > 0 { self[keyPath: side].pending.removeFirst(count) }
        if count < 0, errno != EAGAIN, errno != EINTR { end() }
        if isEnding, self[keyPath: side].pending.isEmpty { end() }
        update()
    }

    /// Reads while there is room on the other side, and writes where something waits.
    private func update() {
        guard !isEnded else { return }
        func events(_ own: Side, _ other: Side) -> IOEvents {
            var events: IOEvents = []
            if other.pending.count < Self.most, !isEnding { events.insert(.read) }
            if !own.pending.isEmpty { events.insert(.write) }
            return events
        }
        bridge.registration?.events = events(bridge, broker)
        broker.registration?.events = events(broker, bridge)
    }

    /// - Parameter resets: the bridge sees a reset, and not an orderly end.
    func end(resets: Bool = false) {
        guard !isEnded else { return }
        isEnded = true
        for side in [bridge, broker] { side.registration?.cancel() }
        if resets { Self.reset(bridge.descriptor) } else { close(bridge.descriptor) }
        close(broker.descriptor)
        relay?.ended(self)
    }
}
