internal import EventLoop

/// RFC 3339 in UTC with milliseconds, by arithmetic. The second's text is kept: advertisements share it.
struct TimestampWriter {
    private var second = Int64.min
    /// `YYYY-MM-DDTHH:MM:SS.mmmZ`
    private var text = [UInt8]("0000-00-00T00:00:00.000Z".utf8)

    /// Sets the time that is copied from now on. Years outside 0…9999 are held at the ends of that range.
    mutating func set(_ time: WallTime) { write(time) }

    /// Copies the 24 bytes; gives back their number.
    func copy(to start: UnsafeMutablePointer<UInt8>) -> Int {
        text.withUnsafeBufferPointer { text in
            if let base = text.baseAddress { start.update(from: base, count: text.count) }
            return text.count
        }
    }

    mutating func string(_ time: WallTime) -> String {
        write(time)
        return String(decoding: text, as: UTF8.self)
    }

    private mutating func write(_ time: WallTime) {
        // 0000-01-01T00:00:00.000Z … 9999-12-31T23:59:59.999Z
        let milliseconds = min(max(time.milliseconds, -62_167_219_200_000), 253_402_300_799_999)
        var seconds = milliseconds / 1000
        var rest = milliseconds % 1000
        if rest < 0 {
            rest += 1000
            seconds -= 1
        }
        if seconds != second {
            second = seconds
            writeSecond(seconds)
        }
        put(Int(rest), digits: 3, at: 20)
    }

    private mutating func writeSecond(_ seconds: Int64) {
        var days = seconds / 86_400
        var left = Int(seconds % 86_400)
        if left < 0 {
            left += 86_400
            days -= 1
        }
        put(left / 3600, digits: 2, at: 11)
        put(left / 60 % 60, digits: 2, at: 14)
        put(left % 60, digits: 2, at: 17)
        // Days to a Gregorian date: eras of 400 years that begin on 1 March.
        let shifted = Int(days) + 719_468
        let era = (shifted >= 0 ? shifted : shifted - 146_096) / 146_097
        let dayOfEra = shifted - era * 146_097
        let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let marchMonth = (5 * dayOfYear + 2) / 153
        let month = marchMonth < 10 ? marchMonth + 3 : marchMonth - 9
        put(yearOfEra + era * 400 + (month <= 2 ? 1 : 0), digits: 4, at: 0)
        put(month, digits: 2, at: 5)
        put(dayOfYear - (153 * marchMonth + 2) / 5 + 1, digits: 2, at: 8)
    }

    private mutating func put(_ value: Int, digits: Int, at offset: Int) {
        var value = value
        for index in stride(from: offset + digits - 1, through: offset, by: -1) {
            text[index] = UInt8(ascii: "0") + UInt8(truncatingIfNeeded: value % 10)
            value /= 10
        }
    }
}

/// The text of a time, for rare payloads.
func timestamp(_ time: WallTime) -> String {
    var writer = TimestampWriter()
    return writer.string(time)
}
