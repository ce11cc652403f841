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

    /// What the peer sends. Open it before reading.
    open var inputStream: InputStream! { input }

    /// What goes to the peer. Open it before writing.
    open var outputStream: OutputStream! { output }

    /// The number of the peer's service.
    open var psm: CBL2CAPPSM { number }
}

private final class ChannelInputStream: InputStream {
    private let events: StreamEvents

    init(_ socket: ChannelSocket) {
        events = StreamEvents(socket, .hasBytesAvailable)
        super.init(data: Data())
        events.attach(self)
    }

    override var hasBytesAvailable: Bool { events.isReady }

    override func read(_ buffer: UnsafeMutablePointer<UInt8>, maxLength len: Int) -> Int {
        events.transfer("read") { Glibc.read($0, buffer, len) }
    }

    // The same for both streams, which have no class in common that could hold it.
    override weak var delegate: (any StreamDelegate)? {
        get { events.delegate }
        set { events.delegate = newValue }
    }
    override func open() { events.open() }
    override func close() { events.close() }
    override var streamStatus: Stream.Status { events.status }
    override var streamError: (any Error)? { events.error }
    override func schedule(in aRunLoop: RunLoop, forMode mode: RunLoop.Mode) { events.schedule(aRunLoop, mode) }
    override func remove(from aRunLoop: RunLoop, forMode mode: RunLoop.Mode) { events.unschedule() }
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

    override var hasSpaceAvailable: Bool { events.isReady }

    override func write(_ buffer: UnsafePointer<UInt8>, maxLength len: Int) -> Int {
        events.transfer("write") { send($0, buffer, len, Int32(MSG_NOSIGNAL)) }
    }

    override weak var delegate: (any StreamDelegate)? {
        get { events.delegate }
        set { events.delegate = newValue }
    }
    override func open() { events.open() }
    override func close() { events.close() }
    override var streamStatus: Stream.Status { events.status }
    override var streamError: (any Error)? { events.error }
    override func schedule(in aRunLoop: RunLoop, forMode mode: RunLoop.Mode) { events.schedule(aRunLoop, mode) }
    override func remove(from aRunLoop: RunLoop, forMode mode: RunLoop.Mode) { events.unschedule() }
}
