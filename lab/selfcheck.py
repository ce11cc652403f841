#!/usr/bin/env python3
"""Checks in the lab that real BlueZ and the radio do together what the tests rely on. Exits with 1 if not.

Run by `scripts/lab --selfcheck`, with `--load` for the rates as well.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from bus import BlueZ, DBusErrorResponse

ADAPTER = "/org/bluez/hci0"
DEVICE, CHARACTERISTIC = "org.bluez.Device1", "org.bluez.GattCharacteristic1"


class Failed(Exception):
    """What was not as it should be."""


def expect(actual: Any, wanted: Any, what: str) -> None:
    """Throws Failed unless they are equal."""
    if actual != wanted:
        raise Failed(f"{what}: {actual!r}, should be {wanted!r}")


class Radio:
    """The control socket."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(os.environ["BLUEFERRY_CONTROL"])
        self._file = self._socket.makefile("rwb")
        self.addresses = {device["id"]: device["address"] for device in self("devices")}

    def ask(self, request: dict[str, Any]) -> None:
        """Sends a request and does not wait."""
        self._file.write(json.dumps(request).encode() + b"\n")
        self._file.flush()

    def __call__(self, op: str, **parameters: Any) -> Any:
        self.ask({"op": op, **parameters})
        answer = json.loads(self._file.readline())
        if "error" in answer:
            raise Failed(f"radio, {op}: {answer['error']}")
        return answer["ok"]

    def path(self, device: str) -> str:
        """The object path of a device under the first adapter."""
        return f"{ADAPTER}/dev_{self.addresses[device].replace(':', '_')}"

    def events(self, device: str, event: str) -> list[dict[str, Any]]:
        """What a device saw, of one kind."""
        return [entry for entry in self("log", device=device) if entry["event"] == event]


bus = BlueZ()
radio = Radio()


def start_discovery() -> None:
    """A monitor would be needed against a duplicate filter; without one this is enough."""
    options = {"Transport": ("s", "le"), "DuplicateData": ("b", True)}
    bus.call(ADAPTER, "org.bluez.Adapter1", "SetDiscoveryFilter", "a{sv}", options)
    deadline = time.monotonic() + 20
    while True:  # after a SIGKILL the kernel goes on with the old discovery for about 9 s
        try:
            bus.call(ADAPTER, "org.bluez.Adapter1", "StartDiscovery")
            return
        except DBusErrorResponse as error:
            if "InProgress" not in str(error) or time.monotonic() > deadline:
                raise
            bus.listen(0.5)


def stop_discovery() -> None:
    """Connections are made without it."""
    bus.call(ADAPTER, "org.bluez.Adapter1", "StopDiscovery")


def found() -> set[str]:
    """Addresses that BlueZ has heard."""
    return {i[DEVICE]["Address"] for i in bus.objects().values() if "RSSI" in i.get(DEVICE, {})}


def hear(device: str) -> None:
    """Discovers a device that BlueZ has not heard yet, or has forgotten again."""
    if radio.path(device) in bus.objects():
        return
    start_discovery()
    heard = bus.until(lambda: radio.path(device) in bus.objects(), 10)
    stop_discovery()
    if not heard:
        raise Failed(f"{device} is not heard")


def connect(device: str) -> str:
    """Connects and waits until its services are known; its path."""
    path = radio.path(device)
    hear(device)
    bus.call(path, DEVICE, "Connect")
    if not bus.until(lambda: bus.get(path, DEVICE, "ServicesResolved"), 15):
        raise Failed(f"the services of {device} were not resolved")
    return path


def disconnect(device: str) -> None:
    """Ends a link."""
    path = radio.path(device)
    bus.call(path, DEVICE, "Disconnect")
    bus.until(lambda: not bus.get(path, DEVICE, "Connected"), 5)


def only(device: str, uuid: str) -> str:
    """The path of the one characteristic of that UUID."""
    paths = bus.characteristics(radio.path(device), uuid)
    expect(len(paths), 1, f"characteristics {uuid} of {device}")
    return paths[0]


def values_of(path: str) -> list[bytes]:
    """The values that were signalled for a characteristic."""
    return [bytes(p["Value"][1]) for _, where, p in bus.signals if where == path and "Value" in p]


def check_powered() -> None:
    """the adapter is powered and has the fleet's address"""
    expect(bus.get(ADAPTER, "org.bluez.Adapter1", "Powered"), True, "Powered")
    expect(bus.get(ADAPTER, "org.bluez.Adapter1", "Address"), "00:1A:7D:DA:71:13", "Address")


def check_discovery() -> None:
    """at least 35 devices of the fleet are heard"""
    start_discovery()
    fleet = set(radio.addresses.values())
    bus.until(lambda: len(found() & fleet) >= 35, 10)
    if len(found() & fleet) < 35:
        raise Failed(f"heard only {len(found() & fleet)} devices")


def check_advertisement() -> None:
    """names, manufacturer data, service data and RSSI arrive as they are in the fleet file"""
    wanted = {radio.addresses[device] for device in ("bthome", "ruuvi", "nameless", "weird")}
    bus.until(lambda: wanted <= found(), 10)
    objects = {i[DEVICE]["Address"]: i[DEVICE] for i in bus.objects().values() if DEVICE in i}
    thermometer = objects[radio.addresses["bthome"]]
    data = thermometer["ServiceData"]["0000fcd2-0000-1000-8000-00805f9b34fb"][1]
    expect(bytes(data).hex(), "40024e0c", "service data of bthome")
    expect(thermometer["AddressType"], "public", "address type of bthome")
    expect(thermometer["RSSI"], -67, "RSSI of bthome")
    ruuvi = bytes(objects[radio.addresses["ruuvi"]]["ManufacturerData"][0x0499][1])
    expect(len(ruuvi), 24, "length of ruuvi's data")
    expect("Name" in objects[radio.addresses["nameless"]], False, "a name of nameless")
    expect(objects[radio.addresses["weird"]]["Name"], "a/b+c#d\te", "name of weird")
    stop_discovery()


def check_strap() -> None:
    """the strap connects, is read and written, and notifies by itself and on command"""
    connect("strap")
    level = only("strap", "2a19")
    expect(bus.read(level).hex(), "64", "2a19")
    bus.write(only("strap", "2a39"), b"\x01")
    expect(radio.events("strap", "write")[-1]["value"], "01", "what was written")
    measurement = only("strap", "2a37")
    for path in (level, measurement):
        bus.call(path, CHARACTERISTIC, "StartNotify")
    sent = radio("notify", device="strap", characteristic="180f/2a19", count=20, gap=5)
    bus.until(lambda: len(values_of(level)) >= 20 and len(values_of(measurement)) >= 2, 5)
    numbers = [int.from_bytes(value, "little") for value in values_of(level) if len(value) == 4]
    expect(numbers, list(range(sent["first"], sent["last"] + 1)), "notifications")
    if len(values_of(measurement)) < 2:
        raise Failed("the strap did not notify by itself")


def check_link_drop() -> None:
    """a peer's disconnect is seen"""
    path = radio.path("strap")
    radio("disconnect", device="strap")
    if not bus.until(lambda: bus.get(path, DEVICE, "Connected") is False, 5):
        raise Failed("still Connected")
    expect(radio("connected"), [], "links left")


def check_twins() -> None:
    """twin characteristics are four, each with its own value"""
    path = connect("twins")
    found_values = [bus.read(twin).hex() for twin in bus.characteristics(path, "2a06")]
    expect(found_values, ["00", "01", "02", "03"], "values of the twins")
    twin = bus.characteristics(path, "2a06")[2]
    bus.call(twin, CHARACTERISTIC, "StartNotify")
    radio("notify", device="twins", characteristic="1802/2a06#2", value="c0ffee")
    bus.until(lambda: values_of(twin)[-1:] == [b"\xc0\xff\xee"], 5)
    expect(values_of(twin)[-1].hex(), "c0ffee", "notification of the third twin")
    disconnect("twins")


def check_large() -> None:
    """values of 512 bytes are read and written"""
    connect("large")
    value = bytes(index & 0xFF for index in range(512))
    expect(bus.read(only("large", "ffd1")), value, "ffd1")
    bus.write(only("large", "ffd2"), value[::-1])
    expect(radio.events("large", "write")[-1]["value"], value[::-1].hex(), "what was written")
    disconnect("large")


def check_bulb() -> None:
    """the kinds of write arrive as what they are"""
    path = connect("bulb")
    for number, kind in (("1", "command"), ("2", "request"), ("3", "request"), ("3", "command")):
        uuid = f"0000ff0{number}-5a3c-4c1e-9a0b-6f2d1e7c8b90"
        where = next(p for p, i in bus.objects().items() if i.get(CHARACTERISTIC, {}).get("UUID") == uuid)
        expect(where.startswith(path), True, "the characteristic is the bulb's")
        bus.write(where, b"\x0a", kind)
        bus.listen(0.1)  # a command has no answer to wait for
        last = radio.events("bulb", "write")[-1]
        expect((last["characteristic"][-36:], last["kind"]), (uuid, kind), "what arrived")
    disconnect("bulb")


def check_includes() -> None:
    """included services are listed, a secondary one too"""
    path = connect("includer")
    services = {p: i["org.bluez.GattService1"] for p, i in bus.objects().items() if "org.bluez.GattService1" in i}
    includer = next(s for p, s in services.items() if p.startswith(path) and s["UUID"].startswith("0000fff3"))
    expect(len(includer["Includes"]), 2, "included services")
    disconnect("includer")


def check_indication() -> None:
    """indications are confirmed one by one"""
    connect("thermometer")
    measurement = only("thermometer", "2a1c")
    bus.call(measurement, CHARACTERISTIC, "StartNotify")
    sent = radio("indicate", device="thermometer", characteristic="1809/2a1c", count=5)
    bus.until(lambda: len(values_of(measurement)) >= 5, 5)
    expect((sent["sent"], len(values_of(measurement))), (5, 5), "indications")
    disconnect("thermometer")


def check_att_errors() -> None:
    """a device's own ATT error is passed on"""
    connect("stubborn")
    try:
        bus.read(only("stubborn", "ffe2"))
        raise Failed("a read that the device refuses succeeded")
    except DBusErrorResponse as error:
        if "0x80" not in str(error):
            raise Failed(f"the error does not say 0x80: {error}") from error
    expect(bus.read(only("stubborn", "ffe3")).hex(), "03", "ffe3")
    disconnect("stubborn")


def check_pairing() -> None:
    """just works, legacy pairing and a passkey lead to the encrypted value"""
    bus.register_agent()
    bus.passkey = 123456
    for device, value in (("lock", "01"), ("lock-legacy", "01"), ("safe", "0badcafe")):
        path = connect(device)
        bus.call(path, DEVICE, "Pair")
        expect(bus.get(path, DEVICE, "Paired"), True, f"Paired of {device}")
        expect(bus.read(only(device, "fff6")).hex(), value, f"fff6 of {device}")
        disconnect(device)
    expect("RequestPasskey" in bus.asked, True, "the agent was asked for the passkey")


def check_refusal() -> None:
    """a refused connection fails, and one that is only refused once succeeds then"""
    hear("refuser")
    try:
        bus.call(radio.path("refuser"), DEVICE, "Connect")
        raise Failed("a refused connection succeeded")
    except DBusErrorResponse as error:
        if "abort" not in str(error):
            raise Failed(f"the error is another: {error}") from error
    hear("tag")
    radio("drop_on_connect", device="tag", times=1)
    try:
        bus.call(radio.path("tag"), DEVICE, "Connect")
        raise Failed("a connection that the radio dropped succeeded")
    except DBusErrorResponse:
        # The error may come before BlueZ has taken in that the link is lost; it would call the device connected still.
        bus.until(lambda: not bus.get(radio.path("tag"), DEVICE, "Connected"), 5)
        bus.listen(0.2)
        connect("tag")
    expect(bus.read(only("tag", "2a19")).hex(), "32", "2a19 of tag")
    disconnect("tag")


def check_services_changed() -> None:
    """a service that a device adds appears"""
    path = connect("strap")
    radio("services_changed", device="strap")
    if not bus.until(lambda: bus.characteristics(path, "fffe"), 5):
        raise Failed("the new service did not appear")
    disconnect("strap")


def check_daemon() -> None:
    """after a SIGKILL and a start of bluetoothd the adapter and discovery are back"""
    radio("daemon_kill")
    expect(bus.objects(), {}, "objects of a dead daemon")
    radio("daemon_start")
    if not bus.until(lambda: bus.get(ADAPTER, "org.bluez.Adapter1", "Powered"), 10):
        raise Failed("the adapter did not come back")
    start_discovery()
    if not bus.until(lambda: len(found()) >= 12, 10):
        raise Failed("nothing is heard")
    stop_discovery()


def check_adapter() -> None:
    """an adapter that is unplugged goes, and comes back powered; power can be switched"""
    radio("adapter_remove", adapter="hci0")
    if not bus.until(lambda: ADAPTER not in bus.objects(), 5):
        raise Failed("the adapter is still there")
    radio("adapter_add", adapter="hci0")
    for on in (True, False, True):
        if on is False or bus.get(ADAPTER, "org.bluez.Adapter1", "Powered") is False:
            radio("power", adapter="hci0", on=on)
        if not bus.until(lambda on=on: bus.get(ADAPTER, "org.bluez.Adapter1", "Powered") is on, 10):
            raise Failed(f"the adapter is not powered {'on' if on else 'off'}")


def check_load() -> None:
    """300 advertisements a second, and 500 notifications a second on twenty links, all arrive"""
    start_discovery()
    before = len(bus.signals)
    radio("flood", rate=300, seconds=10, addresses=50)
    bus.until(lambda: radio("sent")["flood_done"], 20)
    flooded = radio("sent")["flood"]
    bus.listen(1)
    heard = sum("RSSI" in p or "ManufacturerData" in p for _, path, p in bus.signals[before:] if "dev_E0_00" in path)
    print(f"     flood: {flooded} handed to the kernel, {heard} PropertiesChanged")
    stop_discovery()
    if heard < flooded * 0.95:
        raise Failed(f"of {flooded} advertisements only {heard} became signals")
    nodes = [f"node-{n}" for n in range(20)]
    paths = {}
    started = time.monotonic()
    for node in nodes:
        connect(node)
        paths[node] = only(node, "fff1")
        bus.call(paths[node], CHARACTERISTIC, "StartNotify")
    print(f"     {len(radio('connected'))} links in {time.monotonic() - started:.1f} s")
    seconds, sockets = 10, [Radio() for _ in nodes]
    bus.signals.clear()
    started = time.monotonic()
    for node, control in zip(nodes, sockets, strict=True):
        request = {"op": "notify", "device": node, "characteristic": "fff0/fff1", "count": 25 * seconds, "gap": 40}
        control.ask(request)
    bus.until(lambda: len(bus.signals) >= 500 * seconds, seconds * 3)
    took = time.monotonic() - started
    got = sum(len(values_of(path)) for path in paths.values())
    print(f"     {got} of {500 * seconds} notifications in {took:.1f} s")
    expect(got, 500 * seconds, "notifications")
    for node in nodes:
        disconnect(node)


CHECKS: list[Callable[[], None]] = [
    check_powered, check_discovery, check_advertisement, check_strap, check_link_drop, check_twins, check_large,
    check_bulb, check_includes, check_indication, check_att_errors, check_pairing, check_refusal,
    check_services_changed, check_daemon, check_adapter,
]  # fmt: skip


def main() -> int:
    """The number of checks that failed, at most 1."""
    bus.watch()
    failures = 0
    for check in [*CHECKS, *([check_load] if "--load" in sys.argv else [])]:
        started = time.monotonic()
        try:
            check()
            result, why = "ok  ", ""
        except (Failed, DBusErrorResponse, TimeoutError, LookupError, StopIteration) as error:
            failures += 1
            result, why = "FAIL", f": {type(error).__name__}: {error}"
        print(f"{result} {check.__doc__}{why} ({time.monotonic() - started:.1f} s)", flush=True)
    print("selfcheck:", f"{failures} failed" if failures else "all is well")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
