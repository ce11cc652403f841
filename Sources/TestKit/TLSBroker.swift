public import Sandbox

extension TLSFixtures {
    /// For a `PrivateBroker` that speaks TLS alone. Its directory has `ca.pem`, `other.pem`, `client.pem` and `client.key`.
    /// - Parameter server: its certificate.
    /// - Parameter lines: more of its settings.
    public static func broker(
        _ server: String = TLSFixtures.server, _ lines: [String] = []
    ) -> PrivateBroker.Options {
        var options = PrivateBroker.Options()
        options.listener = [
            "listener {port} 127.0.0.1", "allow_anonymous true", "cafile {directory}/ca.pem",
            "certfile {directory}/server.pem", "keyfile {directory}/server.key",
        ]
        options.lines = lines
        options.files = [
            "ca.pem": ca, "other.pem": otherCA, "server.pem": server,
            "server.key": serverKey, "client.pem": client, "client.key": clientKey,
        ]
        return options
    }
}
