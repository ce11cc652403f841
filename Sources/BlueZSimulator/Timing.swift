/// How long things take, as measured with BlueZ 5.66 and a kernel 6.1.
public struct SimulatorTiming: Sendable {
    /// One request and its answer on the air.
    public var exchange = Duration.milliseconds(8)
    /// From a device's advertisement to the link with it.
    public var linkSetup = Duration.milliseconds(30)
    /// After which a request without an answer ends the link.
    public var attTimeout = Duration.seconds(30)
    /// After which a connection attempt to a device that is not heard ends.
    public var connectTimeout = Duration.seconds(20)
    /// From Device1.Disconnect to the end of the link.
    public var disconnect = Duration.seconds(2)
    /// After which a temporary device that is heard no more is removed.
    public var temporary = Duration.seconds(30)
    /// How long the kernel goes on discovering for a bluetoothd that was killed.
    public var orphanedDiscovery = Duration.seconds(9)
    /// How long the kernel keeps the links of a bluetoothd that was killed.
    public var orphanedLinks = Duration.seconds(4)
    /// The turn of the controller's duplicate filter.
    public var filterTurn = Duration.milliseconds(11_000)
    /// From bluetoothd's start to its adapters, and from there to their power.
    public var start = Duration.milliseconds(20)
    /// The most connection attempts that an adapter bears at once.
    public var mostAttempts = 38

    public init() {}
}
