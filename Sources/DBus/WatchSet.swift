internal import CDBus
internal import EventLoop

/// libdbus's watches. It keeps two for each descriptor, one to read and one to write, and epoll takes a descriptor once:
/// here they are merged.
@EventLoopActor
struct WatchSet {
    private final class Entry {
        let descriptor: Int32
        /// Outlives the entry: as long as it has watches it is open, and an open connection is held.
        unowned(unsafe) let connection: DBusConnection
        @exclusivity(unchecked) var watches: [OpaquePointer] = []
        @exclusivity(unchecked) var registration: IORegistration?

        init(_ descriptor: Int32, _ connection: DBusConnection) {
            self.descriptor = descriptor
            self.connection = connection
        }

        @EventLoopActor
        private var wanted: IOEvents {
            var events: IOEvents = []
            for watch in watches where dbus_watch_get_enabled(watch) != 0 {
                let flags = dbus_watch_get_flags(watch)
                if flags & DBUS_WATCH_READABLE.rawValue != 0 { events.insert(.read) }
                if flags & DBUS_WATCH_WRITABLE.rawValue != 0 { events.insert(.write) }
            }
            return events
        }

        /// Waits for what the enabled watches want. Without one, epoll would report a hang-up again and again that
        /// nobody may take, so the descriptor is not watched at all. False where epoll refuses it.
        @EventLoopActor
        func refresh() -> Bool {
            let wanted = wanted
            if wanted.isEmpty {
                cancel()
            } else if let registration {
                registration.events = wanted
            } else {
                // Without a registration, which ends with the entry, nothing is reported. A weak reference would cost more
                // than all the rest here.
                registration = WatchSet.register(descriptor, wanted) { [unowned(unsafe) self] in self.report($0) }
            }
            return wanted.isEmpty || registration != nil
        }

        @EventLoopActor
        func cancel() {
            registration?.cancel()
            registration = nil
        }

        @EventLoopActor
        private func report(_ events: IOEvents) {
            // Either may be let go of on the way.
            let connection = Unmanaged.passRetained(self.connection)
            let entry = Unmanaged.passRetained(self)
            defer {
                entry.release()
                connection.release()
            }
            handle(events)
            while self.connection.dispatchAfterReading() { handle(.read) }
        }

        /// Tells the connection of each enabled watch that an event is for.
        @EventLoopActor
        private func handle(_ events: IOEvents) {
            for watch in watches {
                // An earlier one may have removed the rest.
                guard watches.contains(watch), dbus_watch_get_enabled(watch) != 0 else { continue }
                let flags = WatchSet.flags(events) & (dbus_watch_get_flags(watch) | WatchSet.always)
                if flags != 0 { connection.handle(watch, flags) }
            }
        }
    }

    /// The loop's registration; nil where epoll refuses it. Tests put a refusal here.
    static var register: Register = { try? EventLoop.shared.register($0, $1, $2) }

    typealias Register =
        @EventLoopActor (Int32, IOEvents, @escaping @EventLoopActor (IOEvents) -> Void) -> IORegistration?

    private var entries: [Int32: Entry] = [:]

    nonisolated init() {}

    /// Takes over a watch. The connection is told what is ready for each watch, and dispatches once for all; where there
    /// is more to read, again at once. False where the descriptor cannot be watched.
    mutating func add(_ watch: OpaquePointer?, for connection: DBusConnection) -> Bool {
        guard let watch else { return true }
        let descriptor = dbus_watch_get_unix_fd(watch)
        let entry = entries[descriptor] ?? Entry(descriptor, connection)
        entry.watches.append(watch)
        entries[descriptor] = entry
        if entry.refresh() { return true }
        // libdbus forgets a watch that was not taken.
        remove(watch)
        return false
    }

    /// False where the descriptor cannot be watched any more.
    func update(_ watch: OpaquePointer?) -> Bool {
        guard let watch, let entry = entries[dbus_watch_get_unix_fd(watch)] else { return true }
        return entry.refresh()
    }

    mutating func remove(_ watch: OpaquePointer?) {
        guard let watch else { return }
        let descriptor = dbus_watch_get_unix_fd(watch)
        guard let entry = entries[descriptor] else { return }
        entry.watches.removeAll { $0 == watch }
        if entry.watches.isEmpty { entries[descriptor] = nil }
        // Less is wanted now, which epoll does not refuse.
        _ = entry.refresh()
    }

    mutating func removeAll() {
        for entry in entries.values {
            entry.watches = []
            entry.cancel()
        }
        entries = [:]
    }

    private static let always = DBUS_WATCH_ERROR.rawValue | DBUS_WATCH_HANGUP.rawValue

    private static func flags(_ events: IOEvents) -> UInt32 {
        var flags: UInt32 = 0
        if events.contains(.read) { flags |= DBUS_WATCH_READABLE.rawValue }
        if events.contains(.write) { flags |= DBUS_WATCH_WRITABLE.rawValue }
        if events.contains(.error) { flags |= DBUS_WATCH_ERROR.rawValue }
        if events.contains(.hangUp) { flags |= DBUS_WATCH_HANGUP.rawValue }
        return flags
    }
}
