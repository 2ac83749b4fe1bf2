"""One system through one hour, within name spaces of its own: ``run.py`` starts it, and reads its last line."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import traceback
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from .campaign import Campaign
from .hour import BAD, SLOW, SMOKE, Hour
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
KINDS = tuple(fault.kind for fault in BAD.faults)
ROUNDS_ALONE = 8


def chosen(name: str) -> type:
    """Return the class of a system."""
    module, _, kind = SYSTEMS[name].partition(":")
    return getattr(import_module(f"{__package__}.systems.{module}"), kind)


def hour_of(name: str) -> Hour:
    """Return the hour of a name: ``bad``, ``quiet``, ``smoke``, or a kind of fault alone."""
    hours = {"bad": BAD, "smoke": SMOKE, "quiet": replace(BAD, name="quiet hour", faults=())}
    return hours[name] if name in hours else BAD.alone(name, ROUNDS_ALONE)


def run(name: str, python: Path, hour: Hour, folder: Path) -> dict[str, Any]:
    """Put a system through an hour and return what came out; what went wrong says so."""
    kind = chosen(name)
    machines = Machines(hour.sites, folder, min(SLOW, hour.sites - 1))
    campaign = Campaign(kind(Place(machines, folder, python, hour)))
    result: dict[str, Any] = {"system": kind.name, "hour": hour.name, "sites": hour.sites, "rounds": hour.rounds}
    try:
        result["seconds"] = round(campaign(), 1)
        result["over"] = result["seconds"] < hour.most
    except Exception as error:
        traceback.print_exc()
        result["failed"] = f"{type(error).__name__}: {error}"[-1500:]
    finally:
        campaign.close()
    result |= judge(campaign.place.notes, hour.sites, hour.rounds)
    result |= {"starts": dict(campaign.starts), "acts": campaign.acts, "events": campaign.events}
    return {**result, "stale_key_was_told": campaign.told_stale}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("--hour", default="bad", choices=("bad", "quiet", "smoke", *KINDS))
    parser.add_argument("--python", type=Path, required=True, help="the Python of the system's environment")
    parser.add_argument("--keep", type=Path, help="leave logs and notes in this folder")
    args = parser.parse_args()
    folder = args.keep or Path(tempfile.mkdtemp(prefix="consortium-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        print(json.dumps(run(args.system, args.python, hour_of(args.hour), folder.resolve())), flush=True)
    finally:
        if not args.keep:
            do("rm", "-rf", str(folder), check=False)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
