internal import Bluetooth
internal import EventLoop
internal import JSON

/// Commands to the radio. The lab's radio takes the same ones.
@EventLoopActor
final class Control {
    private unowned let simulator: Simulator
    /// A radio sends a handful of packets in each connection event.
    private static let packetsPerEvent = 6
    private static let event = Duration.microseconds(7500)

    init(_ simulator: Simulator) {
        self.simulator = simulator
    }

    private var air: Air { simulator.air }

    /// The answer to a line: `{"ok":…}` or `{"error":"…"}`.
    func answer(_ line: [UInt8]) async -> JSONValue {
        do {
            var limits = JSONLimits()
            limits.size = 1 << 20
            let fields = try JSONValue.parse(line, limits: limits)
            guard case .object = fields else { throw ControlFault("a request is a JSON object") }
            return .object([("ok", try await perform(ControlRequest(fields: fields)))])
        } catch let fault as ControlFault {
            return .object([("error", .string(fault.text))])
        } catch {
            return .object([("error", .string("\(error)"))])
        }
    }

    private func perform(_ request: ControlRequest) async throws -> JSONValue {
        let operation = try request.text("op")
        switch operation {
        case "devices": return devices()
        case "connected": return .array(air.peripherals.filter { $0.link != nil }.map { .string($0.spec.id) })
        case "sent": return sent()
        case "log": return log(try peripheral(request))
        case "values": return try values(request)
        case "notify": return try await send(request, isIndication: false)
        case "indicate": return try await send(request, isIndication: true)
        case "daemon_start": try await simulator.startDaemon()
        case "daemon_stop": await simulator.stopDaemon()
        default:
            guard try performAtOnce(operation, request) else { throw ControlFault("unknown op '\(operation)'") }
        }
        return .bool(true)
    }

    private func performAtOnce(_ operation: String, _ request: ControlRequest) throws(ControlFault) -> Bool {
        switch operation {
        case "advertise": try peripheral(request).isAdvertising = try request.flag("on")
        case "set": try change(request)
        case "disconnect": try drop(request)
        case "flood": try flood(request)
        case "hang": try hang(request)
        case "att_error":
            try characteristic(request).attError = UInt8(clamping: try request.integer("code", in: 0...255))
        case "drop_on_connect": try peripheral(request).dropNext = try request.integer("times", in: 0...1_000_000)
        case "services_changed": servicesChanged(try peripheral(request))
        case "power": try adapter(request).setPowered(try request.flag("on"))
        case "adapter_remove": simulator.unplug(try controller(request))
        case "adapter_add":
            try simulator.plug(try controller(request), as: request.has("name") ? request.text("name") : nil)
        case "silence": try silence(request)
        case "daemon_kill": simulator.killDaemon()
        case "daemon_freeze": simulator.daemon?.freeze()
        case "daemon_thaw": simulator.daemon?.thaw()
        case "duplicate_signals": simulator.repeatSignals(try request.flag("on"))
        case "late_signals": simulator.delaySignals(.milliseconds(Int64(try request.integer("ms", in: 0...60_000))))
        case "error", "delay", "hang_call": try addFault(operation, request)
        default: return false
        }
        return true
    }

    // MARK: What a request is about

    private func peripheral(_ request: ControlRequest) throws(ControlFault) -> Peripheral {
        let id = try request.text("device")
        guard let peripheral = air.byID[id] else { throw ControlFault("there is no device '\(id)' in the fleet") }
        return peripheral
    }

    private func controller(_ request: ControlRequest) throws(ControlFault) -> Controller {
        let name = try request.text("adapter")
        guard let controller = air.controller(name) else {
            let known = air.controllers.map(\.name).joined(separator: ", ")
            throw ControlFault("there is no adapter '\(name)'; there is \(known)")
        }
        return controller
    }

    private func adapter(_ request: ControlRequest) throws(ControlFault) -> AdapterObject {
        let controller = try controller(request)
        guard let adapter = simulator.daemon?.adapter(of: controller) else {
            throw ControlFault("the adapter \(controller.name) is not plugged, or bluetoothd does not run")
        }
        return adapter
    }

    /// `svc/chr`, with `#n` for the n-th of twins.
    private func characteristic(_ request: ControlRequest) throws(ControlFault) -> PeerCharacteristic {
        let database = try peripheral(request).database
        let text = try request.text("characteristic")
        let parts = text.split(separator: "#", maxSplits: 1, omittingEmptySubsequences: false)
        let uuids = parts[0].split(separator: "/", omittingEmptySubsequences: false).map { BluetoothUUID(parsing: $0) }
        let twin = parts.count == 2 ? Int(parts[1]) : 0
        guard uuids.count == 2, let service = uuids[0], let uuid = uuids[1], let twin, twin >= 0 else {
            throw ControlFault("characteristic '\(text)' is not service/characteristic, with #n for one of twins")
        }
        let found = database.characteristics(service: service, characteristic: uuid)
        if parts.count == 1, found.count > 1 {
            throw ControlFault("\(text) is ambiguous: there are \(found.count), say \(text)#0 and so on")
        }
        guard twin < found.count else { throw ControlFault("there is no characteristic \(text)") }
        return found[twin]
    }

    // MARK: Devices

    private func devices() -> JSONValue {
        .array(
            air.peripherals.map { peripheral in
                .object([
                    ("id", .string(peripheral.spec.id)), ("address", .string(peripheral.address.description)),
                    ("name", peripheral.content.advertisement.name.map { .string($0) } ?? .null),
                    ("connected", .bool(peripheral.link != nil)), ("advertising", .bool(peripheral.isAdvertising)),
                ])
            })
    }

    private func log(_ peripheral: Peripheral) -> JSONValue {
        .array(
            peripheral.log.map { event in
                let time = Double(event.time.milliseconds) / 1000
                return .object(
                    [("time", .double(time)), ("at", Self.milliseconds(event.at)), ("event", .string(event.name))]
                        + event.details)
            })
    }

    /// The numbered values that a characteristic has sent: number, and the monotonic clock's milliseconds.
    private func values(_ request: ControlRequest) throws(ControlFault) -> JSONValue {
        let characteristic = try characteristic(request)
        let since = try request.integer("since", in: 0...Int(UInt32.max), default: 0)
        return .array(
            characteristic.sentValues.filter { $0.number >= since }.map {
                .array([.int(Int64($0.number)), Self.milliseconds($0.time)])
            })
    }

    private static func milliseconds(_ time: MonotonicTime) -> JSONValue { .double(Double(time.nanoseconds) / 1e6) }

    private func change(_ request: ControlRequest) throws(ControlFault) {
        let peripheral = try peripheral(request)
        let rssi = try request.integer("rssi", in: -127...20, default: peripheral.rssi)
        var manufacturer: [Advertisement.ManufacturerData]?
        if let given = try request.bytesByKey("manufacturer_data") {
            manufacturer = []
            for (key, data) in given {
                guard let company = UInt16(key, radix: 16) else {
                    throw ControlFault("'\(key)' is no company identifier")
                }
                manufacturer?.append(.init(company: company, data: data))
            }
        }
        var service: [Advertisement.ServiceData]?
        if let given = try request.bytesByKey("service_data") {
            service = []
            for (key, data) in given {
                guard let uuid = BluetoothUUID(parsing: key) else { throw ControlFault("'\(key)' is no UUID") }
                service?.append(.init(uuid: uuid, data: data))
            }
        }
        let name = request.fields["name"] == .null ? nil : request.has("name") ? try request.text("name") : nil
        let fits = peripheral.advertise { advertisement in
            if let manufacturer { advertisement.manufacturerData = manufacturer }
            if let service { advertisement.serviceData = service }
            if request.has("name") { advertisement.name = name }
        }
        guard fits else { throw ControlFault("what it advertises does not fit in 31 bytes and a scan response of 31") }
        peripheral.rssi = rssi
    }

    private func drop(_ request: ControlRequest) throws(ControlFault) {
        let peripheral = try peripheral(request)
        guard let link = peripheral.link else { throw ControlFault("\(peripheral.spec.id) is not connected") }
        link.drop()
    }

    private func hang(_ request: ControlRequest) throws(ControlFault) {
        let answers = !(try request.flag("on"))
        if request.has("characteristic") {
            try characteristic(request).answers = answers
        } else {
            try peripheral(request).database.answers = answers
        }
    }

    private func servicesChanged(_ peripheral: Peripheral) {
        _ = peripheral.database.change()
        if let link = peripheral.link { simulator.daemon?.servicesChanged(link) }
    }

    // MARK: Values

    /// Sends counted values; answers when all are sent.
    private func send(_ request: ControlRequest, isIndication: Bool) async throws -> JSONValue {
        let peripheral = try peripheral(request)
        let characteristic = try characteristic(request)
        let count = try request.integer("count", in: 1...10_000_000, default: 1)
        let gap = Duration.microseconds(Int64(try request.number("gap", in: 0...86_400_000, default: 0) * 1000))
        let size = try request.integer("size", in: 4...512, default: 4)
        let given = try request.bytes("value")
        let first = characteristic.nextSequence
        for number in 0..<count {
            guard peripheral.link != nil else {
                throw ControlFault("\(peripheral.spec.id) is not connected; \(number) of \(count) were sent")
            }
            guard characteristic.configuration & (isIndication ? 2 : 1) != 0 else {
                throw ControlFault("nobody has subscribed to \(characteristic.name)")
            }
            if let given {
                peripheral.send(given, of: characteristic)
            } else {
                peripheral.sendCounted(characteristic, size: size)
            }
            if number + 1 < count || isIndication { try await pace(number, gap, isIndication: isIndication) }
        }
        let isCounted = given == nil
        return .object([
            ("sent", .int(Int64(count))), ("first", isCounted ? .int(Int64(first)) : .null),
            ("last", isCounted ? .int(Int64(characteristic.nextSequence) - 1) : .null),
        ])
    }

    /// Waits as long as the gap says, or without one as a radio's connection events would.
    private func pace(_ number: Int, _ gap: Duration, isIndication: Bool) async throws {
        if isIndication { try await simulator.clock.sleep(for: simulator.timing.exchange) }
        if gap > .zero {
            try await simulator.clock.sleep(for: gap)
        } else if !isIndication, number % Self.packetsPerEvent == Self.packetsPerEvent - 1 {
            try await simulator.clock.sleep(for: Self.event)
        }
    }

    // MARK: The air, and what goes wrong

    private func flood(_ request: ControlRequest) throws(ControlFault) {
        let rate = try request.number("rate", in: 0.01...100_000)
        let seconds = try request.number("seconds", in: 0.01...86_400)
        air.beginFlood(
            rate: rate, seconds: seconds, addresses: try request.integer("addresses", in: 1...1_000_000, default: 1))
    }

    /// The adapter scans on and reports nothing.
    private func silence(_ request: ControlRequest) throws(ControlFault) {
        let controller = try controller(request)
        guard request.has("cure") else {
            controller.silence = try request.flag("on") ? Controller.Silence.none : nil
            return
        }
        let cure = try request.text("cure")
        guard let silence = Controller.Silence(rawValue: cure) else {
            throw ControlFault("cure is 'restart', 'power' or 'none', not '\(cure)'")
        }
        controller.silence = silence
    }

    private func sent() -> JSONValue {
        var notifications: [(String, JSONValue)] = []
        for peripheral in air.peripherals where peripheral.hasDatabase {
            for characteristic in peripheral.database.characteristics where characteristic.notifications > 0 {
                notifications.append(
                    ("\(peripheral.spec.id) \(characteristic.name)", .int(Int64(characteristic.notifications))))
            }
        }
        return .object([
            ("advertisements", .int(Int64(air.advertisementCount))), ("flood", .int(Int64(air.flood?.sent ?? 0))),
            ("flood_done", .bool(air.flood?.isDone ?? true)), ("notifications", .object(notifications)),
            ("signals", .int(Int64(simulator.signalCount))),
        ])
    }

    private func addFault(_ operation: String, _ request: ControlRequest) throws(ControlFault) {
        let method = try request.text("method")
        let times = try request.integer("times", in: 1...1_000_000, default: 1)
        let node = request.has("device") ? "dev_\(try peripheral(request).address.pathForm)" : nil
        let kind: Faults.Kind
        switch operation {
        case "error":
            let message = request.has("message") ? try request.text("message") : ""
            kind = .error(name: try request.text("name"), message: message)
        case "delay": kind = .delay(.milliseconds(Int64(try request.integer("ms", in: 0...600_000))))
        default: kind = .hang
        }
        simulator.faults.add(method, kind, times: times, node: node)
    }
}
