"""HCI transport to the guest kernel: /dev/vhci, one packet for each read and write."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

log = logging.getLogger("vhci")

CREATED = 0xFF  # its answer: ff, type, index (16 bits, little endian)


class Vhci:
    """One controller of the kernel's hci_vhci driver; closing it unplugs the controller.

    Bumble has a transport of its own for this; it goes through asyncio pipes, at several times the cost per packet.
    """

    # Vendor packets: make a controller of the primary type; the same, raw, so that only its number is taken
    CREATE_PRIMARY, CREATE_RAW = b"\xff\x00", b"\xff\x80"

    def __init__(self, path: str = "/dev/vhci", kind: bytes = CREATE_PRIMARY) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._sink: Any = None
        self._loop = asyncio.get_running_loop()
        self.index: asyncio.Future[int] = self._loop.create_future()
        self._loop.add_reader(self._descriptor, self._readable)
        os.write(self._descriptor, kind)

    def _readable(self) -> None:
        try:
            packet = os.read(self._descriptor, 4096)
        except BlockingIOError:
            return
        if packet[:1] == bytes([CREATED]):
            if not self.index.done():
                self.index.set_result(packet[2] | packet[3] << 8)
        elif self._sink is not None:
            self._sink.on_packet(packet)

    def set_packet_sink(self, sink: Any) -> None:
        """Where the kernel's packets go (Bumble's packet source interface)."""
        self._sink = sink

    def on_packet(self, packet: bytes) -> None:
        """Hands one packet to the kernel (Bumble's packet sink interface)."""
        if self._descriptor >= 0:
            os.write(self._descriptor, packet)

    def close(self) -> None:
        """Unplugs the controller."""
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1
        self._sink = None
