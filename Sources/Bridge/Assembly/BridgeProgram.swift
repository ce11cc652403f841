internal import Bluetooth
internal import Central
public import Configuration
public import EventLoop
internal import MQTT

extension CentralOptions {
    /// The engine's options of the settings.
    init(_ settings: Settings, busAddress: String?) {
        self.init()
        self.busAddress = busAddress
        adapters = settings.bluetooth.adapters.map { AdapterSelector(parsing: $0) }
        let interval = settings.bluetooth.scan.renewInterval
        renewInterval = interval > 0 ? .milliseconds(interval) : nil
        usesNotifySockets = settings.bluetooth.notifySockets
        silence = nil
        if settings.bluetooth.watchdog.enabled {
            var policy = SilencePolicy()
            policy.floor = .milliseconds(settings.bluetooth.watchdog.silence)
            policy.allowsPowerCycle = settings.bluetooth.watchdog.powerCycle
            silence = policy
        }
        for device in settings.devices {
            if let passkey = device.passkey { passkeys[device.address] = passkey.value }
        }
    }
}

/// The bridge with its real ports.
@EventLoopActor
public final class BridgeProgram {
    public let bridge: Bridge
    /// Where messages go, for people.
    public let endpoint: String
    public let clientID: String
    private let radio: CentralRadio
    private let broker: MQTTBroker

    /// Opens what was kept of the last run, and puts the bridge together.
    /// - Parameter busAddress: a D-Bus address; nil: the system bus, as libdbus finds it.
    public static func open(
        _ settings: Settings, version: String, busAddress: String? = nil, log: @escaping LogSink
    ) async -> BridgeProgram {
        let state = await StoredState.open(
            path: settings.outbox.path, limit: settings.outbox.limit, sizeLimit: settings.outbox.sizeLimit << 20)
        return BridgeProgram(settings, state, version: version, busAddress: busAddress, log: log)
    }

    private init(
        _ settings: Settings, _ state: StoredState, version: String, busAddress: String?, log: @escaping LogSink
    ) {
        let bridgeSettings = BridgeSettings(settings, version: version)
        let gateway = bridgeSettings.gateway
        clientID =
            settings.mqtt.clientID
            ?? (state.isHeldElsewhere
                ? ClientIdentifier.temporary(gateway: gateway)
                : ClientIdentifier.load(gateway: gateway, directory: StoredState.directory(of: settings.outbox.path)))
        let mqtt = MQTTSettings(settings, bridge: bridgeSettings, clientID: clientID)
        endpoint = mqtt.endpoint
        broker = MQTTBroker(MQTTClient(mqtt))
        radio = CentralRadio(Central(options: CentralOptions(settings, busAddress: busAddress)))
        bridge = Bridge(
            settings: bridgeSettings, radio: radio, broker: broker, outbox: state.outbox, journal: state.journal,
            log: log)
        radio.bridge = bridge
    }
}
