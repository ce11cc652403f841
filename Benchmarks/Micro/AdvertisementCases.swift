import Bluetooth
import Bridge
import Central
import DBus
import EventLoop
import JSON

/// From a signal of bluetoothd to the broker's port.
@EventLoopActor
enum AdvertisementCases {
    static func run(_ runner: Runner) throws {
        for devices in [200, 10_000] { try wholeWay(runner, devices) }
        try found(runner)
        try refused(runner)
        try renamed(runner)
        try passingBy(runner)
        try payloadAlone(runner)
    }

    private static func wholeWay(_ runner: Runner, _ devices: Int) throws {
        let stand = Stand(devices: devices)
        let signals = (0..<devices).map { Signals.advertisement($0, rssi: Int16(-50 - $0 % 40)) }
        // Once before, so that all of them are old acquaintances.
        for signal in signals { stand.deliver(signal) }
        let before = stand.broker.published
        var count = 0
        runner.measure("advertisement, \(devices) devices") { round in
            stand.tick()
            stand.deliver(signals[round % devices])
            count += 1
        }
        guard stand.broker.published - before >= count else {
            throw BenchFault(description: "advertisements were not published: the case measures nothing")
        }
    }

    /// The first advertisement of a device that BlueZ had already: it is told of too.
    private static func found(_ runner: Runner) throws {
        let count = 10_000
        let stand = Stand(devices: count)
        let signals = (0..<count).map { Signals.advertisement($0, rssi: -70) }
        let before = stand.broker.published
        runner.measure("advertisement, first of a device", rounds: count / 2) { round in
            stand.tick()
            stand.deliver(signals[round])
            stand.broker.acknowledge()
        }
        guard stand.broker.published - before > 900 else {
            throw BenchFault(description: "nothing was told of devices that were found")
        }
    }

    /// Three conditions that no device meets.
    private static func refused(_ runner: Runner) throws {
        let scan = ScanCommand(
            isConfigured: true, name: "thermometer [0-9]+", services: [BluetoothUUID(0x180f)], rssi: -40)
        let stand = Stand(devices: 200, scan: scan)
        let signals = (0..<200).map { Signals.advertisement($0, rssi: -90) }
        for signal in signals { stand.deliver(signal) }
        let before = stand.broker.published
        runner.measure("advertisement that no scan takes") { round in
            stand.tick()
            stand.deliver(signals[round % 200])
        }
        guard stand.broker.published - before < 100 else {
            throw BenchFault(description: "advertisements were published in spite of the scan's conditions")
        }
    }

    /// A name that changes has the filters looked at anew, the pattern among them.
    private static func renamed(_ runner: Runner) throws {
        let stand = Stand(devices: 200, scan: ScanCommand(isConfigured: true, name: "(bench|door|window) [0-9]+"))
        let signals = (0..<400).map { number in
            Signals.changed(
                Signals.path(number % 200),
                [("Name", .string(number < 200 ? "door \(number)" : "bench \(number - 200)")), ("RSSI", .int16(-60))])
        }
        for signal in signals { stand.deliver(signal) }
        stand.broker.acknowledge()
        runner.measure("advertisement with a new name, matched anew") { round in
            stand.tick()
            stand.deliver(signals[round % 400])
            stand.broker.acknowledge()
        }
    }

    /// A private address: it comes, is heard once more, and goes.
    private static func passingBy(_ runner: Runner) throws {
        let stand = Stand(devices: 0)
        let count = 1000
        let signals = (0..<count).map {
            (Signals.deviceAdded($0), Signals.advertisement($0, rssi: -70), Signals.deviceRemoved($0))
        }
        runner.measure("device that comes, is heard, and goes", rounds: 4000) { round in
            let (added, heard, removed) = signals[round % count]
            stand.tick()
            stand.deliver(added)
            stand.deliver(heard)
            stand.deliver(removed)
            stand.broker.acknowledge()
        }
    }

    private static func payloadAlone(_ runner: Runner) throws {
        let stand = Stand(devices: 1)
        stand.deliver(Signals.advertisement(0, rssi: -67))
        guard let device = stand.central.device(Signals.address(0)) else {
            throw BenchFault(description: "the engine does not know the device")
        }
        let buffer = OutputBuffer()
        var payload = AdvertisementPayload()
        var size = 0
        runner.measure("advertisement payload") { _ in
            stand.tick()
            buffer.removeAll()
            payload.write(device: device, at: stand.clock.wallNow, to: buffer)
            size &+= buffer.count
        }
        guard size > 0 else { throw BenchFault(description: "the payload is empty") }
    }
}
