internal import Dispatch
public import Foundation
internal import Glibc

/// A connection-oriented L2CAP channel to a peripheral. It closes when both streams are closed, or with the last
/// reference to them.
///
/// The streams are polled (`hasBytesAvailable`), read and written directly, which waits where it has to, or scheduled in
/// a run loop with a `StreamDelegate`, as on Apple's systems.
///
/// `@unchecked Sendable`: immutable.
open class CBL2CAPChannel: NSObject, @unchecked Sendable {
    private let owner: CBPeer
    private let input: ChannelInputStream
    private let output: ChannelOutputStream
    private let number: CBL2CAPPSM

    init(peer: CBPeer, psm: CBL2CAPPSM, socket descriptor: Int32) {
        owner = peer
        number = psm
        let socket = ChannelSocket(descriptor)
        input = ChannelInputStream(socket)
        output = ChannelOutputStream(socket)
        super.init()
    }

    /// The device on the other side.
    open var peer: CBPeer! { owner }

    open var inputStream: InputStream! { input }

    open var outputStream: OutputStream! { output }

    /// The number of the peer's service.
    open var psm: CBL2CAPPSM { number }
}

/// What both streams do alike: their status, and events in a run loop.
///
/// `@unchecked Sendable`: variables are behind a lock; the stream is called back on its run loop's thread.
private final class StreamEvents: @unchecked Sendable {
    struct State {
        var status = Stream.Status.notOpen
        var error: (any Error)?
        weak var delegate: (any StreamDelegate)?
        var source: (any DispatchSourceProtocol)?
        var runLoop: RunLoop?
        var mode = RunLoop.Mode.default
        var isReported = false
    }

    let state = Locked(State())
    let socket: ChannelSocket
    private let event: Stream.Event
    private weak var stream: Stream?

    init(_ socket: ChannelSocket, _ event: Stream.Event) {
        self.socket = socket
        self.event = event
    }

    func attach(_ stream: Stream) { self.stream = stream }

    func open() {
        state.withLock { $0.status = .open }
        report(.openCompleted)
        watch()
    }

    func close() {
        let source = state.withLock { state in
            defer { state.source = nil }
            state.status = .closed
            return state.source
        }
        source?.cancel()
        socket.close(input: event == .hasBytesAvailable)
    }

    func schedule(_ runLoop: RunLoop, _ mode: RunLoop.Mode) {
        state.withLock { state in
            state.runLoop = runLoop
            state.mode = mode
        }
        watch()
    }

    func unschedule() {
        let source = state.withLock { state in
            defer { state.source = nil }
            state.runLoop = nil
            return state.source
        }
        source?.cancel()
    }

    /// Watches the socket once the stream is open and scheduled; each readiness is told once until it is used.
    private func watch() {
        let isDue = state.withLock { $0.status == .open && $0.runLoop != nil && $0.source == nil }
        guard isDue else { return }
        let queue = DispatchQueue(label: "blueferry.corebluetooth.channel")
        let source: any DispatchSourceProtocol =
            event == .hasBytesAvailable
            ? DispatchSource.makeReadSource(fileDescriptor: socket.descriptor, queue: queue)
            : DispatchSource.makeWriteSource(fileDescriptor: socket.descriptor, queue: queue)
        source.setEventHandler { [weak self] in self?.becameReady() }
        state.withLock { $0.source = source }
        source.resume()
    }

    private func becameReady() {
        let source = state.withLock { state -> (any DispatchSourceProtocol)? in
            guard !state.isReported else { return nil }
            state.isReported = true
            return state.source
        }
        guard let source else { return }
        // Quiet until the program has read or written; else a source that stays ready would spin.
        source.suspend()
        report(event)
    }

    /// The program has used the readiness: the next one is told again.
    func used() {
        let poll = event == .hasBytesAvailable ? POLLIN : POLLOUT
        // Looked for here first: a source on Linux tells of bytes and of the peer's end behind them but once.
        let isReady = socket.isReady(for: poll)
        let (source, isOpen) = state.withLock { state -> ((any DispatchSourceProtocol)?, Bool) in
            guard state.isReported else { return (nil, false) }
            let isOpen = state.status == .open
            if !isReady || !isOpen { state.isReported = false }
            return (state.source, isOpen)
        }
        guard let source else { return }
        if isReady && isOpen { report(event) } else { source.resume() }
    }

    func report(_ event: Stream.Event) {
        guard let runLoop = state.withLock({ $0.runLoop }) else { return }
        let mode = state.withLock { $0.mode }
        runLoop.perform(inModes: [mode]) { [weak self] in
            guard let self, let stream = self.stream else { return }
            let (delegate, isOpen) = self.state.withLock { ($0.delegate, $0.status == .open) }
            // A readiness that the end or a fault has overtaken is told no more.
            guard isOpen || event != self.event else { return }
            delegate?.stream(stream, handle: event)
        }
        CFRunLoopWake.wake(runLoop)
    }

    func ended() {
        state.withLock { $0.status = .atEnd }
        report(.endEncountered)
    }

    func failed(_ call: String) {
        let number = errno
        let text = "\(call): \(String(cString: strerror(number)))"
        state.withLock { state in
            state.status = .error
            state.error = NSError(
                domain: NSPOSIXErrorDomain, code: Int(number), userInfo: [NSLocalizedDescriptionKey: text])
        }
        report(.errorOccurred)
    }

    deinit {
        // A suspended source must run again before it goes.
        let (source, isSuspended) = state.withLock { ($0.source, $0.isReported) }
        source?.cancel()
        if isSuspended { source?.resume() }
    }
}

/// Wakes a run loop that sleeps, so that it sees what was given to it from another thread.
private enum CFRunLoopWake {
    static func wake(_ runLoop: RunLoop) {
        // A timer that is added wakes the loop; RunLoop on Linux has no public wake-up.
        let timer = Timer(timeInterval: 0, repeats: false) { _ in }
        runLoop.add(timer, forMode: .default)
    }
}

private final class ChannelInputStream: InputStream {
    private let events: StreamEvents

    init(_ socket: ChannelSocket) {
        events = StreamEvents(socket, .hasBytesAvailable)
        super.init(data: Data())
        events.attach(self)
    }

    override weak var delegate: (any StreamDelegate)? {
        get { events.state.withLock { $0.delegate } }
        set { events.state.withLock { $0.delegate = newValue } }
    }

    override func open() { events.open() }
    override func close() { events.close() }
    override var streamStatus: Stream.Status { events.state.withLock { $0.status } }
    override var streamError: (any Error)? { events.state.withLock { $0.error } }
    override func schedule(in aRunLoop: RunLoop, forMode mode: RunLoop.Mode) { events.schedule(aRunLoop, mode) }
    override func remove(from aRunLoop: RunLoop, forMode mode: RunLoop.Mode) { events.unschedule() }

    override var hasBytesAvailable: Bool {
        streamStatus == .open && events.socket.isReady(for: POLLIN)
    }

    override func read(_ buffer: UnsafeMutablePointer<UInt8>, maxLength len: Int) -> Int {
        guard streamStatus == .open else { return streamStatus == .atEnd ? 0 : -1 }
        defer { events.used() }
        while true {
            let count = Glibc.read(events.socket.descriptor, buffer, len)
            if count > 0 { return count }
            if count == 0 {
                events.ended()
                return 0
            }
            if errno == EINTR { continue }
            guard errno == EAGAIN, events.socket.wait(for: POLLIN) else {
                events.failed("read")
                return -1
            }
        }
    }
}

private final class ChannelOutputStream: OutputStream {
    private let events: StreamEvents

    init(_ socket: ChannelSocket) {
        events = StreamEvents(socket, .hasSpaceAvailable)
        super.init(toMemory: ())
        events.attach(self)
    }

    required init(toMemory: ()) {
        events = StreamEvents(ChannelSocket(-1), .hasSpaceAvailable)
        super.init(toMemory: ())
    }

    override weak var delegate: (any StreamDelegate)? {
        get { events.state.withLock { $0.delegate } }
        set { events.state.withLock { $0.delegate = newValue } }
    }

    override func open() { events.open() }
    override func close() { events.close() }
    override var streamStatus: Stream.Status { events.state.withLock { $0.status } }
    override var streamError: (any Error)? { events.state.withLock { $0.error } }
    override func schedule(in aRunLoop: RunLoop, forMode mode: RunLoop.Mode) { events.schedule(aRunLoop, mode) }
    override func remove(from aRunLoop: RunLoop, forMode mode: RunLoop.Mode) { events.unschedule() }

    override var hasSpaceAvailable: Bool {
        streamStatus == .open && events.socket.isReady(for: POLLOUT)
    }

    override func write(_ buffer: UnsafePointer<UInt8>, maxLength len: Int) -> Int {
        guard streamStatus == .open else { return -1 }
        defer { events.used() }
        while true {
            let count = send(events.socket.descriptor, buffer, len, Int32(MSG_NOSIGNAL))
            if count >= 0 { return count }
            if errno == EINTR { continue }
            guard errno == EAGAIN, events.socket.wait(for: POLLOUT) else {
                events.failed("write")
                return -1
            }
        }
    }
}
