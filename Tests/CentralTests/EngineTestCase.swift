import Bluetooth
import DBus
import EventLoop
import Sandbox
import XCTest

@testable import Central

/// The engine, a scripted org.bluez, and a private bus between them.
@EventLoopActor
final class Stage {
    let bus: PrivateBus
    var fake: FakeBlueZ
    let central: Central
    let recorder = Recorder()
    static let address = BluetoothAddress(value: 0xaabb_cc00_0001)

    init(options: CentralOptions = CentralOptions(), clock: any LoopClock = SystemClock.shared) async throws {
        bus = try await PrivateBus.start()
        fake = try await FakeBlueZ(address: bus.address)
        var options = options
        options.busAddress = bus.address
        central = Central(options: options, clock: clock)
        central.addObserver(recorder)
        watch()
    }

    func watch() {
        let recorder = self.recorder
        fake.onCall = { recorder.look() }
    }

    /// Starts all, with one controller that is on.
    func start(file: StaticString = #filePath, line: UInt = #line, _ prepare: (FakeBlueZ) -> Void = { _ in })
        async throws
    {
        fake.addAdapter(isTold: false)
        prepare(fake)
        try await fake.takeName()
        central.start()
        await recorder.wait("the controller", file: file, line: line) {
            self.central.adapters.first?.state == .poweredOn && self.central.state == .running
        }
    }

    func end() async {
        await central.stop()
        fake.connection.close()
        await bus.stop()
    }

    func scan(_ configure: (inout ScanRequest) -> Void = { _ in }) throws -> ScanSession {
        var request = ScanRequest(kind: .library)
        configure(&request)
        return try central.startScan(request)
    }

    func scanning(file: StaticString = #filePath, line: UInt = #line) async {
        await recorder.wait("discovery", file: file, line: line) {
            self.central.adapters.contains { $0.method != .none }
        }
    }
}

class EngineTestCase: XCTestCase {
    override class func setUp() { EventLoop.shared.startThread() }

    @EventLoopActor
    func withStage(
        options: CentralOptions = CentralOptions(), clock: any LoopClock = SystemClock.shared,
        _ body: @EventLoopActor (Stage) async throws -> Void
    ) async throws {
        let stage = try await Stage(options: options, clock: clock)
        do { try await body(stage) } catch {
            await stage.end()
            throw error
        }
        await stage.end()
    }
}
