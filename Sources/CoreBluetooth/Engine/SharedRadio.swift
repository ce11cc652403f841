/// The engine of this process: made by the first manager.
enum SharedRadio {
    static let radio: any Radio = CentralRadio()
}
