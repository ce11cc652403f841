internal import Bluetooth
internal import Configuration
internal import EventLoop
internal import JSON

/// Takes commands from the broker, runs each once, and answers each.
@EventLoopActor
final class CommandService {
    /// Commands that may run or wait at once.
    static let limit = 256

    private let settings: BridgeSettings
    private let space: TopicSpace
    private let publisher: Publisher
    private let events: EventLog
    private let runner: CommandRunner
    private let clock: any LoopClock
    private let ledger = RequestLedger()
    private let journal: (any RequestJournal)?
    /// For answers, one after another.
    private let buffer = OutputBuffer()
    private var running: [UInt64: Running] = [:]
    private var number: UInt64 = 0
    private var deadlineTimer: LoopTimer?
    private var isStopping = false
    private(set) var received: UInt64 = 0
    private(set) var failed: UInt64 = 0

    /// A request that has not been answered.
    private final class Running {
        let id: JSONValue
        let key: RequestKey?
        /// Nil for a command from a plain topic: it has no answer.
        let route: AnswerRoute?
        let expires: WallTime?
        /// When it is over in any case, and why then.
        var deadline: MonotonicTime?
        var verb = ""
        var timeout = Duration.zero
        var isRecorded = false

        init(id: JSONValue, key: RequestKey?, route: AnswerRoute?, expires: WallTime?) {
            self.id = id
            self.key = key
            self.route = route
            self.expires = expires
        }
    }

    init(
        settings: BridgeSettings, space: TopicSpace, publisher: Publisher, events: EventLog, runner: CommandRunner,
        journal: (any RequestJournal)?, clock: any LoopClock
    ) {
        self.settings = settings
        self.space = space
        self.publisher = publisher
        self.events = events
        self.runner = runner
        self.journal = journal
        self.clock = clock
        guard let journal else { return }
        ledger.onForget = { [weak journal] key in journal?.forget(key) }
        ledger.restore(journal.takeRemembered(), at: clock.now, wall: clock.wallNow)
    }

    var runningCount: Int { running.count }

    /// A message from the broker. What is no command of this gateway is left alone.
    func handle(_ message: InboundMessage) {
        guard !isStopping, let topic = InboundTopic(message.topic, in: space) else { return }
        received &+= 1
        switch topic {
        case .request(let verb): handleRequest(verb, message)
        case .connectionSet(let device):
            handlePlain(device, message) { () throws(CommandError) in try PlainCommand.connection(message.payload) }
        case .characteristic(let device, let service, let characteristic, let action):
            handlePlain(device, message, attribute: (service, characteristic)) { () throws(CommandError) in
                try PlainCommand.characteristic(action, message.payload)
            }
        }
    }

    // MARK: Requests

    private func handleRequest(_ verb: String, _ message: InboundMessage) {
        // Nothing in, nothing out: an empty retained message only clears what the broker kept.
        if message.isRetained, message.payload.isEmpty, !message.isTooLarge { return }
        let request: Request
        do {
            request = try Request.parse(verb: verb, payload: message.payload, isTooLarge: message.isTooLarge)
        } catch {
            let (route, _) = self.route(verb, message, replyTo: error.replyTo)
            return answer(error.id, .failure(error.error), to: [route])
        }
        let (route, refused) = self.route(verb, message, replyTo: request.replyTo)
        if let refused { return answer(request.id, .failure(refused), to: [route]) }
        if message.isRetained {
            let error = retained("request/\(verb)")
            events.report(.warning, error.code.rawValue, error.message)
            return answer(request.id, .failure(error), to: [route])
        }
        do {
            try settings.commands.check(request.verb)
        } catch {
            return answer(request.id, .failure(error), to: [route])
        }
        admit(request, route: route)
    }

    private func route(
        _ verb: String, _ message: InboundMessage, replyTo: String?
    ) -> (route: AnswerRoute, refused: CommandError?) {
        AnswerRoute.of(
            verb: verb, properties: message.properties, replyTo: replyTo, in: space,
            homeAssistantPrefix: settings.homeAssistantPrefix)
    }

    private func retained(_ topic: String) -> CommandError {
        CommandError(
            .retainedCommand,
            "the command on \(topic) is retained: it was not run; publish it without the retain flag,"
                + " and an empty retained message to clear it")
    }

    private func admit(_ request: Request, route: AnswerRoute) {
        let key = RequestKey(verb: request.verb, id: request.id)
        let busy = CommandError(.busy, "\(running.count) commands run or wait already; send fewer at once")
        if let key {
            switch ledger.admit(key, payload: request.payload, route: route, at: clock.now) {
            case .run: break
            case .joined: return
            case .answered(let bytes): return send(bytes, to: route, expires: expiry(request))
            case .reused:
                let error = CommandError(
                    .idReused, "another '\(key.verb)' had this 'id' within 5 minutes; give each request its own")
                return answer(request.id, .failure(error), to: [route])
            case .full: return answer(request.id, .failure(busy), to: [route])
            }
        }
        let entry = Running(id: request.id, key: key, route: route, expires: expiry(request))
        guard running.count < Self.limit else { return finish(entry, .failure(busy)) }
        start(request, entry)
    }

    private func expiry(_ request: Request) -> WallTime? {
        guard let timeout = CommandRunner.timeout(of: request) else { return nil }
        return WallTime(milliseconds: clock.wallNow.milliseconds + timeout.clampedMilliseconds)
    }

    private func start(_ request: Request, _ entry: Running) {
        number &+= 1
        let number = number
        running[number] = entry
        if let timeout = CommandRunner.timeout(of: request) {
            // The radio ends its call at the same deadline, with the better reason: it has a moment for that.
            let deadline = clock.now + timeout + .milliseconds(100)
            entry.deadline = deadline
            entry.verb = request.verb.rawValue
            entry.timeout = timeout
            wake(at: deadline)
        }
        let runner = runner
        let record = self.record(of: request, key: entry.key)
        entry.isRecorded = record != nil
        if request.verb == .read {
            return runner.read(request) { [weak self] in self?.finish(number, $0) }
        }
        Task { @EventLoopActor [weak self] in
            do throws(CommandError) {
                if let record {
                    await self?.journal?.record(record)
                    // Its time is over, or the program's.
                    guard self?.running[number] != nil else { return }
                }
                let data = try await runner.run(request)
                self?.finish(number, .success(data))
            } catch {
                self?.finish(number, .failure(error))
            }
        }
    }

    /// What is to be on the disk before the request acts; nil for one that changes nothing, or has no id.
    private func record(of request: Request, key: RequestKey?) -> RecordedRequest? {
        guard let key, journal != nil, request.verb.changesState else { return nil }
        ledger.noteRecorded(key)
        let expires = WallTime(milliseconds: clock.wallNow.milliseconds + RequestLedger.window.clampedMilliseconds)
        return RecordedRequest(key: key, payload: request.payload, expires: expires)
    }

    private func finish(_ number: UInt64, _ result: Result<JSONValue, CommandError>) {
        guard let entry = running.removeValue(forKey: number) else { return }
        finish(entry, result)
    }

    /// One timer for all of them, at the earliest deadline or that of one that was answered since.
    private func wake(at deadline: MonotonicTime) {
        if let timer = deadlineTimer, timer.isPending, timer.deadline <= deadline { return }
        deadlineTimer?.cancel()
        deadlineTimer = clock.schedule(after: deadline - clock.now) { [weak self] in self?.endLate() }
    }

    private func endLate() {
        let now = clock.now
        for number in running.keys.sorted() {
            guard let entry = running[number], let deadline = entry.deadline, deadline <= now else { continue }
            let limit = entry.timeout.clampedMilliseconds
            finish(number, .failure(CommandError(.timeout, "'\(entry.verb)' was not done within \(limit) ms")))
        }
        var next: MonotonicTime?
        for entry in running.values {
            guard let deadline = entry.deadline, deadline < next ?? deadline + .seconds(1) else { continue }
            next = deadline
        }
        if let next { wake(at: next) }
    }

    private func finish(_ entry: Running, _ result: Result<JSONValue, CommandError>) {
        if case .failure = result { failed &+= 1 }
        let bytes = Payloads.answer(id: entry.id, result, in: buffer)
        let expires = minimumExpiry(entry.expires)
        guard let key = entry.key else {
            if let route = entry.route { send(bytes, to: route, expires: expires) }
            return
        }
        let routes = ledger.finish(key, answer: bytes)
        if case .failure(let error) = result, error.code == .busy {
            ledger.drop(key)
        } else if entry.isRecorded {
            journal?.recordAnswer(bytes, to: key)
        }
        for route in routes { send(bytes, to: route, expires: expires) }
    }

    /// An answer that comes at its deadline still has to travel.
    private func minimumExpiry(_ expires: WallTime?) -> WallTime? {
        guard let expires else { return nil }
        return max(expires, WallTime(milliseconds: clock.wallNow.milliseconds + 1000))
    }

    private func answer(_ id: JSONValue, _ result: Result<JSONValue, CommandError>, to routes: [AnswerRoute]) {
        failed &+= 1
        let bytes = Payloads.answer(id: id, result, in: buffer)
        for route in routes { send(bytes, to: route, expires: nil) }
    }

    private func send(_ bytes: [UInt8], to route: AnswerRoute, expires: WallTime?) {
        publisher.send(
            OutboxMessage(
                topic: route.topic, payload: bytes, responseCorrelation: route.correlationData, expires: expires,
                lane: .prompt))
    }

    // MARK: Plain topics

    private func handlePlain(
        _ device: String, _ message: InboundMessage, attribute: (service: String, characteristic: String)? = nil,
        _ parse: () throws(CommandError) -> PlainCommand
    ) {
        if message.isRetained, message.payload.isEmpty, !message.isTooLarge { return }
        let topic = String(decoding: message.topic.dropFirst(space.prefix.utf8.count), as: UTF8.self)
        guard let address = BluetoothAddress(parsing: device) else {
            return plainError(CommandError(.unknownDevice, "'\(device.prefix(40))' is no address"), topic, nil)
        }
        do throws(CommandError) {
            guard !message.isRetained else { throw retained(topic) }
            guard !message.isTooLarge else { throw CommandError(.badRequest, "the payload is too long") }
            let command = try parse()
            try settings.commands.check(command.verb)
            try settings.commands.check(address)
            let path = try attribute.map { (names) throws(CommandError) in try self.path(names) }
            guard running.count < Self.limit else {
                throw CommandError(.busy, "\(running.count) commands run or wait already")
            }
            start(command, address, path, topic)
        } catch {
            plainError(error, topic, address)
        }
    }

    private func path(_ names: (service: String, characteristic: String)) throws(CommandError) -> AttributePath {
        guard let service = AttributeName(parsing: names.service) else {
            throw CommandError(.badRequest, "'\(names.service.prefix(64))' in the topic is no UUID")
        }
        guard let characteristic = AttributeName(parsing: names.characteristic) else {
            throw CommandError(.badRequest, "'\(names.characteristic.prefix(64))' in the topic is no UUID")
        }
        return AttributePath(service: service, characteristic: characteristic)
    }

    private func start(_ command: PlainCommand, _ address: BluetoothAddress, _ path: AttributePath?, _ topic: String) {
        number &+= 1
        let number = number
        running[number] = Running(id: .null, key: nil, route: nil, expires: nil)
        let runner = runner
        Task { @EventLoopActor [weak self] in
            do throws(CommandError) {
                try await Self.perform(command, address, path, runner)
            } catch {
                self?.plainError(error, topic, address)
            }
            self?.running[number] = nil
            // The value of a read waits for its answer, and here is none.
            self?.publisher.sendGroup()
        }
    }

    private static func perform(
        _ command: PlainCommand, _ address: BluetoothAddress, _ path: AttributePath?, _ runner: CommandRunner
    ) async throws(CommandError) {
        switch (command, path) {
        case (.connect, _): _ = try await runner.connect(address, timeout: nil, keep: false)
        case (.disconnect, _): _ = try await runner.disconnect(address, force: false)
        case (.write(let bytes), let path?):
            try await runner.write(address, path, bytes, mode: .automatic, offset: 0, timeout: nil)
        case (.get, let path?): _ = try await runner.read(address, path, offset: 0, timeout: nil)
        case (.notify(let isOn), let path?):
            _ = try await runner.subscribe(address, path, isOn: isOn, timeout: nil)
        default: break
        }
    }

    private func plainError(_ error: CommandError, _ topic: String, _ address: BluetoothAddress?) {
        failed &+= 1
        let level: LogLevel = error.code == .retainedCommand ? .warning : .error
        events.report(level, error.code.rawValue, "\(topic): \(error.message)", device: address)
    }

    // MARK: The end

    /// Answers what still runs, and takes no more.
    func stop() {
        isStopping = true
        for number in running.keys.sorted() {
            finish(number, .failure(CommandError(.cancelled, "blueferry stops")))
        }
    }
}
