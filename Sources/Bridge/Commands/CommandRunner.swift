internal import Bluetooth
internal import Configuration
internal import EventLoop
internal import JSON

/// What the verbs do.
@EventLoopActor
final class CommandRunner {
    private static let usualTimeout: Duration = .seconds(10)
    private static let pairTimeout: Duration = .seconds(60)

    private let settings: BridgeSettings
    private let radio: any RadioPort
    private let directory: DeviceDirectory
    private let clock: any LoopClock
    private let lanes: DeviceLanes
    /// The scan that a command started and that runs.
    private var commandedScan: String?

    init(settings: BridgeSettings, radio: any RadioPort, directory: DeviceDirectory, clock: any LoopClock) {
        self.settings = settings
        self.radio = radio
        self.directory = directory
        self.clock = clock
        lanes = DeviceLanes(clock: clock)
    }

    /// How long a request may take; nil for one that waits until it succeeds.
    static func timeout(of request: Request) -> Duration? {
        switch request.verb {
        case .scan: usualTimeout  // its 'timeout' is how long the scan runs
        case .connect: request.timeout
        case .pair: request.timeout ?? pairTimeout
        default: request.timeout ?? usualTimeout
        }
    }

    func run(_ request: Request) async throws(CommandError) -> JSONValue {
        let fields = request.fields
        let timeout = Self.timeout(of: request) ?? Self.usualTimeout
        switch request.verb {
        case .scan: return try scan(fields, timeout: request.timeout)
        case .stopScan: return try stopScan(fields)
        case .devices: return try devices(fields)
        case .connect: return try await connect(fields, timeout: request.timeout)
        case .disconnect: return try await disconnect(fields)
        case .services: return try services(fields)
        case .read:
            return try await withCheckedContinuation { continuation in
                read(request) { continuation.resume(returning: $0) }
            }.get()
        case .write: return try await write(fields, timeout: timeout)
        case .subscribe, .unsubscribe:
            let path = try fields.attributePath(withDescriptor: false)
            return try await subscribe(
                try device(fields), path, isOn: request.verb == .subscribe, timeout: timeout)
        case .rssi:
            let address = try device(fields)
            return .object([("rssi", .int(Int64(try await radio.linkRSSI(address))))])
        case .pair:
            let address = try device(fields)
            try await radio.pair(address, timeout: timeout)
            directory.deviceDidChange(address)
            return .object([])
        case .unpair:
            let address = try device(fields)
            try await radio.unpair(address)
            directory.deviceDidChange(address)
            return .object([])
        case .forget: return try await forget(fields)
        case .config: return try config(fields)
        }
    }

    private func device(_ fields: Fields) throws(CommandError) -> BluetoothAddress {
        let address = try directory.resolve(
            fields.required("device", hint: "its address, such as A4:C1:38:5E:07:D3, or its name in the settings"))
        try settings.commands.check(address)
        return address
    }

    // MARK: Scans

    private func scan(_ fields: Fields, timeout: Duration?) throws(CommandError) -> JSONValue {
        var command = ScanCommand()
        command.name = try fields.string("name", hint: "a pattern for the whole name, such as \"ATC_.*\"")
        command.services = try fields.uuids("services")
        command.solicited = try fields.uuids("solicited")
        command.rssi = try fields.integer("rssi", in: -127...20)
        command.timeout = timeout
        command.allowDuplicates = try fields.bool("allow_duplicates") ?? true
        command.adapter = try fields.string("adapter", hint: "its address or name")
        let scan = try radio.startScan(command)
        commandedScan = scan.id
        return .object([("session", .string(scan.id)), ("ends", .optional(scan.ends.map(timestamp)))])
    }

    private func stopScan(_ fields: Fields) throws(CommandError) -> JSONValue {
        let session = try fields.string("session", hint: "the session that 'scan' answered with")
        guard let id = session ?? commandedScan else { return .object([("stopped", .bool(false))]) }
        if let scan = radio.scans.first(where: { $0.id == id }), scan.command.isConfigured {
            throw CommandError(
                .forbidden, "session '\(id)' is the configured scan; it ends with bluetooth.scan.enabled")
        }
        let isStopped = radio.stopScan(id)
        if let session, !isStopped {
            throw CommandError(.badRequest, "'session' is '\(session.prefix(40))', but no such scan runs")
        }
        if id == commandedScan { commandedScan = nil }
        return .object([("stopped", .bool(isStopped))])
    }

    // MARK: Devices

    private func devices(_ fields: Fields) throws(CommandError) -> JSONValue {
        let limit = try fields.integer("limit", in: 1...1000) ?? 100
        let isConnected = try fields.bool("connected")
        let services = try fields.uuids("services")
        let after = try address(fields, "after")
        var wanted: Set<BluetoothAddress>?
        for field in ["ids", "addresses"] {
            guard let texts = try fields.strings(field, hint: "[\"A4:C1:38:5E:07:D3\"]") else { continue }
            var addresses = wanted ?? []
            for text in texts {
                let address = try directory.resolve(text)
                try settings.commands.check(address)
                addresses.insert(address)
            }
            wanted = addresses
        }
        var records: [JSONValue] = []
        var last: BluetoothAddress?
        for address in addresses(wanted, after: after) {
            let report = radio.device(address)
            if let isConnected, (report?.link.state == .connected) != isConnected { continue }
            if !services.isEmpty, !services.contains(where: { report?.services.contains($0) == true }) { continue }
            if records.count == limit {
                return .object([("devices", .array(records)), ("after", .optional(last?.description))])
            }
            records.append(directory.report(address))
            last = address
        }
        return .object([("devices", .array(records)), ("after", .null)])
    }

    /// The devices that may be told of, in order. There may be tens of thousands, so who names a few is not to pay for all.
    private func addresses(_ wanted: Set<BluetoothAddress>?, after: BluetoothAddress?) -> [BluetoothAddress] {
        var found: [BluetoothAddress]
        if let wanted {
            found = wanted.filter { directory.isKnown($0) || radio.device($0) != nil }
        } else {
            found = radio.deviceAddresses
            for address in directory.knownAddresses where radio.device(address) == nil { found.append(address) }
        }
        if let after { found.removeAll { $0 <= after } }
        found.removeAll { !settings.commands.allows($0) }
        found.sort()
        return found
    }

    private func address(_ fields: Fields, _ name: String) throws(CommandError) -> BluetoothAddress? {
        guard let text = try fields.string(name, hint: "the 'after' of the page before") else { return nil }
        guard let address = BluetoothAddress(parsing: text) else {
            throw CommandError(.badRequest, "'\(name)' is no address; give the 'after' of the page before")
        }
        return address
    }

    func forget(_ fields: Fields) async throws(CommandError) -> JSONValue {
        let address = try device(fields)
        directory.forget(address)
        do {
            try await radio.forget(address)
        } catch {
            // Without an object at BlueZ there is nothing more to forget.
            guard error.code == .unknownDevice else { throw error }
        }
        // What came while BlueZ took it away is cleared too.
        directory.forget(address)
        return .object([])
    }

    // MARK: Links

    private func connect(_ fields: Fields, timeout: Duration?) async throws(CommandError) -> JSONValue {
        let address = try device(fields)
        let keep = try fields.bool("keep") ?? false
        let adapter = try fields.string("adapter", hint: "its address or name")
        return try await connect(address, adapter: adapter, timeout: timeout, keep: keep)
    }

    func connect(
        _ address: BluetoothAddress, adapter: String? = nil, timeout: Duration?, keep: Bool
    ) async throws(CommandError) -> JSONValue {
        try directory.noteRequested(address, keep: keep)
        do {
            try await radio.connect(address, adapter: adapter, timeout: timeout, keep: keep)
        } catch {
            directory.noteReleased(address)
            throw error
        }
        return Payloads.connection(radio.device(address)?.link ?? LinkReport(), at: clock.wallNow)
    }

    private func disconnect(_ fields: Fields) async throws(CommandError) -> JSONValue {
        let address = try device(fields)
        return try await disconnect(address, force: try fields.bool("force") ?? false)
    }

    func disconnect(_ address: BluetoothAddress, force: Bool) async throws(CommandError) -> JSONValue {
        radio.cancelConnect(address)
        directory.noteReleased(address)
        let wentDown = try await radio.disconnect(address, force: force)
        return .object([("disconnected", .bool(wentDown))])
    }

    private func services(_ fields: Fields) throws(CommandError) -> JSONValue {
        let address = try device(fields)
        let filter = try fields.uuids("services")
        let services = radio.services(address)
        guard !services.isEmpty || radio.device(address)?.link.state == .connected else {
            throw CommandError(.notConnected, "\(address) is not connected; send 'connect' first")
        }
        return Payloads.services(filter.isEmpty ? services : services.filter { filter.contains($0.uuid) })
    }

    // MARK: Values

    /// `read`, the one verb that is sent often, without a task. `completion` is called once.
    func read(
        _ request: Request, then completion: @escaping @EventLoopActor (Result<JSONValue, CommandError>) -> Void
    ) {
        do throws(CommandError) {
            let fields = request.fields
            let address = try device(fields)
            let path = try fields.attributePath(withDescriptor: true)
            let encoding = try self.encoding(fields)
            let offset = try fields.integer("offset", in: 0...512) ?? 0
            let names = fields["encoding"] != nil
            read(address, path, offset: offset, timeout: Self.timeout(of: request)) { result in
                do throws(CommandError) {
                    completion(.success(try Self.valueData(try result.get(), encoding: encoding, names: names)))
                } catch {
                    completion(.failure(error))
                }
            }
        } catch {
            completion(.failure(error))
        }
    }

    private func read(
        _ address: BluetoothAddress, _ path: AttributePath, offset: Int, timeout: Duration?,
        then completion: @escaping @EventLoopActor (Result<[UInt8], CommandError>) -> Void
    ) {
        lanes.enter(address, timeout: timeout ?? Self.usualTimeout) { [radio, lanes] lane, turn in
            switch turn {
            case .success(let left):
                radio.read(address, path, offset: offset, timeout: left) { result in
                    lanes.leave(lane)
                    completion(result)
                }
            case .failure(let error): completion(.failure(error))
            }
        }
    }

    func read(
        _ address: BluetoothAddress, _ path: AttributePath, offset: Int, timeout: Duration?
    ) async throws(CommandError) -> [UInt8] {
        try await withCheckedContinuation { continuation in
            read(address, path, offset: offset, timeout: timeout) { continuation.resume(returning: $0) }
        }.get()
    }

    private func write(_ fields: Fields, timeout: Duration) async throws(CommandError) -> JSONValue {
        let address = try device(fields)
        let path = try fields.attributePath(withDescriptor: true)
        let encoding = try self.encoding(fields)
        guard let value = fields["value"] else {
            throw CommandError(.badRequest, "'value' is missing; give it in encoding '\(encoding.rawValue)'")
        }
        let bytes = try encoding.bytes(of: value)
        var mode = WriteMode.automatic
        if let name = try fields.string("type", hint: "'request' or 'command'") {
            guard let named = WriteMode(rawValue: name), named != .automatic else {
                throw CommandError(.badRequest, "'type' must be 'request' or 'command'")
            }
            mode = named
        }
        let offset = try fields.integer("offset", in: 0...512) ?? 0
        try await write(address, path, bytes, mode: mode, offset: offset, timeout: timeout)
        return try Self.valueData(bytes, encoding: encoding, names: fields["encoding"] != nil)
    }

    func write(
        _ address: BluetoothAddress, _ path: AttributePath, _ value: [UInt8], mode: WriteMode, offset: Int,
        timeout: Duration?
    ) async throws(CommandError) {
        // An attribute is at most 512 bytes long. Source: Core Specification, Vol 3, Part F, 3.2.9.
        guard value.count + offset <= 512 else {
            throw CommandError(.tooLong, "'value' has \(value.count) bytes; an attribute holds at most 512")
        }
        let radio = radio
        try await lanes.run(address, timeout: timeout ?? Self.usualTimeout) {
            (left: Duration) async throws(CommandError) in
            try await radio.write(address, path, value: value, mode: mode, offset: offset, timeout: left)
        }
    }

    func subscribe(
        _ address: BluetoothAddress, _ path: AttributePath, isOn: Bool, timeout: Duration?
    ) async throws(CommandError) -> JSONValue {
        let radio = radio
        try await lanes.run(address, timeout: timeout ?? Self.usualTimeout) {
            (left: Duration) async throws(CommandError) in
            if isOn {
                try await radio.subscribe(address, path, timeout: left)
            } else {
                try await radio.unsubscribe(address, path)
            }
        }
        return .object([])
    }

    private func encoding(_ fields: Fields) throws(CommandError) -> ValueEncoding {
        guard let name = try fields.string("encoding", hint: "one of \(ValueEncoding.names)") else { return .hex }
        return try ValueEncoding(parsing: name)
    }

    private static func valueData(
        _ bytes: [UInt8], encoding: ValueEncoding, names: Bool
    ) throws(CommandError) -> JSONValue {
        var members: [(String, JSONValue)] = [
            ("value", try encoding.value(of: bytes)), ("length", .int(Int64(bytes.count))),
        ]
        if names { members.append(("encoding", .string(encoding.rawValue))) }
        return .object(members)
    }

    // MARK: Settings

    private func config(_ fields: Fields) throws(CommandError) -> JSONValue {
        guard fields["set"] == nil else {
            throw CommandError(.notSupported, "'set' is not offered yet; change the file and restart blueferry")
        }
        return .object([("settings", settings.dump)])
    }
}
