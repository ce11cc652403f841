internal import CMosquitto
internal import EventLoop
internal import Glibc

/// Connections with something to write, flushed together at the end of each batch of events.
@EventLoopActor
final class FlushQueue {
    static let shared = FlushQueue()
    @exclusivity(unchecked) private var dirty: [Connection] = []
    @exclusivity(unchecked) private var flushing: [Connection] = []

    private init() {
        EventLoop.shared.addBatchHook { self.flush() }
    }

    func add(_ connection: Connection) {
        guard !connection.isDirty else { return }
        connection.isDirty = true
        dirty.append(connection)
    }

    private func flush() {
        guard !dirty.isEmpty else { return }
        if dirty.count == 1, let only = dirty.popLast() {
            only.isDirty = false
            return only.flush()
        }
        swap(&dirty, &flushing)
        for connection in flushing {
            connection.isDirty = false
            connection.flush()
        }
        flushing.removeAll(keepingCapacity: true)
    }
}

extension Connection {
    /// An upper bound of a packet's bytes: fixed header, topic, identifier, properties and payload.
    nonisolated static func packetSize(
        _ topic: UnsafePointer<CChar>, _ payload: Int, _ properties: PublishProperties?
    ) -> Int {
        5 + 2 + strlen(topic) + 2 + (properties?.encodedSize ?? 1) + payload
    }

    /// Why libmosquitto did not take a message.
    static func reason(_ status: Int32) -> DropReason {
        switch mosq_err_t(status) {
        case MOSQ_ERR_NO_CONN, MOSQ_ERR_CONN_LOST: .notConnected
        case MOSQ_ERR_INVAL, MOSQ_ERR_MALFORMED_UTF8: .invalidTopic
        case MOSQ_ERR_PAYLOAD_SIZE, MOSQ_ERR_OVERSIZE_PACKET: .tooLarge
        default: .failed
        }
    }
}
