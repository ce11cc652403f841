internal import CDBus
internal import EventLoop

/// libdbus's watches. It keeps two for each descriptor, one to read and one to write, and epoll takes a descriptor once:
/// here they are merged.
@EventLoopActor
struct WatchSet {
    private final class Entry {
        var watches: [OpaquePointer] = []
        var registration: IORegistration?

        @EventLoopActor
        var wanted: IOEvents {
            var events: IOEvents = []
            for watch in watches where dbus_watch_get_enabled(watch) != 0 {
                let flags = dbus_watch_get_flags(watch)
                if flags & DBUS_WATCH_READABLE.rawValue != 0 { events.insert(.read) }
                if flags & DBUS_WATCH_WRITABLE.rawValue != 0 { events.insert(.write) }
            }
            return events
        }
    }

    private var entries: [Int32: Entry] = [:]

    nonisolated init() {}

    /// Takes over a watch. `handle` is called with what is ready for each watch, `afterwards` once for all.
    mutating func add(
        _ watch: OpaquePointer?, handle: @escaping @EventLoopActor (OpaquePointer, UInt32) -> Void,
        afterwards: @escaping @EventLoopActor () -> Void
    ) {
        guard let watch else { return }
        let descriptor = dbus_watch_get_unix_fd(watch)
        if let entry = entries[descriptor] {
            entry.watches.append(watch)
            return update(watch)
        }
        let entry = Entry()
        entry.watches = [watch]
        entries[descriptor] = entry
        entry.registration = try? EventLoop.shared.register(descriptor, entry.wanted) { [weak entry] events in
            for watch in entry?.watches ?? [] {
                // An earlier one may have removed the rest.
                guard let entry, entry.watches.contains(watch), dbus_watch_get_enabled(watch) != 0 else { continue }
                let flags = Self.flags(events) & (dbus_watch_get_flags(watch) | Self.always)
                if flags != 0 { handle(watch, flags) }
            }
            afterwards()
        }
    }

    func update(_ watch: OpaquePointer?) {
        guard let watch, let entry = entries[dbus_watch_get_unix_fd(watch)] else { return }
        entry.registration?.events = entry.wanted
    }

    mutating func remove(_ watch: OpaquePointer?) {
        guard let watch else { return }
        let descriptor = dbus_watch_get_unix_fd(watch)
        guard let entry = entries[descriptor] else { return }
        entry.watches.removeAll { $0 == watch }
        if entry.watches.isEmpty {
            entry.registration?.cancel()
            entries[descriptor] = nil
        } else {
            entry.registration?.events = entry.wanted
        }
    }

    mutating func removeAll() {
        for entry in entries.values {
            entry.watches = []
            entry.registration?.cancel()
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
