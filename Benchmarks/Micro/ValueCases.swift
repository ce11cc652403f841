import Bluetooth
import EventLoop
import JSON

/// Values without I/O.
@EventLoopActor
enum ValueCases {
    static func run(_ runner: Runner) throws {
        let structures: [UInt8] = [
            2, 0x01, 0x06, 5, 0x03, 0x0f, 0x18, 0x0a, 0x18, 9, 0xff, 0xff, 0xff, 1, 2, 3, 4, 5, 6, 6, 0x09, 0x64, 0x6f,
            0x6f, 0x72, 0x31,
        ]
        var parsed = 0
        runner.measure("advertising data, parsed") { _ in
            var advertisement = Advertisement()
            advertisement.merge(advertisingData: structures)
            if advertisement.name == "door1" { parsed += 1 }
        }
        guard parsed > 0 else { throw BenchFault(description: "the advertising data was not understood") }

        let buffer = OutputBuffer()
        let text = "Wohnzimmer – \"Fenster\" \u{1f4a1}"
        runner.measure("text as JSON") { _ in
            buffer.removeAll()
            buffer.appendJSONString(text)
        }
    }
}
