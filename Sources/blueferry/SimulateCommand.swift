internal import BlueZSimulator
internal import Bridge
internal import EventLoop
internal import Glibc

/// `blueferry simulate`: the simulated radio alone.
enum SimulateCommand {
    static func start(_ arguments: Arguments) throws -> Int32 {
        let fleet = try load(arguments.value("--fleet"))
        let bus = arguments.value("--bus")
        let control = arguments.value("--control")
        return runLoop {
            let finish = try Finish()
            let simulator = Simulator(fleet: fleet)
            do {
                try await simulator.start(onBus: bus, control: control)
            } catch {
                throw Ending(code: ExitCode.unavailable, message: "the simulator does not start: \(error)")
            }
            print("simulating \(fleet.devices.count) kinds of devices")
            fflush(nil)
            ServiceManager.notify("READY=1")
            let code = await finish.wait()
            finish.endAnyway(code)
            await simulator.stop()
            return code
        }
    }

    /// A fleet file; without one, the fleet that the program carries.
    static func load(_ path: String?) throws -> Fleet {
        do {
            guard let path else { return try FleetFile.parse(DemoFleet.text, file: "fleet.yaml") }
            return try FleetFile.load(path)
        } catch {
            throw Ending(code: ExitCode.configuration, message: "\(error)")
        }
    }
}
