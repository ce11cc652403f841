import EventLoop
import Glibc
import Sandbox
import XCTest

final class ChildProcessTests: XCTestCase {
    override class func setUp() { EventLoop.shared.startThread() }

    @EventLoopActor
    private final class Lines {
        var lines: [String] = []
    }

    @EventLoopActor
    func testOutputIsReadByLineToItsEnd() async throws {
        let output = Lines()
        let errors = Lines()
        let child = try ChildProcess(
            "sh", ["-c", "printf 'one\\n\\ntwo\\nlast'; echo wrong >&2; exit 3"],
            output: .lines { output.lines.append($0) }, errors: .lines { errors.lines.append($0) })
        let exit = try await child.waitForExit(within: .seconds(10))
        XCTAssertEqual(exit, .code(3))
        XCTAssertEqual(output.lines, ["one", "", "two", "last"])
        XCTAssertEqual(errors.lines, ["wrong"])
        XCTAssertFalse(child.isRunning)
    }

    @EventLoopActor
    func testALongOutputLosesNothing() async throws {
        let output = Lines()
        let child = try ChildProcess("seq", ["200000"], output: .lines { output.lines.append($0) })
        try await child.waitForExit(within: .seconds(20))
        XCTAssertEqual(output.lines.count, 200_000)
        XCTAssertEqual(output.lines.last, "200000")
    }

    @EventLoopActor
    func testInputReachesTheChildAndItsEndEndsIt() async throws {
        let output = Lines()
        let child = try ChildProcess("cat", hasInput: true, output: .lines { output.lines.append($0) })
        XCTAssertTrue(child.write("hello\n"))
        child.closeInput()
        XCTAssertFalse(child.write("too late\n"))
        let exit = try await child.waitForExit(within: .seconds(10))
        XCTAssertEqual(exit, .code(0))
        XCTAssertEqual(output.lines, ["hello"])
    }

    @EventLoopActor
    func testOutputGoesToAFile() async throws {
        let directory = try TemporaryDirectory()
        let path = directory.file("out")
        try await ChildProcess("echo", ["x"], output: .file(path)).waitForExit(within: .seconds(10))
        try await ChildProcess("cat", [path], output: .file(path + "2")).waitForExit(within: .seconds(10))
        let output = Lines()
        try await ChildProcess("cat", [path + "2"], output: .lines { output.lines.append($0) })
            .waitForExit(within: .seconds(10))
        XCTAssertEqual(output.lines, ["x"])
    }

    @EventLoopActor
    func testStopIsKindFirstAndHardThen() async throws {
        let ready = Pending<Void>()
        let kind = try ChildProcess("sleep", ["1000"])
        let first = await kind.stop()
        XCTAssertEqual(first, .signal(SIGTERM))
        let deaf = try ChildProcess(
            "sh", ["-c", "trap '' TERM; echo ready; exec sleep 1000"],
            output: .lines { _ in ready.succeed(()) })
        try await ready.value(timeout: .seconds(10))
        let second = await deaf.stop(grace: .milliseconds(100))
        XCTAssertEqual(second, .signal(SIGKILL))
    }

    @EventLoopActor
    func testWaitingHasADeadline() async throws {
        let child = try ChildProcess("sleep", ["1000"])
        do {
            try await child.waitForExit(within: .milliseconds(50))
            XCTFail("a running process was said to have ended")
        } catch {
            XCTAssertEqual(error.code, .stillRuns)
        }
        XCTAssertTrue(child.isRunning)
        child.kill()
        let exit = try await child.waitForExit(within: .seconds(10))
        XCTAssertEqual(exit, .signal(SIGKILL))
    }

    @EventLoopActor
    func testAMissingProgramIsNamed() async throws {
        XCTAssertThrowsError(try ChildProcess("no-such-program")) { error in
            XCTAssertEqual((error as? SandboxError)?.code, .notInstalled)
            XCTAssertTrue("\(error)".contains("no-such-program"), "\(error)")
        }
    }

    @EventLoopActor
    func testTheEnvironmentIsTheOneGiven() async throws {
        let output = Lines()
        let child = try ChildProcess(
            "/usr/bin/env", environment: ["ONLY": "this=that"], output: .lines { output.lines.append($0) })
        try await child.waitForExit(within: .seconds(10))
        XCTAssertEqual(output.lines, ["ONLY=this=that"])
        XCTAssertNotNil(ChildProcess.ownEnvironment()["PATH"])
    }

    @EventLoopActor
    func testAChildIsToldTheDeathOfItsParent() async throws {
        try XCTSkipIf(ChildProcess.find("setpriv") == nil, "setpriv is not installed")
        let output = Lines()
        // PDeathSig stands in no file of /proc; setpriv prints it.
        let child = try ChildProcess("setpriv", ["--dump"], output: .lines { output.lines.append($0) })
        try await child.waitForExit(within: .seconds(10))
        let line = output.lines.first { $0.lowercased().hasPrefix("parent death signal") }
        XCTAssertTrue(line?.contains("TERM") == true, "\(output.lines)")
    }

    func testATemporaryDirectoryGoesWithItsContents() throws {
        let directory = try TemporaryDirectory()
        let path = directory.path
        try directory.write("x", to: "a")
        XCTAssertEqual(mkdir(directory.file("sub"), 0o700), 0)
        try directory.write("x", to: "sub/b")
        XCTAssertEqual(symlink("/usr", directory.file("link")), 0)
        directory.remove()
        XCTAssertEqual(access(path, F_OK), -1)
        XCTAssertEqual(access("/usr", F_OK), 0)
    }
}
