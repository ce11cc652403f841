public import Bluetooth
public import Central
public import EventLoop

/// What is heard, for a person at a terminal: no broker is needed.
@EventLoopActor
public final class LiveScan {
    /// One line of the table.
    public struct Row: Equatable, Sendable {
        public var address: String
        public var type: String
        public var rssi: Int?
        public var name: String
        public var count: Int
        public var data: String
    }

    /// What to look for.
    public struct Filters: Sendable {
        public var name: String?
        public var services: [BluetoothUUID] = []
        public var rssi: Int?
        public var adapter: String?
        public var timeout: Duration?

        public init() {}
    }

    /// A device was heard for the first time.
    public var onDevice: (@EventLoopActor (Row) -> Void)?
    /// Something is missing, or is there again.
    public var onState: (@EventLoopActor (String) -> Void)?
    /// The time is over.
    public var onEnd: (@EventLoopActor () -> Void)?

    private let central: Central
    private var counts: [BluetoothAddress: Int] = [:]
    private let filters: Filters
    private let watch = StateWatch()
    private var isStopped = false
    /// BlueZ names its adapters a moment after it is asked.
    private let patience: Duration

    /// - Parameter patience: how long an adapter that was asked for is waited for.
    public init(_ filters: Filters, busAddress: String? = nil, patience: Duration = .seconds(5)) {
        self.filters = filters
        self.patience = patience
        var options = CentralOptions()
        options.busAddress = busAddress
        central = Central(options: options)
    }

    /// Returns when the scan runs; with an adapter among the filters that is when BlueZ has it.
    /// - Throws: ``CommandError`` that names the filter that cannot be used; `unknown_adapter` with those that are there.
    public func start() async throws(CommandError) {
        central.addObserver(self)
        central.addObserver(watch)
        central.start()
        let deadline = SystemClock.shared.now + patience
        var request = ScanRequest(kind: .commanded)
        request.name = filters.name
        request.services = filters.services
        request.rssi = filters.rssi
        request.adapter = filters.adapter.map { AdapterSelector(parsing: $0) }
        request.timeout = filters.timeout
        while !isStopped {
            do {
                _ = try central.startScan(request)
                return
            } catch {
                guard error.code == .unknownAdapter, SystemClock.shared.now < deadline else {
                    throw CommandError(error)
                }
            }
            await watch.change(within: .milliseconds(300))
        }
    }

    public func stop() async {
        isStopped = true
        await central.stop()
    }

    /// Every device that was heard, the nearest first.
    public var rows: [Row] {
        let heard = counts.keys.compactMap { central.device($0) }
        return heard.sorted { ($0.rssi ?? -128, $1.address) > ($1.rssi ?? -128, $0.address) }.map(row)
    }

    public var problem: String? {
        if let problem = central.state.problem { return problem }
        let present = central.adapters.filter(\.isPresent)
        if present.isEmpty { return "no Bluetooth adapter was found; plug one in, or load its driver" }
        if !present.contains(where: { $0.state == .poweredOn }) {
            return "the adapter \(present.map(\.systemName).joined(separator: ", ")) is off; 'bluetoothctl power on'"
        }
        return nil
    }

    private func row(_ device: Device) -> Row {
        var data = device.advertisedServices.map(\.topicForm)
        device.forEachServiceData { uuid, bytes in data.append("\(uuid.topicForm)=\(Hex.encode(Array(bytes)))") }
        device.forEachManufacturerData { company, bytes in
            data.append("\(hexText(company))=\(Hex.encode(Array(bytes)))")
        }
        // A terminal obeys control characters; a name is for reading only.
        let name = (device.name ?? "").unicodeScalars.map { $0.properties.generalCategory == .control ? "?" : $0 }
        return Row(
            address: device.address.description, type: device.addressType.rawValue, rssi: device.rssi.map { Int($0) },
            name: String(String.UnicodeScalarView(name)), count: counts[device.address] ?? 0,
            data: data.joined(separator: " "))
    }
}

extension LiveScan: CentralObserver {
    public func central(_ central: Central, didReceive advertisement: borrowing AdvertisementEvent) {
        let device = advertisement.device
        counts[device.address, default: 0] += 1
        if !advertisement.firstFor.isEmpty { onDevice?(row(device)) }
    }

    public func centralDidChange(_ central: Central) { onState?(problem ?? "BlueZ is there") }

    public func central(_ central: Central, scanDidEnd session: ScanSession, reason: ScanEndReason) {
        if reason == .timeout { onEnd?() }
    }
}
