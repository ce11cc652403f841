import Bluetooth
import DBus
import EventLoop
import Glibc
import XCTest

@testable import BlueZ

/// Whatever org.bluez does, and whenever the reply to GetManagedObjects comes: the mirror says what it would say now.
final class SignalOrderTests: XCTestCase {
    override class func setUp() { EventLoop.shared.startThread() }

    /// Keeps what a listener believes to be there, by nothing but what it is told.
    @EventLoopActor
    private final class Believer: BlueZDelegate {
        var present: Set<ObjectIdentifier> = []
        var faults: [String] = []

        private func appear(_ object: RemoteObject) {
            if !present.insert(ObjectIdentifier(object)).inserted { faults.append("\(object.path) appeared twice") }
        }
        private func disappear(_ object: RemoteObject) {
            if present.remove(ObjectIdentifier(object)) == nil { faults.append("\(object.path) went twice") }
        }
        private func change(_ object: RemoteObject) {
            if !present.contains(ObjectIdentifier(object)) { faults.append("\(object.path) changed while away") }
        }

        func blueZ(didChange state: BlueZState) {}
        func blueZ(adapterDidAppear adapter: RemoteAdapter) { appear(adapter) }
        func blueZ(adapterDidChange adapter: RemoteAdapter) { change(adapter) }
        func blueZ(adapterDidDisappear adapter: RemoteAdapter) { disappear(adapter) }
        func blueZ(deviceDidAppear device: RemoteDevice, isHeard: Bool) { appear(device) }
        func blueZ(device: RemoteDevice, didChange fields: DeviceFields) { change(device) }
        func blueZ(deviceDidDisappear device: RemoteDevice) { disappear(device) }
        func blueZ(treeDidChange device: RemoteDevice) { change(device) }
    }

    @EventLoopActor
    func testTheMirrorSaysWhatGetManagedObjectsWouldSay() async throws {
        let given = getenv("BLUEFERRY_SEED").flatMap { UInt64(String(cString: $0)) }
        let first = given ?? UInt64.random(in: 0...(1 << 48))
        let count: UInt64 = given == nil ? 60 : 1
        print("seeds \(first) to \(first + count - 1); BLUEFERRY_SEED repeats one of them")
        for seed in first..<first + count {
            guard run(seed: seed) else { return }
        }
    }

    /// The client's life with a daemon, and with its successors: false after a fault.
    @EventLoopActor
    private func run(seed: UInt64) -> Bool {
        var model = BlueZModel(seed: seed)
        let mirror = Mirror()
        let believer = Believer()
        mirror.delegate = believer
        for _ in 0..<3 {
            // Before anybody listens, then between subscribing and the reply, then after it.
            for _ in 0..<20 { model.step() }
            _ = model.takeSignals()
            for _ in 0..<20 {
                model.step()
                for signal in model.takeSignals() { mirror.take(signal) }
            }
            let reply = model.managedObjects()
            // What was told before the reply was made comes before it.
            for signal in model.takeSignals() { mirror.take(signal) }
            mirror.load(reply)
            for turn in 0..<120 {
                model.step()
                if turn % 40 == 39 { model.flush() }
                for signal in model.takeSignals() { mirror.take(signal) }
                // Some clients ask again; that must change nothing.
                if turn % 40 == 20, model.chance(30) { mirror.load(model.managedObjects()) }
                guard turn % 40 == 39 else { continue }
                let truth = Mirror()
                truth.load(model.managedObjects())
                guard check(mirror, truth, believer, seed) else { return false }
            }
            // NameOwnerChanged: another daemon, whose objects are others.
            mirror.clear()
            model.end()
            XCTAssertEqual(believer.present.count, 0, "seed \(seed)")
        }
        return true
    }

    @EventLoopActor
    private func check(_ mirror: Mirror, _ truth: Mirror, _ believer: Believer, _ seed: UInt64) -> Bool {
        let (found, expected) = (mirror.lines, truth.lines)
        XCTAssertEqual(
            Set(found).symmetricDifference(expected).sorted(), [], "seed \(seed): the mirror differs from the objects")
        XCTAssertEqual(found.count, expected.count, "seed \(seed)")
        XCTAssertEqual(believer.faults, [], "seed \(seed)")
        let present = mirror.adapters.map { ObjectIdentifier($0) } + mirror.devices.map { ObjectIdentifier($0) }
        XCTAssertEqual(believer.present, Set(present), "seed \(seed): a listener believes something else")
        return found == expected && believer.faults.isEmpty && believer.present == Set(present)
    }
}

extension Mirror {
    fileprivate func take(_ signal: BlueZSignal) {
        let message = DBusMessage(signal: "/", interface: "a.b", member: "C")
        var writer = message.writer()
        switch signal {
        case .added(let path, let interfaces):
            writer.append(objectPath: path)
            writer.append(Self.value(interfaces))
            interfacesAdded(message.reader())
        case .removed(let path, let interfaces):
            writer.append(objectPath: path)
            writer.append(.array(of: "s", interfaces.map { .string($0) }))
            interfacesRemoved(message.reader())
        case .changed(var path, let interface, let values, let withdrawn):
            writer.append(string: interface)
            writer.append(.properties(values))
            writer.append(.array(of: "s", withdrawn.map { .string($0) }))
            path.withUTF8 { propertiesChanged(path: UnsafeRawBufferPointer($0), message.reader()) }
        }
    }

    fileprivate func load(_ objects: [(String, [(String, [(String, DBusValue)])])]) {
        let message = DBusMessage(signal: "/", interface: "a.b", member: "C")
        var writer = message.writer()
        writer.append(.dictionary("oa{sa{sv}}", objects.map { (.objectPath($0.0), Self.value($0.1)) }))
        load(message.reader())
    }

    private static func value(_ interfaces: [(String, [(String, DBusValue)])]) -> DBusValue {
        .dictionary("sa{sv}", interfaces.map { (.string($0.0), .properties($0.1)) })
    }

    /// Everything that the mirror knows, a line for each object.
    fileprivate var lines: [String] {
        var lines = adapters.map { adapter in
            "\(adapter.path) \(adapter.address?.description ?? "-") \(adapter.alias) \(adapter.isPowered)"
                + " \(adapter.isDiscovering) \(adapter.supportsMonitor)"
        }
        for device in devices {
            var line = "\(device.path) \(device.address) \(device.isRandomAddress) \(device.isConnected)"
            line += " \(device.isResolved) \(device.isPaired) \(device.isBonded) \(device.isTrusted)"
            line += " \(device.isBlocked) rssi \(device.rssi ?? 127) tx \(device.txPower ?? 127)"
            line += " flags \(device.advertisingFlags ?? 255) appearance \(device.appearance ?? 0xffff)"
            line += " battery \(device.battery ?? 255) name \(String(decoding: device.name, as: UTF8.self))"
            line += " services \(device.services) solicited \(device.solicited)"
            device.manufacturerData.forEachCompany { line += " \($0):\(Array($1))" }
            device.serviceData.forEachService { line += " \($0):\(Array($1))" }
            lines.append(line)
            for service in device.gatt {
                lines.append("\(service.path) \(service.uuid) \(service.isPrimary) \(service.includes)")
                for item in service.characteristics {
                    let rest = "\(item.flags.rawValue) \(item.isNotifying) \(item.mtu)"
                    lines.append("\(item.path) \(item.uuid) \(item.handle) \(rest)")
                    for descriptor in item.descriptors {
                        lines.append("\(descriptor.path) \(descriptor.uuid) \(descriptor.handle)")
                    }
                }
            }
        }
        return lines.sorted()
    }
}
