"""bluetoothd and dbus-daemon of the guest, as the control commands need them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncGenerator

CANDIDATES = ("/usr/libexec/bluetooth/bluetoothd", "/usr/lib/bluetooth/bluetoothd")
PATIENCE = 10.0  # seconds until the daemon must have its name, or be gone


class DaemonError(Exception):
    """What went wrong with the daemon."""


class Daemon:
    """Starts and ends bluetoothd. It runs in the root of process 1, which need not be the radio's own."""

    def __init__(self, arguments: list[str], log_path: str) -> None:
        self._arguments = arguments
        self._log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None
        self._root = "/proc/1/root"

    def launch(self) -> None:
        """Starts the process and does not wait for it. Throws DaemonError."""
        if self._process is not None and self._process.poll() is None:
            raise DaemonError("bluetoothd runs already")
        program = next((path for path in CANDIDATES if os.path.exists(self._root + path)), None)
        if program is None:
            raise DaemonError(f"no bluetoothd at {' or '.join(CANDIDATES)}; install the package bluez")
        with open(self._log_path, "ab") as log:
            self._process = subprocess.Popen(
                ["/usr/sbin/chroot", self._root, program, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def start(self) -> None:
        """Starts it and waits until it owns org.bluez. Throws DaemonError."""
        self.launch()
        await self.wait_for_name()

    async def wait_for_name(self) -> None:
        """Waits until org.bluez is owned. Throws DaemonError."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while asyncio.get_running_loop().time() < deadline:
            if self._process is None or self._process.poll() is not None:
                raise DaemonError("bluetoothd ended by itself; see bluetoothd.log")
            bus = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus.NameHasOwner")
            if "true" in (await send(*bus, "string:org.bluez"))[1]:
                return
            await asyncio.sleep(0.03)
        raise DaemonError("bluetoothd did not get its name on the bus; see bluetoothd.log")

    async def end(self, number: signal.Signals) -> None:
        """Ends it by SIGKILL or SIGTERM, and waits until it is gone. Throws DaemonError."""
        process = self._signal(number)
        try:
            await asyncio.to_thread(process.wait, PATIENCE)
        except subprocess.TimeoutExpired as error:
            raise DaemonError(f"bluetoothd did not end on {number.name}") from error

    def freeze(self) -> None:
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise DaemonError("bluetoothd does not run")
        self._process.send_signal(number)
        return self._process


async def send(destination: str, path: str, method: str, *arguments: str) -> tuple[bool, str]:
    """One call on the system bus by dbus-send; success, and the reply or the error as text."""
    process = await asyncio.create_subprocess_exec(
        "dbus-send",
        "--system",
        "--print-reply",
        f"--dest={destination}",
        path,
        method,
        *arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode == 0, output.decode(errors="replace").strip()


async def calls(path: str, interface: str, member: str) -> AsyncGenerator[None, None]:
    """Nothing once it listens, then something at each such call on the system bus."""
    rule = f"type='method_call',path='{path}',interface='{interface}',member='{member}'"
    process = await asyncio.create_subprocess_exec(
        "dbus-monitor", "--system", rule, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        if process.stdout is None or not await process.stdout.readline():
            raise DaemonError("dbus-monitor does not listen; install the package dbus-bin")
        yield
        async for line in process.stdout:
            if f"member={member}".encode() in line:
                yield
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def set_adapter(index: int, name: str, value: str) -> None:
    """Sets a property of /org/bluez/hciN; `value` as dbus-send writes it, `boolean:true`. Throws DaemonError."""
    path = f"/org/bluez/hci{index}"
    arguments = ("string:org.bluez.Adapter1", f"string:{name}", f"variant:{value}")
    done, text = await send("org.bluez", path, "org.freedesktop.DBus.Properties.Set", *arguments)
    if not done:
        raise DaemonError(f"{name} of {path}: {text}")


async def wait_for_adapter(index: int, powered: bool) -> None:
    """Waits until BlueZ has the adapter, and has it powered if so wanted. Throws DaemonError."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    arguments = ("string:org.bluez.Adapter1", "string:Powered")
    text = ""
    while asyncio.get_running_loop().time() < deadline:
        path = f"/org/bluez/hci{index}"
        done, text = await send("org.bluez", path, "org.freedesktop.DBus.Properties.Get", *arguments)
        if done and (not powered or "boolean true" in text):
            return
        await asyncio.sleep(0.03)
    raise DaemonError(f"hci{index} is not there, or not powered, after {PATIENCE:.0f} s: {text}")
