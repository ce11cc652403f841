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
                throw ending(error)
            }
            print(sentence(fleet))
            fflush(nil)
            ServiceManager.notify("READY=1")
            let code = await finish.wait()
            finish.endAnyway(code)
            await simulator.stop()
            return code
        }
    }

    /// Pure.
    static func sentence(_ fleet: Fleet) -> String {
        let count = fleet.devices.count
        let adapters = fleet.adapters.map(\.name).joined(separator: ", ")
        return "simulating \(count) \(count == 1 ? "device" : "devices") around \(adapters); it ends by Ctrl-C"
    }

    /// Why the simulator does not start.
    static func ending(_ error: any Error) -> Ending {
        if error is SimulatorError { return Ending(code: ExitCode.usage, message: "--control: \(error)") }
        let text = "\(error)"
        guard strstr(text, "NameExists") != nil else {
            return Ending(code: ExitCode.unavailable, message: "the simulator does not start: \(text)")
        }
        return Ending(
            code: ExitCode.unavailable,
            message: "bluetoothd or another simulator runs on this bus already (it has the name org.bluez);"
                + " give another bus with --bus")
    }

    /// A fleet file; without one, the fleet that the program carries.
    static func load(_ path: String?) throws -> Fleet {
        do {
            guard let path else {
                let text = String(decoding: PackageResources.fleet_yaml, as: UTF8.self)
                return try FleetFile.parse(text, file: "fleet.yaml")
            }
            return try FleetFile.load(path)
        } catch {
            throw Ending(code: ExitCode.configuration, message: "\(error)")
        }
    }
}
