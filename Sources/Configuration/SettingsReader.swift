internal import Bluetooth
internal import YAML

/// Reads the sections of the file into settings. What a section leaves out keeps the value it had.
enum SettingsReader {
    static func read(_ root: YAMLNode, into settings: inout Settings) throws(YAMLError) {
        try root.checkKeys([
            "gateway", "mqtt", "bluetooth", "devices", "publish", "commands", "outbox", "homeassistant", "logging",
        ])
        try gateway(root["gateway"], &settings.gateway)
        try mqtt(root["mqtt"], &settings.mqtt)
        try bluetooth(root["bluetooth"], &settings.bluetooth)
        if let devices = root["devices"] { settings.devices = try self.devices(devices) }
        try flags(root["publish"], ["advertisements", "unknown_devices"]) { key, value in
            if key == "advertisements" {
                settings.publish.advertisements = value
            } else {
                settings.publish.unknownDevices = value
            }
        }
        try commands(root["commands"], &settings.commands)
        try outbox(root["outbox"], &settings.outbox)
        try homeAssistant(root["homeassistant"], &settings.homeassistant)
        try logging(root["logging"], &settings.logging)
    }

    private static func gateway(_ node: YAMLNode?, _ gateway: inout Settings.Gateway) throws(YAMLError) {
        guard let node else { return }
        try node.checkKeys(["id"])
        try optional(node["id"]) { (id) throws(YAMLError) in gateway.id = try id?.topicLevel() }
    }

    private static func mqtt(_ node: YAMLNode?, _ mqtt: inout Settings.MQTT) throws(YAMLError) {
        guard let node else { return }
        try node.checkKeys([
            "url", "base_topic", "version", "client_id", "username", "password", "password_file", "keep_alive", "tls",
        ])
        try value(node["url"]) { (url) throws(YAMLError) in
            mqtt.url = try url.brokerURL()
            // A URL that brings credentials replaces those of the layers below it.
            if mqtt.url.username != nil || mqtt.url.password != nil { mqtt.clearCredentials() }
        }
        try value(node["base_topic"]) { (base) throws(YAMLError) in mqtt.baseTopic = try base.topicLevels() }
        try value(node["version"]) { (version) throws(YAMLError) in mqtt.version = try version.choice() }
        try optional(node["client_id"]) { (id) throws(YAMLError) in mqtt.clientID = try id?.text(upTo: 128) }
        try optional(node["username"]) { (name) throws(YAMLError) in mqtt.username = try name?.text(upTo: 1024) }
        try secret(node, "password", &mqtt.password, &mqtt.passwordFile)
        try value(node["keep_alive"]) { (seconds) throws(YAMLError) in
            mqtt.keepAlive = try seconds.integer(in: 5...65535)
        }
        guard let tls = node["tls"] else { return }
        try self.tls(tls, &mqtt.tls)
    }

    private static func tls(_ node: YAMLNode, _ tls: inout Settings.TLS) throws(YAMLError) {
        try node.checkKeys(["ca_file", "certificate_file", "key_file", "key_password", "key_password_file"])
        try optional(node["ca_file"]) { (file) throws(YAMLError) in tls.caFile = try file?.text(upTo: 4096) }
        try optional(node["certificate_file"]) { (file) throws(YAMLError) in
            tls.certificateFile = try file?.text(upTo: 4096)
        }
        try optional(node["key_file"]) { (file) throws(YAMLError) in tls.keyFile = try file?.text(upTo: 4096) }
        try secret(node, "key_password", &tls.keyPassword, &tls.keyPasswordFile)
    }

    /// A password or its file, under `key` and `key_file`: each replaces the other of the layers below it.
    private static func secret(
        _ node: YAMLNode, _ key: String, _ secret: inout Secret?, _ path: inout String?
    ) throws(YAMLError) {
        let (given, file) = (node[key], node[key + "_file"])
        if let given, !given.isNull, let file, !file.isNull {
            throw file.error("give the password or its file, not both")
        }
        try optional(given) { (password) throws(YAMLError) in
            secret = nil
            guard let password else { return }
            secret = Secret(try password.secretText())
            path = nil
        }
        try optional(file) { (file) throws(YAMLError) in
            path = nil
            guard let file else { return }
            path = try file.text(upTo: 4096)
            secret = nil
        }
    }

    private static func bluetooth(_ node: YAMLNode?, _ bluetooth: inout Settings.Bluetooth) throws(YAMLError) {
        guard let node else { return }
        try node.checkKeys(["adapters", "scan", "watchdog", "notify_sockets"])
        try value(node["adapters"]) { (list) throws(YAMLError) in
            var adapters: [String] = []
            for item in try list.sequence() { adapters.append(try item.adapterName()) }
            bluetooth.adapters = adapters
        }
        try watchdog(node["watchdog"], &bluetooth.watchdog)
        try value(node["notify_sockets"]) { (node) throws(YAMLError) in bluetooth.notifySockets = try node.bool() }
        guard let scan = node["scan"] else { return }
        try scan.checkKeys(["enabled", "mode", "name", "services", "rssi", "allow_duplicates", "renew_interval"])
        try value(scan["enabled"]) { (node) throws(YAMLError) in bluetooth.scan.enabled = try node.bool() }
        try value(scan["mode"]) { (node) throws(YAMLError) in
            if case .scalar("passive", _) = node.content {
                throw node.error(
                    "passive is not offered: BlueZ passes on every advertisement only while it asks devices for their"
                        + " scan responses too; write active")
            }
            bluetooth.scan.mode = try node.choice()
        }
        try optional(scan["name"]) { (node) throws(YAMLError) in bluetooth.scan.name = try node?.text(upTo: 1024) }
        try value(scan["services"]) { (list) throws(YAMLError) in
            var services: [BluetoothUUID] = []
            for item in try list.sequence() { services.append(try item.uuid()) }
            bluetooth.scan.services = services
        }
        try value(scan["rssi"]) { (node) throws(YAMLError) in bluetooth.scan.rssi = try node.integer(in: -127...20) }
        try value(scan["allow_duplicates"]) { (node) throws(YAMLError) in
            bluetooth.scan.allowDuplicates = try node.bool()
        }
        try value(scan["renew_interval"]) { (node) throws(YAMLError) in
            bluetooth.scan.renewInterval = try node.integer(in: 0...3_600_000)
            guard bluetooth.scan.renewInterval == 0 || bluetooth.scan.renewInterval >= 1000 else {
                throw node.error("expected 0 (never) or at least 1000 milliseconds")
            }
        }
    }

    private static func watchdog(_ node: YAMLNode?, _ watchdog: inout Settings.Watchdog) throws(YAMLError) {
        guard let node else { return }
        try node.checkKeys(["enabled", "power_cycle", "silence"])
        try value(node["enabled"]) { (node) throws(YAMLError) in watchdog.enabled = try node.bool() }
        try value(node["power_cycle"]) { (node) throws(YAMLError) in watchdog.powerCycle = try node.bool() }
        try value(node["silence"]) { (node) throws(YAMLError) in
            watchdog.silence = try node.integer(in: 3000...86_400_000)
        }
    }

    private static func devices(_ list: YAMLNode) throws(YAMLError) -> [Settings.Device] {
        var devices: [Settings.Device] = []
        for node in try list.sequence() {
            let device = try self.device(node)
            guard !devices.contains(where: { $0.address == device.address }) else {
                throw node.error("the address \(device.address) stands twice")
            }
            if let name = device.name, devices.contains(where: { $0.name == name }) {
                throw node.error("the name '\(name)' stands twice")
            }
            devices.append(device)
        }
        return devices
    }

    private static func device(_ node: YAMLNode) throws(YAMLError) -> Settings.Device {
        try node.checkKeys(["address", "name", "connect", "subscribe", "adapter", "passkey"])
        guard let address = node["address"] else {
            throw node.error("'address' is missing; give it as AA:BB:CC:DD:EE:FF")
        }
        let text = try address.string()
        guard let parsed = BluetoothAddress(parsing: text) else {
            throw address.error("expected an address such as A4:C1:38:5E:07:D3, found \(address.whatItIs)")
        }
        var device = Settings.Device(address: parsed)
        try optional(node["name"]) { (name) throws(YAMLError) in device.name = try name?.deviceName() }
        try value(node["connect"]) { (connect) throws(YAMLError) in device.connect = try connect.choice() }
        try value(node["subscribe"]) { (list) throws(YAMLError) in
            for item in try list.sequence() { device.subscribe.append(try item.characteristicName()) }
        }
        try optional(node["adapter"]) { (adapter) throws(YAMLError) in device.adapter = try adapter?.adapterName() }
        try optional(node["passkey"]) { (passkey) throws(YAMLError) in
            device.passkey = try passkey?.passkey()
        }
        return device
    }

    private static func commands(_ node: YAMLNode?, _ commands: inout Settings.Commands) throws(YAMLError) {
        guard let node else { return }
        try node.checkKeys(["enabled", "verbs", "devices"])
        try value(node["enabled"]) { (node) throws(YAMLError) in commands.enabled = try node.bool() }
        try value(node["verbs"]) { (list) throws(YAMLError) in
            var verbs: [Settings.Commands.Verb] = []
            for item in try list.sequence() { verbs.append(try item.choice()) }
            commands.verbs = verbs
        }
        try value(node["devices"]) { (list) throws(YAMLError) in
            var devices: [String] = []
            for item in try list.sequence() { devices.append(try item.text(upTo: 64)) }
            commands.devices = devices
        }
    }

    private static func outbox(_ node: YAMLNode?, _ outbox: inout Settings.Outbox) throws(YAMLError) {
        guard let node else { return }
        try node.checkKeys(["path", "limit", "size_limit"])
        try value(node["path"]) { (path) throws(YAMLError) in outbox.path = try path.text(upTo: 4096) }
        try value(node["limit"]) { (limit) throws(YAMLError) in outbox.limit = try limit.integer(in: 1...100_000_000) }
        try value(node["size_limit"]) { (size) throws(YAMLError) in
            outbox.sizeLimit = try size.integer(in: 1...65_536)
        }
    }

    private static func homeAssistant(_ node: YAMLNode?, _ home: inout Settings.HomeAssistant) throws(YAMLError) {
        guard let node else { return }
        try node.checkKeys(["enabled", "prefix"])
        try value(node["enabled"]) { (enabled) throws(YAMLError) in home.enabled = try enabled.bool() }
        try value(node["prefix"]) { (prefix) throws(YAMLError) in home.prefix = try prefix.topicLevels() }
    }

    private static func logging(_ node: YAMLNode?, _ logging: inout Settings.Logging) throws(YAMLError) {
        guard let node else { return }
        try node.checkKeys(["level", "format"])
        try value(node["level"]) { (level) throws(YAMLError) in logging.level = try level.choice() }
        try value(node["format"]) { (format) throws(YAMLError) in logging.format = try format.choice() }
    }

    private static func flags(
        _ node: YAMLNode?, _ keys: [String], _ set: (String, Bool) -> Void
    ) throws(YAMLError) {
        guard let node else { return }
        try node.checkKeys(keys)
        for key in keys {
            if let flag = node[key], !flag.isNull { set(key, try flag.bool()) }
        }
    }

    /// For a key that has a value: left out or empty, the default stays.
    private static func value(
        _ node: YAMLNode?, _ read: (YAMLNode) throws(YAMLError) -> Void
    ) throws(YAMLError) {
        guard let node, !node.isNull else { return }
        try read(node)
    }

    /// For a key that may have none: empty means none.
    private static func optional(
        _ node: YAMLNode?, _ read: (YAMLNode?) throws(YAMLError) -> Void
    ) throws(YAMLError) {
        guard let node else { return }
        try read(node.isNull ? nil : node)
    }

    /// Text that may stand as one level of a topic.
    static func isSafe(_ text: some StringProtocol) -> Bool {
        !text.isEmpty
            && text.utf8.allSatisfy { byte in
                switch byte {
                case 0x30...0x39, 0x41...0x5a, 0x61...0x7a, 0x5f, 0x2d: true
                default: false
                }
            }
    }
}

extension YAMLNode {
    fileprivate func text(upTo limit: Int) throws(YAMLError) -> String {
        let text = try string()
        guard !text.isEmpty, text.utf8.count <= limit, !Settings.hasControlCharacters(text) else {
            throw error("expected text of 1 to \(limit) bytes without control characters")
        }
        return text
    }

    fileprivate func brokerURL() throws(YAMLError) -> BrokerURL {
        let text = try string()
        do { return try BrokerURL(parsing: text) } catch { throw self.error(error.message) }
    }

    /// Six digits that no error repeats.
    fileprivate func passkey() throws(YAMLError) -> Passkey {
        guard case .scalar(let text, _) = content, (1...6).contains(text.utf8.count),
            let value = UInt32(text), let passkey = Passkey(value), !text.hasPrefix("+")
        else { throw error("expected a number of up to six digits") }
        return passkey
    }

    /// A password: its errors never repeat it.
    fileprivate func secretText() throws(YAMLError) -> String {
        guard case .scalar(let text, _) = content, !text.utf8.contains(0), text.utf8.count <= 65535 else {
            throw error("expected text")
        }
        return text
    }

    fileprivate func topicLevel() throws(YAMLError) -> String {
        let text = try string()
        guard SettingsReader.isSafe(text), text.utf8.count <= 64 else {
            throw error("expected 1 to 64 characters of A-Z a-z 0-9 _ -, found \(whatItIs)")
        }
        return text
    }

    fileprivate func topicLevels() throws(YAMLError) -> String {
        let text = try string()
        let levels = text.split(separator: "/", omittingEmptySubsequences: false)
        guard levels.allSatisfy({ SettingsReader.isSafe($0) }), text.utf8.count <= 256 else {
            throw error("expected levels of A-Z a-z 0-9 _ - with / between them, found \(whatItIs)")
        }
        return text
    }

    fileprivate func deviceName() throws(YAMLError) -> String {
        let text = try topicLevel()
        guard text.utf8.count != 12 || BluetoothAddress(parsing: text) == nil else {
            throw error("\(whatItIs) reads as an address; choose another name")
        }
        return text
    }

    fileprivate func adapterName() throws(YAMLError) -> String {
        let text = try string()
        guard !text.isEmpty, text.utf8.count <= 248, !Settings.hasControlCharacters(text) else {
            throw error("expected an adapter's address or name, such as hci0, found \(whatItIs)")
        }
        return text
    }

    fileprivate func uuid() throws(YAMLError) -> BluetoothUUID {
        let text = try string()
        guard let uuid = BluetoothUUID(parsing: text) else {
            throw error("expected a UUID such as 180f, found \(whatItIs)")
        }
        return uuid
    }

    fileprivate func characteristicName() throws(YAMLError) -> Settings.CharacteristicName {
        let text = try string()
        let parts = text.split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count == 2, let service = attributeName(parts[0]), let characteristic = attributeName(parts[1])
        else {
            throw error("expected service/characteristic such as 180f/2a19, found \(whatItIs)")
        }
        return Settings.CharacteristicName(service: service, characteristic: characteristic)
    }

    /// A UUID in the form of topics, with the handle that a twin adds.
    private func attributeName(_ text: Substring) -> String? {
        let parts = text.split(separator: "_", maxSplits: 1, omittingEmptySubsequences: false)
        guard let uuid = parts.first.flatMap({ BluetoothUUID(parsing: $0) }) else { return nil }
        guard parts.count == 2 else { return uuid.topicForm }
        guard (1...4).contains(parts[1].count), let handle = UInt64(parts[1], radix: 16) else { return nil }
        return "\(uuid.topicForm)_\(Hex.encode(handle, digits: 4))"
    }

    /// One of an enumeration's words.
    fileprivate func choice<Choice: CaseIterable & RawRepresentable>() throws(YAMLError) -> Choice
    where Choice.RawValue == String {
        guard case .scalar(let text, _) = content, let choice = Choice(rawValue: text) else {
            let words = Choice.allCases.map(\.rawValue).joined(separator: ", ")
            throw error("expected one of \(words), found \(whatItIs)")
        }
        return choice
    }
}
