import CoreBluetooth
import EventLoop
import JSON
import TestKit
import XCTest

/// A contract test of the library: a manager in this process, on the simulator's radio or on the lab's.
class LibraryCase: ContractCase {
    @EventLoopActor
    func inRadio(_ body: @EventLoopActor (World, LibraryUser) async throws -> Void) async throws {
        let world = try await World.start()
        let user = LibraryUser(world)
        do {
            try await user.journal.rest(of: "state poweredOn")
            try await body(world, user)
        } catch {
            XCTFail("\(error)\n\(user.journal.all)\n\(world.logs)")
        }
        for id in ["sleeper", "courier"] { _ = try? await world.advertise(id, false) }
        user.end()
        await world.stop()
    }

    static let sleeper = "C0:00:00:00:00:11"
    static let includer = "C0:00:00:00:00:09"
    static let courier = "C0:00:00:00:00:13"
}

/// A program that uses the library: a manager with a delegate that writes down all that it is told, on an own queue.
/// With an engine of its own, it stands for a process of its own.
@EventLoopActor
final class LibraryUser {
    let recorder = Recorder()
    let queue = DispatchQueue(label: "test")
    private(set) var manager: CBCentralManager?
    nonisolated var journal: Journal { recorder.journal }

    init(_ world: World, options: [String: Any]? = nil) {
        manager = CBCentralManager(delegate: recorder, queue: queue, options: options, busAddress: world.busText)
    }

    func end() {
        manager = nil
        let recorder = recorder
        queue.async {
            recorder.found = [:]
            recorder.channel = nil
        }
    }

    /// The identifier is a promise to users: made of the address alone, the same everywhere.
    static func identifier(_ address: String) -> UUID? {
        let digits = address.split(separator: ":").joined()
        return UUID(uuidString: "626C7565-6665-8001-8000-\(digits)")
    }

    /// The peripheral with this address, heard or not.
    func peripheral(_ address: String) throws -> CBPeripheral {
        let identifier = try XCTUnwrap(Self.identifier(address))
        let peripheral = try XCTUnwrap(manager?.retrievePeripherals(withIdentifiers: [identifier]).first)
        peripheral.delegate = recorder
        return peripheral
    }

    /// Connects, and discovers all that the peer has.
    func connect(_ address: String, options: [String: Any]? = nil) async throws -> Tree {
        let peripheral = try peripheral(address)
        let count = journal.count("connect true")
        manager?.connect(peripheral, options: options)
        try await journal.rest(of: "connect true", count: count + 1, within: 40)
        return try await discover(peripheral)
    }

    func discover(_ peripheral: CBPeripheral) async throws -> Tree {
        journal.clear()
        peripheral.discoverServices(nil)
        try await journal.rest(of: "services ")
        let services = try XCTUnwrap(peripheral.services)
        for service in services { peripheral.discoverCharacteristics(nil, for: service) }
        try await journal.rest(of: "characteristics ", count: services.count)
        journal.clear()
        return Tree(peripheral: peripheral)
    }

    func cancel(_ peripheral: CBPeripheral) async throws {
        manager?.cancelPeripheralConnection(peripheral)
        try await journal.rest(of: "disconnect disconnected")
    }
}

/// What was discovered.
struct Tree: Sendable {
    let peripheral: CBPeripheral

    func service(_ uuid: String) throws -> CBService {
        try XCTUnwrap(peripheral.services?.first { $0.uuid == CBUUID(string: uuid) }, uuid)
    }

    func characteristic(_ uuid: String) throws -> CBCharacteristic {
        let all = peripheral.services?.compactMap(\.characteristics).flatMap { $0 }
        return try XCTUnwrap(all?.first { $0.uuid == CBUUID(string: uuid) }, uuid)
    }
}

extension World {
    func advertise(_ id: String, _ on: Bool) async throws {
        try await radio.send("advertise", ["device": .string(id), "on": .bool(on)])
    }

    func notify(_ id: String, _ characteristic: String, _ value: String) async throws {
        let order: [String: JSONValue] = [
            "device": .string(id), "characteristic": .string(characteristic), "value": .string(value),
        ]
        try await radio.send("notify", order)
    }
}
