internal import CMosquitto
internal import Glibc
internal import Synchronization

/// Owns one `struct mosquitto`, which serves one connection: libmosquitto keeps what it had queued when it reconnects,
/// and only one may repeat messages.
///
/// `@unchecked Sendable`: the pointer never changes, and one thread at a time uses what it points to: the connecting
/// worker from the start of ``connect()`` until it returns, the loop before and after.
final class Instance: @unchecked Sendable {
    let pointer: OpaquePointer
    let settings: MQTTSettings
    /// Whom callbacks are for; set and read by the loop alone. The circle is broken when the connection ends.
    nonisolated(unsafe) var connection: Connection?

    private struct Reports {
        /// Why the broker's certificate was not accepted.
        var certificate: String?
        var lines: [String] = []
    }

    /// Errors that libmosquitto reports while it connects. Its debug lines are costly and are not asked for.
    private let reports = Mutex(Reports())

    /// - Throws: ``MQTTFault`` that names the setting which libmosquitto refuses.
    init(_ settings: MQTTSettings) throws(MQTTFault) {
        Self.initialiseLibrary
        guard !settings.clientID.isEmpty, let pointer = mosquitto_new(settings.clientID, true, nil) else {
            throw MQTTFault(.refused, "mqtt.client_id '\(settings.clientID)' is not usable: it is empty or not UTF-8")
        }
        self.pointer = pointer
        self.settings = settings
        // From here on deinit frees it.
        try configure()
    }

    deinit {
        mosquitto_destroy(pointer)
    }

    private static let initialiseLibrary: Void = {
        mosquitto_lib_init()
    }()

    private func configure() throws(MQTTFault) {
        mosquitto_user_data_set(pointer, Unmanaged.passUnretained(self).toOpaque())
        let version = settings.version == .v5 ? MQTT_PROTOCOL_V5 : MQTT_PROTOCOL_V311
        mosquitto_int_option(pointer, MOSQ_OPT_PROTOCOL_VERSION, Int32(version))
        if settings.unixSocketPath == nil { mosquitto_int_option(pointer, MOSQ_OPT_TCP_NODELAY, 1) }
        mosquitto_int_option(pointer, MOSQ_OPT_SEND_MAXIMUM, Int32(max(settings.inFlight, 1)))
        // Publishing then only queues; a whole batch is written at its end.
        mosquitto_threaded_set(pointer, true)
        if settings.username != nil || settings.password != nil {
            // MQTT 3.1.1 has no password without a name.
            guard mosquitto_username_pw_set(pointer, settings.username ?? "", settings.password) == 0 else {
                throw MQTTFault(.refused, "mqtt.username is not usable: it is not UTF-8")
            }
        }
        if let will = settings.will {
            let status = mosquitto_will_set_v5(
                pointer, will.topic, Int32(clamping: will.payload.count), will.payload, Int32(will.qos.rawValue),
                will.retain, nil)
            guard status == 0 else {
                throw MQTTFault(.refused, "the will's topic '\(will.topic)' is not usable: \(Self.words(status))")
            }
        }
        mosquitto_log_callback_set(pointer) { _, context, level, text in
            guard let context, let text, level & Int32(MOSQ_LOG_ERR | MOSQ_LOG_WARNING) != 0 else { return }
            Unmanaged<Instance>.fromOpaque(context).takeUnretainedValue().note(String(cString: text))
        }
        if let tls = settings.tls { try configure(tls) }
    }

    /// Source: `mosquitto_tls_set`, which opens the files and says of none which it was.
    private func configure(_ tls: TLSSettings) throws(MQTTFault) {
        let files = [("ca_file", tls.caFile), ("certificate_file", tls.certificateFile), ("key_file", tls.keyFile)]
        for case (let key, .some(let path)) in files where access(path, R_OK) != 0 {
            throw MQTTFault(.tls, "mqtt.tls.\(key) '\(path)' cannot be read: \(Self.systemWords(errno))")
        }
        guard (tls.certificateFile == nil) == (tls.keyFile == nil) else {
            throw MQTTFault(.tls, "mqtt.tls.certificate_file and mqtt.tls.key_file are only useful together")
        }
        if tls.caFile == nil { mosquitto_int_option(pointer, MOSQ_OPT_TLS_USE_OS_CERTS, 1) }
        let directory = tls.caFile == nil ? "/etc/ssl/certs" : nil
        // Without a callback OpenSSL would ask for the key's password on the terminal.
        let status = mosquitto_tls_set(pointer, tls.caFile, directory, tls.certificateFile, tls.keyFile) {
            buffer, size, _, client in
            guard let buffer, let client, let context = mosquitto_userdata(OpaquePointer(client)) else { return 0 }
            let settings = Unmanaged<Instance>.fromOpaque(context).takeUnretainedValue().settings
            let password = Array((settings.tls?.keyPassword ?? "").utf8)
            guard password.count < Int(size) else { return 0 }
            for (index, byte) in password.enumerated() { buffer[index] = CChar(bitPattern: byte) }
            buffer[password.count] = 0
            return Int32(password.count)
        }
        guard status == 0 else {
            throw MQTTFault(.tls, "the settings under mqtt.tls are not usable: \(Self.words(status))")
        }
        if !tls.verifiesHostName { mosquitto_tls_insecure_set(pointer, true) }
    }

    // MARK: On the worker

    /// Looks the name up, connects, and starts TLS; blocks for as long as the system takes. The CONNECT packet waits in
    /// the queue. Source: `mosquitto_connect_bind_v5`.
    func connect() -> MQTTFault? {
        let isVersion5 = settings.version == .v5
        var properties = PropertyList()
        if isVersion5 { properties.addMaximumPacketSize(max(settings.receivedPacketLimit, 1_024)) }
        let keepAlive = settings.keepAlive == 0 ? 0 : max(settings.keepAlive, 5)
        let (host, port) = settings.unixSocketPath.map { ($0, 0) } ?? (settings.host, Int32(settings.port))
        let status = mosquitto_connect_bind_v5(pointer, host, port, Int32(keepAlive), nil, properties.head)
        let number = errno
        guard status != 0 else { return nil }
        if let fault = tlsFault() { return fault }
        let endpoint = settings.endpoint
        switch mosq_err_t(status) {
        case MOSQ_ERR_EAI:
            let why = String(cString: gai_strerror(number))
            return MQTTFault(.unreachable, "no broker at \(endpoint): the name '\(host)' cannot be looked up (\(why))")
        case MOSQ_ERR_ERRNO:
            return MQTTFault(.unreachable, "no broker at \(endpoint): \(Self.systemWords(number))")
        default:
            return MQTTFault(.unreachable, "no broker at \(endpoint): \(Self.words(status))")
        }
    }

    // MARK: Errors

    private func note(_ line: String) {
        // libmosquitto may let go of its TLS state as soon as it has reported.
        let certificate = cmosquitto_verify_error(pointer).map { String(cString: $0) }
        reports.withLock { reports in
            reports.certificate = reports.certificate ?? certificate
            if reports.lines.count < 8 { reports.lines.append(String(line.prefix(300))) }
        }
    }

    /// What went wrong with TLS, if anything did.
    func tlsFault() -> MQTTFault? {
        guard settings.tls != nil else { return nil }
        let endpoint = settings.endpoint
        let (certificate, lines) = reports.withLock { ($0.certificate, $0.lines) }
        if lines.contains(where: { strstr($0, "host name verification failed") != nil }) {
            return MQTTFault(.tls, "the certificate of the broker at \(endpoint) is for another host name")
        }
        if let certificate {
            return MQTTFault(.tls, "the certificate of the broker at \(endpoint) is not accepted: \(certificate)")
        }
        guard let line = lines.first else { return nil }
        // "OpenSSL Error[0]: error:0A000086:SSL routines::certificate verify failed": its end is for people.
        let end = line.split(separator: ":").last.map { $0.drop { $0 == " " } }
        let why = line.hasPrefix("OpenSSL") ? end ?? line[...] : line[...]
        // A broker that refuses us may cut the connection before its reason is read.
        let isCut = strstr(line, "system lib") != nil && settings.tls?.certificateFile == nil
        let hint = isCut ? Self.certificateHint : ""
        return MQTTFault(.tls, "TLS with the broker at \(endpoint) failed: \(why)\(hint)")
    }

    static let certificateHint = "; it may want a certificate of ours (mqtt.tls)"

    /// From here on libmosquitto formats no more lines.
    func stopLogging() {
        mosquitto_log_callback_set(pointer, nil)
    }

    /// Source: `mosquitto_strerror`.
    static func words(_ status: Int32) -> String {
        let text = String(cString: mosquitto_strerror(status))
        return text.last == "." ? String(text.dropLast()) : text
    }

    static func systemWords(_ number: Int32) -> String {
        number == 0 ? "unknown reason" : String(cString: strerror(number))
    }
}
