internal import Bluetooth

/// The value of a setting as it may be shown.
public enum SettingValue: Equatable, Sendable {
    case none
    case flag(Bool)
    case number(Int)
    case text(String)
    case list([String])
}

extension Settings {
    /// Every setting that holds one value, by its path in the file and in the file's order. Passwords show as dots, and
    /// URLs are without credentials.
    public var scalarEntries: [(key: String, value: SettingValue)] {
        func text(_ value: String?) -> SettingValue { value.map { .text($0) } ?? .none }
        let scan = bluetooth.scan
        return [
            ("gateway.id", text(gateway.id)), ("mqtt.url", .text(mqtt.url.description)),
            ("mqtt.base_topic", .text(mqtt.baseTopic)), ("mqtt.version", .text(mqtt.version.rawValue)),
            ("mqtt.client_id", text(mqtt.clientID)), ("mqtt.username", text(mqtt.username)),
            ("mqtt.password", text(mqtt.password?.description)), ("mqtt.password_file", text(mqtt.passwordFile)),
            ("mqtt.keep_alive", .number(mqtt.keepAlive)), ("mqtt.tls.ca_file", text(mqtt.tls.caFile)),
            ("mqtt.tls.certificate_file", text(mqtt.tls.certificateFile)),
            ("mqtt.tls.key_file", text(mqtt.tls.keyFile)),
            ("mqtt.tls.key_password", text(mqtt.tls.keyPassword?.description)),
            ("mqtt.tls.key_password_file", text(mqtt.tls.keyPasswordFile)),
            ("bluetooth.scan.enabled", .flag(scan.enabled)), ("bluetooth.scan.mode", .text(scan.mode.rawValue)),
            ("bluetooth.scan.name", text(scan.name)), ("bluetooth.scan.rssi", .number(scan.rssi)),
            ("bluetooth.scan.allow_duplicates", .flag(scan.allowDuplicates)),
            ("bluetooth.scan.renew_interval", .number(scan.renewInterval)),
            ("bluetooth.watchdog.enabled", .flag(bluetooth.watchdog.enabled)),
            ("bluetooth.watchdog.power_cycle", .flag(bluetooth.watchdog.powerCycle)),
            ("bluetooth.watchdog.silence", .number(bluetooth.watchdog.silence)),
            ("bluetooth.notify_sockets", .flag(bluetooth.notifySockets)),
            ("publish.advertisements", .flag(publish.advertisements)),
            ("publish.unknown_devices", .flag(publish.unknownDevices)), ("commands.enabled", .flag(commands.enabled)),
            ("outbox.path", .text(outbox.path)), ("outbox.limit", .number(outbox.limit)),
            ("outbox.size_limit", .number(outbox.sizeLimit)),
            ("homeassistant.enabled", .flag(homeassistant.enabled)),
            ("homeassistant.prefix", .text(homeassistant.prefix)),
            ("logging.level", .text(logging.level.rawValue)), ("logging.format", .text(logging.format.rawValue)),
        ]
    }

    /// The devices, each as its keys and values in the file's order; passkeys show as dots.
    public var deviceEntries: [[(key: String, value: SettingValue)]] {
        func text(_ value: String?) -> SettingValue { value.map { .text($0) } ?? .none }
        return devices.map { device in
            [
                ("address", .text(device.address.description)), ("name", text(device.name)),
                ("connect", .text(device.connect.rawValue)),
                ("subscribe", .list(device.subscribe.map(\.description))), ("adapter", text(device.adapter)),
                ("passkey", text(device.passkey?.description)),
            ]
        }
    }

    /// The lists of the file that hold plain values.
    public var listEntries: [(key: String, value: SettingValue)] {
        [
            ("bluetooth.adapters", .list(bluetooth.adapters)),
            ("bluetooth.scan.services", .list(bluetooth.scan.services.map(\.topicForm))),
            ("commands.verbs", .list(commands.verbs.map(\.rawValue))), ("commands.devices", .list(commands.devices)),
        ]
    }
}
