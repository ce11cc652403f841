internal import Bluetooth
internal import DBus
internal import EventLoop

/// How a pairing ends. Source: new_authentication_return in src/device.c.
enum PairingFailure {
    case failed, cancelled, rejected, timeout, connectionFailed

    var fault: BlueZFault {
        switch self {
        case .failed: BlueZFault("org.bluez.Error.AuthenticationFailed", "Authentication Failed")
        case .cancelled: BlueZFault("org.bluez.Error.AuthenticationCanceled", "Authentication Canceled")
        case .rejected: BlueZFault("org.bluez.Error.AuthenticationRejected", "Authentication Rejected")
        case .timeout: BlueZFault("org.bluez.Error.AuthenticationTimeout", "Authentication Timeout")
        case .connectionFailed: BlueZFault("org.bluez.Error.Failed", "Software caused connection abort")
        }
    }
}

/// One pairing: the link where there is none, the exchange with the device, and the agent's part in it.
@EventLoopActor
final class Pairing {
    /// The client that asked for it; empty where bluetoothd did by itself.
    let owner: String
    private unowned let device: DeviceObject
    private let call: MethodCall?
    private let completion: @EventLoopActor (Bool) -> Void
    private var isFinished = false
    private var waitsForServices = false
    private var agent: Agent?

    init(_ device: DeviceObject, call: MethodCall?, completion: @escaping @EventLoopActor (Bool) -> Void) {
        self.device = device
        self.call = call
        self.completion = completion
        owner = call?.sender ?? ""
    }

    func begin() {
        if let link = device.link { return exchange(link) }
        device.openLink { [weak self] isUp in
            guard let self, !isFinished else { return }
            guard isUp, let link = device.link else { return finish(.connectionFailed) }
            exchange(link)
        }
    }

    private func exchange(_ link: Link) {
        // Three round trips of the security manager before anyone is asked.
        device.daemon.clock.schedule(after: device.daemon.timing.exchange * 3) { [weak self] in
            guard let self, !isFinished, device.link === link else { return }
            switch link.peripheral.spec.pairing {
            case .none: finish(.failed)
            case .justWorks: succeed(link)
            case .passkey: askPasskey(link)
            }
        }
    }

    private func askPasskey(_ link: Link) {
        guard let agent = device.daemon.agents.agent(of: owner), agent.hasKeyboard else { return finish(.failed) }
        self.agent = agent
        device.bus.call(
            agent.owner, agent.path, Interface.agent, "RequestPasskey", [.objectPath(device.path)]
        ) { [weak self] result in
            guard let self, !isFinished, device.link === link else { return }
            self.agent = nil
            switch result {
            case .success(let values):
                if values.first?.integer == Int(link.peripheral.spec.passkey) { succeed(link) } else { finish(.failed) }
            case .failure(let error):
                finish(error.name == "org.bluez.Error.Canceled" ? .cancelled : .failed)
            }
        }
    }

    private func succeed(_ link: Link) {
        link.isEncrypted = true
        link.peripheral.isBonded = true
        link.peripheral.record("paired")
        device.setPaired(true)
        // Pair is answered when the services are known.
        if device.isResolved || call == nil { finish(nil) } else { waitsForServices = true }
    }

    func servicesResolved() {
        if waitsForServices { finish(nil) }
    }

    func linkClosed() { finish(waitsForServices ? nil : .cancelled) }

    func cancel() {
        if let agent { device.bus.tell(agent.owner, agent.path, Interface.agent, "Cancel") }
        device.adapter.controller.cancelConnect(device.address)
        finish(.cancelled)
    }

    private func finish(_ failure: PairingFailure?) {
        guard !isFinished else { return }
        isFinished = true
        device.pairing = nil
        call?.finish(failure?.fault)
        completion(failure == nil)
        // A failed authentication ends the link.
        if failure == .failed { device.scheduleDisconnectNow() }
    }
}

extension DeviceObject {
    /// Source: pair_device.
    func beginPairing(_ call: MethodCall) {
        setTemporary(false)
        if isConnecting { return call.fail(.inProgress) }
        if isPaired { return call.fail(.alreadyExists) }
        guard adapter.isPowered else { return call.fail(.failed("Input/output error")) }
        let pairing = Pairing(self, call: call) { _ in }
        self.pairing = pairing
        pairing.begin()
    }

    func cancelPairing(_ call: MethodCall) {
        guard let pairing else { return call.fail(.doesNotExist) }
        pairing.cancel()
        call.reply()
    }

    /// An attribute wants an encrypted link: bluetoothd pairs by itself.
    func raiseSecurity(_ completion: @escaping @EventLoopActor (Bool) -> Void) {
        guard let link, pairing == nil else { return completion(false) }
        if link.isEncrypted { return completion(true) }
        let pairing = Pairing(self, call: nil, completion: completion)
        self.pairing = pairing
        pairing.begin()
    }

    /// The link ends after the answer of a failed pairing has gone out.
    func scheduleDisconnectNow() {
        guard let link else { return }
        daemon.clock.schedule(after: daemon.timing.exchange) { link.end() }
    }
}

/// A client's agent. Source: org.bluez.Agent1.
struct Agent {
    let owner: String
    let path: String
    let capability: String

    var hasKeyboard: Bool { capability == "KeyboardDisplay" || capability == "KeyboardOnly" || capability.isEmpty }
}

/// `/org/bluez`: org.bluez.AgentManager1. Source: src/agent.c.
@EventLoopActor
final class AgentManager: BusObject {
    let path = "/org/bluez"
    let interfaces: [(String, Properties)] = [(Interface.agentManager, [])]
    private var agents: [String: Agent] = [:]
    /// The last one counts.
    private var defaults: [String] = []

    private static let capabilities = [
        "", "DisplayOnly", "DisplayYesNo", "KeyboardOnly", "NoInputNoOutput", "KeyboardDisplay",
    ]

    /// The agent of a client, else the default one.
    func agent(of owner: String) -> Agent? { agents[owner] ?? defaults.last.flatMap { agents[$0] } }

    func clientLeft(_ owner: String) {
        agents[owner] = nil
        defaults.removeAll { $0 == owner }
    }

    func handle(_ call: MethodCall) -> Bool {
        guard call.interface == Interface.agentManager else { return false }
        guard case .objectPath(let target)? = call.arguments.first else {
            call.fail(.invalidArguments())
            return true
        }
        switch call.member {
        case "RegisterAgent": register(call, target)
        case "UnregisterAgent": withAgent(call, target) { clientLeft(call.sender) }
        case "RequestDefaultAgent":
            withAgent(call, target) {
                defaults.removeAll { $0 == call.sender }
                defaults.append(call.sender)
            }
        default: return false
        }
        return true
    }

    private func register(_ call: MethodCall, _ target: String) {
        if agents[call.sender] != nil { return call.fail(.alreadyExists) }
        guard call.arguments.count == 2, case .string(let capability) = call.arguments[1],
            Self.capabilities.contains(capability)
        else { return call.fail(.invalidArguments()) }
        agents[call.sender] = Agent(owner: call.sender, path: target, capability: capability)
        call.reply()
    }

    private func withAgent(_ call: MethodCall, _ target: String, _ body: () -> Void) {
        guard agents[call.sender]?.path == target else { return call.fail(.doesNotExist) }
        body()
        call.reply()
    }
}
