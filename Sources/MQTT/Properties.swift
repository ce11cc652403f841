internal import CMosquitto
internal import Glibc

/// Owns a list of libmosquitto's properties. Source: `mosquitto_property_add_*`, `mosquitto_property_free_all`.
struct PropertyList: ~Copyable {
    private(set) var head: OpaquePointer?

    init() {}

    deinit {
        var list = head
        mosquitto_property_free_all(&list)
    }

    /// Nil where a value does not fit MQTT: a NUL or bad UTF-8 in a text, or more than 65,535 bytes.
    init?(_ properties: PublishProperties) {
        self.init()
        guard properties.isValid else { return nil }
        var status: Int32 = 0
        if let topic = properties.responseTopic { status |= add(MQTT_PROP_RESPONSE_TOPIC, topic) }
        if let data = properties.correlationData {
            status |= mosquitto_property_add_binary(
                &head, Int32(MQTT_PROP_CORRELATION_DATA.rawValue), data, UInt16(clamping: data.count))
        }
        if let seconds = properties.messageExpiry {
            status |= mosquitto_property_add_int32(&head, Int32(MQTT_PROP_MESSAGE_EXPIRY_INTERVAL.rawValue), seconds)
        }
        if let type = properties.contentType { status |= add(MQTT_PROP_CONTENT_TYPE, type) }
        for property in properties.userProperties {
            status |= mosquitto_property_add_string_pair(
                &head, Int32(MQTT_PROP_USER_PROPERTY.rawValue), property.name, property.value)
        }
        guard status == 0 else { return nil }
    }

    mutating func addMaximumPacketSize(_ bytes: UInt32) {
        _ = mosquitto_property_add_int32(&head, Int32(MQTT_PROP_MAXIMUM_PACKET_SIZE.rawValue), bytes)
    }

    private mutating func add(_ identifier: mqtt5_property, _ text: String) -> Int32 {
        mosquitto_property_add_string(&head, Int32(identifier.rawValue), text)
    }
}

extension PublishProperties {
    /// False where a value does not fit MQTT: a NUL in a text, or more than 65,535 bytes.
    var isValid: Bool {
        if let responseTopic, !MQTTTopic.isValid(responseTopic) { return false }
        if let correlationData, correlationData.count > 65_535 { return false }
        if let contentType, !Self.isText(contentType) { return false }
        return userProperties.allSatisfy { Self.isText($0.name) && Self.isText($0.value) }
    }

    private static func isText(_ text: String) -> Bool {
        text.utf8.count <= 65_535 && !text.utf8.contains(0)
    }

    /// An upper bound of their bytes in a packet, with the count before them.
    var encodedSize: Int { 4 + bytes }

    /// Their bytes in a packet.
    var bytes: Int {
        var size = 0
        if let responseTopic { size += 3 + responseTopic.utf8.count }
        if let correlationData { size += 3 + correlationData.count }
        if messageExpiry != nil { size += 5 }
        if let contentType { size += 3 + contentType.utf8.count }
        for property in userProperties { size += 5 + property.name.utf8.count + property.value.utf8.count }
        return size
    }

    /// Copies what a received packet carries. Source: `mosquitto_property_read_*`.
    init(reading list: OpaquePointer?) {
        self.init()
        guard let list else { return }
        responseTopic = Self.string(list, MQTT_PROP_RESPONSE_TOPIC)
        contentType = Self.string(list, MQTT_PROP_CONTENT_TYPE)
        var bytes: UnsafeMutableRawPointer?
        var count: UInt16 = 0
        let data = Int32(MQTT_PROP_CORRELATION_DATA.rawValue)
        if mosquitto_property_read_binary(list, data, &bytes, &count, false) != nil {
            correlationData = Array(UnsafeRawBufferPointer(start: bytes, count: bytes == nil ? 0 : Int(count)))
            free(bytes)
        }
        messageExpiry = Self.int32(list, MQTT_PROP_MESSAGE_EXPIRY_INTERVAL)
        var name: UnsafeMutablePointer<CChar>?
        var value: UnsafeMutablePointer<CChar>?
        var next: OpaquePointer? = list
        var isFirst = true
        let pair = Int32(MQTT_PROP_USER_PROPERTY.rawValue)
        while let here = next {
            next = mosquitto_property_read_string_pair(here, pair, &name, &value, !isFirst)
            isFirst = false
            guard next != nil, let text = name, let content = value else { break }
            userProperties.append(UserProperty(name: String(cString: text), value: String(cString: content)))
            free(text)
            free(content)
        }
    }

    static func string(_ list: OpaquePointer?, _ identifier: mqtt5_property) -> String? {
        var text: UnsafeMutablePointer<CChar>?
        guard mosquitto_property_read_string(list, Int32(identifier.rawValue), &text, false) != nil, let text
        else { return nil }
        defer { free(text) }
        return String(cString: text)
    }

    static func int32(_ list: OpaquePointer?, _ identifier: mqtt5_property) -> UInt32? {
        var value: UInt32 = 0
        return mosquitto_property_read_int32(list, Int32(identifier.rawValue), &value, false) == nil ? nil : value
    }

    static func int16(_ list: OpaquePointer?, _ identifier: mqtt5_property) -> UInt16? {
        var value: UInt16 = 0
        return mosquitto_property_read_int16(list, Int32(identifier.rawValue), &value, false) == nil ? nil : value
    }

    static func byte(_ list: OpaquePointer?, _ identifier: mqtt5_property) -> UInt8? {
        var value: UInt8 = 0
        return mosquitto_property_read_byte(list, Int32(identifier.rawValue), &value, false) == nil ? nil : value
    }
}
