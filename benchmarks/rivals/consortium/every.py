"""All systems through a consortium's bad hour, one after the other; tables for docs/evidence/comparison.md.

    python benchmarks/rivals/run.py --consortium --smoke             # 3 sites, 3 rounds, one fault: does it work here?
    python benchmarks/rivals/run.py --consortium --write             # all systems, all hours: some hours
    python benchmarks/rivals/run.py --consortium --only flower --hours bad,quiet --write

Every run is a process in name spaces of its own (network, mounts, processes), which end with it. With ``--write`` the
result of each run replaces the one of the same system and hour in docs/results/consortium-rivals.json as soon as it is
there, and the tables are made from that file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import figures

from .hour import ALONE, HOURS
from .one import SYSTEMS, chosen
from .table import tables

HERE = Path(__file__).parent
SPACES = ("--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
BEFORE_AND_AFTER = 600
"""Seconds that a system has to be set up before its hour and to be looked at after it."""
PICTURE = "![How long the bad hour took, and whose trainings are in the model](../results/consortium-rivals.svg)"


def name_spaces() -> list[str]:
    """Return the command that gives a run name spaces of its own; where that is not allowed there is nothing to run."""
    for wish in (["unshare", *SPACES], ["unshare", "-r", *SPACES]):
        if subprocess.run([*wish, "true"], capture_output=True, check=False).returncode == 0:
            return wish
    raise SystemExit("Machines on this one need name spaces (unshare --net --mount --pid): run it as root, on Linux.")


def versions(python: Path, packages: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of packages in an environment."""
    code = "import json, sys; from importlib.metadata import version as v; "
    code += "print(json.dumps({name: v(name) for name in sys.argv[1:]}))"
    told = subprocess.run([str(python), "-c", code, *packages], capture_output=True, text=True, check=True)
    return json.loads(told.stdout)


def measure(name: str, hour: str, python: Path, apart: list[str], keep: Path | None) -> dict[str, Any]:
    """Run one system through one hour, and return what came out; what failed says so."""
    system = chosen(name)
    told = ["python", "benchmarks/rivals/run.py", "--consortium", "--only", name, "--hours", hour]
    result = {"name": name, "hour_name": hour, "system": system.name, "command": shlex.join(told)}
    result |= {"settings": system.settings, "versions": versions(python, system.packages), "load": os.getloadavg()[0]}
    command = [*apart, sys.executable, "-m", "consortium.one", name, "--hour", hour, "--python", str(python)]
    command += ["--keep", str(keep / f"{name}-{hour}")] if keep else []
    limit = HOURS[hour].most * system.patience + BEFORE_AND_AFTER
    try:
        run = subprocess.run(
            command,
            cwd=HERE.parent,
            stdout=subprocess.PIPE,
            stderr=None if keep else subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=limit,
            check=False,
        )
        result |= json.loads(run.stdout.strip().splitlines()[-1])
    except subprocess.TimeoutExpired:
        result["failed"] = f"not done after {limit:g} s"
    except (IndexError, ValueError):
        result["failed"] = f"ended with code {run.returncode} without a result"
    return result


def merged(old: list[dict[str, Any]], new: dict[str, Any]) -> list[dict[str, Any]]:
    """Return results with a new one in the place of the old one of the same system and hour, in a fixed order."""
    rest = [one for one in old if (one["name"], one["hour_name"]) != (new["name"], new["hour_name"])]
    systems, hours = list(SYSTEMS), list(HOURS)
    return sorted([*rest, new], key=lambda one: (systems.index(one["name"]), hours.index(one["hour_name"])))


def write(path: Path, runs: list[dict[str, Any]]) -> None:
    """Write all results."""
    record = {
        "command": "python benchmarks/rivals/run.py --consortium --write",
        "machine": platform.platform(),
        "cores": os.cpu_count(),
        "runs": runs,
    }
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def main(
    environment: Callable[[str], Path], results: Path, page: Path, put: Callable[[Path, str, list[str]], None]
) -> None:
    """Run what the command line asks for.

    Parameters
    ----------
    environment
        Gives the Python of an environment, which is made if there is none.
    results, page
        Where results are kept, and the page with the tables.
    put
        Replaces what stands between two marks of a page.
    """
    parser = argparse.ArgumentParser(prog="run.py --consortium", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--smoke", action="store_true", help="3 sites, 3 rounds, one fault: about a minute for each system"
    )
    parser.add_argument("--only", default="", help=f"only these systems, by commas: {', '.join(SYSTEMS)}")
    parser.add_argument("--hours", default="", help=f"only these hours, by commas: {', '.join(HOURS)}")
    parser.add_argument("--keep", type=Path, help="leave logs and notes in this folder")
    parser.add_argument("--write", action="store_true", help="write docs/results/consortium-rivals.json and the tables")
    parser.add_argument(
        "--tables", action="store_true", help="run nothing: make the tables from the results that are there"
    )
    args = parser.parse_args()
    names = args.only.split(",") if args.only else list(SYSTEMS)
    hours = args.hours.split(",") if args.hours else ["smoke"] if args.smoke else [h for h in HOURS if h != "smoke"]
    if unknown := {*names, *hours} - {*SYSTEMS, *HOURS}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if args.smoke and args.write:
        parser.error("the tables are not made from so small a size")
    # what runs in name spaces is ended with the process that waits for it, also when this one is asked to end
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    apart, path = name_spaces(), results / "consortium-rivals.json"
    runs: list[dict[str, Any]] = []
    if (args.write or args.tables) and path.exists():
        runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
    failed = False
    for hour in () if args.tables else hours:
        for name in names:
            if hour in ALONE and not (chosen(name).alone or args.hours):
                continue
            one = measure(name, hour, environment(chosen(name).environment), apart, args.keep)
            failed |= "failed" in one
            runs = merged(runs, one)
            short = {key: one[key] for key in ("system", "hour", "seconds", "finished", "failed") if key in one}
            print(json.dumps(short), file=sys.stderr, flush=True)
            if args.write:
                write(path, runs)
    if args.write or args.tables:
        figures.campaign(runs, {"Flower SecAgg+": "the total"}, results / "consortium-rivals.svg")
    for name, lines in tables(runs).items():
        print("\n".join(lines), end="\n\n")
        if args.write or args.tables:
            put(page, name, ["", *([PICTURE, ""] if name == "consortium" else []), *lines, ""])
    sys.exit(failed)
