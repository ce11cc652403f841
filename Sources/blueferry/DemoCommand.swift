internal import BlueZSimulator
internal import Bridge
internal import Configuration
internal import EventLoop
internal import Glibc
internal import Sandbox

/// `blueferry demo`: everything in one process but the bus and the broker, which run beside it and end with it.
enum DemoCommand {
    static func start(_ arguments: Arguments) throws -> Int32 {
        let fleet = try SimulateCommand.load(arguments.value("--fleet"))
        let seconds = try arguments.number("--for", in: 1...86_400)
        let settings = try RunCommand.load(arguments)
        let control = arguments.value("--control")
        return runLoop { try await run(fleet, settings, seconds: seconds, control: control) }
    }

    @EventLoopActor
    private static func run(
        _ fleet: Fleet, _ settings: Settings, seconds: Int?, control: String?
    ) async throws -> Int32 {
        let finish = try Finish()
        let bus: PrivateBus
        let broker: PrivateBroker
        do {
            bus = try await PrivateBus.start()
            broker = try await PrivateBroker.start()
        } catch {
            throw Ending(code: ExitCode.unavailable, message: "\(error)")
        }
        let simulator = Simulator(fleet: fleet)
        do {
            try await simulator.start(onBus: bus.address, control: control)
        } catch {
            await broker.stop()
            await bus.stop()
            throw Ending(code: ExitCode.fault, message: "the simulator does not start: \(error)")
        }
        var settings = settings
        settings.mqtt.url = BrokerURL(host: "127.0.0.1", port: Int(broker.port))
        settings.outbox.path = broker.directory.file("outbox.db")
        if settings.logging.level > .warning { settings.logging.level = .warning }
        let code = await RunCommand.run(settings, bus: bus.address, finish: finish) { program in
            tell(program, broker: broker)
            if let seconds { finish.end(after: seconds) }
        }
        await simulator.stop()
        await broker.stop()
        await bus.stop()
        return code
    }

    @EventLoopActor
    private static func tell(_ program: BridgeProgram, broker: PrivateBroker) {
        let prefix = program.bridge.space.prefix
        let tools = "-h 127.0.0.1 -p \(broker.port)"
        print(
            """
            blueferry demo: simulated devices, a private bus and a private broker
            \(broker.url)
            listen:   mosquitto_sub \(tools) -v -t '\(program.bridge.space.base)/#'
            command:  mosquitto_pub \(tools) -t '\(prefix)request/devices' -m '{"id":"1","limit":3}'
            connect:  mosquitto_pub \(tools) -t '\(prefix)devices/c00000000001/connection/set' -m connect
            It ends by Ctrl-C.
            """)
        fflush(nil)
    }
}
