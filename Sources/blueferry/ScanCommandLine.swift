internal import Bluetooth
internal import Bridge
internal import EventLoop
internal import Glibc

/// `blueferry scan`: a table that is drawn anew each second on a terminal, a line for each new device elsewhere.
enum ScanCommandLine {
    static func start(_ arguments: Arguments) throws -> Int32 {
        var filters = LiveScan.Filters()
        filters.name = arguments.value("--name")
        filters.rssi = try arguments.number("--rssi", in: -127...20)
        filters.adapter = arguments.value("--adapter")
        for text in arguments.all("--service") {
            guard let uuid = BluetoothUUID(parsing: text) else {
                throw Arguments.UsageError(message: "--service needs a UUID, such as 180f, not '\(text)'")
            }
            filters.services.append(uuid)
        }
        let seconds = try arguments.number("--for", in: 1...86_400)
        let bus = arguments.value("--bus")
        let chosen = filters
        return runLoop { try await run(chosen, bus: bus, seconds: seconds) }
    }

    @EventLoopActor
    private static func run(_ filters: LiveScan.Filters, bus: String?, seconds: Int?) async throws -> Int32 {
        let finish = try Finish()
        let scan = LiveScan(filters, busAddress: bus)
        let isTerminal = isatty(STDOUT_FILENO) != 0
        if !isTerminal {
            scan.onDevice = { row in
                print(line(row))
                fflush(nil)
            }
        }
        Task { @EventLoopActor in
            do throws(CommandError) {
                try await scan.start()
            } catch {
                guard error.code == .unknownAdapter else { return finish.end(ExitCode.usage, error.message) }
                finish.end(ExitCode.unavailable, scan.problem ?? error.message)
            }
        }
        if let seconds { finish.end(after: seconds) }
        if isTerminal { draw(scan) }
        // What is missing is told after a while; it may still come.
        SystemClock.shared.schedule(after: .seconds(3)) {
            if let problem = scan.problem { writeToStandardError("blueferry scan: \(problem)\n") }
        }
        let code = await finish.wait()
        finish.endAnyway(code)
        let problem = scan.problem
        let rows = scan.rows
        await scan.stop()
        guard code == ExitCode.fine else { return code }
        guard rows.isEmpty, let problem else { return ExitCode.fine }
        throw Ending(code: ExitCode.unavailable, message: problem)
    }

    @EventLoopActor
    private static func draw(_ scan: LiveScan) {
        var size = winsize()
        let height = ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0 && size.ws_row > 3 ? Int(size.ws_row) : 24
        let width = size.ws_col > 20 ? Int(size.ws_col) : 80
        let rows = scan.rows
        var text = "\u{1b}[H\u{1b}[J\(rows.count) devices\(scan.problem.map { " – " + $0 } ?? "")\n"
        for row in rows.prefix(height - 2) { text += String(line(row).prefix(width - 1)) + "\n" }
        print(text, terminator: "")
        fflush(nil)
        SystemClock.shared.schedule(after: .seconds(1)) { draw(scan) }
    }

    private static func line(_ row: LiveScan.Row) -> String {
        let rssi = row.rssi.map(String.init) ?? "?"
        return "\(row.address)  \(padded(row.type, 6))  \(padded(rssi, 4))  \(padded(String(row.count), 6))  "
            + "\(padded(row.name, 20))  \(row.data)"
    }

    private static func padded(_ text: String, _ width: Int) -> String {
        text.count >= width ? text : text + String(repeating: " ", count: width - text.count)
    }
}
