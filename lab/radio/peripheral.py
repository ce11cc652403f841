"""One device of the fleet: it advertises, is connected to, and serves its attributes.

Advertising is done here, without Bumble: it is the frequent part. Bumble's host and GATT server are made when the
first connection is wanted, so that a fleet of many devices starts at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
import struct
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from bumble import hci, l2cap
from bumble.device import Connection, Device, DeviceConfiguration, LegacyAdvertiser
from bumble.hci import Address
from bumble.host import Host
from bumble.link import LocalLink
from bumble.pairing import PairingConfig, PairingDelegate
from bumble.transport.common import AsyncPipeSink

from . import fleet
from .advertisement import CONNECTABLE, NON_CONNECTABLE, SCANNABLE, packed
from .controller import Link, PeripheralController
from .gatt import Server, Value, background

if TYPE_CHECKING:
    from .air import Air

log = logging.getLogger("device")

ADVERTISING_DELAY = 0.010  # seconds: the random delay of each advertising event, Core Vol 6, Part B, 4.4.2.2
LOG_LENGTH = 20_000
ECHO_PSM = 0x0081  # the channel on which each device sends back what it gets


def random_address(number: int, private: bool) -> Address:
    """A random address from a number of 46 bits: static (top bits 11) or resolvable private (01)."""
    top = 0b01 if private else 0b11
    return Address((number & (1 << 46) - 1 | top << 46).to_bytes(6, "little"), Address.RANDOM_DEVICE_ADDRESS)


class Peripheral:
    """A device on the air."""

    def __init__(self, spec: fleet.Device, seed: int, air: Air) -> None:
        self.spec = spec
        self.advertising = spec.advertise
        self.drop_next = 0
        self.rssi = spec.rssi
        self.log: deque[dict[str, Any]] = deque(maxlen=LOG_LENGTH)
        self.content = fleet.content(spec)
        self._random = random.Random(f"{seed}/{spec.id}")
        self.address = self._first_address()
        self._air = air
        self._sequence: int | None = None
        self._packed = packed(self.content)
        self._timer: asyncio.TimerHandle | None = None
        self._rotates = 0.0
        self._controller: PeripheralController | None = None
        self._device: Device | None = None
        self._server: Server | None = None
        self._preparing: asyncio.Task[None] | None = None
        self._ready = False

    def _first_address(self) -> Address:
        if self.spec.rotate or self.spec.address is None:
            return random_address(self._random.getrandbits(46), private=True)
        kind = Address.PUBLIC_DEVICE_ADDRESS if self.spec.public else Address.RANDOM_DEVICE_ADDRESS
        return Address(self.spec.address, kind)

    # Advertising

    def start(self) -> None:
        """Begins to advertise, each device at a moment of its own."""
        loop = asyncio.get_running_loop()
        self._rotates = loop.time() + self.spec.rotate / 1000
        delay = self._random.random() * self.spec.interval / 1000
        self._timer = loop.call_later(delay, self._advertise)

    def _advertise(self) -> None:
        loop = asyncio.get_running_loop()
        delay = self.spec.interval / 1000 + self._random.random() * ADVERTISING_DELAY
        self._timer = loop.call_later(delay, self._advertise)
        if not self.advertising or self.connection() is not None:
            return
        if self.spec.rotate and loop.time() >= self._rotates:
            self._rotates = loop.time() + self.spec.rotate / 1000
            self.address = random_address(self._random.getrandbits(46), private=True)
        data, response = self._next_data()
        if self.spec.connectable:
            kind = CONNECTABLE
        else:
            kind = SCANNABLE if response else NON_CONNECTABLE
        self._air.transmit(self, self.spec.adapters, kind, self.address, data, response, self.signal())

    def _next_data(self) -> tuple[bytes, bytes]:
        place = self.spec.sequence
        if place is not None:
            kind, key, offset = place
            values: dict[Any, bytes] = self.content.service_data
            index: Any = key
            if kind == "manufacturer_data":
                values, index = self.content.manufacturer_data, int(key, 16)
            value = values.get(index, b"")
            if len(value) >= offset + 2:
                if self._sequence is None:
                    self._sequence = struct.unpack_from(">H", value, offset)[0]
                counter = struct.pack(">H", self._sequence & 0xFFFF)
                values[index] = value[:offset] + counter + value[offset + 2 :]
                self._sequence += 1
                self._packed = packed(self.content)
        return self._packed

    def change(self, **parts: Any) -> None:
        """Advertises something else from now on. Throws ValueError if it does not fit, and changes nothing then."""
        before = {key: getattr(self.content, key) for key in parts}
        for key, value in parts.items():
            setattr(self.content, key, value)
        try:
            self._packed = packed(self.content)
        except ValueError:
            for key, value in before.items():
                setattr(self.content, key, value)
            raise
        self._sequence = None

    def signal(self) -> int:
        """The signal strength of this moment, in dBm."""
        jitter = self.spec.rssi_jitter
        return max(-127, min(20, self.rssi + (self._random.randint(-jitter, jitter) if jitter else 0)))

    # Links

    def connection(self) -> Link | None:
        """This device's end of its link, if it has one."""
        if self._controller is None:
            return None
        return next((link for link in self._controller.le_connections.values() if isinstance(link, Link)), None)

    def connection_attempt(self) -> str:
        """Whether a controller may connect now: yes, later or refused."""
        if self.spec.refuses or self.drop_next > 0:
            self.drop_next = max(0, self.drop_next - 1)
            self.record("refused")
            return "refused"
        if not self._ready:
            self.prepare()
            return "later"
        return "yes" if self.connection() is None else "later"

    def accept(self, initiator: Address, own: Address) -> Link:
        """This device's end of a new link; its host hears of it from the controller that connects."""
        assert self._controller is not None and self._device is not None
        kind = hci.OwnAddressType.PUBLIC if self.spec.public else hci.OwnAddressType.RANDOM
        self._device.random_address = own
        # Bumble's host learns from its advertiser which of its addresses was connected to.
        self._device.legacy_advertiser = LegacyAdvertiser(
            self._device, _CONNECTABLE_UNDIRECTED, kind, Address.ANY, auto_restart=False
        )
        return self._controller.new_link(hci.Role.PERIPHERAL, own, initiator)

    def prepare(self) -> None:
        """Makes the host and its GATT server in the background."""
        if self._preparing is None:
            self._preparing = asyncio.get_running_loop().create_task(self._make_host())

    async def _make_host(self) -> None:
        address = str(self.address).split("/", maxsplit=1)[0]
        public = address if self.spec.public else "F0:00:00:00:00:00"
        self._controller = PeripheralController(self.spec.id, link=LocalLink(), public_address=public)
        configuration = DeviceConfiguration(
            name=self.spec.gap_name or self.spec.id,
            address=Address("C0:00:00:00:00:00") if self.spec.public else self.address,
            irk=self._random.randbytes(16),
            gap_service_enabled=False,
            gatt_service_enabled=False,
        )
        host = Host(self._controller, AsyncPipeSink(self._controller))
        self._device = device = Device(config=configuration, host=host)
        self._server = device.gatt_server = Server(device, self.spec, self.record)
        device.pairing_config_factory = lambda _: self._pairing()
        device.on(Device.EVENT_CONNECTION, self._connected)
        device.create_l2cap_server(l2cap.LeCreditBasedChannelSpec(psm=ECHO_PSM), self._opened)
        await device.power_on()
        self._ready = True

    def _pairing(self) -> PairingConfig:
        passkey = self.spec.pairing == "passkey"
        delegate = _Display(self.spec.passkey) if passkey else _Consent(self.spec.pairing == "just_works")
        # Secure Connections where the address is even, legacy pairing where it is odd: both are met in the field.
        secure = bytes(self.address)[0] & 1 == 0
        kind = PairingConfig.AddressType.PUBLIC if self.spec.public else PairingConfig.AddressType.RANDOM
        return PairingConfig(sc=secure, mitm=passkey, bonding=True, delegate=delegate, identity_address_type=kind)

    def _connected(self, connection: Connection) -> None:
        self.record("connected", peer=str(connection.peer_address).split("/", maxsplit=1)[0])
        connection.on(Connection.EVENT_DISCONNECTION, self._disconnected)
        connection.on(Connection.EVENT_PAIRING, lambda _: self.record("paired"))
        connection.on(
            Connection.EVENT_PAIRING_FAILURE, lambda reason: self.record("pairing_failed", reason=int(reason))
        )
        if self.spec.drops_after:
            asyncio.get_running_loop().call_later(self.spec.drops_after / 1000, self._drop, connection)

    def _opened(self, channel: l2cap.LeCreditBasedChannel) -> None:
        self.record("channel", psm=channel.psm)
        channel.sink = channel.write

    def _disconnected(self, reason: int) -> None:
        self.record("disconnected", reason=int(reason))

    def _drop(self, connection: Connection) -> None:
        if self._device is not None and connection in self._device.connections.values():
            background(connection.disconnect())

    # For the control commands

    def record(self, event: str, **details: Any) -> None:
        """Adds to the log of what this device saw."""
        at = round(time.monotonic() * 1000, 3)  # for those who measure, across a jump of the wall clock
        self.log.append({"time": round(time.time(), 6), "at": at, "event": event, **details})
        log.info("%s: %s %s", self.spec.id, event, details or "")

    def host_connection(self) -> Connection | None:
        """Bumble's view of the link."""
        return next(iter(self._device.connections.values()), None) if self._device is not None else None

    def server(self) -> Server:
        """The GATT server; the device has one from its first connection on, or from now."""
        if self._server is None:
            self.prepare()
            raise NotReady(f"{self.spec.id} has not been connected to yet")
        return self._server

    async def served(self) -> Server:
        """The GATT server, made if need be."""
        self.prepare()
        if self._preparing is not None:
            await self._preparing
        return self.server()

    def values(self) -> list[Value]:
        """The characteristics, if the server was made."""
        return self._server.values if self._server is not None else []


class NotReady(Exception):
    """The device has no host yet."""


class _Consent(PairingDelegate):
    """A device without buttons and display, that pairs with everyone or with nobody."""

    def __init__(self, consents: bool) -> None:
        super().__init__(PairingDelegate.IoCapability.NO_OUTPUT_NO_INPUT)
        self._consents = consents

    async def accept(self) -> bool:
        """False is answered by Pairing Not Supported."""
        return self._consents


class _Display(PairingDelegate):
    """A device that shows a fixed passkey."""

    def __init__(self, passkey: int) -> None:
        super().__init__(PairingDelegate.IoCapability.DISPLAY_OUTPUT_ONLY)
        self._passkey = passkey

    async def generate_passkey(self) -> int:
        """The passkey that the other side must be given."""
        return self._passkey

    async def display_number(self, number: int, digits: int) -> None:
        """Nobody looks at the display."""


_CONNECTABLE_UNDIRECTED: Any = hci.HCI_LE_Set_Advertising_Parameters_Command.AdvertisingType.ADV_IND
