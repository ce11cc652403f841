internal import Bluetooth

extension BluetoothUUID {
    /// The dashed form as BlueZ writes it, read where it lies in a message. For the path of each advertisement: no
    /// generic code, no memory. Other forms take the usual way.
    init?(text: UnsafeRawBufferPointer) {
        guard text.count == 36 else {
            self.init(parsingBytes: text)
            return
        }
        var high: UInt64 = 0
        var low: UInt64 = 0
        for index in 0..<36 {
            let character = text[index]
            if index == 8 || index == 13 || index == 18 || index == 23 {
                guard character == UInt8(ascii: "-") else { return nil }
                continue
            }
            let digit: UInt8
            switch character {
            case 0x30...0x39: digit = character &- 0x30
            case 0x61...0x66: digit = character &- 0x57
            case 0x41...0x46: digit = character &- 0x37
            default: return nil
            }
            if index < 18 { high = high << 4 | UInt64(digit) } else { low = low << 4 | UInt64(digit) }
        }
        self.init(high: high, low: low)
    }
}
