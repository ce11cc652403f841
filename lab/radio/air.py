"""The air between adapters and devices: who hears what, and what was handed to the kernel."""

from __future__ import annotations

import asyncio
import os
import struct
from typing import Any

from bumble.hci import Address

from . import fleet
from .advertisement import NON_CONNECTABLE
from .controller import AdapterController
from .peripheral import Peripheral, random_address
from .transport import Vhci

SHOWN_BY_KERNEL = "/sys/class/bluetooth"
FLOOD_COMPANY = 0xFFFF
FLOOD_PREFIX = 0xE0 << 40  # the flood's addresses are E0:00:…
FLOOD_BURST = 16  # the most at one go after a pause: a kernel socket has room for a few hundred


def _number(shown: str) -> int:
    if not shown.startswith("hci") or not shown[3:].isdecimal() or int(shown[3:]) > 15:
        raise ValueError(f"{shown!r} is not a name such as hci1")
    return int(shown[3:])


class Air:
    """Adapters, devices, and the counters of what went between them."""

    def __init__(self, plan: fleet.Fleet, duplicates: str) -> None:
        self.plan = plan
        self.adapters: dict[str, AdapterController] = {}
        self.handed = 0
        self.flood_sent = 0
        self.flood_done = True
        self._duplicates = duplicates
        self._flood: asyncio.Task[None] | None = None
        self.peripherals = {spec.id: Peripheral(spec, plan.seed, self) for spec in plan.devices}

    async def plug(self, name: str, shown: str | None = None) -> None:
        """Gives the kernel the controller of an adapter of the fleet.

        The kernel takes the lowest free number: for another one, `shown`, what is below it is taken up meanwhile.
        """
        spec = self.adapter_spec(name)
        if name in self.adapters:
            raise ValueError(f"adapter {name} is plugged already")
        wanted = _number(shown) if shown is not None else 0
        fillers: list[Vhci] = []
        try:
            while wanted and not os.path.exists(f"{SHOWN_BY_KERNEL}/hci{wanted - 1}") and len(fillers) < wanted:
                fillers.append(Vhci(kind=Vhci.CREATE_RAW))  # there when this returns, and never answers
            self.adapters[name] = AdapterController(name, spec.address, self._duplicates)
            index = await asyncio.wait_for(asyncio.shield(self.adapters[name].vhci.index), 10)
        finally:
            for filler in fillers:
                filler.close()
        if shown is not None and index != wanted:
            raise ValueError(f"{shown} is taken: the adapter is hci{index}")

    def unplug(self, name: str) -> None:
        """Takes an adapter's controller away."""
        self.adapter_spec(name)
        if name not in self.adapters:
            raise ValueError(f"adapter {name} is not plugged")
        self.adapters.pop(name).unplug()

    def adapter_spec(self, name: str) -> fleet.Adapter:
        """The adapter of that name or address. Throws ValueError."""
        for adapter in self.plan.adapters:
            if name in (adapter.name, adapter.address):
                return adapter
        raise ValueError(f"there is no adapter {name!r}; there is {', '.join(a.name for a in self.plan.adapters)}")

    def start(self) -> None:
        """All devices begin to advertise."""
        for peripheral in self.peripherals.values():
            peripheral.start()

    def transmit(
        self,
        peripheral: Peripheral | None,
        names: tuple[str, ...],
        kind: int,
        address: Address,
        data: bytes,
        response: bytes,
        rssi: int,
    ) -> int:
        """One advertising event, heard by the adapters named; the number of kernels' controllers it was handed to."""
        handed = 0
        for name in names:
            adapter = self.adapters.get(name)
            if adapter is not None and adapter.hear(peripheral, kind, address, data, response, rssi):
                handed += 1
        self.handed += handed
        return handed

    # Flood

    def start_flood(self, rate: float, seconds: float, addresses: int) -> None:
        """Advertisements at a rate, each with its number; a running flood is replaced."""
        if not (0 < rate <= 100_000 and 0 < seconds <= 86_400 and 1 <= addresses <= 1_000_000):
            raise ValueError("a flood needs a rate, seconds and addresses, all positive")
        if self._flood is not None:
            self._flood.cancel()
        self.flood_sent, self.flood_done = 0, False
        self._flood = asyncio.get_running_loop().create_task(self._send_flood(rate, int(rate * seconds), addresses))

    async def _send_flood(self, rate: float, total: int, addresses: int) -> None:
        loop = asyncio.get_running_loop()
        names = tuple(adapter.name for adapter in self.plan.adapters)
        senders = [random_address(FLOOD_PREFIX + n, private=False) for n in range(addresses)]
        started, done = loop.time(), 0
        while done < total:
            due = min(total, int((loop.time() - started) * rate) + 1, done + FLOOD_BURST)
            for number in range(done, due):
                data = b"\x02\x01\x04" + struct.pack("<BBHI", 7, 0xFF, FLOOD_COMPANY, number)
                sender = senders[number % addresses]
                self.flood_sent += self.transmit(None, names, NON_CONNECTABLE, sender, data, b"", -50 - number % 8)
            done = due
            await asyncio.sleep(0.002)
        self.flood_done = True

    def sent(self) -> dict[str, Any]:
        """What was sent since the start."""
        return {
            "advertisements": self.handed,
            "flood": self.flood_sent,
            "flood_done": self.flood_done,
            "notifications": {
                f"{peripheral.spec.id} {value.name}": value.notifications
                for peripheral in self.peripherals.values()
                for value in peripheral.values()
                if value.notifications
            },
        }
