"""BlueZ on the system bus, as the self-check needs it: calls, properties, signals, a pairing agent."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from jeepney import DBusAddress, MatchRule, Message, MessageType, new_error, new_method_call, new_method_return
from jeepney.io.blocking import open_dbus_connection
from jeepney.wrappers import DBusErrorResponse, unwrap_msg

PROPERTIES = "org.freedesktop.DBus.Properties"
AGENT = "/selfcheck/agent"

__all__ = ["BlueZ", "DBusErrorResponse"]


class BlueZ:
    """One connection to the system bus; whoever closes it ends its discovery."""

    def __init__(self) -> None:
        self._connection = open_dbus_connection("SYSTEM")
        self.signals: list[tuple[float, str, Any]] = []
        self.passkey = 0
        self.asked: list[str] = []

    def call(
        self, path: str, interface: str, method: str, signature: str = "", *arguments: Any, timeout: float = 40
    ) -> Any:
        """One call; its first result, or none. Throws DBusErrorResponse and TimeoutError."""
        destination = DBusAddress(path, "org.bluez", interface)
        result = self._wait(new_method_call(destination, method, signature or None, arguments), timeout)
        return result[0] if result else None

    def _wait(self, message: Message, timeout: float) -> Any:
        """Sends and waits for the reply, answering the agent's calls meanwhile."""
        serial = next(self._connection.outgoing_serial)
        self._connection.send(message, serial=serial)
        deadline = time.monotonic() + timeout
        while True:
            received = self._connection.receive(timeout=max(0.0, deadline - time.monotonic()))
            if received.header.fields.get(5) == serial:  # REPLY_SERIAL
                return unwrap_msg(received)
            self._other(received)

    def _other(self, message: Message) -> None:
        if message.header.message_type == MessageType.signal:
            path = message.header.fields.get(1, "")
            if message.header.fields.get(3) == "PropertiesChanged":
                self.signals.append((time.time(), path, message.body[1]))
        elif message.header.message_type == MessageType.method_call:
            self._answer(message)

    def _answer(self, message: Message) -> None:
        """The pairing agent, org.bluez.Agent1."""
        method = message.header.fields.get(3, "")
        self.asked.append(method)
        if method == "RequestPasskey":
            self._connection.send(new_method_return(message, "u", (self.passkey,)))
        elif method in ("RequestAuthorization", "RequestConfirmation", "AuthorizeService", "Cancel", "Release"):
            self._connection.send(new_method_return(message))
        else:
            self._connection.send(new_error(message, "org.bluez.Error.Rejected"))

    def register_agent(self) -> None:
        """Becomes the default agent, one with keyboard and display."""
        self.call("/org/bluez", "org.bluez.AgentManager1", "RegisterAgent", "os", AGENT, "KeyboardDisplay")
        self.call("/org/bluez", "org.bluez.AgentManager1", "RequestDefaultAgent", "o", AGENT)

    def watch(self) -> None:
        """Collects PropertiesChanged of org.bluez in `signals`."""
        bus = DBusAddress("/org/freedesktop/DBus", "org.freedesktop.DBus", "org.freedesktop.DBus")
        rule = MatchRule(type="signal", sender="org.bluez", interface=PROPERTIES, member="PropertiesChanged")
        self._wait(new_method_call(bus, "AddMatch", "s", (rule.serialise(),)), 10)

    def listen(self, seconds: float) -> None:
        """Takes in signals for a while."""
        self.until(lambda: False, seconds)

    def until(self, condition: Callable[[], Any], seconds: float) -> Any:
        """Takes in signals until the condition gives something; that, or none at the deadline."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = condition()
            if found:
                return found
            try:
                self._other(self._connection.receive(timeout=0.05))
            except TimeoutError:
                pass
        return None

    def get(self, path: str, interface: str, name: str) -> Any:
        """A property, or none if it is not there."""
        try:
            return self.call(path, PROPERTIES, "Get", "ss", interface, name)[1]
        except DBusErrorResponse:
            return None

    def objects(self) -> dict[str, dict[str, dict[str, Any]]]:
        """All objects of BlueZ with their interfaces and plain properties; none while it is away."""
        try:
            found = self.call("/", "org.freedesktop.DBus.ObjectManager", "GetManagedObjects")
        except DBusErrorResponse:
            return {}
        return {
            path: {
                interface: {name: value[1] for name, value in properties.items()}
                for interface, properties in interfaces.items()
            }
            for path, interfaces in found.items()
        }

    def characteristics(self, device: str, uuid: str) -> list[str]:
        """The paths of a device's characteristics of one short UUID, in order."""
        full = f"0000{uuid}-0000-1000-8000-00805f9b34fb"
        return sorted(
            path
            for path, interfaces in self.objects().items()
            if path.startswith(device + "/") and interfaces.get("org.bluez.GattCharacteristic1", {}).get("UUID") == full
        )

    def read(self, path: str) -> bytes:
        """ReadValue of a characteristic."""
        return bytes(self.call(path, "org.bluez.GattCharacteristic1", "ReadValue", "a{sv}", {}))

    def write(self, path: str, value: bytes, kind: str = "request") -> None:
        """WriteValue of a characteristic."""
        options = {"type": ("s", kind)}
        self.call(path, "org.bluez.GattCharacteristic1", "WriteValue", "aya{sv}", value, options)
