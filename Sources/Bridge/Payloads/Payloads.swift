internal import Bluetooth
internal import EventLoop
internal import JSON

/// The rare payloads: each key of the contract, in the order that docs/topics.md shows.
enum Payloads {
    static func connection(_ link: LinkReport, at time: WallTime) -> JSONValue {
        .object([
            ("time", .string(timestamp(time))),
            ("state", .string(link.state.rawValue)),
            ("adapter", .optional(link.adapter?.description)),
            ("mtu", .optional(link.mtu)),
            ("since", .optional(link.since.map(timestamp))),
            ("attempts", .int(Int64(link.attempts))),
            ("reason", .optional(link.reason)),
        ])
    }

    static func adapter(_ adapter: AdapterReport, at time: WallTime) -> JSONValue {
        .object([
            ("time", .string(timestamp(time))),
            ("name", .string(adapter.name)),
            ("system_name", .string(adapter.systemName)),
            ("address", .string(adapter.address.description)),
            ("state", .string(adapter.state.rawValue)),
            ("discovering", .bool(adapter.isDiscovering)),
            ("method", .string(adapter.method)),
            ("monitor", .bool(adapter.method == "monitor")),
            ("connections", .int(Int64(adapter.connections))),
        ])
    }

    static func services(_ services: [ServiceReport]) -> JSONValue {
        .object([("services", .array(services.map(service)))])
    }

    private static func service(_ service: ServiceReport) -> JSONValue {
        .object([
            ("uuid", .string(service.uuid.topicForm)),
            ("handle", .string(hexText(service.handle))),
            ("key", .string(service.key)),
            ("primary", .bool(service.isPrimary)),
            ("includes", .array(service.includes.map { .string(hexText($0)) })),
            ("characteristics", .array(service.characteristics.map(characteristic))),
        ])
    }

    private static func characteristic(_ characteristic: ServiceReport.Characteristic) -> JSONValue {
        .object([
            ("uuid", .string(characteristic.uuid.topicForm)),
            ("handle", .string(hexText(characteristic.handle))),
            ("key", .string(characteristic.key)),
            ("properties", .array(characteristic.properties.map { .string($0) })),
            (
                "descriptors",
                .array(
                    characteristic.descriptors.map { descriptor in
                        .object([
                            ("uuid", .string(descriptor.uuid.topicForm)),
                            ("handle", .string(hexText(descriptor.handle))),
                        ])
                    })
            ),
        ])
    }

    static func scan(_ scan: ScanReport) -> JSONValue {
        let command = scan.command
        return .object([
            ("session", .string(scan.id)),
            ("kind", .string(command.isConfigured ? "configured" : "commanded")),
            (
                "filters",
                .object([
                    ("name", .optional(command.name)),
                    ("services", .array(command.services.map { .string($0.topicForm) })),
                    ("solicited", .array(command.solicited.map { .string($0.topicForm) })),
                    ("rssi", .optional(command.rssi)),
                    ("allow_duplicates", .bool(command.allowDuplicates)),
                    ("adapter", .optional(command.adapter)),
                ])
            ),
            ("started", .string(timestamp(scan.started))),
            ("ends", .optional(scan.ends.map(timestamp))),
        ])
    }

    static func discovery(_ scans: [ScanReport], at time: WallTime) -> JSONValue {
        .object([
            ("time", .string(timestamp(time))),
            ("scanning", .bool(!scans.isEmpty)),
            ("scans", .array(scans.map(scan))),
        ])
    }

    static func discoveryEvent(
        _ event: String, session: String, isConfigured: Bool, at time: WallTime, reason: String? = nil
    ) -> JSONValue {
        var members: [(String, JSONValue)] = [
            ("time", .string(timestamp(time))),
            ("event", .string(event)),
            ("session", .string(session)),
            ("kind", .string(isConfigured ? "configured" : "commanded")),
        ]
        if event == "stopped" { members.append(("reason", .optional(reason))) }
        return .object(members)
    }

    static func event(
        level: String, code: String, message: String, device: BluetoothAddress?, at time: WallTime
    ) -> JSONValue {
        .object([
            ("time", .string(timestamp(time))),
            ("level", .string(level)),
            ("code", .string(code)),
            ("message", .string(message)),
            ("device", .optional(device?.description)),
        ])
    }

    /// The answer to a request as the only text of a buffer.
    static func answer(
        id: JSONValue, _ result: Result<JSONValue, CommandError>, in buffer: OutputBuffer = OutputBuffer()
    ) -> [UInt8] {
        buffer.removeAll()
        buffer.append("{\"id\":")
        buffer.append(id)
        switch result {
        case .success(let data):
            buffer.append(",\"status\":\"ok\",\"data\":")
            buffer.append(data)
        case .failure(let error):
            var members: [(String, JSONValue)] = [
                ("code", .string(error.code.rawValue)), ("message", .string(error.message)),
            ]
            if let att = error.att { members.append(("att", .int(Int64(att)))) }
            if let bluez = error.bluez { members.append(("bluez", .string(bluez))) }
            buffer.append(",\"status\":\"error\",\"error\":")
            buffer.append(.object(members))
        }
        buffer.append(UInt8(ascii: "}"))
        return buffer.bytes
    }
}

extension JSONValue {
    static func optional(_ text: String?) -> JSONValue { text.map { .string($0) } ?? .null }
    static func optional(_ number: Int?) -> JSONValue { number.map { .int(Int64($0)) } ?? .null }
}
