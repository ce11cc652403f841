import EventLoop
import JSON
import Sandbox
import TestKit

/// A program of the bench: orders go to its standard input, events come as lines of JSON.
@EventLoopActor
final class Tool {
    private final class Events {
        var waiting: [JSONValue] = []
        let monitor = Monitor()

        nonisolated init() {}
    }

    let process: ChildProcess
    private let name: String
    private let events: Events

    init(_ path: String, _ arguments: [String], environment: [String: String]) throws {
        let events = Events()
        self.events = events
        name = String(path.split(separator: "/").last ?? "")
        process = try ChildProcess(
            path, arguments, environment: environment, hasInput: true,
            output: .lines { line in
                guard let event = try? JSONValue.parse(Array(line.utf8)) else { return }
                events.waiting.append(event)
                events.monitor.changed()
            })
    }

    func order(_ line: String) { process.write(line + "\n") }

    /// The next event of this name that fits; those before it are shown to `other` and forgotten.
    /// - Throws: `Expired` where it does not come in time.
    @discardableResult
    func event(
        _ name: String, within timeout: Duration = .seconds(20),
        where condition: @escaping @EventLoopActor (JSONValue) -> Bool = { _ in true },
        whenOther other: @escaping @EventLoopActor (JSONValue) -> Void = { _ in }
    ) async throws -> JSONValue {
        let events = events
        var found: JSONValue?
        try await events.monitor.wait("'\(name)' of \(self.name)", within: timeout) {
            while found == nil, !events.waiting.isEmpty {
                let event = events.waiting.removeFirst()
                if event["event"]?.stringValue == name, condition(event) { found = event } else { other(event) }
            }
            return found != nil
        }
        return found ?? .null
    }

    func stop() async { await process.stop(grace: .seconds(2)) }
}

extension JSONValue {
    /// A member that is a number; 0 where there is none.
    func number(_ key: String) -> Double {
        switch self[key] {
        case .int(let number)?: Double(number)
        case .double(let number)?: number
        default: 0
        }
    }
}
