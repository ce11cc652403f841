internal import Bluetooth
internal import DBus
internal import EventLoop
internal import Glibc

/// `/…/charXXXX`. Source: src/gatt-client.c of BlueZ 5.66.
@EventLoopActor
final class CharacteristicObject: BusObject {
    let peer: PeerCharacteristic
    let path: String
    unowned let device: DeviceObject
    private let servicePath: String
    private(set) var descriptors: [DescriptorObject] = []

    private var value: [UInt8] = []
    private var reads: [MethodCall] = []
    private var readOffset = 0
    private var isWriting = false

    // Notifications
    private struct Session {
        let owner: String
        var isRegistered: Bool
        /// The peer has been asked, and has not answered.
        var isUnderWay = false
    }

    private(set) var isNotifying = false
    private var sessions: [Session] = []
    /// bluetoothd's own interest, as its battery plugin has.
    private var isInternal = false
    private var isWritten = false
    private var notifySocket: AcquiredSocket?
    /// Who waits for a socket until the peer has answered.
    private var acquirer: String?
    /// It left the bus meanwhile, the link ended or the peer refused, and there is no answer: to bluetoothd the
    /// characteristic is acquired from then on, over all links, and StopNotify makes it crash.
    /// Source: register_notify_io_cb and notify_client_disconnect of BlueZ 5.66; mended in 5.84 and 5.86.
    private var isOrphaned = false
    private var writeSocket: AcquiredSocket?
    private var writeOwner = ""

    init(_ peer: PeerCharacteristic, service: ServiceObject, device: DeviceObject) {
        self.peer = peer
        self.device = device
        servicePath = service.path
        path = "\(service.path)/char\(Hex.encode(UInt64(peer.handle), digits: 4))"
        descriptors = peer.descriptors.map { DescriptorObject($0, characteristic: self) }
    }

    private var isAcquired: Bool { notifySocket != nil || acquirer != nil || isOrphaned }
    private var properties: CharacteristicProperties { peer.spec.properties }
    private var canNotify: Bool { !properties.isDisjoint(with: [.notify, .indicate]) }
    private var bus: DaemonBus { device.bus }

    var interfaces: [(String, Properties)] {
        var list: Properties = [
            ("UUID", .string(peer.spec.uuid.description)), ("Service", .objectPath(servicePath)),
            ("Value", .bytes(value)),
        ]
        if canNotify { list.append(("Notifying", .bool(isNotifying))) }
        list.append(("Flags", .array(of: "s", properties.names.map { .string($0) })))
        if properties.contains(.writeWithoutResponse) { list.append(("WriteAcquired", .bool(writeSocket != nil))) }
        if properties.contains(.notify) { list.append(("NotifyAcquired", .bool(isAcquired))) }
        if let link = device.link { list.append(("MTU", .uint16(UInt16(clamping: link.mtu)))) }
        return [(Interface.characteristic, list)]
    }

    private func changed(_ name: String, _ value: DBusValue) {
        bus.changed(path, Interface.characteristic, [(name, value)])
    }

    func handle(_ call: MethodCall) -> Bool {
        guard call.interface == Interface.characteristic else { return false }
        switch call.member {
        case "ReadValue": read(call)
        case "WriteValue": write(call)
        case "StartNotify": startNotify(call)
        case "StopNotify": stopNotify(call)
        case "AcquireNotify": acquireNotify(call)
        case "AcquireWrite": acquireWrite(call)
        default: return false
        }
        return true
    }

    // MARK: Values

    private func read(_ call: MethodCall) {
        guard let link = device.link else { return call.fail(.notConnected) }
        guard let options = GATTOptions(call.arguments.first) else { return call.fail(.invalidArguments()) }
        guard reads.isEmpty else {
            if options.offset == readOffset { reads.append(call) } else { call.fail(.inProgress) }
            return
        }
        reads = [call]
        readOffset = options.offset
        requestRead(link, offset: options.offset, mayPair: true)
    }

    private func requestRead(_ link: Link, offset: Int, mayPair: Bool) {
        let peer = peer
        link.request(exchanges: 1 + max(0, peer.value.count - offset) / (link.mtu - 1)) {
            link.peripheral.read(peer, offset: offset)
        } completion: { [weak self] answer in
            guard let self else { return }
            if mayPair, answer == .insufficientAuthentication {
                return device.raiseSecurity { [weak self] isEncrypted in
                    guard let self else { return }
                    if isEncrypted { requestRead(link, offset: offset, mayPair: false) } else { finishReads(answer) }
                }
            }
            finishReads(answer)
        }
    }

    private func finishReads(_ answer: ATTAnswer) {
        let calls = reads
        reads = []
        guard case .value(let bytes) = answer else {
            for call in calls { call.fail(.answer(answer)) }
            return
        }
        value = Array(value.prefix(readOffset)) + bytes
        changed("Value", .bytes(value))
        for call in calls { call.reply(.bytes(bytes)) }
    }

    private func write(_ call: MethodCall) {
        guard let link = device.link else { return call.fail(.notConnected) }
        if writeSocket != nil { return call.fail(.notPermitted("Write acquired")) }
        if isWriting { return call.fail(.inProgress) }
        guard let bytes = call.arguments.first?.byteArray, let options = GATTOptions(call.arguments.dropFirst().first)
        else { return call.fail(.invalidArguments()) }
        let type = options.type
        if (type == nil && properties.contains(.write)) || type == "request" || type == "reliable" {
            isWriting = true
            return requestWrite(bytes, options.offset, link, call, mayPair: true)
        }
        let isCommand = type == "command" || (type == nil && properties.contains(.writeWithoutResponse))
        guard isCommand, options.offset == 0 else { return call.fail(.notSupported) }
        guard bytes.count <= link.mtu - ATT.valueHeader else { return call.fail(.failed("Failed to initiate write")) }
        link.peripheral.command(bytes, to: peer)
        call.reply()
    }

    private func requestWrite(_ bytes: [UInt8], _ offset: Int, _ link: Link, _ call: MethodCall, mayPair: Bool) {
        let peer = peer
        let isLong = offset > 0 || bytes.count > link.mtu - ATT.valueHeader
        link.request(exchanges: isLong ? 2 + bytes.count / max(1, link.mtu - 5) : 1) {
            link.peripheral.write(bytes, to: peer, offset: offset)
        } completion: { [weak self] answer in
            guard let self else { return call.fail(.answer(.unlikely)) }
            if mayPair, answer == .insufficientAuthentication {
                return device.raiseSecurity { [weak self] isEncrypted in
                    guard let self, isEncrypted else {
                        self?.isWriting = false
                        return call.fail(.answer(answer))
                    }
                    requestWrite(bytes, offset, link, call, mayPair: false)
                }
            }
            isWriting = false
            if case .value = answer { call.reply() } else { call.fail(.answer(answer)) }
        }
    }

    // MARK: Notifications

    /// Writes the configuration descriptor where nobody did yet; the completion has nil or an ATT error.
    private func register(_ completion: @escaping @EventLoopActor (ATTAnswer?) -> Void) {
        guard let link = device.link else { return completion(.unlikely) }
        if isWritten { return completion(nil) }
        isWritten = true
        let bits: UInt16 = properties.contains(.notify) ? 1 : 2
        let peer = peer
        link.request {
            link.peripheral.configure(peer, bits)
        } completion: { [weak self] answer in
            guard let self else { return }
            if case .value = answer { return completion(nil) }
            isWritten = false
            if answer == .insufficientAuthentication {
                return device.raiseSecurity { [weak self] isEncrypted in
                    if isEncrypted { self?.register(completion) } else { completion(answer) }
                }
            }
            completion(answer)
        }
    }

    private func unregisterIfUnused() {
        guard isWritten, !isInternal, notifySocket == nil, !sessions.contains(where: \.isRegistered) else { return }
        isWritten = false
        guard let link = device.link else { return }
        let peer = peer
        link.request {
            link.peripheral.configure(peer, 0)
        } completion: { _ in
        }
    }

    private func startNotify(_ call: MethodCall) {
        if device.isDisconnecting { return call.fail(.disconnecting) }
        if isAcquired { return call.fail(.notPermitted("Notify acquired")) }
        guard canNotify else { return call.fail(.notSupported) }
        if let session = sessions.first(where: { $0.owner == call.sender }) {
            return session.isRegistered || session.isUnderWay ? call.reply() : call.fail(.inProgress)
        }
        sessions.append(Session(owner: call.sender, isRegistered: false))
        guard device.link != nil else { return call.reply() }
        sessions[sessions.count - 1].isUnderWay = true
        register { [weak self] failure in
            guard let self, let index = sessions.firstIndex(where: { $0.owner == call.sender }) else {
                return call.fail(.failed("No such session"))
            }
            if let failure {
                sessions.remove(at: index)
                return call.fail(.answer(failure))
            }
            registered(index)
            call.reply()
        }
    }

    private func registered(_ index: Int) {
        sessions[index].isRegistered = true
        sessions[index].isUnderWay = false
        guard !isNotifying else { return }
        isNotifying = true
        changed("Notifying", .bool(true))
    }

    private func stopNotify(_ call: MethodCall) {
        if notifySocket != nil {
            closeNotifySocket()
            return call.reply()
        }
        if isOrphaned { return device.daemon.crash() }
        guard let index = sessions.firstIndex(where: { $0.owner == call.sender }) else {
            return call.fail(.failed("No notify session started"))
        }
        removeSession(index)
        call.reply()
    }

    private func removeSession(_ index: Int) {
        sessions.remove(at: index)
        unregisterIfUnused()
        guard isNotifying, !sessions.contains(where: \.isRegistered) else { return }
        isNotifying = false
        changed("Notifying", .bool(false))
    }

    func registerInternally() {
        isInternal = true
        register { _ in }
    }

    /// The link is up again: what clients had subscribed to is subscribed to anew. Sessions that the peer refuses are
    /// forgotten without a word. Source: register_notify and register_notify_cb.
    func registerAgain() {
        guard !sessions.isEmpty else { return }
        for index in sessions.indices { sessions[index].isUnderWay = true }
        register { [weak self] failure in
            guard let self else { return }
            // Where the link ended, they wait for the next.
            if failure != nil {
                if device.link?.isOpen == true { sessions.removeAll { $0.isUnderWay } }
                return
            }
            for index in sessions.indices where sessions[index].isUnderWay { registered(index) }
        }
    }

    func linkClosed() {
        isWritten = false
        isInternal = false
        for index in sessions.indices {
            sessions[index].isRegistered = false
            sessions[index].isUnderWay = false
        }
        closeSockets()
    }

    func clientLeft(_ owner: String) {
        if acquirer == owner {
            acquirer = nil
            isOrphaned = true
        }
        if let index = sessions.firstIndex(where: { $0.owner == owner }) { removeSession(index) }
    }

    /// A notification or an indication; each session's own signal, as bluetoothd sends it.
    func received(_ bytes: [UInt8]) {
        notifySocket?.send(bytes)
        for session in sessions where session.isRegistered {
            value = bytes
            changed("Value", .bytes(bytes))
        }
    }

    // MARK: Sockets

    private func acquireNotify(_ call: MethodCall) {
        guard device.link != nil else { return call.fail(.notConnected) }
        if isAcquired { return call.fail(.notPermitted("Notify acquired")) }
        guard sessions.isEmpty else { return call.fail(.inProgress) }
        guard properties.contains(.notify) else { return call.fail(.notSupported) }
        acquirer = call.sender
        register { [weak self] failure in
            guard let self else { return call.fail(.notConnected) }
            guard acquirer == call.sender else { return }
            acquirer = nil
            guard failure == nil, device.link?.isOpen == true else {
                isOrphaned = true
                return
            }
            guard let socket = AcquiredSocket(onHangUp: { [weak self] in self?.closeNotifySocket() }) else {
                return call.fail(.failed("Too many open files"))
            }
            notifySocket = socket
            answer(call, socket, "NotifyAcquired")
        }
    }

    private func acquireWrite(_ call: MethodCall) {
        guard device.link != nil else { return call.fail(.notConnected) }
        if writeSocket != nil { return call.fail(.notPermitted("Write acquired")) }
        guard properties.contains(.writeWithoutResponse) else { return call.fail(.notSupported) }
        let socket = AcquiredSocket(
            onValue: { [weak self] bytes in
                guard let self, let link = device.link else { return }
                if bytes.count <= link.mtu - ATT.valueHeader { link.peripheral.command(bytes, to: peer) }
            }, onHangUp: { [weak self] in self?.closeWriteSocket() })
        guard let socket else { return call.fail(.failed("Too many open files")) }
        writeSocket = socket
        answer(call, socket, "WriteAcquired")
    }

    private func answer(_ call: MethodCall, _ socket: AcquiredSocket, _ property: String) {
        changed(property, .bool(true))
        let mtu = UInt16(clamping: device.link?.mtu ?? ATT.defaultMTU)
        call.reply { writer in
            writer.append(descriptor: socket.other)
            writer.append(uint16: mtu)
        }
        socket.closeOther()
    }

    private func closeNotifySocket() {
        guard let socket = notifySocket else { return }
        notifySocket = nil
        socket.close()
        unregisterIfUnused()
        changed("NotifyAcquired", .bool(false))
    }

    private func closeWriteSocket() {
        guard let socket = writeSocket else { return }
        writeSocket = nil
        socket.close()
        changed("WriteAcquired", .bool(false))
    }

    func closeSockets() {
        closeNotifySocket()
        closeWriteSocket()
    }
}

/// One end of the socket that AcquireNotify or AcquireWrite hands out. Source: create_sock.
@EventLoopActor
final class AcquiredSocket {
    private var own: Int32
    private(set) var other: Int32
    private var registration: IORegistration?

    /// Nil where the system gives no socket.
    init?(
        onValue: (@EventLoopActor ([UInt8]) -> Void)? = nil, onHangUp: @escaping @EventLoopActor () -> Void
    ) {
        var ends: [Int32] = [-1, -1]
        let kind = Int32(bitPattern: SOCK_SEQPACKET.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
        guard socketpair(AF_UNIX, kind, 0, &ends) == 0 else { return nil }
        (own, other) = (ends[0], ends[1])
        registration = try? EventLoop.shared.register(own, [.read, .readHangUp]) { [weak self] _ in
            guard let self else { return }
            guard let bytes = receive() else { return onHangUp() }
            onValue?(bytes)
        }
    }

    /// The client's end is on its way to the client.
    func closeOther() {
        if other >= 0 { Glibc.close(other) }
        other = -1
    }

    func close() {
        registration?.cancel()
        registration = nil
        closeOther()
        if own >= 0 { Glibc.close(own) }
        own = -1
    }

    /// A value that finds no room is dropped.
    func send(_ bytes: [UInt8]) {
        _ = bytes.withUnsafeBytes { Glibc.send(own, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
    }

    /// Nil at the end.
    private func receive() -> [UInt8]? {
        var bytes = [UInt8](repeating: 0, count: 512)
        let count = recv(own, &bytes, bytes.count, Int32(MSG_DONTWAIT))
        if count < 0, errno == EAGAIN { return [] }
        guard count > 0 else { return nil }
        return Array(bytes.prefix(count))
    }
}
