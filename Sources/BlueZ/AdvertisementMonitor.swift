internal import DBus
public import EventLoop

/// A monitor of advertisements, registered on one controller.
///
/// What it is for: while any monitor is registered, the kernel scans with the controller's duplicate filter off, so that
/// every advertisement arrives. Those come through the discovery beside it, whatever the monitor's pattern: one that
/// hardly ever matches is therefore best, since each match costs the daemon a timer and a call to us. `or_patterns` needs
/// at least one; this one is of the company identifier that is kept for tests.
/// Sources: BlueZ org.bluez.AdvertisementMonitor(5), `src/adv_monitor.c`; Linux `net/bluetooth/hci_sync.c`,
/// hci_active_scan_sync.
@EventLoopActor
public final class AdvertisementMonitor {
    let root: String
    var path: String { root + "/all" }
    /// BlueZ has activated it.
    public private(set) var isActive = false
    private let released: @EventLoopActor () -> Void

    init(root: String, released: @escaping @EventLoopActor () -> Void) {
        self.root = root
        self.released = released
    }

    private static let interface = "org.bluez.AdvertisementMonitor1"

    private var properties: [(String, DBusValue)] {
        let pattern = DBusValue.structure([.byte(0), .byte(0xff), .bytes([0xff, 0xff])])
        return [
            ("Type", .string("or_patterns")),
            ("RSSILowThreshold", .int16(-127)), ("RSSIHighThreshold", .int16(-126)),
            ("RSSILowTimeout", .uint16(300)), ("RSSIHighTimeout", .uint16(1)), ("RSSISamplingPeriod", .uint16(0)),
            ("Patterns", .array(of: "(yyay)", [pattern])),
        ]
    }

    /// Answers what BlueZ asks of the root and of the monitor.
    func handle(_ message: DBusMessage) -> DBusMessage? {
        switch (message.interface, message.member) {
        case ("org.freedesktop.DBus.ObjectManager", "GetManagedObjects"):
            let reply = message.reply()
            var writer = reply.writer()
            let interfaces = DBusValue.dictionary(
                "sa{sv}", [(.string(Self.interface), .properties(properties))])
            writer.append(.dictionary("oa{sa{sv}}", [(.objectPath(path), interfaces)]))
            return reply
        case ("org.freedesktop.DBus.Properties", "GetAll"):
            let reply = message.reply()
            var writer = reply.writer()
            writer.append(.properties(message.path == path ? properties : []))
            return reply
        case (Self.interface, "Activate"): isActive = true
        case (Self.interface, "Release"):
            isActive = false
            released()
        case (Self.interface, "DeviceFound"), (Self.interface, "DeviceLost"): break
        default:
            return message.error("org.freedesktop.DBus.Error.UnknownMethod", "no such method")
        }
        return message.reply()
    }
}

extension BlueZClient {
    /// RegisterMonitor on the controller.
    /// - Parameter released: BlueZ let go of it by itself.
    public func registerMonitor(
        on adapter: RemoteAdapter, _ completion: @escaping Completion<Void>,
        released: @escaping @EventLoopActor () -> Void
    ) -> AdvertisementMonitor {
        let monitor = AdvertisementMonitor(root: nextMonitorPath(), released: released)
        connection?.export(path: monitor.root, subtree: true) { monitor.handle($0) }
        call(
            adapter, "org.bluez.AdvertisementMonitorManager1", "RegisterMonitor", timeout: .seconds(5),
            write: { $0.append(objectPath: monitor.root) },
            then: { [weak self] result in
                if case .failure = result { self?.connection?.unexport(path: monitor.root) }
                completion(result.map { _ in () })
            })
        return monitor
    }

    /// UnregisterMonitor.
    public func unregister(
        _ monitor: AdvertisementMonitor, on adapter: RemoteAdapter, _ completion: @escaping Completion<Void>
    ) {
        call(
            adapter, "org.bluez.AdvertisementMonitorManager1", "UnregisterMonitor", timeout: .seconds(5),
            write: { $0.append(objectPath: monitor.root) },
            then: { [weak self] result in
                self?.connection?.unexport(path: monitor.root)
                completion(result.map { _ in () })
            })
    }
}
