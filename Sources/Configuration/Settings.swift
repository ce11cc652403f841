public import Bluetooth

/// All settings of the bridge, each with its default. Their meaning and their text form stand in config/blueferry.yaml,
/// which a test holds to this file.
public struct Settings: Equatable, Sendable {
    public var gateway = Gateway()
    public var mqtt = MQTT()
    public var bluetooth = Bluetooth()
    public var devices: [Device] = []
    public var publish = Publish()
    public var commands = Commands()
    public var outbox = Outbox()
    public var homeassistant = HomeAssistant()
    public var logging = Logging()

    public init() {}

    public struct Gateway: Equatable, Sendable {
        /// Stands in every topic; nil: the host's name made safe.
        public var id: String?

        public init() {}

        /// The id to use: the configured one, else `hostName` with `-` for what may not stand in a topic.
        public func resolvedID(hostName: String) -> String {
            if let id { return id }
            let safe = hostName.prefix(64).map { SettingsReader.isSafe(String($0)) ? $0 : "-" }
            return safe.contains { $0 != "-" } ? String(safe) : "gateway"
        }
    }

    public struct MQTT: Equatable, Sendable {
        public var url = BrokerURL.default
        public var baseTopic = "blueferry"
        public var version = Version.v5
        /// Nil: made from the gateway's id and six random digits that are kept.
        public var clientID: String?
        public var username: String?
        public var password: Secret?
        /// A file whose first line is the password.
        public var passwordFile: String?
        /// Seconds between pings to an idle broker.
        public var keepAlive = 60
        public var tls = TLS()

        mutating func clearCredentials() {
            username = nil
            password = nil
            passwordFile = nil
        }

        public enum Version: String, CaseIterable, Sendable {
            case v5 = "5"
            case v311 = "3.1.1"
        }

        public init() {}
    }

    public struct TLS: Equatable, Sendable {
        public var caFile: String?
        public var certificateFile: String?
        public var keyFile: String?
        /// Of a key file that is encrypted.
        public var keyPassword: Secret?
        /// A file whose first line is that password.
        public var keyPasswordFile: String?

        public init() {}
    }

    public struct Bluetooth: Equatable, Sendable {
        /// By address or name; none: all that there are.
        public var adapters: [String] = []
        public var scan = Scan()
        public var watchdog = Watchdog()
        /// Whether notifications come through sockets (AcquireNotify) instead of signals.
        public var notifySockets = false

        public init() {}
    }

    public struct Scan: Equatable, Sendable {
        public var enabled = true
        public var mode = Mode.active
        /// A pattern that must match the whole name.
        public var name: String?
        public var services: [BluetoothUUID] = []
        /// In dBm; weaker advertisements are left out.
        public var rssi = -100
        public var allowDuplicates = true
        /// Milliseconds after which discovery is restarted where BlueZ has no monitor, so that the controller's
        /// duplicate filter forgets; 0: never.
        public var renewInterval = 10_000

        public enum Mode: String, CaseIterable, Sendable {
            case active
        }

        public init() {}
    }

    public struct Watchdog: Equatable, Sendable {
        /// Whether a discovery that hears nothing any more is restarted.
        public var enabled = true
        /// Whether the adapter may be switched off and on where that does not help. It ends the adapter's links.
        public var powerCycle = false
        /// Milliseconds; no shorter silence counts.
        public var silence = 60_000

        public init() {}
    }

    public struct Device: Equatable, Sendable {
        public var address: BluetoothAddress
        /// Usable in commands instead of the address.
        public var name: String?
        public var connect = Connect.onRequest
        public var subscribe: [CharacteristicName] = []
        /// The only adapter to use, by address or name.
        public var adapter: String?
        /// For pairing with a device that shows one.
        public var passkey: Passkey?

        public enum Connect: String, CaseIterable, Sendable {
            case onRequest = "on_request"
            case always
        }

        public init(address: BluetoothAddress) {
            self.address = address
        }
    }

    /// `180f/2a19`; a twin adds its handle: `1802/2a06_0017`.
    public struct CharacteristicName: Hashable, Sendable, CustomStringConvertible {
        public var service: String
        public var characteristic: String

        public init(service: String, characteristic: String) {
            self.service = service
            self.characteristic = characteristic
        }

        public var description: String { "\(service)/\(characteristic)" }
    }

    public struct Publish: Equatable, Sendable {
        public var advertisements = true
        /// Also of devices that are neither configured nor otherwise known.
        public var unknownDevices = true

        public init() {}
    }

    public struct Commands: Equatable, Sendable {
        public var enabled = true
        /// The verbs that are obeyed; none: all.
        public var verbs: [Verb] = []
        /// The devices that commands may name, by address or name; none: all.
        public var devices: [String] = []

        /// The verbs of docs/topics.md.
        public enum Verb: String, CaseIterable, Sendable {
            case scan
            case stopScan = "stop_scan"
            case devices, connect, disconnect, services, read, write, subscribe, unsubscribe
            case rssi, pair, unpair, forget, config
        }

        public init() {}
    }

    public struct Outbox: Equatable, Sendable {
        public var path = "/var/lib/blueferry/outbox.db"
        /// Messages kept at most.
        public var limit = 100_000
        /// Their size at most, in MiB.
        public var sizeLimit = 128

        public init() {}
    }

    public struct HomeAssistant: Equatable, Sendable {
        public var enabled = false
        public var prefix = "homeassistant"

        public init() {}
    }

    public struct Logging: Equatable, Sendable {
        public var level = Level.info
        public var format = Format.text

        public enum Level: String, CaseIterable, Comparable, Sendable {
            case error, warning, info, debug

            public static func < (left: Level, right: Level) -> Bool {
                (allCases.firstIndex(of: left) ?? 0) < (allCases.firstIndex(of: right) ?? 0)
            }
        }

        public enum Format: String, CaseIterable, Sendable {
            case text, json
        }

        public init() {}
    }
}
