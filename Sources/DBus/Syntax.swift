internal import CDBus
internal import Glibc

/// What libdbus would end the process over, asked first. Each case stands for a function `dbus_validate_…`.
enum Syntax: String {
    case busName = "bus name"
    case path = "object path"
    case interface = "interface name"
    case member = "member name"
    case errorName = "error name"

    func isValid(_ text: String) -> Bool {
        guard Self.hasNoNUL(text) else { return false }
        switch self {
        case .busName: return dbus_validate_bus_name(text, nil) != 0
        case .path: return dbus_validate_path(text, nil) != 0
        case .interface: return dbus_validate_interface(text, nil) != 0
        case .member: return dbus_validate_member(text, nil) != 0
        case .errorName: return dbus_validate_error_name(text, nil) != 0
        }
    }

    /// What is wrong with the text; nil where nothing is.
    func fault(_ text: String) -> DBusError? {
        isValid(text) ? nil : .invalid("\(text.prefix(100).debugDescription) is not a valid \(rawValue)")
    }

    /// True for the signature of one complete type. Source: `dbus_signature_validate_single`.
    static func isSingleType(_ signature: String) -> Bool {
        hasNoNUL(signature) && dbus_signature_validate_single(signature, nil) != 0
    }

    static func hasNoNUL(_ text: String) -> Bool { text.withCString { strlen($0) } == text.utf8.count }

    /// The complete type at the start of a valid signature.
    static func firstType(of signature: Substring) -> Substring {
        let codes = signature.utf8
        var depth = 0
        var index = codes.startIndex
        while index < codes.endIndex {
            let code = codes[index]
            index = codes.index(after: index)
            switch code {
            case UInt8(ascii: "a"): continue
            case UInt8(ascii: "("), UInt8(ascii: "{"): depth += 1
            case UInt8(ascii: ")"), UInt8(ascii: "}"): depth -= 1
            default: break
            }
            if depth == 0 { break }
        }
        return signature[..<index]
    }
}
