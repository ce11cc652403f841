"""The fleet file: which adapters and devices there are, and what each device does.

The simulator reads the same file. Every error names the file, the line and the key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from .advertisement import Content, packed
from .node import FleetError, Mapping, load

PROPERTIES = [
    "broadcast",
    "read",
    "write",
    "write-without-response",
    "notify",
    "indicate",
    "authenticated-signed-writes",
]
PAIRINGS = ("none", "just_works", "passkey")
ADDRESS = re.compile(r"(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}")
LONGEST_VALUE = 512  # Core 5.4, Vol 3, Part F, 3.2.9

__all__ = ["Adapter", "Characteristic", "Descriptor", "Device", "Fleet", "FleetError", "Service", "content", "read"]


@dataclass(frozen=True)
class Adapter:
    """A controller of the gateway."""

    name: str
    address: str
    alias: str | None
    plugged: bool = True


@dataclass(frozen=True)
class Descriptor:
    """A descriptor of a characteristic, besides the configuration descriptor that is made by itself."""

    uuid: str
    value: bytes
    writable: bool


@dataclass(frozen=True)
class Characteristic:
    """A characteristic as the file describes it."""

    uuid: str
    properties: tuple[str, ...]
    value: bytes
    notify_every: int
    encrypted: bool
    answers: bool
    att_error: int
    descriptors: tuple[Descriptor, ...]


@dataclass(frozen=True)
class Service:
    """A service; `includes` names other services of the same device by their `id`."""

    uuid: str
    id: str | None
    primary: bool
    includes: tuple[str, ...]
    characteristics: tuple[Characteristic, ...]


@dataclass(frozen=True)
class Device:
    """A device of the fleet, one for each of `count`."""

    id: str
    name: str | None
    gap_name: str
    address: str | None
    public: bool
    adapters: tuple[str, ...]
    rotate: int
    rssi: int
    rssi_jitter: int
    tx_power: int | None
    interval: int
    advertise: bool
    connectable: bool
    appearance: int
    services: tuple[str, ...]
    solicited: tuple[str, ...]
    manufacturer_data: dict[int, bytes]
    service_data: dict[str, bytes]
    sequence: tuple[str, str, int] | None
    mtu: int
    pairing: str
    passkey: int
    answers: bool
    drops_after: int
    refuses: bool
    gatt: tuple[Service, ...] = field(default=())


@dataclass(frozen=True)
class Fleet:
    """What a fleet file says, checked."""

    seed: int
    adapters: tuple[Adapter, ...]
    devices: tuple[Device, ...]


def content(device: Device) -> Content:
    """What a device advertises at first."""
    return Content(
        device.name,
        device.tx_power,
        device.appearance,
        device.services,
        device.solicited,
        dict(device.manufacturer_data),
        dict(device.service_data),
    )


def read(path: str) -> Fleet:
    """Reads and checks a fleet file. Throws FleetError."""
    root = load(path)
    seed = root.integer("seed", 1, 0, 2**63 - 1)
    adapters = tuple(_adapter(entry) for entry in root.mappings("adapters"))
    adapters = adapters or (Adapter("hci0", "00:1A:7D:DA:71:13", None),)
    names = tuple(adapter.name for adapter in adapters)
    if len(set(names)) != len(names):
        raise root.error("adapters", "two adapters have the same name")
    devices: list[Device] = []
    for entry in root.mappings("devices"):
        devices += _devices(entry, names, {device.id for device in devices})
    root.finish()
    return Fleet(seed, adapters, tuple(devices))


def _adapter(entry: Mapping) -> Adapter:
    adapter = Adapter(
        name=entry.required("name", entry.text("name", None)),
        address=entry.required("address", entry.matching("address", ADDRESS, "an address such as 00:1A:7D:DA:71:13")),
        alias=entry.text("alias", None),
        plugged=entry.boolean("plugged", True),
    )
    entry.finish()
    return replace(adapter, address=adapter.address.upper())


def _devices(entry: Mapping, adapters: tuple[str, ...], taken: set[str]) -> list[Device]:
    """The devices an entry stands for: one, or `count`."""
    device = _device(entry, adapters)
    count = entry.integer("count", 0, 1, 10_000)
    entry.finish()
    devices = [_numbered(device, n) for n in range(count)] if count else [device]
    for made in devices:
        if made.id in taken:
            raise entry.error("id", f"there is already a device {made.id!r}")
        try:
            packed(content(made))
        except ValueError as error:
            raise entry.error("id", f"{made.id!r}: {error}") from error
    return devices


def _numbered(device: Device, n: int) -> Device:
    """The n-th of an entry that stands for several."""
    address = device.address
    if address is not None:
        number = (int(address.replace(":", ""), 16) + n) % 2**48
        address = ":".join(f"{byte:02X}" for byte in number.to_bytes(6, "big"))
    return replace(
        device,
        id=f"{device.id}-{n}",
        address=address,
        name=device.name and device.name.replace("{n}", str(n)),
        gap_name=device.gap_name.replace("{n}", str(n)),
    )


def _device(entry: Mapping, adapters: tuple[str, ...]) -> Device:
    name = entry.text("name", None)
    rotate = entry.integer("rotate", 0, 100, 86_400_000)
    address = entry.matching("address", ADDRESS, "an address such as C0:00:00:00:00:01")
    if address is None and not rotate:
        raise entry.error("address", "a device needs an address, or rotate")
    heard_by = entry.texts("adapters") or adapters
    for adapter in heard_by:
        if adapter not in adapters:
            raise entry.error("adapters", f"there is no adapter {adapter!r}; there is {', '.join(adapters)}")
    device = Device(
        id=entry.required("id", entry.text("id", None)),
        name=name,
        gap_name=entry.text("gap_name", name or "") or "",
        address=address and address.upper(),
        public=entry.choice("address_type", ("random", "public")) == "public",
        adapters=heard_by,
        rotate=rotate,
        rssi=entry.integer("rssi", -60, -127, 20),
        rssi_jitter=entry.integer("rssi_jitter", 0, 0, 60),
        tx_power=entry.integer("tx_power", None, -127, 127),
        interval=entry.integer("interval", 200, 5, 600_000),
        advertise=entry.boolean("advertise", True),
        connectable=entry.boolean("connectable", True),
        appearance=int(entry.hexadecimal("appearance", b"\0\0", 2).hex(), 16),
        services=entry.uuids("services"),
        solicited=entry.uuids("solicited"),
        manufacturer_data=_manufacturer_data(entry),
        service_data=entry.uuid_bytes("service_data"),
        sequence=None,
        mtu=entry.integer("mtu", 247, 23, 517),
        pairing=entry.choice("pairing", PAIRINGS),
        passkey=entry.integer("passkey", 123456, 0, 999_999),
        answers=entry.boolean("answers", True),
        drops_after=entry.integer("drops_after", 0, 1, 86_400_000),
        refuses=entry.boolean("refuses", False),
        gatt=_services(entry),
    )
    return replace(device, sequence=_sequence(entry, device))


def _manufacturer_data(entry: Mapping) -> dict[int, bytes]:
    data: dict[int, bytes] = {}
    for key, value in entry.bytes_by_key("manufacturer_data").items():
        if not re.fullmatch("[0-9A-Fa-f]{4}", key):
            raise entry.error("manufacturer_data", f"{key!r} is no company identifier of 4 hex digits")
        data[int(key, 16)] = value
    return data


def _sequence(entry: Mapping, device: Device) -> tuple[str, str, int] | None:
    """`manufacturer_data/0499/20`: where a 16-bit counter stands in what is advertised."""
    text = entry.text("sequence", None)
    if text is None:
        return None
    kind, _, rest = text.partition("/")
    key, _, offset = rest.partition("/")
    try:
        place = (kind, key.lower(), int(offset))
        data = device.manufacturer_data[int(key, 16)] if kind == "manufacturer_data" else device.service_data[key]
        if kind in ("manufacturer_data", "service_data") and 0 <= place[2] <= len(data) - 2:
            return place
    except (ValueError, KeyError):
        pass
    raise entry.error("sequence", f"{text!r} names no two bytes of manufacturer_data/KEY/OFFSET or service_data/…")


def _services(entry: Mapping) -> tuple[Service, ...]:
    services = tuple(_service(item) for item in entry.mappings("gatt"))
    known = {service.id: service for service in services if service.id}
    for service in services:
        _check_includes(entry, service, known, ())
    return services


def _check_includes(entry: Mapping, service: Service, known: dict[str, Service], above: tuple[str, ...]) -> None:
    for include in service.includes:
        if include not in known:
            raise entry.error("gatt", f"includes: there is no service with the id {include!r} in this device")
        if include in above or include == service.id:
            raise entry.error("gatt", f"includes: {include!r} includes itself")
        _check_includes(entry, known[include], known, (*above, include))


def _service(entry: Mapping) -> Service:
    service = Service(
        uuid=entry.required("uuid", entry.uuid("uuid")),
        id=entry.text("id", None),
        primary=entry.boolean("primary", True),
        includes=entry.texts("includes"),
        characteristics=tuple(_characteristic(item) for item in entry.mappings("characteristics")),
    )
    entry.finish()
    return service


def _characteristic(entry: Mapping) -> Characteristic:
    properties = entry.texts("properties")
    for name in properties:
        if name not in PROPERTIES:
            raise entry.error("properties", f"{name!r} is none of {', '.join(PROPERTIES)}")
    characteristic = Characteristic(
        uuid=entry.required("uuid", entry.uuid("uuid")),
        properties=properties,
        value=_value(entry),
        notify_every=entry.integer("notify_every", 0, 0, 86_400_000),
        encrypted=entry.boolean("encrypted", False),
        answers=entry.boolean("answers", True),
        att_error=entry.integer("att_error", 0, 0, 255),
        descriptors=tuple(_descriptor(item) for item in entry.mappings("descriptors")),
    )
    entry.finish()
    return characteristic


def _descriptor(entry: Mapping) -> Descriptor:
    descriptor = Descriptor(
        uuid=entry.required("uuid", entry.uuid("uuid")),
        value=_value(entry),
        writable=entry.boolean("writable", False),
    )
    entry.finish()
    return descriptor


def _value(entry: Mapping) -> bytes:
    """`value` in hex, `text`, or `length` bytes 00 01 02 … ff 00 …; nothing: empty."""
    given = entry.present("value", "text", "length")
    if len(given) > 1:
        raise entry.error(given[1], f"{' and '.join(given)} exclude each other")
    text: Any = entry.text("text", None)
    length = entry.integer("length", 0, 0, LONGEST_VALUE)
    value = entry.hexadecimal("value", b"", None)
    if text is not None:
        value = text.encode()
    elif length:
        value = bytes(index & 0xFF for index in range(length))
    if len(value) > LONGEST_VALUE:
        raise entry.error(given[0], f"a value has at most {LONGEST_VALUE} bytes, this has {len(value)}")
    return value
