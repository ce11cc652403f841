"""What a device advertises: AD structures packed into an advertisement and a scan response.

Core Specification Supplement, Part A.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from .uuids import over_the_air

ROOM = 31  # bytes of a legacy advertisement, and of a scan response

CONNECTABLE, SCANNABLE, NON_CONNECTABLE, SCAN_RESPONSE = 0, 2, 3, 4  # event types, Core Vol 4, Part E, 7.7.65.2

FLAGS = b"\x02\x01\x06"  # general discoverable, no BR/EDR


@dataclass
class Content:
    """The parts of an advertisement that control commands may change."""

    name: str | None
    tx_power: int | None
    appearance: int
    services: tuple[str, ...]
    solicited: tuple[str, ...]
    manufacturer_data: dict[int, bytes]
    service_data: dict[str, bytes]


def _structure(kind: int, data: bytes) -> bytes:
    return bytes([len(data) + 1, kind]) + data


def _uuid_lists(uuids: tuple[str, ...], short_kind: int, long_kind: int) -> list[bytes]:
    short = b"".join(over_the_air(uuid) for uuid in uuids if len(uuid) == 4)
    full = b"".join(over_the_air(uuid) for uuid in uuids if len(uuid) != 4)
    return [_structure(kind, data) for kind, data in ((short_kind, short), (long_kind, full)) if data]


def packed(content: Content) -> tuple[bytes, bytes]:
    """Advertisement and scan response; name and power go into the latter, the rest where there is room.

    Throws ValueError where a part fits into neither.
    """
    first: list[bytes] = []
    first += [
        _structure(0xFF, struct.pack("<H", company) + data) for company, data in content.manufacturer_data.items()
    ]
    first += [
        _structure(0x16 if len(uuid) == 4 else 0x21, over_the_air(uuid) + data)
        for uuid, data in content.service_data.items()
    ]
    first += _uuid_lists(content.services, 0x03, 0x07)
    first += _uuid_lists(content.solicited, 0x14, 0x15)
    if content.appearance:
        first.append(_structure(0x19, struct.pack("<H", content.appearance)))
    advertisement, response = FLAGS, b""
    if content.name is not None:
        response += _structure(0x09, content.name.encode())
    if content.tx_power is not None:
        response += _structure(0x0A, struct.pack("b", content.tx_power))
    for part in first:
        if len(advertisement) + len(part) <= ROOM:
            advertisement += part
        else:
            response += part
    if len(response) > ROOM:
        raise ValueError(f"what it advertises does not fit: {len(response)} bytes for a scan response of {ROOM}")
    return advertisement, response
