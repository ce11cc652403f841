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

    /// - Parameter busAddress: a D-Bus address; nil: the system bus, as libdbus finds it.
    public init(_ settings: Settings, version: String, busAddress: String? = nil, log: @escaping LogSink) {
        let bridgeSettings = BridgeSettings(settings, version: version)
        clientID =
            settings.mqtt.clientID
            ?? ClientIdentifier.load(
                gateway: bridgeSettings.gateway, directory: Self.directory(of: settings.outbox.path))
        let mqtt = MQTTSettings(settings, bridge: bridgeSettings, clientID: clientID)
        endpoint = mqtt.endpoint
        broker = MQTTBroker(MQTTClient(mqtt))
        radio = CentralRadio(Central(options: CentralOptions(settings, busAddress: busAddress)))
        bridge = Bridge(
            settings: bridgeSettings, radio: radio, broker: broker,
            outbox: MemoryOutbox(limit: settings.outbox.limit), log: log)
        radio.bridge = bridge
    }

    static func directory(of path: String) -> String {
        guard let slash = path.lastIndex(of: "/") else { return "." }
        return slash == path.startIndex ? "/" : String(path[..<slash])
    }
}
