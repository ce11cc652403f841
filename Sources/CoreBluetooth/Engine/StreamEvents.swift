internal import Dispatch
internal import Foundation
internal import Glibc

/// What both streams do alike: their status, and events in a run loop.
///
/// `@unchecked Sendable`: variables are behind a lock; the stream is called back on its run loop's thread.
final class StreamEvents: @unchecked Sendable {
    private struct State {
        var status = Stream.Status.notOpen
        var error: (any Error)?
        weak var delegate: (any StreamDelegate)?
        var source: (any DispatchSourceProtocol)?
        var runLoop: RunLoop?
        var mode = RunLoop.Mode.default
        var isReported = false
    }

    private let state = Locked(State())
    private let socket: ChannelSocket
    private let event: Stream.Event
    private weak var stream: Stream?

    init(_ socket: ChannelSocket, _ event: Stream.Event) {
        self.socket = socket
        self.event = event
    }

    var status: Stream.Status { state.withLock { $0.status } }
    var error: (any Error)? { state.withLock { $0.error } }
    var delegate: (any StreamDelegate)? {
        get { state.withLock { $0.delegate } }
        set { state.withLock { $0.delegate = newValue } }
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
    private func used() {
        // Looked for here first: a source on Linux tells of bytes and of the peer's end behind them but once.
        let isReady = socket.isReady(for: readiness)
        let (source, isOpen) = state.withLock { state -> ((any DispatchSourceProtocol)?, Bool) in
            guard state.isReported else { return (nil, false) }
            let isOpen = state.status == .open
            if !isReady || !isOpen { state.isReported = false }
            return (state.source, isOpen)
        }
        guard let source else { return }
        if isReady && isOpen { report(event) } else { source.resume() }
    }

    private func report(_ event: Stream.Event) {
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

    /// Reads or writes, waiting where it has to. A count of 0 is the peer's end to a reader.
    func transfer(_ name: String, _ call: (Int32) -> Int) -> Int {
        switch state.withLock({ $0.status }) {
        case .open: break
        case .atEnd: return 0
        default: return -1
        }
        defer { used() }
        while true {
            let count = call(socket.descriptor)
            if count == 0, event == .hasBytesAvailable { ended() }
            if count >= 0 { return count }
            if errno == EINTR { continue }
            guard errno == EAGAIN, socket.wait(for: readiness) else {
                failed(name)
                return -1
            }
        }
    }

    var isReady: Bool { state.withLock { $0.status } == .open && socket.isReady(for: readiness) }

    private var readiness: Int32 { event == .hasBytesAvailable ? POLLIN : POLLOUT }

    private func ended() {
        state.withLock { $0.status = .atEnd }
        report(.endEncountered)
    }

    private func failed(_ call: String) {
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
