"""One system through one hour, within name spaces of its own: ``run.py`` starts it, and reads its last line."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import traceback
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from .campaign import Campaign
from .hour import HOURS, SLOW, Hour
from .judge import judge
from .machines import Machines, do
from .system import Place

SYSTEMS = {
    "gloo": "gloo:Gloo",
    "hivemind": "hivemind:Hivemind",
    "p2pfl": "p2pfl:P2pfl",
    "flower": "flower:Flower",
    "flower-secagg": "flower:SecAgg",
    "nvflare": "nvflare:FedAvg",
    "nvflare-swarm": "nvflare:Swarm",
    "ours": "ours:Ours",
}


def chosen(name: str) -> type:
    """Return the class of a system."""
    module, _, kind = SYSTEMS[name].partition(":")
    return getattr(import_module(f"{__package__}.systems.{module}"), kind)


def run(name: str, python: Path, hour: Hour, folder: Path) -> dict[str, Any]:
    """Put a system through an hour and return what came out; what went wrong says so."""
    kind = chosen(name)
    hour = replace(hour, most=hour.most * kind.patience)
    machines = Machines(hour.sites, folder, min(SLOW, hour.sites - 1))
    campaign = Campaign(kind(Place(machines, folder, python, hour)))
    result: dict[str, Any] = {"system": kind.name, "hour": hour.name, "sites": hour.sites, "rounds": hour.rounds}
    try:
        result["over_after"] = round(campaign(), 1)
        result["over"] = result["over_after"] < hour.most
    except Exception as error:
        traceback.print_exc()
        result["failed"] = f"{type(error).__name__}: {error}"[-1500:]
    finally:
        campaign.close()
    result |= judge(campaign.place.notes, hour.sites, hour.rounds, campaign.began_at)
    result |= {"starts": dict(campaign.starts), "acts": campaign.acts, "events": campaign.events}
    result["hour_faults"] = [fault.kind for fault in hour.faults]
    return {**result, "put_right": campaign.put_right, "stale_key_was_told": campaign.told_stale}


def reap() -> None:
    """As the first process of a name space, bury the orphans of killed machines: until then they look alive."""
    if os.getpid() != 1 or not (child := os.fork()):
        return
    while True:
        ended, status = os.wait()
        if ended == child:
            os._exit(os.waitstatus_to_exitcode(status))


def main() -> None:
    reap()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("--hour", default="bad", choices=HOURS)
    parser.add_argument("--python", type=Path, required=True, help="the Python of the system's environment")
    parser.add_argument("--keep", type=Path, help="leave logs and notes in this folder")
    args = parser.parse_args()
    if args.keep:
        shutil.rmtree(args.keep, ignore_errors=True)
        args.keep.mkdir(parents=True)
    folder = args.keep or Path(tempfile.mkdtemp(prefix="consortium-"))
    try:
        print(json.dumps(run(args.system, args.python, HOURS[args.hour], folder.resolve())), flush=True)
    finally:
        if not args.keep:
            do("rm", "-rf", str(folder), check=False)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
