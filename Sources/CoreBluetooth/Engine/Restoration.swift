internal import Bluetooth
internal import Dispatch
internal import Foundation

/// What a manager did when it was last written down.
struct RestoredState: Sendable, Equatable {
    var peripherals: [DeviceKey] = []
    var scan: RadioScanRequest?
}

/// State restoration: a small property list for each restore identifier, under `$XDG_STATE_HOME/blueferry/corebluetooth`
/// (`~/.local/state` without it). Written on each change, removed when the manager is given up.
final class Restoration: Sendable {
    private struct Variables {
        var peripherals: [DeviceKey] = []
        var scan: RadioScanRequest?
        var hasEnded = false
    }

    private let file: URL
    private let variables = Locked(Variables())
    private let writer = DispatchQueue(label: "blueferry.corebluetooth.restoration", qos: .utility)

    /// Nil, and a line on standard error, for an identifier that gives no file name.
    init?(identifier: String, directory: URL?) {
        let name = identifier.utf8.map { byte -> String in
            let isSafe =
                (48...57).contains(byte) || (65...90).contains(byte) || (97...122).contains(byte) || byte == 45
            return isSafe ? String(UnicodeScalar(byte)) : "_" + Hex.encode([byte])
        }.joined()
        guard !name.isEmpty, name.utf8.count <= 200 else {
            Misuse.log("a restore identifier has to have 1 to 200 bytes: state is not restored")
            return nil
        }
        file = (directory ?? Self.standardDirectory).appendingPathComponent(name + ".plist")
    }

    private static var standardDirectory: URL {
        let environment = ProcessInfo.processInfo.environment
        let base: URL
        if let path = environment["XDG_STATE_HOME"], path.hasPrefix("/") {
            base = URL(fileURLWithPath: path, isDirectory: true)
        } else {
            base = FileManager.default.homeDirectoryForCurrentUser.appendingPathComponent(".local/state")
        }
        return base.appendingPathComponent("blueferry/corebluetooth", isDirectory: true)
    }

    /// Nil where there is nothing to restore; a file that is not readable is left out with a line on standard error.
    func load() -> RestoredState? {
        guard let data = try? Data(contentsOf: file) else { return nil }
        guard let stored = try? PropertyListDecoder().decode(Stored.self, from: data) else {
            Misuse.warn("\(file.path) is not a restoration file: nothing is restored")
            return nil
        }
        let state = stored.state
        variables.withLock {
            $0.peripherals = state.peripherals
            $0.scan = state.scan
        }
        return state.peripherals.isEmpty && state.scan == nil ? nil : state
    }

    func scanning(_ request: RadioScanRequest?) {
        variables.withLock { $0.scan = request }
        save()
    }

    /// Connections have begun or ended.
    func changed(_ manager: CBCentralManager) {
        let keys = manager.livePeripherals.filter { $0.state == .connected || $0.state == .connecting }.map(\.key)
        variables.withLock { $0.peripherals = keys.sorted { $0.address < $1.address } }
        save()
    }

    func end() {
        variables.withLock { $0.hasEnded = true }
        save()
    }

    /// Waits until all is written; for tests.
    func flush() { writer.sync {} }

    private func save() {
        writer.async { [file, variables] in
            let now = variables.withLock { $0 }
            if now.hasEnded {
                try? FileManager.default.removeItem(at: file)
                return
            }
            do {
                let stored = Stored(RestoredState(peripherals: now.peripherals, scan: now.scan))
                let directory = file.deletingLastPathComponent()
                try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
                try PropertyListEncoder().encode(stored).write(to: file, options: .atomic)
            } catch {
                Misuse.warn("\(file.path) could not be written, so state will not be restored: \(error)")
            }
        }
    }

    private struct Stored: Codable {
        var peripherals: [String]
        var services: [String]?
        var solicited: [String]?
        var allowsDuplicates: Bool?

        init(_ state: RestoredState) {
            peripherals = state.peripherals.map(\.identifier.uuidString)
            services = state.scan?.services.map(\.description)
            solicited = state.scan?.solicited.map(\.description)
            allowsDuplicates = state.scan?.allowsDuplicates
        }

        var state: RestoredState {
            var state = RestoredState()
            state.peripherals = peripherals.compactMap { UUID(uuidString: $0).flatMap { DeviceKey(identifier: $0) } }
            if let services {
                state.scan = RadioScanRequest(
                    services: services.compactMap { BluetoothUUID(parsing: $0) },
                    solicited: (solicited ?? []).compactMap { BluetoothUUID(parsing: $0) },
                    allowsDuplicates: allowsDuplicates ?? false)
            }
            return state
        }
    }
}
