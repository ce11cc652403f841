internal import Bluetooth
internal import EventLoop

/// The air between the controllers and the devices: who advertises when, who hears it, and how much was heard.
@EventLoopActor
final class Air {
    let controllers: [Controller]
    let peripherals: [Peripheral]
    let byID: [String: Peripheral]
    /// Advertisements that were handed to bluetoothd.
    private(set) var advertisementCount = 0
    private(set) var flood: Flood?

    private let heardBy: [[Controller]]
    private var wheel: ScheduleWheel
    private var due: [Int] = []
    private let clock: any LoopClock
    private var start: MonotonicTime
    private var timer: LoopTimer?
    private static let tick = Duration.milliseconds(5)

    init(_ fleet: Fleet, clock: any LoopClock, timing: SimulatorTiming) {
        self.clock = clock
        let controllers = fleet.adapters.map { Controller($0, clock: clock, timing: timing) }
        var peripherals: [Peripheral] = []
        var heardBy: [[Controller]] = []
        var byID: [String: Peripheral] = [:]
        for spec in fleet.devices {
            // A fleet file is checked for this; one made by code may hold a device that nobody could hear.
            guard let content = AdvertisedContent(spec) else { continue }
            let peripheral = Peripheral(
                spec, content: content, index: peripherals.count, seed: fleet.seed, clock: clock)
            peripherals.append(peripheral)
            byID[spec.id] = peripheral
            heardBy.append(controllers.filter { spec.adapters?.contains($0.spec.name) ?? true })
        }
        self.controllers = controllers
        self.peripherals = peripherals
        self.heardBy = heardBy
        self.byID = byID
        wheel = ScheduleWheel(entries: peripherals.count)
        start = clock.now
    }

    /// All devices begin to advertise.
    func begin() {
        start = clock.now
        for peripheral in peripherals { schedule(peripheral, after: peripheral.firstDelay(), from: start) }
        scheduleTick()
    }

    func end() {
        timer?.cancel()
        timer = nil
        flood = nil
    }

    func controller(_ name: String) -> Controller? {
        // The fleet's name first: the kernel may have given it to another one meanwhile.
        controllers.first { $0.spec.name == name } ?? controllers.first { $0.name == name }
            ?? controllers.first { $0.spec.address == BluetoothAddress(parsing: name) }
    }

    // MARK: The clockwork

    private func tick(of time: MonotonicTime) -> UInt64 {
        let since = time > start ? time.nanoseconds - start.nanoseconds : 0
        return since / UInt64(Self.tick.clampedNanoseconds)
    }

    private func schedule(_ peripheral: Peripheral, after delay: Duration, from time: MonotonicTime) {
        wheel.add(peripheral.index, at: tick(of: time + delay) + 1)
    }

    private func scheduleTick() {
        timer = clock.schedule(after: Self.tick) { [weak self] in
            guard let self else { return }
            turn()
            scheduleTick()
        }
    }

    private func turn() {
        let now = clock.now
        due.removeAll(keepingCapacity: true)
        wheel.take(upTo: tick(of: now), into: &due)
        for index in due {
            let peripheral = peripherals[index]
            schedule(peripheral, after: peripheral.nextDelay(), from: now)
            if peripheral.beginAdvertisement() { transmit(peripheral) }
        }
        turnFlood(now)
    }

    private func transmit(_ peripheral: Peripheral) {
        let heard = Heard(
            address: peripheral.address, type: peripheral.spec.addressType,
            isConnectable: peripheral.spec.isConnectable, advertisement: peripheral.content.advertisement,
            structures: peripheral.content.structures, rssi: peripheral.signal())
        for controller in heardBy[peripheral.index] where controller.hear(heard, from: peripheral) {
            advertisementCount += 1
        }
    }

    // MARK: Flood

    /// Advertisements at a rate, from many addresses.
    struct Flood {
        let rate: Double
        let total: Int
        let addresses: Int
        let start: MonotonicTime
        fileprivate(set) var next = 0
        /// Those that were handed to bluetoothd, of all adapters.
        fileprivate(set) var sent = 0
        var isDone: Bool { next >= total }
    }

    /// Begins a flood; one that runs is replaced.
    func beginFlood(rate: Double, seconds: Double, addresses: Int) {
        flood = Flood(rate: rate, total: Int(rate * seconds), addresses: max(1, addresses), start: clock.now)
    }

    private func turnFlood(_ now: MonotonicTime) {
        guard var flood, !flood.isDone else { return }
        let seconds = Double((now - flood.start).clampedNanoseconds) / 1e9
        let due = min(flood.total, Int(seconds * flood.rate) + 1, flood.next + max(64, Int(flood.rate / 50)))
        while flood.next < due {
            let handed = transmitFlood(UInt32(truncatingIfNeeded: flood.next), of: flood.addresses)
            flood.sent += handed
            advertisementCount += handed
            flood.next += 1
        }
        self.flood = flood
    }

    private func transmitFlood(_ number: UInt32, of addresses: Int) -> Int {
        let bytes = (0..<4).map { UInt8(truncatingIfNeeded: number >> (8 * UInt32($0))) }
        var advertisement = Advertisement()
        advertisement.flags = 0x04
        advertisement.manufacturerData = [.init(company: 0xffff, data: bytes)]
        let heard = Heard(
            address: BluetoothAddress(value: 0xe000_0000_0000 + UInt64(number) % UInt64(addresses)), type: .random,
            isConnectable: false, advertisement: advertisement,
            structures: [2, ADType.flags, 0x04, 7, ADType.manufacturerData, 0xff, 0xff] + bytes,
            rssi: -50 - Int8(number % 8))
        var handed = 0
        for controller in controllers where controller.hear(heard, from: nil) { handed += 1 }
        return handed
    }
}
