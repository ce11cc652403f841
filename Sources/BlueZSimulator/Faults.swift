internal import Bluetooth
internal import EventLoop

/// Method calls that are to go wrong.
@EventLoopActor
final class Faults {
    enum Kind {
        case error(name: String, message: String)
        case delay(Duration)
        case hang
    }

    private struct Entry {
        /// `Device1.Connect`
        let method: String
        let kind: Kind
        /// The end of the object's path or of one above it: `dev_…`.
        let node: String?
        var times: Int
    }

    private var entries: [Entry] = []

    /// - Parameters:
    ///   - method: the interface's last part and the member.
    ///   - node: a part of the object's path; nil: any object.
    func add(_ method: String, _ kind: Kind, times: Int, node: String? = nil) {
        guard times > 0 else { return }
        entries.append(Entry(method: method, kind: kind, node: node, times: times))
    }

    /// The fault of a call, which is used up by that.
    func take(_ call: MethodCall) -> Kind? {
        guard !entries.isEmpty else { return nil }
        let interface = call.interface.split(separator: ".").last ?? ""
        let method = "\(interface).\(call.member)"
        let nodes = call.path.split(separator: "/")
        let index = entries.firstIndex { entry in
            entry.method == method && (entry.node.map { node in nodes.contains { $0 == node } } ?? true)
        }
        guard let index else { return nil }
        let kind = entries[index].kind
        entries[index].times -= 1
        if entries[index].times == 0 { entries.remove(at: index) }
        return kind
    }
}
