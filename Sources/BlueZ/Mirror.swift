internal import Bluetooth
internal import DBus
internal import EventLoop

/// The objects of org.bluez as signals and GetManagedObjects tell of them, in whatever order and however often.
///
/// Each message is applied whole before anybody hears of it: first adapters, then devices, then GATT trees.
@EventLoopActor
final class Mirror {
    @exclusivity(unchecked) var delegate: (any BlueZDelegate)?
    @exclusivity(unchecked) private(set) var table = PathTable()
    /// GATT objects whose parent has not come yet.
    @exclusivity(unchecked) private var orphans: [RemoteObject] = []
    /// Counts the loads, so that an object tells whether the last one had it.
    private var loads: UInt32 = 0
    @exclusivity(unchecked) private var newAdapters: [RemoteAdapter] = []
    @exclusivity(unchecked) private var changedAdapters: [RemoteAdapter] = []
    @exclusivity(unchecked) private var newDevices: [(device: RemoteDevice, isHeard: Bool)] = []
    @exclusivity(unchecked) private var changedTrees: [RemoteDevice] = []

    nonisolated init() {}

    var adapters: [RemoteAdapter] { table.objects.compactMap { $0 as? RemoteAdapter }.filter { $0.address != nil } }
    var devices: [RemoteDevice] { table.objects.compactMap { $0 as? RemoteDevice } }

    // MARK: What arrives

    /// The reply of GetManagedObjects, `a{oa{sa{sv}}}`: the whole truth at this point of the message stream.
    func load(_ reader: some ArgumentReader) {
        // The reply is megabytes where there are thousands of devices, and still here while observers are told.
        ProcessMemory.makeRoom()
        loads &+= 1
        var objects = reader.enter()
        while objects.isAt(.dictEntry) {
            var entry = objects.enter()
            if let object = apply(objectAt: &entry, isLive: false) { object.seenInLoad = loads }
            objects.next()
        }
        for object in table.objects where object.seenInLoad != loads {
            // A placeholder for the controller of a device that is there stays.
            if let adapter = object as? RemoteAdapter, adapter.address == nil { continue }
            remove(object)
        }
        ProcessMemory.makeRoom()
        announce()
    }

    /// InterfacesAdded, `oa{sa{sv}}`.
    func interfacesAdded(_ reader: some ArgumentReader) {
        var reader = reader
        _ = apply(objectAt: &reader, isLive: true)
        announce()
    }

    /// InterfacesRemoved, `oas`.
    func interfacesRemoved(_ reader: some ArgumentReader) {
        var reader = reader
        guard let object = reader.withBytes({ table.find($0) }) ?? nil else { return }
        reader.next()
        guard reader.isAt(.array) else { return }
        var names = reader.enter()
        while names.isAt(.string) {
            interfaceRemoved(names, from: object)
            names.next()
        }
        announce()
    }

    /// PropertiesChanged, `sa{sv}as`. The hot path.
    func propertiesChanged(_ view: borrowing DBusMessageView) {
        let path = view.path
        if let reader = view.wireReader() {
            propertiesChanged(path: path, reader)
        } else {
            propertiesChanged(path: path, view.reader())
        }
    }

    func propertiesChanged(path: UnsafeRawBufferPointer, _ reader: some ArgumentReader) {
        guard let object = table.find(path) else { return }
        var reader = reader
        switch object.kind {
        case .device:
            // The table holds an object of this kind under it.
            deviceChanged(unsafeDowncast(object, to: RemoteDevice.self), &reader)
        case .characteristic:
            characteristicChanged(unsafeDowncast(object, to: RemoteCharacteristic.self), &reader)
        case .adapter:
            guard let adapter = object as? RemoteAdapter, reader.equals("org.bluez.Adapter1") else { return }
            reader.next()
            var fields = reader.enter()
            AdapterParser.apply(&fields, to: adapter)
            if adapter.address != nil { delegate?.blueZ(adapterDidChange: adapter) }
        case .service, .descriptor: return
        }
    }

    /// Device1.Disconnected of newer BlueZ, `ss`: a name for the reason, and a text.
    func disconnected(path: UnsafeRawBufferPointer, _ reader: MessageReader) {
        guard let device = table.find(path) as? RemoteDevice else { return }
        var reader = reader
        let name = reader.string()?.split(separator: ".").last.map(String.init)
        reader.next()
        let text = reader.string() ?? ""
        device.disconnectReason = text.isEmpty ? name : text
    }

    /// BlueZ is gone, and everything with it.
    func clear() {
        let devices = self.devices
        let adapters = self.adapters
        for object in table.objects { object.isGone = true }
        table = PathTable()
        orphans = []
        for device in devices { delegate?.blueZ(deviceDidDisappear: device) }
        for adapter in adapters { delegate?.blueZ(adapterDidDisappear: adapter) }
    }

    func object(at path: String) -> RemoteObject? { table.find(path) }

    // MARK: Changes

    private func deviceChanged(_ device: RemoteDevice, _ reader: inout some ArgumentReader) {
        var fields: DeviceFields = []
        if reader.equals("org.bluez.Device1") {
            reader.next()
            var entries = reader.enter()
            fields = DeviceParser.apply(&entries, to: device)
            reader.next()
            if reader.isAt(.array) {
                var names = reader.enter()
                fields.formUnion(DeviceParser.invalidate(&names, of: device))
            }
        } else if reader.equals("org.bluez.Battery1") {
            reader.next()
            var entries = reader.enter()
            fields = DeviceParser.applyBattery(&entries, to: device)
            reader.next()
            if reader.isAt(.array) {
                var names = reader.enter()
                fields.formUnion(DeviceParser.invalidateBattery(&names, of: device))
            }
        }
        // Before the first reply a signal may stand for a device of which nobody was told.
        if !fields.isEmpty, device.isAnnounced { delegate?.blueZ(device: device, didChange: fields) }
    }

    private func characteristicChanged(
        _ characteristic: RemoteCharacteristic, _ reader: inout some ArgumentReader
    ) {
        guard reader.equals("org.bluez.GattCharacteristic1") else { return }
        reader.next()
        var entries = reader.enter()
        // A value, which is what comes thousands of times a second, comes alone.
        if GATTParser.applyChange(&entries, to: characteristic) { return }
        reader.next()
        guard reader.isAt(.array) else { return }
        var names = reader.enter()
        GATTParser.invalidate(&names, of: characteristic)
    }

    // MARK: Objects

    /// Reads a path and its interfaces, and makes or completes the object.
    private func apply<Reader: ArgumentReader>(objectAt reader: inout Reader, isLive: Bool) -> RemoteObject? {
        guard reader.isAt(.objectPath) else { return nil }
        let path = reader
        reader.next()
        guard reader.isAt(.array) else { return nil }
        var interfaces = reader.enter()
        var object: RemoteObject?
        while interfaces.isAt(.dictEntry) {
            var entry = interfaces.enter()
            let name = entry
            entry.next()
            if entry.isAt(.array) {
                var properties = entry.enter()
                let made = path.withBytes { apply(name, &properties, at: $0, isLive: isLive) } ?? nil
                object = made ?? object
            }
            interfaces.next()
        }
        return object
    }

    private func apply<Reader: ArgumentReader>(
        _ interface: Reader, _ properties: inout Reader, at path: UnsafeRawBufferPointer, isLive: Bool
    ) -> RemoteObject? {
        if interface.equals("org.bluez.Device1") {
            let device: RemoteDevice = findOrMake(at: path, kind: .device) { self.makeDevice(at: $0) }
            guard device.kind == .device else { return nil }
            return applyDevice(&properties, to: device, isLive: isLive)
        } else if interface.equals("org.bluez.Adapter1") {
            let adapter: RemoteAdapter = findOrMake(at: path, kind: .adapter) { RemoteAdapter(path: $0) }
            let isNew = adapter.address == nil
            AdapterParser.apply(&properties, to: adapter)
            if adapter.address != nil {
                if isNew { newAdapters.append(adapter) } else { changedAdapters.append(adapter) }
            }
            return adapter
        } else if interface.equals("org.bluez.AdvertisementMonitorManager1") {
            let adapter: RemoteAdapter = findOrMake(at: path, kind: .adapter) { RemoteAdapter(path: $0) }
            adapter.supportsMonitor = AdapterParser.takesPatterns(&properties)
            changedAdapters.append(adapter)
            return adapter
        } else if interface.equals("org.bluez.Battery1") {
            let device: RemoteDevice = findOrMake(at: path, kind: .device) { self.makeDevice(at: $0) }
            _ = DeviceParser.applyBattery(&properties, to: device)
            changedTrees.append(device)
            return device
        }
        return applyGATT(interface, &properties, at: path)
    }

    private func applyDevice(
        _ properties: inout some ArgumentReader, to device: RemoteDevice, isLive: Bool
    ) -> RemoteDevice {
        let isNew = !device.isAnnounced
        device.isAnnounced = true
        let fields = DeviceParser.apply(&properties, to: device)
        if isNew {
            newDevices.append((device, isLive && !fields.isDisjoint(with: .heard)))
        } else {
            // A repetition; what it brings is told as a change.
            repeated.append((device, isLive ? fields : fields.subtracting(.heard)))
        }
        return device
    }

    @exclusivity(unchecked) private var repeated: [(RemoteDevice, DeviceFields)] = []

    private func applyGATT<Reader: ArgumentReader>(
        _ interface: Reader, _ properties: inout Reader, at path: UnsafeRawBufferPointer
    ) -> RemoteObject? {
        if interface.equals("org.bluez.GattService1") {
            let service: RemoteService = findOrMake(at: path, kind: .service) { RemoteService(path: $0) }
            GATTParser.apply(&properties, to: service)
            return place(service)
        } else if interface.equals("org.bluez.GattCharacteristic1") {
            let characteristic: RemoteCharacteristic = findOrMake(at: path, kind: .characteristic) {
                RemoteCharacteristic(path: $0)
            }
            GATTParser.apply(&properties, to: characteristic)
            return place(characteristic)
        } else if interface.equals("org.bluez.GattDescriptor1") {
            let descriptor: RemoteDescriptor = findOrMake(at: path, kind: .descriptor) { RemoteDescriptor(path: $0) }
            GATTParser.apply(&properties, to: descriptor)
            return place(descriptor)
        }
        return nil
    }

    /// The object at the path. One of another kind there is a change of mind of BlueZ's: it is replaced.
    private func findOrMake<Object: RemoteObject>(
        at path: UnsafeRawBufferPointer, kind: RemoteObject.Kind, _ make: (UnsafeRawBufferPointer) -> Object
    ) -> Object {
        if let found = table.find(path) {
            if let object = found as? Object { return object }
            remove(found)
        }
        let object = make(path)
        table.insert(object)
        return object
    }

    /// A device, below its controller: where that has not come yet, a placeholder stands for it.
    private func makeDevice(at path: UnsafeRawBufferPointer) -> RemoteDevice {
        let parent = UnsafeRawBufferPointer(rebasing: path[..<(path.lastIndex(of: UInt8(ascii: "/")) ?? 0)])
        let adapter: RemoteAdapter = findOrMake(at: parent, kind: .adapter) { RemoteAdapter(path: $0) }
        return RemoteDevice(path: path, adapter: adapter)
    }

    private func place(_ object: RemoteObject) -> RemoteObject {
        if !adopt(object) { orphans.append(object) }
        return object
    }

    /// Hangs a GATT object under its parent; false where that is not there.
    private func adopt(_ object: RemoteObject) -> Bool {
        let parent = table.find(object.parentPath)
        switch object.kind {
        case .service:
            guard let device = parent as? RemoteDevice, let service = object as? RemoteService else { return false }
            service.device = device
            if !device.gatt.contains(where: { $0 === service }) { device.gatt.append(service) }
        case .characteristic:
            guard let service = parent as? RemoteService, let item = object as? RemoteCharacteristic else {
                return false
            }
            item.service = service
            if !service.characteristics.contains(where: { $0 === item }) { service.characteristics.append(item) }
        case .descriptor:
            guard let owner = parent as? RemoteCharacteristic, let item = object as? RemoteDescriptor else {
                return false
            }
            item.characteristic = owner
            if !owner.descriptors.contains(where: { $0 === item }) { owner.descriptors.append(item) }
        case .adapter, .device: return true
        }
        if let device = object.treeOwner { changedTrees.append(device) }
        return true
    }

    private func interfaceRemoved(_ name: some ArgumentReader, from object: RemoteObject) {
        switch object {
        case let adapter as RemoteAdapter:
            if name.equals("org.bluez.Adapter1") { remove(adapter) }
            if name.equals("org.bluez.AdvertisementMonitorManager1") {
                adapter.supportsMonitor = false
                if !adapter.isGone { changedAdapters.append(adapter) }
            }
        case let device as RemoteDevice:
            if name.equals("org.bluez.Device1") { remove(device) }
            if name.equals("org.bluez.Battery1") {
                device.battery = nil
                if !device.isGone { changedTrees.append(device) }
            }
        default:
            if name.equals("org.bluez.GattService1") || name.equals("org.bluez.GattCharacteristic1")
                || name.equals("org.bluez.GattDescriptor1")
            {
                remove(object)
            }
        }
    }

    private func remove(_ object: RemoteObject) {
        guard !object.isGone else { return }
        object.isGone = true
        table.remove(object)
        orphans.removeAll { $0 === object }
        switch object {
        case let adapter as RemoteAdapter:
            for device in devices where device.adapter === adapter { remove(device) }
            newAdapters.removeAll { $0 === adapter }
            if adapter.address != nil { delegate?.blueZ(adapterDidDisappear: adapter) }
        case let device as RemoteDevice:
            for service in device.gatt { remove(service) }
            newDevices.removeAll { $0.device === device }
            if device.isAnnounced { delegate?.blueZ(deviceDidDisappear: device) }
        case let service as RemoteService:
            for characteristic in service.characteristics { remove(characteristic) }
            service.device?.gatt.removeAll { $0 === service }
        case let characteristic as RemoteCharacteristic:
            for descriptor in characteristic.descriptors { remove(descriptor) }
            characteristic.service?.characteristics.removeAll { $0 === characteristic }
        case let descriptor as RemoteDescriptor:
            descriptor.characteristic?.descriptors.removeAll { $0 === descriptor }
        default: break
        }
        if let device = object.treeOwner, !device.isGone { changedTrees.append(device) }
    }

    // MARK: Telling

    private func announce() {
        if !orphans.isEmpty { orphans.removeAll { adopt($0) } }
        let (added, changed) = (newAdapters, changedAdapters)
        let (appeared, again, trees) = (newDevices, repeated, changedTrees)
        newAdapters = []
        changedAdapters = []
        newDevices = []
        repeated = []
        changedTrees = []
        for adapter in added where !adapter.isGone { delegate?.blueZ(adapterDidAppear: adapter) }
        for adapter in changed where !adapter.isGone && adapter.address != nil {
            if !added.contains(where: { $0 === adapter }) { delegate?.blueZ(adapterDidChange: adapter) }
        }
        for (device, isHeard) in appeared where !device.isGone {
            delegate?.blueZ(deviceDidAppear: device, isHeard: isHeard)
        }
        for (device, fields) in again where !device.isGone && !fields.isEmpty {
            delegate?.blueZ(device: device, didChange: fields)
        }
        var told: Set<ObjectIdentifier> = []
        for device in trees where !device.isGone && device.isAnnounced && told.insert(ObjectIdentifier(device)).inserted
        {
            delegate?.blueZ(treeDidChange: device)
        }
    }
}
