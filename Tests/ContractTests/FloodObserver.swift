import DBus
import EventLoop

/// Listens to org.bluez beside the bridge and notes the sequence number of each flood advertisement that is emitted.
@EventLoopActor
final class FloodObserver {
    private(set) var emitted: Set<UInt32> = []
    private let connection: DBusConnection

    static func open(_ address: DBusAddress) async throws -> FloodObserver {
        let observer = FloodObserver(try await DBusConnection.open(address))
        observer.connection.addSignalHandler { [weak observer] view in observer?.note(view) }
        for member in ["PropertiesChanged", "InterfacesAdded"] {
            try await observer.connection.addMatch(MatchRule(sender: "org.bluez", member: member))
        }
        return observer
    }

    private init(_ connection: DBusConnection) {
        self.connection = connection
    }

    /// Returns once all that was emitted before has arrived: a call to org.bluez is answered after it.
    func settle() async throws {
        let ping = DBusMessage(call: "org.bluez", path: "/", interface: "org.freedesktop.DBus.Peer", member: "Ping")
        _ = try? await connection.call(ping, timeout: .seconds(10))
    }

    func close() { connection.close() }

    private func note(_ view: borrowing DBusMessageView) {
        var reader = view.reader()
        reader.next()
        if view.memberEquals("PropertiesChanged") { return properties(reader.enter()) }
        var interfaces = reader.enter()
        while interfaces.isAt(.dictEntry) {
            var entry = interfaces.enter()
            entry.next()
            properties(entry.enter())
            interfaces.next()
        }
    }

    private func properties(_ entries: MessageReader) {
        var entries = entries
        while entries.isAt(.dictEntry) {
            var entry = entries.enter()
            let isData = entry.equals("ManufacturerData")
            entry.next()
            if isData, case .dictionary(_, let companies) = entry.enter().value() {
                for case (.uint16(0xffff), .variant(.bytes(let bytes))) in companies where bytes.count == 4 {
                    emitted.insert(bytes.reversed().reduce(0) { $0 << 8 | UInt32($1) })
                }
            }
            entries.next()
        }
    }
}
