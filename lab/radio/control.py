"""The control socket: JSON lines, one request and one response each. The operations are the simulator's too."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from .air import Air
from .controller import AdapterController
from .daemon import Daemon, DaemonError, calls, set_adapter
from .gatt import EVENT_SECONDS, PACKETS_PER_EVENT, NotSubscribed, Server, Value
from .peripheral import NotReady, Peripheral
from .uuids import normalized

log = logging.getLogger("control")

LONGEST_LINE = 1 << 20


class BadRequest(Exception):
    """What is wrong with a request."""


class Request:
    """A request whose parameters are taken by kind."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields

    def take(self, key: str, kind: type | tuple[type, ...], default: Any = ...) -> Any:
        """A parameter. Throws BadRequest if it is missing or of another kind."""
        value = self.fields.get(key, default)
        if value is ...:
            raise BadRequest(f"{key} is missing")
        wrong = isinstance(value, bool) and kind is not bool  # a bool is an int to Python
        if value is not default and (wrong or not isinstance(value, kind)):
            raise BadRequest(f"{key} is of the wrong kind: {value!r}")
        return value

    def number(self, key: str, default: Any, low: float, high: float) -> Any:
        """A number within bounds."""
        value = self.take(key, (int, float), default)
        if value is not None and not low <= value <= high:
            raise BadRequest(f"{key} is not between {low} and {high}")
        return value

    def data(self, key: str) -> bytes | None:
        """Bytes in hex, or none."""
        text = self.take(key, str, None)
        try:
            return None if text is None else bytes.fromhex(text)
        except ValueError as error:
            raise BadRequest(f"{key} is not hex: {text!r}") from error


class Control:
    """Answers the requests."""

    def __init__(self, air: Air, daemon: Daemon) -> None:
        self._air = air
        self._daemon = daemon
        self._cures: set[asyncio.Task[None]] = set()

    async def listen(self, path: str) -> None:
        """Opens the socket at a path."""
        await asyncio.start_unix_server(self._serve, path, limit=LONGEST_LINE)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(json.dumps(await self._answer(line)).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError) as error:
            log.warning("a control connection ended: %s", error)
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            fields = json.loads(line)
            if not isinstance(fields, dict):
                raise BadRequest("a request is a JSON object")
            request = Request(fields)
            name = request.take("op", str)
            operation: Callable[[Request], Awaitable[Any]] | None = getattr(self, f"do_{name}", None)
            if operation is None:
                raise BadRequest(f"unknown op {name!r}")
            return {"ok": await operation(request)}
        except (BadRequest, DaemonError, NotReady, NotSubscribed, ValueError, TimeoutError) as error:
            return {"error": str(error) or type(error).__name__}
        except Exception as error:
            log.exception("request failed: %s", line)
            return {"error": f"the radio failed: {error!r}"}

    # What a request is about

    def _peripheral(self, request: Request) -> Peripheral:
        name = request.take("device", str)
        peripheral = self._air.peripherals.get(name)
        if peripheral is None:
            raise BadRequest(f"there is no device {name!r} in the fleet")
        return peripheral

    def _value(self, server: Server, request: Request) -> Value:
        """`svc/chr` with `#n` for the n-th of twins."""
        text = request.take("characteristic", str)
        path, _, twin = text.partition("#")
        parts = [normalized(part) for part in path.split("/")]
        if len(parts) != 2 or None in parts or not (twin or "0").isdecimal():
            raise BadRequest(f"characteristic {text!r} is not service/characteristic, with #n for one of twins")
        name = f"{parts[0]}/{parts[1]}"
        found = [value for value in server.values if value.name.partition("#")[0] == name]
        if not twin and len(found) > 1:
            raise BadRequest(f"{text} is ambiguous: there are {len(found)}, say {text}#0 and so on")
        if int(twin or "0") >= len(found):
            raise BadRequest(f"there is no characteristic {text}")
        return found[int(twin or "0")]

    def _adapter_name(self, request: Request) -> str:
        return self._air.adapter_spec(request.take("adapter", str)).name

    # Devices

    async def do_devices(self, _: Request) -> Any:
        """All devices of the fleet."""
        return [
            {
                "id": name,
                "address": str(peripheral.address).split("/", maxsplit=1)[0],
                "name": peripheral.content.name,
                "connected": peripheral.connection() is not None,
                "advertising": peripheral.advertising,
            }
            for name, peripheral in self._air.peripherals.items()
        ]

    async def do_advertise(self, request: Request) -> Any:
        """Starts or stops advertising."""
        self._peripheral(request).advertising = request.take("on", bool)
        return True

    async def do_set(self, request: Request) -> Any:
        """Changes what is advertised."""
        peripheral = self._peripheral(request)
        parts: dict[str, Any] = {}
        manufacturer = request.take("manufacturer_data", dict, None)
        if manufacturer is not None:
            parts["manufacturer_data"] = {int(key, 16): bytes.fromhex(value) for key, value in manufacturer.items()}
        service = request.take("service_data", dict, None)
        if service is not None:
            if None in (uuids := [normalized(key) for key in service]):
                raise BadRequest("service_data: its keys are UUIDs")
            parts["service_data"] = dict(zip(uuids, (bytes.fromhex(value) for value in service.values()), strict=True))
        if "name" in request.fields:
            parts["name"] = request.take("name", (str, type(None)))
        rssi = request.number("rssi", peripheral.rssi, -127, 20)
        peripheral.change(**parts)
        peripheral.rssi = rssi
        return True

    async def do_connected(self, _: Request) -> Any:
        """The devices with a link."""
        return [name for name, peripheral in self._air.peripherals.items() if peripheral.connection() is not None]

    async def do_log(self, request: Request) -> Any:
        """What a device saw since the start."""
        return list(self._peripheral(request).log)

    async def do_disconnect(self, request: Request) -> Any:
        """The peer drops the link."""
        peripheral = self._peripheral(request)
        connection = peripheral.host_connection()
        if connection is None:
            raise BadRequest(f"{peripheral.spec.id} is not connected")
        await connection.disconnect()
        return True

    async def do_drop_on_connect(self, request: Request) -> Any:
        """The next connection attempts fail."""
        self._peripheral(request).drop_next = int(request.number("times", ..., 0, 1_000_000))
        return True

    async def do_services_changed(self, request: Request) -> Any:
        """A service comes, or goes again."""
        (await self._peripheral(request).served()).change()
        return True

    # Values

    async def do_values(self, request: Request) -> Any:
        """The numbered values that a characteristic has sent: number, and the monotonic clock's milliseconds."""
        value = self._value(await self._peripheral(request).served(), request)
        since = int(request.number("since", 0, 0, 0xFFFF_FFFF))
        return [[number, at] for number, at in value.sent if number >= since]

    async def do_notify(self, request: Request) -> Any:
        """Sends notifications; answers when all are sent."""
        return await self._send(request, indicate=False)

    async def do_indicate(self, request: Request) -> Any:
        """Sends indications, each after the confirmation of the one before."""
        return await self._send(request, indicate=True)

    async def _send(self, request: Request, indicate: bool) -> Any:
        peripheral = self._peripheral(request)
        server = peripheral.server()
        value = self._value(server, request)
        count = int(request.number("count", 1, 1, 10_000_000))
        gap = request.number("gap", 0, 0, 86_400_000) / 1000
        size = int(request.number("size", 4, 4, 512))
        given = request.data("value")
        first = value.next_sequence
        for number in range(count):
            connection = peripheral.host_connection()
            if connection is None:
                raise BadRequest(f"{peripheral.spec.id} is not connected; {number} of {count} were sent")
            counted = value.next_sequence if given is None else None
            data = value.counted(size) if given is None else given
            if not indicate:
                server.notify(connection, value, data, counted)
                await _pace(number, gap)
            elif server.cccd(connection, value) & 2:
                await server.indicate_subscriber(connection, value.attribute, data)
                await asyncio.sleep(gap)
            else:
                raise NotSubscribed(f"nobody has subscribed to the indications of {value.name}")
        if given is not None:
            return {"sent": count, "first": None, "last": None}
        return {"sent": count, "first": first, "last": value.next_sequence - 1}

    async def do_hang(self, request: Request) -> Any:
        """No ATT request, or none on a characteristic, is answered from now on; or again."""
        server = await self._peripheral(request).served()
        answers = not request.take("on", bool)
        if "characteristic" in request.fields:
            self._value(server, request).answers = answers
        else:
            server.answers = answers
        return True

    async def do_att_error(self, request: Request) -> Any:
        """A characteristic's requests are answered by an error; 0: not any more."""
        value = self._value(await self._peripheral(request).served(), request)
        value.att_error = int(request.number("code", ..., 0, 255))
        return True

    # The air

    async def do_flood(self, request: Request) -> Any:
        """Advertisements at a rate."""
        rate, seconds = request.number("rate", ..., 0, 100_000), request.number("seconds", ..., 0, 86_400)
        self._air.start_flood(rate, seconds, int(request.number("addresses", 1, 1, 1_000_000)))
        return True

    async def do_sent(self, _: Request) -> Any:
        """What was handed to the kernel."""
        return self._air.sent()

    # Adapters and bluetoothd

    async def do_power(self, request: Request) -> Any:
        """Sets Powered of an adapter."""
        adapter = self._air.adapters.get(self._adapter_name(request))
        if adapter is None:
            raise BadRequest("the adapter is not plugged")
        on = "true" if request.take("on", bool) else "false"
        await set_adapter(adapter.vhci.index.result(), "Powered", f"boolean:{on}")
        return True

    async def do_silence(self, request: Request) -> Any:
        """A controller scans on and reports nothing, until it is cured."""
        adapter = self._air.adapters.get(self._adapter_name(request))
        if adapter is None:
            raise BadRequest("the adapter is not plugged")
        cure = request.take("cure", str, None)
        if cure is None:
            cure = "none" if request.take("on", bool) else ""
        if cure not in ("", "restart", "power", "none"):
            raise BadRequest(f"cure is 'restart', 'power' or 'none', not {cure!r}")
        adapter.silence = cure
        if cure == "restart":
            # The kernel pauses and resumes its scan by itself, so only the call tells of a restart.
            starts = calls(f"/org/bluez/hci{adapter.vhci.index.result()}", "org.bluez.Adapter1", "StartDiscovery")
            await anext(starts)
            task = asyncio.create_task(self._cure(adapter, starts))
            self._cures.add(task)
            task.add_done_callback(self._cures.discard)
        return True

    async def _cure(self, adapter: AdapterController, starts: AsyncGenerator[None, None]) -> None:
        async for _ in starts:
            break
        await starts.aclose()
        if adapter.silence == "restart":
            adapter.silence = ""

    async def do_adapter_remove(self, request: Request) -> Any:
        """Unplugs a controller."""
        self._air.unplug(self._adapter_name(request))
        return True

    async def do_adapter_add(self, request: Request) -> Any:
        """Plugs it in again."""
        await self._air.plug(self._adapter_name(request), request.take("name", str, None))
        return True

    async def do_daemon_kill(self, _: Request) -> Any:
        """SIGKILL to bluetoothd."""
        await self._daemon.end(signal.SIGKILL)
        return True

    async def do_daemon_stop(self, _: Request) -> Any:
        """SIGTERM to bluetoothd."""
        await self._daemon.end(signal.SIGTERM)
        return True

    async def do_daemon_freeze(self, _: Request) -> Any:
        """SIGSTOP to bluetoothd."""
        self._daemon.freeze()
        return True

    async def do_daemon_thaw(self, _: Request) -> Any:
        """SIGCONT to bluetoothd."""
        self._daemon.thaw()
        return True

    async def do_daemon_start(self, _: Request) -> Any:
        """Starts bluetoothd; answers when it owns its name."""
        await self._daemon.start()
        return True


async def _pace(number: int, gap: float) -> None:
    """Waits as long as the gap says, or without one as a radio's connection events would."""
    if gap:
        await asyncio.sleep(gap)
    elif number % PACKETS_PER_EVENT == PACKETS_PER_EVENT - 1:
        await asyncio.sleep(EVENT_SECONDS)
