import Glibc

/// What the kernel counts of a process, of all its threads. Source: `proc(5)`.
enum ProcessFigures {
    /// Processor time by the scheduler's clock, in nanoseconds: finer than the ticks of `stat`.
    static func processorTime(_ pid: Int32) -> UInt64 {
        threads(pid).reduce(0) { sum, thread in
            sum + (text("\(thread)/schedstat").split(separator: " ").first.flatMap { UInt64($0) } ?? 0)
        }
    }

    /// How often its threads went to sleep by themselves: each time something woke them up again.
    static func wakeUps(_ pid: Int32) -> Int {
        threads(pid).reduce(0) { $0 + field("voluntary_ctxt_switches", "\($1)/status") }
    }

    /// The most memory that was resident at a time, in KiB.
    static func peakMemory(_ pid: Int32) -> Int { field("VmHWM", "/proc/\(pid)/status") }
    static func memory(_ pid: Int32) -> Int { field("VmRSS", "/proc/\(pid)/status") }
    /// KiB, which /proc counts in, as millions of bytes.
    static func megabytes(_ kibibytes: Int) -> Double { Double(kibibytes) * 1.024 / 1000 }

    static func text(_ path: String) -> String {
        guard let file = fopen(path, "re") else { return "" }
        defer { fclose(file) }
        var bytes = [UInt8](repeating: 0, count: 1 << 16)
        let count = fread(&bytes, 1, bytes.count, file)
        return String(decoding: bytes.prefix(count), as: UTF8.self)
    }

    /// The first word after `name:` in a file.
    static func value(_ name: String, _ path: String) -> Substring? {
        for line in text(path).split(separator: "\n") where line.hasPrefix(name) {
            guard let colon = line.firstIndex(of: ":") else { continue }
            return line[line.index(after: colon)...].drop { $0 == " " || $0 == "\t" }
        }
        return nil
    }

    private static func field(_ name: String, _ path: String) -> Int {
        value(name, path)?.split(separator: " ").first.flatMap { Int($0) } ?? 0
    }

    private static func threads(_ pid: Int32) -> [String] {
        guard let directory = opendir("/proc/\(pid)/task") else { return [] }
        defer { closedir(directory) }
        var found: [String] = []
        while let entry = readdir(directory) {
            let name = withUnsafeBytes(of: entry.pointee.d_name) {
                String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
            }
            if Int32(name) != nil { found.append("/proc/\(pid)/task/\(name)") }
        }
        return found
    }
}
