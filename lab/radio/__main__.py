"""Runs the radio, `python -m radio --fleet FILE`, or with `--check` only reads the fleet file.

Where that is wrong, it exits with 78 and one sentence.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys

from . import fleet
from .daemon import Daemon, DaemonError, set_adapter, wait_for_adapter

log = logging.getLogger("radio")

EX_UNAVAILABLE, EX_CONFIG = 69, 78


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="radio", description="virtual Bluetooth controllers and a fleet of devices")
    parser.add_argument("--fleet", required=True, help="fleet file")
    parser.add_argument("--control", default="/run/blueferry/control.sock", help="path of the control socket")
    parser.add_argument("--dup", choices=("none", "addr", "data"), default="none", help="duplicate filter")
    parser.add_argument("--bluetoothd", default="-n -E", help="arguments of bluetoothd")
    parser.add_argument("--bluetoothd-log", default="/dev/null", help="where its output goes")
    parser.add_argument("--check", action="store_true", help="only read the fleet file")
    parser.add_argument("--log-level", default="INFO")
    return parser.parse_args()


async def run(options: argparse.Namespace, plan: fleet.Fleet, daemon: Daemon) -> None:
    """Brings everything up, opens the control socket last, and goes on for ever."""
    from .air import Air  # late, so that bluetoothd starts while Bumble is loaded
    from .control import Control

    air = Air(plan, options.dup)
    plugged = [adapter for adapter in plan.adapters if adapter.plugged]
    for adapter in plugged:
        await air.plug(adapter.name)
    air.start()
    await daemon.wait_for_name()
    for adapter in plugged:
        index = air.adapters[adapter.name].vhci.index.result()
        await wait_for_adapter(index, powered=False)
        if adapter.alias:
            await set_adapter(index, "Alias", f"string:{adapter.alias}")
        await set_adapter(index, "Powered", "boolean:true")
        await wait_for_adapter(index, powered=True)
    os.makedirs(os.path.dirname(options.control), exist_ok=True)
    await Control(air, daemon).listen(options.control)
    log.info("%d devices on the air, control at %s", len(air.peripherals), options.control)
    await asyncio.Event().wait()


def main() -> int:
    """Exit status."""
    options = arguments()
    logging.basicConfig(level=options.log_level, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("bumble").setLevel(logging.WARNING)
    daemon = Daemon(options.bluetoothd.split(), options.bluetoothd_log)
    try:
        plan = fleet.read(options.fleet)
        if not options.check:
            daemon.launch()
            asyncio.run(run(options, plan, daemon))
    except fleet.FleetError as error:
        print(f"radio: {error}", file=sys.stderr)
        return EX_CONFIG
    except (DaemonError, OSError) as error:
        print(f"radio: {error}", file=sys.stderr)
        return EX_UNAVAILABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
