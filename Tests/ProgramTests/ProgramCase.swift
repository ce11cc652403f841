import EventLoop
import Sandbox
import TestKit
import XCTest

/// Tests that run the program; without a bus of their own it finds none.
class ProgramCase: XCTestCase {
    override class func setUp() {
        EventLoop.shared.startThread()
    }

    struct Outcome {
        var exit: ChildProcess.Exit
        var text: String
    }

    /// Runs the program to its end and gathers both of its outputs.
    @EventLoopActor
    func run(
        _ arguments: [String], environment: [String: String] = [:], within timeout: Duration = .seconds(20)
    ) async throws -> Outcome {
        let child = try start(arguments, environment: environment)
        let exit = try await child.process.waitForExit(within: timeout)
        return Outcome(exit: exit, text: child.lines.text)
    }

    @EventLoopActor
    final class Lines {
        var text = ""
        let monitor = Monitor()
        nonisolated init() {}

        func add(_ line: String) {
            text += line + "\n"
            monitor.changed()
        }
    }

    @EventLoopActor
    func start(_ arguments: [String], environment: [String: String] = [:]) throws -> (
        process: ChildProcess, lines: Lines
    ) {
        var variables = ChildProcess.ownEnvironment()
        variables["DBUS_SYSTEM_BUS_ADDRESS"] = "unix:path=/nonexistent/bus"
        variables.merge(environment) { $1 }
        let lines = Lines()
        let process = try ChildProcess(
            World.program, arguments, environment: variables, output: .lines { lines.add($0) },
            errors: .lines { lines.add($0) })
        return (process, lines)
    }

    /// The program's bridge, under way, with what it has printed so far.
    typealias Running = (process: ChildProcess, lines: Lines)

    /// Ends the bridge as a service manager does.
    @EventLoopActor
    func end(_ bridge: Running, file: StaticString = #filePath, line: UInt = #line) async throws {
        bridge.process.terminate()
        let exit = try await bridge.process.waitForExit(within: .seconds(10))
        XCTAssertEqual(exit, .code(0), bridge.lines.text, file: file, line: line)
    }

    /// Waits until the program has printed a text.
    @EventLoopActor
    func wait(_ bridge: Running, for text: String) async throws {
        do {
            try await bridge.lines.monitor.wait("'\(text)'", within: .seconds(20)) { bridge.lines.text.contains(text) }
        } catch {
            throw Expired(message: "\(error); it printed: \(bridge.lines.text)")
        }
    }

    /// A password file of mosquitto, with these users and their passwords.
    @EventLoopActor
    func passwordFile(_ users: [String: String], in directory: TemporaryDirectory) async throws -> String {
        let text = users.map { "\($0.key):\($0.value)\n" }.sorted().joined()
        let path = try directory.write(text, to: "passwords")
        let hashing = try ChildProcess("mosquitto_passwd", ["-U", path])
        let exit = try await hashing.waitForExit(within: .seconds(20))
        guard exit == .code(0) else { throw Expired(message: "mosquitto_passwd: \(exit)") }
        return path
    }
}
