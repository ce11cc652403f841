/// Where the broker is: `mqtt://host:port`, `mqtts://host:port` (TLS), or `unix:///path` for its socket.
public struct BrokerURL: Equatable, Sendable, CustomStringConvertible {
    /// A host name or address, without the brackets of IPv6; empty for a socket.
    public var host: String
    public var port: Int
    public var isTLS: Bool
    /// The path of a unix socket, instead of host and port.
    public var socketPath: String?
    /// Credentials that stood in the URL.
    public var username: String?
    public var password: Secret?

    public static let `default` = BrokerURL(host: "127.0.0.1", port: 1883)

    public init(host: String, port: Int, isTLS: Bool = false) {
        self.host = host
        self.port = port
        self.isTLS = isTLS
    }

    /// Why a text is no such URL; it never repeats the text, which may hold a password.
    public struct ParseError: Error, Equatable, Sendable {
        public let message: String
    }

    /// - Throws: ``ParseError`` that says what is wrong.
    public init(parsing text: String) throws(ParseError) {
        guard let colon = text.firstIndex(of: ":"), text[colon...].hasPrefix("://") else {
            throw ParseError(message: "expected a URL such as mqtt://127.0.0.1:1883")
        }
        let scheme = text[..<colon].lowercased()
        var rest = text[colon...].dropFirst(3)
        switch scheme {
        case "mqtt", "tcp": self.init(host: "", port: 1883)
        case "mqtts", "ssl": self.init(host: "", port: 8883, isTLS: true)
        case "unix":
            // A socket's path has 108 bytes with its final zero (unix(7)).
            guard rest.hasPrefix("/"), (2...107).contains(rest.utf8.count), !Settings.hasControlCharacters(rest) else {
                throw ParseError(message: "expected an absolute path of at most 107 bytes after unix://")
            }
            self.init(host: "", port: 0)
            socketPath = String(rest)
            return
        default: throw ParseError(message: "expected mqtt://, mqtts:// or unix://, found another scheme")
        }
        if let at = rest.lastIndex(of: "@") {
            try readCredentials(rest[..<at])
            rest = rest[rest.index(after: at)...]
        }
        if rest.last == "/" { rest = rest.dropLast() }
        try readHost(rest)
    }

    private mutating func readCredentials(_ text: Substring) throws(ParseError) {
        let parts = text.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        guard let name = parts.first.flatMap(Self.percentDecoded) else {
            throw Self.badCredentials("user name")
        }
        username = name.isEmpty ? nil : name
        if parts.count == 2 {
            guard let secret = Self.percentDecoded(parts[1]) else {
                throw Self.badCredentials("password")
            }
            password = Secret(secret)
        }
    }

    private static func badCredentials(_ what: String) -> ParseError {
        ParseError(message: "the \(what) in the URL has a % that is not followed by two digits, or control characters")
    }

    private mutating func readHost(_ text: Substring) throws(ParseError) {
        var portText: Substring?
        if text.hasPrefix("[") {
            guard let end = text.firstIndex(of: "]") else {
                throw ParseError(message: "an IPv6 address must stand in brackets: [::1]")
            }
            host = String(text[text.index(after: text.startIndex)..<end])
            let after = text[text.index(after: end)...]
            guard after.isEmpty || after.hasPrefix(":") else {
                throw ParseError(message: "expected a port after the IPv6 address")
            }
            portText = after.isEmpty ? nil : after.dropFirst()
        } else {
            let parts = text.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
            host = parts.first.map(String.init) ?? ""
            portText = parts.count == 2 ? parts[1] : nil
        }
        // Printable ASCII, without what ends a host or stands around an address. Source: RFC 3986, 3.2.2.
        let isAllowed = host.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f && !"/?#[]".utf8.contains($0) }
        guard !host.isEmpty, isAllowed else { throw ParseError(message: "the URL's host is missing or not readable") }
        if let portText {
            guard let port = Int(portText), (1...65535).contains(port), !portText.hasPrefix("+") else {
                throw ParseError(message: "the URL's port must be a number from 1 to 65535")
            }
            self.port = port
        }
    }

    private static func percentDecoded(_ text: some StringProtocol) -> String? {
        var bytes: [UInt8] = []
        var rest = Array(text.utf8)[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            guard let high = rest.popFirst().flatMap(hexValue), let low = rest.popFirst().flatMap(hexValue) else {
                return nil
            }
            bytes.append(high << 4 | low)
        }
        return String(validating: bytes, as: UTF8.self).flatMap { Settings.hasControlCharacters($0) ? nil : $0 }
    }

    private static func hexValue(_ byte: UInt8) -> UInt8? {
        switch byte {
        case 0x30...0x39: byte - 0x30
        case 0x41...0x46: byte - 0x41 + 10
        case 0x61...0x66: byte - 0x61 + 10
        default: nil
        }
    }

    /// The URL without credentials.
    public var description: String {
        if let socketPath { return "unix://\(socketPath)" }
        let shownHost = host.contains(":") ? "[\(host)]" : host
        return "\(isTLS ? "mqtts" : "mqtt")://\(shownHost):\(port)"
    }
}
