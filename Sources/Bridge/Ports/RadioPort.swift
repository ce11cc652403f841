public import Bluetooth
public import EventLoop

/// One advertisement as its bytes lie in the radio's memory: read in place, never kept.
@EventLoopActor
public protocol AdvertisementSource {
    var address: BluetoothAddress { get }
    var addressType: AddressType { get }
    var adapterAddress: BluetoothAddress? { get }
    var rssi: Int8? { get }
    var txPower: Int8? { get }
    var advertisedServices: [BluetoothUUID] { get }
    /// What the bridge keeps of the device, where the radio has a place for it.
    var note: AnyObject? { get nonmutating set }
    /// The UTF-8 bytes of the name; none where it is not known.
    func withName(_ body: (UnsafeRawBufferPointer) -> Void)
    func forEachServiceData(_ body: (BluetoothUUID, UnsafeRawBufferPointer) -> Void)
    func forEachManufacturerData(_ body: (UInt16, UnsafeRawBufferPointer) -> Void)
}

extension AdvertisementSource {
    public var note: AnyObject? {
        get { nil }
        nonmutating set {}
    }
}

/// When an advertisement was heard, by both clocks.
public struct HeardTime {
    let monotonic: MonotonicTime
    let wall: WallTime

    public init(_ monotonic: MonotonicTime, _ wall: WallTime) {
        self.monotonic = monotonic
        self.wall = wall
    }
}

/// Names a characteristic or one of its descriptors.
public struct AttributePath: Hashable, Sendable {
    public var service: AttributeName
    public var characteristic: AttributeName
    public var descriptor: AttributeName?

    public init(service: AttributeName, characteristic: AttributeName, descriptor: AttributeName? = nil) {
        self.service = service
        self.characteristic = characteristic
        self.descriptor = descriptor
    }
}

/// How a value is written.
public enum WriteMode: String, Sendable {
    /// With the device's answer.
    case request
    /// Without one.
    case command
    /// By the characteristic's properties.
    case automatic
}

/// The radio as the bridge uses it: the engine in the program, a fake in tests.
@EventLoopActor
public protocol RadioPort: AnyObject {
    var delegate: (any RadioDelegate)? { get set }

    func start()
    /// Stops the scans, leaves the links and closes the bus.
    func stop() async

    /// Nil while the bus and BlueZ are there, else what is missing.
    var problem: String? { get }
    var adapters: [AdapterReport] { get }
    var scans: [ScanReport] { get }
    var counts: RadioCounts { get }
    var deviceAddresses: [BluetoothAddress] { get }
    func device(_ address: BluetoothAddress) -> DeviceReport?
    /// Whether the radio has a bond with the device, without the whole report.
    func isBonded(_ address: BluetoothAddress) -> Bool
    func services(_ address: BluetoothAddress) -> [ServiceReport]
    /// Why the device has no link, or could have none, in one sentence; nil where nothing is known to be in the way.
    func obstacle(to address: BluetoothAddress) -> Obstacle?

    func startScan(_ command: ScanCommand) throws(CommandError) -> ScanReport
    /// False where no scan has this id.
    func stopScan(_ id: String) -> Bool

    /// Keeps the link of a configured device up from now on.
    func keepConnected(_ address: BluetoothAddress, adapter: String?)
    /// Subscribes whenever the link of a configured device is up.
    func wantSubscriptions(_ address: BluetoothAddress, _ paths: [AttributePath])
    /// Ends when the link is up and its services are known; without a timeout it waits for the device for ever.
    func connect(
        _ address: BluetoothAddress, adapter: String?, timeout: Duration?, keep: Bool
    ) async throws(CommandError)
    func cancelConnect(_ address: BluetoothAddress)
    /// True where the link went down; false where it was left, since others hold it.
    func disconnect(_ address: BluetoothAddress, force: Bool) async throws(CommandError) -> Bool
    func read(
        _ address: BluetoothAddress, _ path: AttributePath, offset: Int, timeout: Duration
    ) async throws(CommandError) -> [UInt8]
    /// The same without a task: `completion` is called once, perhaps before this returns.
    func read(
        _ address: BluetoothAddress, _ path: AttributePath, offset: Int, timeout: Duration,
        then completion: @escaping @EventLoopActor (Result<[UInt8], CommandError>) -> Void)
    func write(
        _ address: BluetoothAddress, _ path: AttributePath, value: [UInt8], mode: WriteMode, offset: Int,
        timeout: Duration
    ) async throws(CommandError)
    func subscribe(_ address: BluetoothAddress, _ path: AttributePath, timeout: Duration) async throws(CommandError)
    func unsubscribe(_ address: BluetoothAddress, _ path: AttributePath) async throws(CommandError)
    func linkRSSI(_ address: BluetoothAddress) async throws(CommandError) -> Int8
    func pair(_ address: BluetoothAddress, timeout: Duration) async throws(CommandError)
    func unpair(_ address: BluetoothAddress) async throws(CommandError)
    func forget(_ address: BluetoothAddress) async throws(CommandError)
}

extension RadioPort {
    public func obstacle(to address: BluetoothAddress) -> Obstacle? { nil }
    public func isBonded(_ address: BluetoothAddress) -> Bool { device(address)?.isBonded ?? false }

    public func read(
        _ address: BluetoothAddress, _ path: AttributePath, offset: Int, timeout: Duration,
        then completion: @escaping @EventLoopActor (Result<[UInt8], CommandError>) -> Void
    ) {
        readByTask(address, path, offset: offset, timeout: timeout, then: completion)
    }

    /// The completion's form by the awaited one.
    func readByTask(
        _ address: BluetoothAddress, _ path: AttributePath, offset: Int, timeout: Duration,
        then completion: @escaping @EventLoopActor (Result<[UInt8], CommandError>) -> Void
    ) {
        Task { @EventLoopActor in
            do throws(CommandError) {
                completion(.success(try await self.read(address, path, offset: offset, timeout: timeout)))
            } catch {
                completion(.failure(error))
            }
        }
    }
}

/// What is in the way of a link.
public enum Obstacle: Equatable, Sendable {
    /// Nothing can be done before the device is heard.
    case unheard
    /// The bus, bluetoothd or the adapter is missing: nothing is reachable.
    case radio(String)
    /// What concerns this device's link alone.
    case link(String)
}

/// One value of a characteristic, valid during the call.
public struct HeardValue {
    public var address: BluetoothAddress
    public var service: String
    public var characteristic: String
    public var bytes: UnsafeRawBufferPointer
    public var isRead: Bool

    public init(
        address: BluetoothAddress, service: String, characteristic: String, bytes: UnsafeRawBufferPointer,
        isRead: Bool
    ) {
        self.address = address
        self.service = service
        self.characteristic = characteristic
        self.bytes = bytes
        self.isRead = isRead
    }
}

/// Which of the bridge's own two scans an advertisement belongs to.
public struct ScanHits: OptionSet, Sendable {
    public let rawValue: UInt8
    public init(rawValue: UInt8) { self.rawValue = rawValue }
    public static let configured = ScanHits(rawValue: 1)
    public static let commanded = ScanHits(rawValue: 2)
}

/// What the radio tells the bridge, synchronously and on the loop.
@EventLoopActor
public protocol RadioDelegate: AnyObject {
    func radioDidChange()
    func adapterDidChange(_ adapter: AdapterReport)
    func deviceDidChange(_ address: BluetoothAddress)
    /// BlueZ took the device away.
    func deviceDidDisappear(_ address: BluetoothAddress)
    func linkDidChange(_ address: BluetoothAddress)
    func servicesDidChange(_ address: BluetoothAddress)
    func didReceive(_ value: HeardValue)
    func scanDidStart(_ scan: ScanReport)
    func scanDidEnd(_ scan: ScanReport, reason: String)
    func radioDidWarn(level: LogLevel, code: String, message: String, device: BluetoothAddress?)
}
