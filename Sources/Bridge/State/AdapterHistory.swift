internal import Bluetooth

/// What became of the adapters: each change that a person should hear of, once. Pure.
struct AdapterHistory {
    struct Change: Equatable {
        var level: LogLevel
        var code: String
        var message: String
        /// It ends what an earlier one told of.
        var isEnd = false
    }

    private struct Known {
        var state: AdapterReport.State
        var systemName: String
        /// The name under which it was last told of.
        var toldName: String
        /// It was told as off or away, and not yet as back.
        var isMissed = false
    }

    private var known: [BluetoothAddress: Known] = [:]

    /// A change for the worse was told; its end is to be told too.
    mutating func didTell(of address: BluetoothAddress) {
        guard var now = known[address] else { return }
        now.isMissed = true
        now.toldName = now.systemName
        known[address] = now
    }

    /// Takes in how an adapter is now; nil where there is nothing to tell.
    mutating func note(_ adapter: AdapterReport) -> Change? {
        guard adapter.isSelected else { return nil }
        let before = known[adapter.address]
        var now = before ?? Known(state: .unknown, systemName: adapter.systemName, toldName: adapter.systemName)
        now.state = adapter.state
        if !adapter.systemName.isEmpty { now.systemName = adapter.systemName }
        defer { known[adapter.address] = now }
        let name = "the adapter \(now.systemName) (\(adapter.address))"
        let renamed = now.toldName == now.systemName ? "" : ", which was \(now.toldName),"
        guard before?.state != now.state else {
            guard !renamed.isEmpty, now.state == .poweredOn else { return nil }
            now.toldName = now.systemName
            return Change(level: .info, code: "adapter", message: name + renamed, isEnd: true)
        }
        switch adapter.state {
        // That bluetoothd is away is told once for all.
        case .unknown, .resetting: return nil
        case .unsupported:
            return Change(level: .warning, code: "adapter_gone", message: "\(name) was unplugged; plug it in again")
        case .unauthorized:
            return Change(level: .error, code: "adapter_denied", message: "the bus denies the use of \(name)")
        case .poweredOff:
            return Change(
                level: .warning, code: "adapter_off",
                message: "\(name)\(renamed) is off; switch it on, as by 'bluetoothctl power on'")
        case .poweredOn:
            let isEnd = now.isMissed || !renamed.isEmpty
            now.isMissed = false
            now.toldName = now.systemName
            return Change(level: .info, code: "adapter", message: "\(name)\(renamed) is on", isEnd: isEnd)
        }
    }
}
