internal import Central
public import Configuration
public import EventLoop
internal import Glibc
internal import MQTT

/// Looks at everything that the bridge needs, and says in plain sentences what is missing and how to mend it.
@EventLoopActor
public final class Checkup {
    /// One thing that was looked at.
    public struct Finding: Equatable, Sendable {
        public enum Verdict: String, Sendable {
            case fine = "ok"
            /// It works, and could work better.
            case hint
            case missing
        }
        public var verdict: Verdict
        public var text: String
    }

    private let settings: Settings
    private let busAddress: String?
    private let patience: Duration = .seconds(5)

    public init(_ settings: Settings, busAddress: String? = nil) {
        self.settings = settings
        self.busAddress = busAddress
    }

    /// Each finding is given as soon as it is known. True where nothing is missing.
    public func run(_ report: @EventLoopActor (Finding) -> Void) async -> Bool {
        let bluetooth = await checkBluetooth()
        for finding in bluetooth { report(finding) }
        let broker = await checkBroker()
        report(broker)
        if let obstacle = StoredState.obstacle(at: settings.outbox.path) {
            report(Finding(verdict: .hint, text: obstacle))
        }
        return !(bluetooth + [broker]).contains { $0.verdict == .missing }
    }

    // MARK: Bluetooth

    private func checkBluetooth() async -> [Finding] {
        let central = Central(options: CentralOptions(settings, busAddress: busAddress))
        let watch = StateWatch()
        central.addObserver(watch)
        central.start()
        let start = SystemClock.shared.now
        let deadline = start + patience
        // BlueZ tells of its adapters a moment after it is there, and switches them on a moment later.
        while SystemClock.shared.now < deadline {
            let isLate = SystemClock.shared.now >= start + .seconds(1)
            if central.state == .running,
                central.adapters.contains(where: { $0.state == .poweredOn || (isLate && $0.state != .unknown) })
            {
                break
            }
            if case .unauthorized = central.state { break }
            await watch.change(within: .milliseconds(300))
            if case .noBus = central.state { break }
            if case .noBlueZ = central.state { break }
        }
        let findings = bluetoothFindings(central)
        await central.stop()
        return findings
    }

    private func bluetoothFindings(_ central: Central) -> [Finding] {
        switch central.state {
        case .running: break
        case .noBus(let reason):
            return [
                Finding(
                    verdict: .missing,
                    text: "the D-Bus system bus cannot be reached (\(reason)); \(central.state.remedy)")
            ]
        case .noBlueZ, .stopped:
            return [
                Finding(verdict: .fine, text: "the D-Bus system bus is there"),
                Finding(
                    verdict: .missing,
                    text: "bluetoothd does not run; \(CentralState.noBlueZ.remedy)"),
            ]
        case .unauthorized(let reason):
            return [
                Finding(
                    verdict: .missing,
                    text: "the bus denies access to BlueZ (\(reason)); \(central.state.remedy)")
            ]
        }
        return [Finding(verdict: .fine, text: "BlueZ runs on the D-Bus system bus")] + adapterFindings(central)
    }

    private func adapterFindings(_ central: Central) -> [Finding] {
        let reports = central.adapters.map(CentralRadio.report)
        if let sentence = Bridge.missingAdapter(settings.bluetooth.adapters, reports) {
            return [Finding(verdict: .missing, text: sentence)]
        }
        return central.adapters.filter { $0.isPresent && $0.isSelected }.flatMap { adapter -> [Finding] in
            let name = "adapter \(adapter.systemName) (\(adapter.address))"
            guard adapter.state == .poweredOn else {
                return [
                    Finding(
                        verdict: .missing,
                        text: "\(name) \(Self.words(adapter.state)); switch it on: bluetoothctl power on, or rfkill"
                            + " unblock bluetooth")
                ]
            }
            let powered = Finding(verdict: .fine, text: "\(name) is powered on")
            guard adapter.supportsMonitor else {
                return [
                    powered,
                    Finding(
                        verdict: .hint,
                        text: "\(name): bluetoothd offers no advertisement monitor, so a device may be heard only once"
                            + " in about 11 s; start bluetoothd with -E (experimental)"),
                ]
            }
            return [powered, Finding(verdict: .fine, text: "\(name) hears every advertisement by a monitor")]
        }
    }

    private static func words(_ state: AdapterState) -> String {
        switch state {
        case .poweredOff: "is off"
        case .unauthorized: "may not be used by this user"
        default: "is not ready (\(state.rawValue))"
        }
    }

    // MARK: The broker

    private func checkBroker() async -> Finding {
        let bridge = BridgeSettings(settings, version: "")
        // A name of its own, so that a bridge that runs is not thrown out.
        let id = "\(settings.mqtt.clientID ?? "blueferry-\(bridge.gateway)")-check-\(ClientIdentifier.make())"
        var mqtt = MQTTSettings(settings, bridge: bridge, clientID: id)
        mqtt.will = nil
        let client = MQTTClient(mqtt)
        let answer = Pending<Void>()
        client.onConnect = { _ in answer.succeed(()) }
        client.onDisconnect = { fault in answer.fail(fault) }
        client.start()
        defer { Task { @EventLoopActor in await client.stop(flushWithin: .milliseconds(100)) } }
        do {
            try await answer.value(timeout: patience)
            return Finding(verdict: .fine, text: "the broker at \(mqtt.endpoint) accepts us")
        } catch {
            return Finding(verdict: .missing, text: Self.brokerSentence("\(error)", mqtt.endpoint))
        }
    }

    /// Pure. Many a reason names the broker itself.
    nonisolated static func brokerSentence(_ reason: String, _ endpoint: String) -> String {
        let place = strstr(reason, endpoint) != nil ? "" : " at \(endpoint)"
        return "the broker\(place) cannot be used: \(reason); see mqtt.url"
    }
}

extension CentralState {
    /// What a person does about it.
    var remedy: String {
        switch self {
        case .noBus: "start dbus, or mount /run/dbus/system_bus_socket into the container"
        case .noBlueZ, .stopped: "install bluez and start it: systemctl enable --now bluetooth"
        case .unauthorized: "run as root, or add the user to the group bluetooth"
        case .running: ""
        }
    }

    /// What is missing and what to do about it, in one sentence; nil where nothing is.
    var problem: String? {
        switch self {
        case .running: nil
        // It says what we do, not what is missing.
        case .stopped: description
        default: "\(description); \(remedy)"
        }
    }
}

/// Wakes whoever waits for the engine to change.
@EventLoopActor
final class StateWatch: CentralObserver {
    private var waiter: Pending<Void>?

    func change(within limit: Duration) async {
        let waiter = Pending<Void>()
        self.waiter = waiter
        _ = try? await waiter.value(timeout: limit)
    }

    func centralDidChange(_ central: Central) { waiter?.succeed(()) }
    func central(_ central: Central, adapterDidChange adapter: Adapter) { waiter?.succeed(()) }
}
