internal import DBus
public import EventLoop

/// Answers BlueZ's questions while a device is paired by us. It is not made the default agent: what others on this
/// machine pair stays theirs. Source: BlueZ org.bluez.Agent(5), org.bluez.AgentManager(5).
@EventLoopActor
public final class PairingAgent {
    public weak var delegate: (any PairingDelegate)?
    weak var client: BlueZClient?
    private static let path = "/blueferry/agent"

    nonisolated init() {}

    /// RegisterAgent, each time that BlueZ has come. Without it a device that needs no passkey can still be paired.
    func register() {
        guard let client else { return }
        client.connection?.export(path: Self.path, subtree: false) { [weak self] in self?.handle($0) }
        client.call(
            path: "/org/bluez", "org.bluez.AgentManager1", "RegisterAgent", timeout: .seconds(5),
            write: {
                $0.append(objectPath: Self.path)
                $0.append(string: "KeyboardDisplay")
            }, then: { _ in })
    }

    private func handle(_ message: DBusMessage) -> DBusMessage? {
        guard message.interface == "org.bluez.Agent1" else {
            return message.error("org.freedesktop.DBus.Error.UnknownMethod", "no such interface")
        }
        switch message.member {
        case "Release", "Cancel": return message.reply()
        default: break
        }
        var reader = message.reader()
        guard let path = reader.string(), let device = client?.device(at: path), let delegate, delegate.mayPair(device)
        else { return message.error("org.bluez.Error.Rejected", "not asked for") }
        reader.next()
        switch message.member {
        case "RequestPasskey": return passkey(for: device, delegate, message)
        case "RequestPinCode":
            guard let passkey = asked(for: device, delegate) else { return reject(message) }
            let reply = message.reply()
            var writer = reply.writer()
            writer.append(string: Self.digits(passkey))
            return reply
        case "DisplayPasskey":
            if let passkey = reader.uint32() { delegate.display(passkey: Self.digits(passkey), for: device) }
            return message.reply()
        case "DisplayPinCode":
            if let code = reader.string() { delegate.display(passkey: code, for: device) }
            return message.reply()
        case "RequestConfirmation":
            // A configured passkey must be the one that both sides show.
            if let passkey = delegate.passkey(for: device), passkey != reader.uint32() { return reject(message) }
            return message.reply()
        case "RequestAuthorization", "AuthorizeService": return message.reply()
        default: return message.error("org.freedesktop.DBus.Error.UnknownMethod", "no such method")
        }
    }

    private func passkey(
        for device: RemoteDevice, _ delegate: any PairingDelegate, _ message: DBusMessage
    ) -> DBusMessage? {
        guard let passkey = asked(for: device, delegate) else { return reject(message) }
        let reply = message.reply()
        var writer = reply.writer()
        writer.append(uint32: passkey)
        return reply
    }

    private func asked(for device: RemoteDevice, _ delegate: any PairingDelegate) -> UInt32? {
        let passkey = delegate.passkey(for: device)
        if passkey == nil { delegate.passkeyIsMissing(for: device) }
        return passkey
    }

    private func reject(_ message: DBusMessage) -> DBusMessage? {
        message.error("org.bluez.Error.Rejected", "no passkey is configured for the device")
    }

    private static func digits(_ passkey: UInt32) -> String {
        let text = String(passkey)
        return String(repeating: "0", count: max(0, 6 - text.count)) + text
    }
}
