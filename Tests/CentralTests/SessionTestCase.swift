import Bluetooth
import DBus
import EventLoop
import XCTest

@testable import Central

/// What sessions with one device need.
class SessionTestCase: EngineTestCase {
    let device1 = "org.bluez.Device1"
    let characteristic1 = "org.bluez.GattCharacteristic1"
    let level = "/org/bluez/hci0/dev_AA_BB_CC_00_00_01/service0010/char0011"
    let holder = HolderID("test")

    /// A device with a battery service, near and not connected.
    @EventLoopActor
    func addBattery(_ fake: FakeBlueZ, _ more: FakeBlueZ.Properties = []) {
        fake.addDevice(FakeBlueZ.device, more, isTold: false)
        fake.addService("0010", "180f", isTold: false)
        fake.addCharacteristic("0010", "0011", "2a19", ["read", "notify"], isTold: false)
        fake.answerConnects()
        fake.refuse("AcquireNotify", "NotSupported", "Operation is not supported")
    }

    @EventLoopActor
    func connected(_ stage: Stage, policy: ConnectPolicy = .once) async throws -> GATTCharacteristic {
        _ = try await stage.central.connect(Stage.address, timeout: .seconds(5), policy: policy, holder: holder)
        return try found(stage)
    }

    @EventLoopActor
    func found(_ stage: Stage) throws -> GATTCharacteristic {
        try stage.central.characteristic(
            Stage.address, service: AttributeSelector(uuid: BluetoothUUID(0x180f)),
            characteristic: AttributeSelector(uuid: BluetoothUUID(0x2a19)))
    }

    /// The link has ended, by the device.
    @EventLoopActor
    func dropped(_ stage: Stage) async {
        stage.fake.dropLink()
        await stage.recorder.wait("the end") { stage.central.device(Stage.address)?.isConnected != true }
    }

    @EventLoopActor
    func failure<Value>(_ body: @EventLoopActor () async throws -> Value) async -> CentralError? {
        do {
            _ = try await body()
            return nil
        } catch { return error as? CentralError }
    }
}
