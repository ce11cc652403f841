internal import Bluetooth
internal import YAML

extension Settings {
    /// What no key shows alone: checked once all layers are read.
    /// - Parameter root: the file, where there is one, for the places of its keys.
    mutating func finish(_ root: YAMLNode?, source: String) throws(ConfigurationError) {
        mqtt.username = mqtt.username ?? mqtt.url.username
        if mqtt.passwordFile == nil { mqtt.password = mqtt.password ?? mqtt.url.password }
        mqtt.url.username = nil
        mqtt.url.password = nil

        func fault(_ key: String, _ message: String) -> ConfigurationError {
            let position = root?.position(ofKey: key)
            return ConfigurationError(
                source: source, line: position?.line, column: position?.column, key: key, message: message)
        }
        // MQTT 3.1.1 §3.1.2.9: no password without a user name; MQTT 5 allows it.
        let hasPassword = mqtt.password != nil || mqtt.passwordFile != nil
        guard mqtt.version == .v5 || mqtt.username != nil || !hasPassword else {
            throw fault(
                mqtt.passwordFile == nil ? "mqtt.password" : "mqtt.password_file",
                "with MQTT 3.1.1 a password needs mqtt.username beside it")
        }
        guard (mqtt.tls.certificateFile == nil) == (mqtt.tls.keyFile == nil) else {
            throw fault("mqtt.tls", "certificate_file and key_file go together")
        }
        guard mqtt.url.isTLS || mqtt.tls == TLS() else {
            throw fault("mqtt.tls", "mqtt.url is \(mqtt.url), which is not encrypted; write mqtts:// for TLS")
        }
        for name in commands.devices where BluetoothAddress(parsing: name) == nil {
            guard !devices.contains(where: { $0.name == name }) else { continue }
            throw fault("commands.devices", "'\(name)' is no address, and no device of the settings has this name")
        }
        let prefix = homeassistant.prefix
        guard !homeassistant.enabled || (mqtt.baseTopic != prefix && !mqtt.baseTopic.hasPrefix(prefix + "/")) else {
            throw fault("mqtt.base_topic", "must not be homeassistant.prefix or below it")
        }
    }
}

extension YAMLNode {
    /// Where the value of a key path such as `mqtt.tls` stands.
    fileprivate func position(ofKey path: String) -> YAMLPosition? {
        var node: YAMLNode? = self
        for key in path.split(separator: ".") { node = node?[String(key)] }
        return node?.position
    }
}
