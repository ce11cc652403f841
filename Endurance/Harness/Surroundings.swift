internal import EventLoop
internal import Glibc
internal import JSON
internal import Sandbox
internal import TestKit

/// A text parameter of an order to the radio.
typealias JSONText = String

extension [String: JSONText] {
    var json: [String: JSONValue] { mapValues { .string($0) } }
}

extension StageOptions {
    /// The outbox gets a disk of 1 MiB: a tmpfs that only the bridge sees where this process may mount one, else a limit
    /// on the size of the files that the bridge writes (`RLIMIT_FSIZE`).
    mutating func limitDisk() throws {
        if getuid() == 0, let unshare = ChildProcess.find("unshare") {
            outboxDirectory = "/mnt"
            wrapper = [
                unshare, "--mount", "/bin/sh", "-c",
                "mount -t tmpfs -o size=1m,mode=700 none /mnt && exec \"$@\"", "sh",
            ]
        } else {
            wrapper = ["/bin/sh", "-c", "trap '' XFSZ; ulimit -f 2048; exec \"$@\"", "sh"]
        }
    }
}

/// The time of day as the bridge sees it. In the lab it is the guest's own clock; elsewhere nothing but the bridge may
/// see another time, for which libfaketime is put before its C library.
@EventLoopActor
enum WallClock {
    private static var shiftedBy = 0
    private static let file = "/tmp/blueferry-endurance-clock-\(getpid())"

    private static var library: String? {
        ["x86_64-linux-gnu", "aarch64-linux-gnu", "arm-linux-gnueabihf"]
            .map { "/usr/lib/\($0)/faketime/libfaketime.so.1" }
            .first { access($0, R_OK) == 0 }
    }

    static var obstacle: String? {
        World.isLab || library != nil ? nil : "needs Debian's package faketime"
    }

    static func prepare(_ options: inout StageOptions) {
        guard !World.isLab, let library else { return }
        write("+0")
        options.environment = [
            "LD_PRELOAD": library, "FAKETIME_TIMESTAMP_FILE": file, "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        ]
    }

    /// Moves the clock to so many hours from the right time.
    static func shift(to hours: Int, _ stage: Stage) throws {
        defer { shiftedBy = hours }
        guard World.isLab else {
            if hours == 0 { write("+0") } else { write((hours > 0 ? "+" : "-") + "\(abs(hours) * 3600)") }
            return
        }
        guard Machine.moveWallClock(bySeconds: (hours - shiftedBy) * 3600) else {
            throw Expired(message: "the guest's clock cannot be set: \(String(cString: strerror(errno)))")
        }
    }

    private static func write(_ text: String) {
        guard let stream = fopen(file, "w") else { return }
        fputs(text + "\n", stream)
        fclose(stream)
    }

    static func cleanUp() { unlink(file) }
}
