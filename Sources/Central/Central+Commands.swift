internal import BlueZ
internal import Bluetooth
internal import EventLoop

/// The socket for one characteristic's writes without response. BlueZ refuses WriteValue to everybody while it is open:
/// so a single write does without, and a burst keeps it no longer than it lasts.
@EventLoopActor
final class CommandStream {
    /// A write that follows the last one within this time makes a burst; a socket without use for as long is closed.
    static let pause = Duration.milliseconds(200)

    var socket: WriteSocket?
    var lastWrite: MonotonicTime?
    /// BlueZ has refused the socket: not asked for again on this link.
    var isRefused = false
    private var timer: LoopTimer?

    func used(_ clock: any LoopClock) {
        lastWrite = clock.now
        timer?.cancel()
        guard socket != nil else { return }
        timer = clock.schedule(after: Self.pause) { [weak self] in self?.release() }
    }

    /// Until the next ``used(_:)``: the socket is in use, however long it takes.
    func hold() {
        timer?.cancel()
        timer = nil
    }

    func release() {
        hold()
        socket?.close()
        socket = nil
    }
}

extension Central {
    /// Writes without response; returns when the value is with BlueZ or the kernel. What is sent in quick succession
    /// goes through a socket, whose room then is what paces the sender.
    /// Source: BlueZ org.bluez.GattCharacteristic(5), AcquireWrite and WriteValue.
    /// - Throws: as ``write(_:to:type:offset:timeout:)-([UInt8],GATTCharacteristic,_,_,_)``.
    public func send(_ value: [UInt8], to characteristic: GATTCharacteristic) async throws(CentralError) {
        let (device, link) = try connected(characteristic.device)
        let subject = "writing \(characteristic.text) of \(device.address)"
        let stream = characteristic.commands ?? CommandStream()
        characteristic.commands = stream
        defer { stream.used(clock) }
        if stream.socket == nil, !stream.isRefused, let last = stream.lastWrite, let remote = characteristic.remote,
            clock.now - last < CommandStream.pause, characteristic.properties.contains(.writeWithoutResponse)
        {
            do throws(CentralError) {
                stream.socket = try await call(subject, link, .seconds(5)) { self.bluez.acquireWrite(remote, $0) }
            } catch {
                if link.phase != .up { throw error }
                stream.isRefused = true
            }
        }
        guard let socket = stream.socket else {
            return try await write(value, to: characteristic, type: .command)
        }
        _ = try WriteChoice.isCommand(.command, characteristic.properties, subject)
        try WriteChoice.check(length: value.count, offset: 0, isCommand: true, mtu: socket.mtu, subject)
        try await send(value, socket, stream, subject, link, to: characteristic)
    }

    private func send(
        _ value: [UInt8], _ socket: WriteSocket, _ stream: CommandStream, _ subject: String, _ link: Link,
        to characteristic: GATTCharacteristic
    ) async throws(CentralError) {
        while true {
            switch socket.send(value) {
            case .sent: return
            case .ended:
                stream.release()
                return try await write(value, to: characteristic, type: .command)
            case .full:
                stream.hold()
                let _: Void = try await call(subject, link, nil) { done in
                    if socket.whenWritable({ done(.success(())) }) { return }
                    done(.failure(BlueZError(kind: .failed, name: nil, message: "the loop refuses the socket")))
                }
            }
        }
    }
}
