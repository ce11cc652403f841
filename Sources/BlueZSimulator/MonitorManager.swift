internal import Bluetooth
internal import DBus
internal import EventLoop

/// Advertisement monitors of an adapter. Source: src/adv_monitor.c of BlueZ 5.66.
@EventLoopActor
final class MonitorManager {
    /// A stretch of bytes in an AD structure.
    struct Pattern: Equatable {
        let start: Int
        let type: UInt8
        let bytes: [UInt8]
    }

    private final class Monitor {
        let path: String
        let patterns: [Pattern]
        /// Whether thresholds are set: then a device is told once, until it is lost.
        let hasThresholds: Bool
        var found: Set<String> = []

        init(path: String, patterns: [Pattern], hasThresholds: Bool) {
            self.path = path
            self.patterns = patterns
            self.hasThresholds = hasThresholds
        }
    }

    private final class Application {
        let owner: String
        let path: String
        var monitors: [Monitor] = []

        init(owner: String, path: String) {
            self.owner = owner
            self.path = path
        }
    }

    static let properties: Properties = [
        ("SupportedMonitorTypes", .array(of: "s", [.string("or_patterns")])),
        ("SupportedFeatures", .array(of: "s", [])),
    ]

    private unowned let daemon: Daemon
    private var applications: [Application] = []
    private(set) var isActive = false
    var adapterPath = ""

    init(_ daemon: Daemon) {
        self.daemon = daemon
    }

    func handle(_ call: MethodCall) -> Bool {
        guard call.member == "RegisterMonitor" || call.member == "UnregisterMonitor" else { return false }
        guard case .objectPath(let target)? = call.arguments.first else {
            call.fail(.invalidArguments())
            return true
        }
        let known = applications.firstIndex { $0.owner == call.sender && $0.path == target }
        if call.member == "UnregisterMonitor" {
            guard let known else {
                call.fail(.doesNotExist)
                return true
            }
            applications.remove(at: known)
            updateActive()
            call.reply()
        } else if known != nil {
            call.fail(.alreadyExists)
        } else {
            register(call, target)
        }
        return true
    }

    /// The client tells by its object manager which monitors it has.
    private func register(_ call: MethodCall, _ target: String) {
        let application = Application(owner: call.sender, path: target)
        applications.append(application)
        daemon.bus.call(call.sender, target, Interface.objectManager, "GetManagedObjects") { [weak self] result in
            guard let self, applications.contains(where: { $0 === application }) else { return }
            call.reply()
            guard case .success(let values) = result, case .dictionary(_, let objects)? = values.first else { return }
            for (path, interfaces) in objects {
                guard let path = path.text, let monitor = interfaces[Interface.monitor] else { continue }
                add(path, monitor, to: application)
            }
        }
    }

    /// A client added an object.
    func objectAdded(_ owner: String, _ path: String, _ interfaces: DBusValue) {
        guard let monitor = interfaces[Interface.monitor],
            let application = applications.first(where: { $0.owner == owner && path.hasPrefix($0.path) })
        else { return }
        add(path, monitor, to: application)
    }

    /// A client took an object away.
    func objectRemoved(_ owner: String, _ path: String) {
        for application in applications where application.owner == owner {
            application.monitors.removeAll { $0.path == path }
        }
        updateActive()
    }

    private func add(_ path: String, _ properties: DBusValue, to application: Application) {
        guard !application.monitors.contains(where: { $0.path == path }) else { return }
        guard properties["Type"]?.text == "or_patterns", let patterns = Self.patterns(properties["Patterns"]) else {
            daemon.bus.tell(application.owner, path, Interface.monitor, "Release")
            return
        }
        let unset = properties["RSSILowThreshold"] == nil && properties["RSSIHighThreshold"] == nil
        application.monitors.append(Monitor(path: path, patterns: patterns, hasThresholds: !unset))
        daemon.bus.tell(application.owner, path, Interface.monitor, "Activate")
        updateActive()
    }

    /// `a(yyay)`; nil where it is something else, or empty. Source: parse_patterns.
    private static func patterns(_ value: DBusValue?) -> [Pattern]? {
        guard let items = value?.elements, !items.isEmpty else { return nil }
        var patterns: [Pattern] = []
        for item in items {
            guard case .structure(let fields) = item, fields.count == 3, case .byte(let start) = fields[0],
                case .byte(let type) = fields[1], let bytes = fields[2].byteArray, !bytes.isEmpty,
                bytes.count + Int(start) <= 31
            else { return nil }
            patterns.append(Pattern(start: Int(start), type: type, bytes: bytes))
        }
        return patterns
    }

    func clientLeft(_ owner: String) {
        applications.removeAll { $0.owner == owner }
        updateActive()
    }

    private func updateActive() { isActive = applications.contains { !$0.monitors.isEmpty } }

    // MARK: Matching

    func matches(_ structures: [UInt8]) -> Bool {
        guard isActive else { return false }
        return applications.contains { $0.monitors.contains { Self.matches($0.patterns, structures) } }
    }

    /// Any of the patterns in any of the structures.
    static func matches(_ patterns: [Pattern], _ structures: [UInt8]) -> Bool {
        var position = 0
        while position < structures.count {
            let length = Int(structures[position])
            guard length > 0, position + length < structures.count else { return false }
            for pattern in patterns where pattern.type == structures[position + 1] {
                let start = position + 2 + pattern.start
                let end = start + pattern.bytes.count
                if end <= position + 1 + length, structures[start..<end].elementsEqual(pattern.bytes) { return true }
            }
            position += 1 + length
        }
        return false
    }

    /// Tells the monitors that match. Without thresholds each advertisement is told, as bluetoothd does.
    func found(_ device: DeviceObject, _ structures: [UInt8]) {
        guard isActive else { return }
        for application in applications {
            for monitor in application.monitors where Self.matches(monitor.patterns, structures) {
                if monitor.hasThresholds, !monitor.found.insert(device.path).inserted { continue }
                daemon.bus.tell(
                    application.owner, monitor.path, Interface.monitor, "DeviceFound", [.objectPath(device.path)])
            }
        }
    }

    /// A device is gone.
    func lost(_ device: DeviceObject) {
        for application in applications {
            for monitor in application.monitors where monitor.found.remove(device.path) != nil {
                daemon.bus.tell(
                    application.owner, monitor.path, Interface.monitor, "DeviceLost", [.objectPath(device.path)])
            }
        }
    }
}
