import BlueZSimulator
import Central
import XCTest

@testable import Bridge
@testable import blueferry

/// What the program says to people.
final class MessageTests: XCTestCase {
    func testHelpIsGivenWhateverElseStandsThere() {
        for words in [["run", "-h"], ["scan", "--help"], ["check", "--confg", "x", "-h"], ["version", "--help"]] {
            XCTAssertEqual(Main.run(words), ExitCode.fine, "\(words)")
        }
        XCTAssertEqual(Main.run(["run", "-x"]), ExitCode.usage)
    }

    func testMisspeltVariablesAreNamed() {
        let environment = ["BLUEFERRY_MQTT_ULR": "s3cr3t", "BLUEFERRY_MQTT_URL": "mqtt://x", "HOME": "/"]
        XCTAssertEqual(
            RunCommand.variableWarnings(environment),
            [
                "the environment variable BLUEFERRY_MQTT_ULR is no setting and is ignored;"
                    + " did you mean BLUEFERRY_MQTT_URL?"
            ])
        XCTAssertEqual(RunCommand.variableWarnings(["BLUEFERRY_MQTT_URL": "mqtt://x"]), [])
    }

    func testTheBrokersAddressStandsOnceInItsSentence() {
        XCTAssertEqual(
            Checkup.brokerSentence("no broker at 127.0.0.1:1: Connection refused", "127.0.0.1:1"),
            "the broker cannot be used: no broker at 127.0.0.1:1: Connection refused; see mqtt.url")
        XCTAssertEqual(
            Checkup.brokerSentence("no answer within 5000 ms", "127.0.0.1:1"),
            "the broker at 127.0.0.1:1 cannot be used: no answer within 5000 ms; see mqtt.url")
    }

    func testWhatIsMissingComesWithARemedy() {
        XCTAssertNil(CentralState.running.problem)
        XCTAssertEqual(
            CentralState.noBlueZ.problem,
            "bluetoothd does not run (nobody owns org.bluez on the bus); install bluez and start it: systemctl enable"
                + " --now bluetooth")
        XCTAssertTrue(CentralState.noBus("no socket").problem?.contains("no socket; start dbus") == true)
        XCTAssertTrue(CentralState.unauthorized("denied").problem?.contains("denied; run as root") == true)
    }

    func testWhyTheSimulatorDoesNotStart() {
        struct Fault: Error, CustomStringConvertible { let description: String }
        let taken = SimulateCommand.ending(
            Fault(description: "org.freedesktop.DBus.Error.NameExists: org.bluez has another owner"))
        XCTAssertEqual(taken.code, ExitCode.unavailable)
        XCTAssertFalse(taken.message.contains("freedesktop"), taken.message)
        XCTAssertTrue(taken.message.contains("--bus"), taken.message)
        let other = SimulateCommand.ending(Fault(description: "no bus"))
        XCTAssertEqual(other.code, ExitCode.unavailable)
        XCTAssertTrue(other.message.contains("no bus"), other.message)
    }

    func testWhatIsSimulatedIsSaid() {
        var fleet = Fleet()
        XCTAssertEqual(SimulateCommand.sentence(fleet), "simulating 0 devices around hci0; it ends by Ctrl-C")
        fleet.adapters.append(Fleet.Adapter(name: "hci1", address: Fleet.Adapter.standard.address))
        XCTAssertTrue(SimulateCommand.sentence(fleet).contains("hci0, hci1"))
    }
}
