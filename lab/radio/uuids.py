"""UUIDs as the fleet file, the control protocol and the topics write them."""

from __future__ import annotations

import re

_BASE = "-0000-1000-8000-00805f9b34fb"
_SHORT = re.compile(r"[0-9a-f]{4}")
_FULL = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def normalized(text: str) -> str | None:
    """4 hex digits where the UUID is on the Bluetooth base, else the dashed form; None if it is no UUID."""
    text = text.lower()
    if _SHORT.fullmatch(text):
        return text
    if not _FULL.fullmatch(text):
        return None
    return text[4:8] if text.startswith("0000") and text.endswith(_BASE) else text


def over_the_air(uuid: str) -> bytes:
    """The bytes of a normalized UUID in an advertisement: 2 or 16, little endian."""
    return bytes.fromhex(uuid.replace("-", ""))[::-1]
