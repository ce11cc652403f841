internal import Bluetooth
internal import EventLoop
internal import Glibc

/// Says to the other programs of this machine that use this engine: this one holds the link. BlueZ does not know who
/// needs a link, and ends it for all when one asks.
///
/// It is a bound datagram socket in the abstract namespace: it goes with its process, however that ends, needs no rights,
/// and stands in /proc/net/unix. Programs in another network namespace (a container with a network of its own) do not see
/// it. Source: `unix(7)`, `proc(5)`.
@EventLoopActor
final class LinkMarker {
    private let descriptor: Int32
    private static var count = 0

    /// What all markers of a link have in common. The bus tells machines' radios apart from simulated ones.
    static func prefix(bus: String?, _ address: BluetoothAddress) -> String {
        let bus = bus ?? getenv("DBUS_SYSTEM_BUS_ADDRESS").map { String(cString: $0) } ?? "system"
        // FNV-1a: the same in every process, as Swift's hashes are not.
        let scope = bus.utf8.reduce(UInt32(2_166_136_261)) { ($0 ^ UInt32($1)) &* 16_777_619 }
        return "blueferry/\(String(scope, radix: 16))/\(address)/"
    }

    /// Nil where the system gives no socket: the link is then held unseen.
    /// - Parameter isOurs: made by a program that uses this engine, so that the last of them ends it.
    init?(prefix: String, isOurs: Bool) {
        Self.count += 1
        let name = Array("\(prefix)\(getpid())-\(Self.count)/\(isOurs ? "made" : "found")".utf8)
        descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { return nil }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let room = MemoryLayout.size(ofValue: address.sun_path) - 1
        withUnsafeMutableBytes(of: &address.sun_path) { $0[1...].copyBytes(from: name.prefix(room)) }
        let length = socklen_t(MemoryLayout<sa_family_t>.size + 1 + min(name.count, room))
        let status = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(descriptor, $0, length) }
        }
        guard status == 0 else {
            close(descriptor)
            return nil
        }
    }

    deinit { close(descriptor) }

    /// The markers of a link that stand now: true for those of a link that this engine made.
    static func standing(prefix: String) -> [Bool] {
        guard let file = fopen("/proc/net/unix", "re") else { return [] }
        defer { fclose(file) }
        var line: UnsafeMutablePointer<CChar>?
        var size = 0
        defer { free(line) }
        var found: [Bool] = []
        while getline(&line, &size, file) > 0, let line {
            guard let place = strstr(line, "@" + prefix) else { continue }
            found.append(strstr(place, "/made") != nil)
        }
        return found
    }
}
