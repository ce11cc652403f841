internal import Glibc

/// Tells the service manager how far we are. Source: `sd_notify(3)`.
enum ServiceManager {
    /// Without `NOTIFY_SOCKET`, or where it cannot be reached, nothing happens.
    static func notify(_ state: String) {
        guard let variable = getenv("NOTIFY_SOCKET") else { return }
        var path = Array(String(cString: variable).utf8)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        guard let first = path.first, first == UInt8(ascii: "/") || first == UInt8(ascii: "@"),
            path.count < MemoryLayout.size(ofValue: address.sun_path)
        else { return }
        // An abstract name begins with a NUL.
        if first == UInt8(ascii: "@") { path[0] = 0 }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path) }
        let descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { return }
        defer { close(descriptor) }
        let length = socklen_t(MemoryLayout<sa_family_t>.size + path.count)
        let text = Array(state.utf8)
        withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { generic in
                _ = sendto(descriptor, text, text.count, Int32(MSG_NOSIGNAL), generic, length)
            }
        }
    }
}
