internal import Glibc

/// What a process uses, as `/proc` tells it. Source: `proc_pid_status(5)`, `proc_pid_fd(5)`.
enum Machine {
    /// Resident memory in bytes; 0 where there is no such process.
    static func residentBytes(_ process: Int32) -> Int {
        let line = lines("/proc/\(process)/status").first { $0.hasPrefix("VmRSS:") }
        let kilobytes = line?.split(whereSeparator: { $0 == " " || $0 == "\t" }).dropFirst().first
        return (kilobytes.flatMap { Int($0) } ?? 0) * 1024
    }

    static func openFiles(_ process: Int32) -> Int { names(in: "/proc/\(process)/fd").count }

    /// The processes whose command line holds all of these words.
    static func processes(_ words: [String]) -> [Int32] {
        names(in: "/proc").compactMap { Int32($0) }.filter { process in
            let arguments = text("/proc/\(process)/cmdline").split(separator: "\0")
            return words.allSatisfy { word in arguments.contains { $0 == word || $0.hasSuffix("/" + word) } }
        }
    }

    static func text(_ path: String) -> String {
        guard let file = fopen(path, "re") else { return "" }
        defer { fclose(file) }
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 65_536)
        while case let count = fread(&chunk, 1, chunk.count, file), count > 0 { bytes += chunk[0..<count] }
        return String(decoding: bytes, as: UTF8.self)
    }

    private static func lines(_ path: String) -> [Substring] { text(path).split(separator: "\n") }

    private static func names(in path: String) -> [String] {
        guard let directory = opendir(path) else { return [] }
        defer { closedir(directory) }
        var names: [String] = []
        while let entry = readdir(directory) {
            let name = withUnsafeBytes(of: entry.pointee.d_name) { bytes in
                String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
            }
            if name != ".", name != ".." { names.append(name) }
        }
        return names
    }

    /// Sets the wall clock. Source: `clock_settime(2)`, CLOCK_REALTIME.
    static func moveWallClock(bySeconds seconds: Int) -> Bool {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        time.tv_sec += seconds
        return clock_settime(CLOCK_REALTIME, &time) == 0
    }
}
