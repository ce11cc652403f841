internal import Glibc

/// The default client id: `blueferry-<gateway>-` and six random hex digits, kept in a file beside the outbox, so that
/// two gateways of one name do not throw each other out, and a restarted one is the same client.
public enum ClientIdentifier {
    /// - Parameter directory: where it is kept; where that cannot be written to, each start has a new one.
    public static func load(gateway: String, directory: String) -> String {
        let path = directory + "/client-id"
        if let kept = read(path) { return "blueferry-\(gateway)-\(kept)" }
        let digits = make()
        write(digits, to: path)
        return "blueferry-\(gateway)-\(digits)"
    }

    /// One that is not kept: for a second bridge beside one that has the file.
    public static func temporary(gateway: String) -> String { "blueferry-\(gateway)-\(make())" }

    static func make() -> String {
        let text = String(UInt32.random(in: 0...0xff_ffff), radix: 16)
        return String(repeating: "0", count: 6 - text.utf8.count) + text
    }

    /// The six digits of the file; nil where it is not there or holds something else.
    private static func read(_ path: String) -> String? {
        guard let file = fopen(path, "re") else { return nil }
        defer { fclose(file) }
        var bytes = [UInt8](repeating: 0, count: 16)
        let count = fread(&bytes, 1, bytes.count, file)
        let digits = bytes.prefix(count).prefix { $0 > 0x20 }
        let isValid =
            digits.count == 6
            && digits.allSatisfy { (0x30...0x39).contains($0) || (0x61...0x66).contains($0) }
        return isValid ? String(decoding: digits, as: UTF8.self) : nil
    }

    /// Whole or not at all: a half-written file would be another client.
    private static func write(_ digits: String, to path: String) {
        let temporary = path + ".new"
        guard let file = fopen(temporary, "we") else { return }
        let isWritten = fputs(digits + "\n", file) >= 0
        guard fclose(file) == 0, isWritten, rename(temporary, path) == 0 else {
            unlink(temporary)
            return
        }
    }
}
