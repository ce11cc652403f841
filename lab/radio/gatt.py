"""The GATT server of a device, built from its description in the fleet file."""

from __future__ import annotations

import asyncio
import collections
import logging
import struct
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from bumble import att, gatt, gatt_server
from bumble.core import UUID

from . import fleet

if TYPE_CHECKING:
    from bumble.device import Connection

log = logging.getLogger("gatt")

Properties = gatt.Characteristic.Properties
Permissions = att.Attribute.Permissions

PROPERTY_BITS = {
    "broadcast": Properties.BROADCAST,
    "read": Properties.READ,
    "write": Properties.WRITE,
    "write-without-response": Properties.WRITE_WITHOUT_RESPONSE,
    "notify": Properties.NOTIFY,
    "indicate": Properties.INDICATE,
    "authenticated-signed-writes": Properties.AUTHENTICATED_SIGNED_WRITES,
}
ADDRESSED = (  # requests that are about one attribute
    att.Opcode.ATT_READ_REQUEST,
    att.Opcode.ATT_READ_BLOB_REQUEST,
    att.Opcode.ATT_WRITE_REQUEST,
    att.Opcode.ATT_PREPARE_WRITE_REQUEST,
)
# A radio sends a handful of packets in each connection event. Without such a limit a long run of notifications would
# overflow the socket between kernel and bluetoothd before bluetoothd gets to run.
PACKETS_PER_EVENT, EVENT_SECONDS = 6, 0.0075

Log = Callable[..., None]


_running: set[asyncio.Future[Any]] = set()


def background(work: Coroutine[Any, Any, Any]) -> None:
    """Runs something without waiting for it; asyncio itself would not keep it from being collected."""
    task = asyncio.ensure_future(work)
    _running.add(task)
    task.add_done_callback(_finished)


def _finished(task: asyncio.Future[Any]) -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        log.info("given up: %r", error)


class NotSubscribed(Exception):
    """Nobody has subscribed to the characteristic."""


def uuid(text: str) -> UUID:
    """A normalized UUID for Bumble."""
    return UUID(text)


class Value:
    """A characteristic's value and behaviour: one for each characteristic of each device."""

    def __init__(self, service: str, spec: fleet.Characteristic, record: Log) -> None:
        self.name = f"{service}/{spec.uuid}"
        self.spec = spec
        self.value = spec.value
        self.answers = spec.answers
        self.att_error = spec.att_error
        self.next_sequence = 0
        self.notifications = 0
        self.sent: collections.deque[tuple[int, float]] = collections.deque(maxlen=100_000)
        self._record = record
        self._timer: asyncio.TimerHandle | None = None
        self.attribute = self._attribute()

    def _attribute(self) -> gatt.Characteristic[bytes]:
        properties = Properties(0)
        for name in self.spec.properties:
            properties |= PROPERTY_BITS[name]
        permissions = Permissions.READABLE | Permissions.WRITEABLE
        if self.spec.encrypted:
            permissions |= Permissions.READ_REQUIRES_ENCRYPTION | Permissions.WRITE_REQUIRES_ENCRYPTION
        return gatt.Characteristic(
            uuid(self.spec.uuid),
            properties,
            permissions,
            gatt.CharacteristicValue(read=self._read, write=self._write),
            descriptors=[_descriptor(spec) for spec in self.spec.descriptors],
        )

    def _read(self, _: Connection | None) -> bytes:
        if "read" not in self.spec.properties:
            raise att.ATT_Error(att.ErrorCode.READ_NOT_PERMITTED)
        return self.value

    def _write(self, _: Connection | None, value: bytes) -> None:
        if "write" not in self.spec.properties:
            raise att.ATT_Error(att.ErrorCode.WRITE_NOT_PERMITTED)
        self.store(value, "request")

    def read_by_peer(self) -> None:
        """A read request arrived; a long value's further parts are not counted."""
        self._record("read", characteristic=self.name)

    def store(self, value: bytes, kind: str) -> None:
        """A write that was let through; `kind` is request or command."""
        self.value = bytes(value)
        self._record("write", characteristic=self.name, value=self.value.hex(), kind=kind)

    def subscription(self, server: Server, connection: Connection, subscribed: bool) -> None:
        """The configuration descriptor was written."""
        self._record("subscribe" if subscribed else "unsubscribe", characteristic=self.name)
        self.stop()
        if subscribed and self.spec.notify_every:
            self._every(server, connection)

    def _every(self, server: Server, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self.spec.notify_every / 1000, self._due, server, connection)

    def _due(self, server: Server, connection: Connection) -> None:
        self._every(server, connection)
        if server.cccd(connection, self) & 1:
            number = self.next_sequence
            server.notify(connection, self, self.counted(4), number)
        else:
            self._record("indicate", characteristic=self.name)
            background(server.indicate_subscriber(connection, self.attribute, self.counted(4)))

    def stop(self) -> None:
        """Ends what it sends by itself."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def counted(self, size: int) -> bytes:
        """The next value with a sequence number, `size` bytes at least 4."""
        value = struct.pack("<I", self.next_sequence & 0xFFFF_FFFF).ljust(size, b"\0")
        self.next_sequence += 1
        return value


def _descriptor(spec: fleet.Descriptor) -> gatt.Descriptor:
    permissions = Permissions.READABLE | (Permissions.WRITEABLE if spec.writable else Permissions(0))
    if spec.writable:
        return gatt.Descriptor(uuid(spec.uuid), permissions, spec.value)

    def refuse(_: Any, __: bytes) -> None:
        raise att.ATT_Error(att.ErrorCode.WRITE_NOT_PERMITTED)

    return gatt.Descriptor(uuid(spec.uuid), permissions, att.AttributeValue(read=lambda _: spec.value, write=refuse))


class Server(gatt_server.Server):
    """Bumble's server, with devices that stay silent or answer errors, and a log of what the peer did."""

    def __init__(self, device: Any, spec: fleet.Device, record: Log) -> None:
        super().__init__(device)
        self.max_mtu = spec.mtu
        self.answers = spec.answers
        self.values: list[Value] = []
        self._by_handle: dict[int, Value] = {}
        self._configurations: dict[int, Value] = {}
        self._record = record
        self._changed: gatt.Characteristic[bytes] | None = None
        self._extra: gatt.Service | None = None
        self._build(spec, record)
        self.on(self.EVENT_CHARACTERISTIC_SUBSCRIPTION, self._subscription)

    # The database

    def _build(self, spec: fleet.Device, record: Log) -> None:
        readable = Permissions.READABLE
        name = gatt.Characteristic(uuid("2a00"), Properties.READ, readable, spec.gap_name.encode())
        appearance = gatt.Characteristic(uuid("2a01"), Properties.READ, readable, struct.pack("<H", spec.appearance))
        self._changed = gatt.Characteristic(uuid("2a05"), Properties.INDICATE, Permissions(0), b"")
        self.add_service(gatt.Service(uuid("1800"), [name, appearance]))
        self.add_service(gatt.Service(uuid("1801"), [self._changed]))
        made: dict[str, gatt.Service] = {}
        pending = [
            (service, [Value(service.uuid, c, record) for c in service.characteristics]) for service in spec.gatt
        ]
        for _, values in pending:
            self.values += values
        while pending:  # the file is checked: no service includes itself, so each round makes at least one
            for entry in list(pending):
                service, values = entry
                if all(include in made for include in service.includes):
                    pending.remove(entry)
                    self._add(service, values, made)
        self._by_handle = {value.attribute.handle: value for value in self.values}
        value = None
        for attribute in self.attributes:
            value = self._by_handle.get(attribute.handle, value)
            if value is not None and attribute.type == gatt.GATT_CLIENT_CHARACTERISTIC_CONFIGURATION_DESCRIPTOR:
                self._configurations[attribute.handle] = value
        self.values.sort(key=lambda value: value.attribute.handle)
        self._number_twins()

    def _add(self, service: fleet.Service, values: list[Value], made: dict[str, gatt.Service]) -> None:
        attribute = gatt.Service(
            uuid(service.uuid),
            [value.attribute for value in values],
            primary=service.primary,
            included_services=[made[include] for include in service.includes],
        )
        self.add_service(attribute)
        if service.id:
            made[service.id] = attribute

    def _number_twins(self) -> None:
        """Characteristics of one name are told apart as #0, #1 … in the order of their handles."""
        names = [value.name for value in self.values]
        seen: dict[str, int] = {}
        for value in self.values:
            name = value.name
            if names.count(name) > 1:
                value.name = f"{name}#{seen.get(name, 0)}"
                seen[name] = seen.get(name, 0) + 1

    def change(self) -> None:
        """Adds a service, or takes it away again, and indicates Service Changed (Core Vol 3, Part G, 7.1)."""
        if self._extra is None:
            value = gatt.Characteristic(uuid("fffe"), Properties.READ, Permissions.READABLE, b"new")
            self._extra = gatt.Service(uuid("fffd"), [value])
            self.add_service(self._extra)
            first, last = self._extra.handle, self._extra.end_group_handle
        else:
            first, last = self._extra.handle, self._extra.end_group_handle
            self.services.remove(self._extra)
            del self.attributes[first - 1 :]
            for handle in range(first, last + 1):
                self.attributes_by_handle.pop(handle, None)
            self._extra = None
        if self._changed is not None:
            background(self.indicate_subscribers(self._changed, struct.pack("<HH", first, last)))

    # Requests

    def on_gatt_pdu(self, bearer: Any, att_pdu: att.ATT_PDU) -> None:
        """Every PDU of the peer passes here first."""
        if att_pdu.op_code in att.ATT_REQUESTS:
            if not self.answers:
                self._record("unanswered")
                return
            if att_pdu.op_code in ADDRESSED:
                handle = att_pdu.attribute_handle  # type: ignore[attr-defined]
                value = self._by_handle.get(handle) or self._configurations.get(handle)
                if value is not None and not value.answers:
                    self._record("unanswered", characteristic=value.name)
                    return
                if value is not None and value.att_error:
                    self._refuse(bearer, att_pdu, value)
                    return
                if handle in self._by_handle and att_pdu.op_code == att.Opcode.ATT_READ_REQUEST:
                    self._by_handle[handle].read_by_peer()
        super().on_gatt_pdu(bearer, att_pdu)

    def _refuse(self, bearer: Any, request: Any, value: Value) -> None:
        error = att.ATT_Error_Response(
            request_opcode_in_error=request.op_code,
            attribute_handle_in_error=request.attribute_handle,
            error_code=value.att_error,
        )
        self.send_response(bearer, error)

    def on_att_write_command(self, bearer: Any, request: Any) -> None:
        """Bumble makes no difference between the kinds of write; the log does."""
        value = self._by_handle.get(request.attribute_handle)
        if value is None or "write-without-response" not in value.spec.properties:
            return
        if value.spec.encrypted and not bearer.encryption:
            return
        value.store(request.attribute_value, "command")

    # Values to the peer

    def _subscription(self, connection: Any, attribute: Any, notify: bool, indicate: bool) -> None:
        value = self._by_handle.get(attribute.handle)
        if value is not None:
            value.subscription(self, connection, notify or indicate)

    def on_disconnection(self, bearer: Any) -> None:
        """Nothing is sent by itself any more."""
        for value in self.values:
            value.stop()
        super().on_disconnection(bearer)

    def cccd(self, connection: Any, value: Value) -> int:
        """What the peer wrote: bit 0 notifications, bit 1 indications."""
        written = self.subscribers.get(connection, {}).get(value.attribute.handle)
        return written[0] if written else 0

    def notify(self, connection: Any, value: Value, data: bytes, number: int | None = None) -> None:
        """Sends one notification, cut to the MTU; `number` is that in the value. Throws NotSubscribed."""
        if not self.cccd(connection, value) & 1:
            raise NotSubscribed(f"nobody has subscribed to {value.name}")
        room = connection.att_mtu - 3
        header = struct.pack("<BH", att.Opcode.ATT_HANDLE_VALUE_NOTIFICATION, value.attribute.handle)
        self.device.send_l2cap_pdu(connection.handle, att.ATT_CID, header + data[:room])
        value.notifications += 1
        if number is not None:
            value.sent.append((number, round(time.monotonic() * 1000, 3)))
