internal import Bluetooth
internal import EventLoop
internal import JSON

/// The devices: who is known, what is published of each, and who is reachable.
@EventLoopActor
final class DeviceDirectory {
    /// Unknown devices that are followed at once; beyond, an advertisement is published and nothing is kept.
    static let unknownLimit = 20_000
    /// Devices that are known since a command connected them.
    static let requestedLimit = 1000
    /// `devices/<dev>` is published at most so often for RSSI and time alone.
    private static let reportInterval: Duration = .seconds(60)
    /// BlueZ removes a device about 30 s after it was heard: such a removal says nothing that silence does not.
    private static let expiryAge: Duration = .seconds(25)
    private static let forgottenAfter: Duration = .seconds(600)

    let settings: BridgeSettings
    let space: TopicSpace
    private let radio: any RadioPort
    private let publisher: Publisher
    private let clock: any LoopClock
    private let started: MonotonicTime

    @exclusivity(unchecked) private var records: [BluetoothAddress: DeviceRecord] = [:]
    /// The known ones again: those that are swept.
    @exclusivity(unchecked) private var known: [BluetoothAddress: DeviceRecord] = [:]
    private var addressesByName: [String: BluetoothAddress] = [:]
    /// Of known devices, and of others.
    private let publishesKnown: Bool
    private let publishesUnknown: Bool
    private let buffer = OutputBuffer()
    @exclusivity(unchecked) private var payload = AdvertisementPayload()
    private var template: DeviceTopicTemplate
    /// `discovery/event`, closed by a NUL.
    private let foundTopic: [UInt8]
    /// Numbers of the scans that run, by kind; 0 for none.
    @exclusivity(unchecked) private var configuredScan: (number: UInt32, id: String) = (0, "")
    @exclusivity(unchecked) private var commandedScan: (number: UInt32, id: String) = (0, "")
    private var scanNumber: UInt32 = 0

    init(
        settings: BridgeSettings, space: TopicSpace, radio: any RadioPort, publisher: Publisher, clock: any LoopClock
    ) {
        self.settings = settings
        self.space = space
        self.radio = radio
        self.publisher = publisher
        self.clock = clock
        started = clock.now
        publishesKnown = settings.publishesAdvertisements
        publishesUnknown = settings.publishesAdvertisements && settings.publishesUnknownDevices
        template = DeviceTopicTemplate(space, suffix: "/advertisement")
        foundTopic = Array(space.discoveryEvent.utf8) + [0]
        for device in settings.devices {
            if let name = device.name { addressesByName[name] = device.address }
            let record = DeviceRecord(address: device.address, configured: device)
            records[device.address] = record
            known[device.address] = record
        }
    }

    var knownCount: Int { known.count }
    var followedCount: Int { records.count }
    var knownAddresses: [BluetoothAddress] { Array(known.keys) }
    func isKnown(_ address: BluetoothAddress) -> Bool { known[address] != nil }

    /// The device that a person means: an address in any form, or a name of the settings.
    func resolve(_ text: String) throws(CommandError) -> BluetoothAddress {
        if let address = addressesByName[text] { return address }
        if let address = BluetoothAddress(parsing: text) { return address }
        throw CommandError(
            .unknownDevice,
            "'\(text.prefix(64))' is no address, and no device of the settings has this name;"
                + " give an address such as A4:C1:38:5E:07:D3")
    }

    // MARK: Hot path

    /// An advertisement. In the steady state nothing is allocated between here and the broker's socket.
    /// - Parameter first: the scans that hear this device for the first time.
    func heard(_ source: some AdvertisementSource, hits: ScanHits, first: ScanHits, at time: HeardTime) {
        let record = record(hearing: source)
        if let record {
            record.note(rssi: source.rssi, at: time.monotonic, wall: time.wall)
            if record.isAvailable != true, record.isKnown { update(record) }
            if !first.isEmpty { announce(record, source, hits: first) }
        }
        let isKnown = record?.isKnown == true
        guard isKnown ? publishesKnown : publishesUnknown, publisher.takesAdvertisement(ofKnown: isKnown)
        else { return }
        publish(source, at: time.wall, isKnown: isKnown)
    }

    private func record(hearing source: some AdvertisementSource) -> DeviceRecord? {
        if let note = source.note {
            // Nobody else writes there.
            let record = unsafeDowncast(note, to: DeviceRecord.self)
            if !record.isForgotten, record.lastHeard != nil { return record }
        }
        let address = source.address
        let record: DeviceRecord
        if let found = records[address] {
            record = found
            if record.lastHeard == nil { record.note(type: source.addressType) }
        } else {
            guard records.count - known.count < Self.unknownLimit else { return nil }
            record = DeviceRecord(address: address, configured: nil)
            record.note(type: source.addressType)
            records[address] = record
        }
        source.note = record
        return record
    }

    /// Nothing is kept of the device any more.
    private func drop(_ address: BluetoothAddress) {
        // The radio may still have it at hand.
        records.removeValue(forKey: address)?.isForgotten = true
    }

    private func publish(_ source: some AdvertisementSource, at wall: WallTime, isKnown: Bool) {
        buffer.removeAll()
        payload.write(source, at: wall, to: buffer)
        let address = source.address
        template.withTopic(of: address) { topic in
            buffer.withUnsafeBytes { bytes in
                publisher.advertisement(topic: topic, payload: bytes, of: address, isKnown: isKnown)
            }
        }
    }

    // MARK: Scans

    func scanDidStart(_ scan: ScanReport) {
        scanNumber &+= 1
        if scan.command.isConfigured {
            configuredScan = (scanNumber, scan.id)
        } else {
            commandedScan = (scanNumber, scan.id)
        }
    }

    /// Tells of a device that a scan found, once for each scan.
    private func announce(_ record: DeviceRecord, _ source: some AdvertisementSource, hits: ScanHits) {
        if hits.contains(.configured), record.configuredScan != configuredScan.number, !configuredScan.id.isEmpty {
            record.configuredScan = configuredScan.number
            announce(record, source, session: configuredScan.id, isConfigured: true)
        }
        if hits.contains(.commanded), record.commandedScan != commandedScan.number, !commandedScan.id.isEmpty {
            record.commandedScan = commandedScan.number
            announce(record, source, session: commandedScan.id, isConfigured: false)
        }
    }

    private func announce(
        _ record: DeviceRecord, _ source: some AdvertisementSource, session: String, isConfigured: Bool
    ) {
        // Without a broker strangers, who come and go, would fill the outbox in place of values.
        guard publisher.isConnected || record.isKnown else { return publisher.noteDroppedDiscovery() }
        buffer.removeAll()
        payload.writeFound(source, session: session, isConfigured: isConfigured, at: clock.wallNow, to: buffer)
        publisher.sendInGroup(OutboxMessage(topicBytes: foundTopic, payload: buffer.withUnsafeBytes { Array($0) }))
    }

    // MARK: Changes

    func deviceDidChange(_ address: BluetoothAddress) {
        // Of thousands of strangers nothing is kept before they are heard, and no report is made.
        guard let record = records[address] ?? (radio.isBonded(address) ? makeRecord(address) : nil),
            let report = radio.device(address)
        else { return }
        record.note(type: report.addressType)
        record.isBonded = report.isBonded
        record.isConnected = report.link.state == .connected
        refreshKnown(record)
        update(record)
    }

    func deviceDidDisappear(_ address: BluetoothAddress) {
        guard let record = records[address] else { return }
        record.isConnected = false
        guard record.isKnown else { return drop(address) }
        if let lastHeard = record.lastHeard, clock.now - lastHeard < Self.expiryAge { record.absence = .removed }
        update(record)
    }

    func linkDidChange(_ address: BluetoothAddress) {
        guard let record = records[address] else { return }
        let report = radio.device(address)
        if let report { record.note(type: report.addressType) }
        let link = report?.link ?? LinkReport()
        let wasConnected = record.isConnected
        record.isConnected = link.state == .connected
        guard record.isKnown else { return }
        if wasConnected, !record.isConnected { record.noteLinkEnd(at: clock.now) }
        publish(Payloads.connection(link, at: clock.wallNow), to: space.connection(address), of: record)
        update(record)
    }

    func servicesDidChange(_ address: BluetoothAddress) {
        guard let record = records[address], record.isKnown else { return }
        let services = radio.services(address)
        guard !services.isEmpty else { return }
        publish(Payloads.services(services), to: space.services(address), of: record)
    }

    /// A command asked for a connection: from now on the device is known.
    func noteRequested(_ address: BluetoothAddress, keep: Bool) throws(CommandError) {
        let record = records[address] ?? makeRecord(address)
        if !record.isKnown {
            let requested = known.values.count(where: { $0.isRequested })
            guard requested < Self.requestedLimit else {
                throw CommandError(
                    .busy, "\(requested) devices were connected by command; 'forget' some of them first")
            }
        }
        if let report = radio.device(address) { record.note(type: report.addressType) }
        record.isRequested = true
        if keep { record.isWantedByCommand = true }
        refreshKnown(record)
        update(record)
    }

    func noteReleased(_ address: BluetoothAddress) {
        guard let record = records[address] else { return }
        record.isWantedByCommand = false
        update(record)
    }

    /// Clears every retained topic of the device and starts anew.
    func forget(_ address: BluetoothAddress) {
        let configured = records[address]?.configured
        drop(address)
        known[address] = nil
        publisher.forgetAdvertisement(of: address)
        let device = space.device(address)
        for topic in [
            device, space.availability(address), device + "/state", space.connection(address), space.services(address),
        ] {
            publisher.clear(topic)
        }
        if let configured {
            let record = DeviceRecord(address: address, configured: configured)
            records[address] = record
            known[address] = record
        }
    }

    private func makeRecord(_ address: BluetoothAddress) -> DeviceRecord {
        let record = DeviceRecord(address: address, configured: nil)
        records[address] = record
        return record
    }

    private func refreshKnown(_ record: DeviceRecord) {
        known[record.address] = record.isKnown ? record : nil
    }

    // MARK: Publishing

    /// Publishes what changed of a known device: its availability, and its report where more than RSSI and time did.
    private func update(_ record: DeviceRecord) {
        guard record.isKnown else { return }
        let availability = record.availability(at: clock.now, since: started)
        let isAvailable: Bool? =
            switch availability {
            case .online: true
            case .offline: false
            case .undecided: nil
            }
        if let isAvailable, isAvailable != record.isAvailable {
            record.isAvailable = isAvailable
            let word = isAvailable ? "online" : "offline"
            publish(Array(word.utf8), to: space.availability(record.address), of: record)
        }
        var report = known(record)
        report.rssi = nil
        report.lastSeen = nil
        let major = DeviceRecord.MajorFields(
            report: report, availability: availability, why: why(record, availability))
        if record.lastMajor != major {
            record.lastMajor = major
            publishReport(record)
        }
    }

    /// Why the device cannot be reached, in one sentence; nil where it can, and where that is not known yet.
    private func why(_ record: DeviceRecord, _ availability: DeviceRecord.Availability) -> String? {
        guard case .offline(let absence) = availability else { return nil }
        switch radio.obstacle(to: record.address) {
        case .radio(let sentence): return sentence
        case .link(let sentence) where record.isWanted: return sentence
        case .unheard where absence == .notConnected:
            return record.text(record.lastHeard == nil ? .neverHeard : .silent)
        default: return record.text(absence)
        }
    }

    private func publishReport(_ record: DeviceRecord) {
        record.lastReport = clock.now
        record.hasMinorChange = false
        publish(self.report(record.address), to: space.device(record.address), of: record)
    }

    /// What is known of a device, also while BlueZ does not show it.
    private func known(_ record: DeviceRecord) -> DeviceReport {
        let now = radio.device(record.address)
        guard var report = record.lastMajor?.report else {
            return now ?? DeviceReport(address: record.address, addressType: nil)
        }
        guard let now else {
            report.link = LinkReport()
            return report
        }
        var merged = now
        merged.name = now.name ?? report.name
        merged.addressType = now.addressType ?? report.addressType
        merged.adapter = now.adapter ?? report.adapter
        if now.services.isEmpty { merged.services = report.services }
        return merged
    }

    /// The payload of `devices/<dev>`, and a record of the `devices` command.
    func report(_ address: BluetoothAddress) -> JSONValue {
        let record = records[address]
        let device = record.map(known) ?? radio.device(address)
        let availability = record?.availability(at: clock.now, since: started) ?? .undecided
        var reason: String?
        if case .offline(let absence) = availability { reason = record?.text(absence) }
        let link = device?.link ?? LinkReport()
        let lastSeen = record?.lastHeardWall ?? device?.lastSeen
        return .object([
            ("time", .string(timestamp(clock.wallNow))),
            ("name", .optional(record?.configured?.name ?? device?.name)),
            ("local_name", .optional(device?.name)),
            ("address", .string(address.description)),
            ("address_type", .optional(device?.addressType?.rawValue)),
            ("adapter", .optional(device?.adapter?.description)),
            ("rssi", .optional(record?.rssi)),
            ("last_seen", .optional(lastSeen.map(timestamp))),
            ("services", .array((device?.services ?? []).map { .string($0.topicForm) })),
            ("state", .string(link.state.rawValue)),
            ("available", availability == .undecided ? .null : .bool(availability == .online)),
            ("why", .optional(record.flatMap { why($0, availability) })),
            ("reason", .optional(reason ?? (link.state == .connected ? nil : link.reason))),
            ("bonded", .bool(device?.isBonded ?? record?.isBonded ?? false)),
            ("known", .bool(record?.isKnown ?? false)),
        ])
    }

    private func publish(_ payload: JSONValue, to topic: String, of record: DeviceRecord) {
        publish(payload.serialised(), to: topic, of: record)
    }

    private func publish(_ payload: [UInt8], to topic: String, of record: DeviceRecord) {
        if record.mayRetain {
            publisher.set(topic, payload)
        } else {
            publisher.send(OutboxMessage(topic: topic, payload: payload))
        }
    }

    // MARK: Time

    /// Every few seconds: who became unreachable, and whose RSSI and time are due.
    func sweep() {
        let now = clock.now
        for record in known.values {
            let isDue = record.lastReport.map { now - $0 >= Self.reportInterval } ?? true
            let availability = record.availability(at: now, since: started)
            if availability != record.lastMajor?.availability || why(record, availability) != record.lastMajor?.why {
                update(record)
            }
            if isDue, record.hasMinorChange { publishReport(record) }
        }
    }

    /// The bus, bluetoothd or an adapter came or went: whose state depends on it tells so.
    func radioDidChange() { sweep() }

    /// Each minute: unknown devices that BlueZ did not take away, and that were not heard for long.
    func forgetSilent() {
        let now = clock.now
        let silent = records.values.filter { record in
            guard !record.isKnown else { return false }
            guard let lastHeard = record.lastHeard else { return true }
            return now - lastHeard > Self.forgottenAfter
        }
        for record in silent { drop(record.address) }
    }

    /// At the start: every known device, as it is.
    func publishAll() {
        for record in known.values { update(record) }
    }
}
