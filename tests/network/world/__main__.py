"""Run many schedules on all cores, or replay one: ``python -m tests.network.world --schedules 1000``."""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from multiprocessing import Pool
from pathlib import Path
from typing import Any

from tests.network.world.runs import Outcome, options, run, run_seed, shrink
from tests.network.world.schedule import KINDS, Schedule, draw

COMMAND = "python -m tests.network.world"


def main() -> int:
    """Run what the command line asks for; return 1 if anything was violated."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--schedules", type=int, default=1000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many; so does Ctrl-C")
    parser.add_argument("--lying", action="store_true", help="run only those of them in which somebody lies")
    parser.add_argument("--keep", type=Path, help="keep the counts in this file, and go on from there if it exists")
    parser.add_argument("--replay", type=int, help="tell the story of this seed")
    parser.add_argument("--faults", help="of these faults only, by their place: 0,3; or none")
    for name, kind in (("peers", int), ("rounds", int), ("drop", float), ("duplicate", float), ("skew", float)):
        parser.add_argument(f"--{name}", type=kind, help="in place of what the seed gives")
    given = parser.parse_args()
    return many(given) if given.replay is None else one(_named(given))


def _named(given: argparse.Namespace) -> Schedule:
    schedule = draw(given.replay)
    if given.faults is not None:
        kept = [] if given.faults == "none" else [int(k) for k in given.faults.split(",")]
        schedule = replace(schedule, faults=tuple(schedule.faults[k] for k in kept))
    names = ("peers", "rounds", "drop", "duplicate", "skew")
    changes = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    return replace(schedule, **changes)


def one(schedule: Schedule) -> int:
    """Tell the story of one schedule."""
    print(schedule)
    outcome = run(schedule, print)
    print(outcome.what or "nothing was violated")
    return bool(outcome.kind)


def many(given: argparse.Namespace) -> int:
    """Run schedules on all cores; print a table, and the story of the first violation."""
    kept: dict[str, Any] = {"seed": given.seed, "done": 0, "seconds": 0.0, "violations": {}, "counts": {}}
    if given.keep and given.keep.exists():
        kept = json.loads(given.keep.read_text())
    counts, violations = Counter[str](kept["counts"]), list[Outcome]()
    began, before = time.monotonic(), kept["seconds"]
    seeds = range(kept["seed"] + kept["done"], kept["seed"] + given.schedules)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with Pool(given.workers, _work) as pool, suppress(KeyboardInterrupt):
        for outcome in pool.imap(_run_lying if given.lying else run_seed, seeds, chunksize=8):
            seconds = time.monotonic() - began
            if seconds > given.seconds:
                break
            kept |= {"done": kept["done"] + 1, "seconds": before + seconds}
            _add(counts, outcome)
            if outcome.kind:
                violations.append(outcome)
                kept["violations"][str(outcome.schedule.seed)] = outcome.what
                print(f"seed {outcome.schedule.seed}: {outcome.what}", flush=True)
            if kept["done"] % max(1, given.schedules // 1000) == 0:
                _keep(given.keep, kept | {"counts": counts})
                print(f"\r{_head(kept)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    _keep(given.keep, kept | {"counts": counts})
    _table(counts, kept)
    if violations:
        first = min(violations, key=lambda outcome: (len(outcome.schedule.faults), outcome.schedule.seed))
        small = shrink(first)
        print(f"\nThe smallest, with as few faults as show it; replay it with\n{COMMAND} {options(small.schedule)}\n")
        one(small.schedule)
    return bool(kept["violations"])


def _run_lying(seed: int) -> Outcome:
    return run_seed(seed) if draw(seed).lying else Outcome(draw(seed))


def _add(counts: Counter[str], outcome: Outcome) -> None:
    if not outcome.counts:
        counts["not run: nobody lies"] += 1
        return
    counts.update(outcome.counts)
    counts[f"protocol {outcome.schedule.protocol}"] += 1
    counts[f"{outcome.schedule.peers} peers"] += 1
    counts[f"absence {outcome.schedule.absence}"] += 1
    counts["schedules with one liar"] += outcome.schedule.lying == 1
    counts["schedules with two liars"] += outcome.schedule.lying == 2


def _keep(path: Path | None, kept: dict[str, Any]) -> None:
    if path is not None:
        written = path.with_suffix(".part")
        written.write_text(json.dumps(kept, indent=1))
        written.replace(path)


def _work() -> None:
    """Leave it to the parent to stop; look for garbage seldom, because that takes time."""
    gc.freeze()
    gc.set_threshold(200_000)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _head(kept: dict[str, Any]) -> str:
    rate = kept["done"] / max(kept["seconds"], 1e-9)
    many = f"{kept['done']} schedules from seed {kept['seed']} in {kept['seconds']:.0f} s ({rate:.1f} per second)"
    return f"{many}, {len(kept['violations'])} violations"


def _table(counts: Counter[str], kept: dict[str, Any]) -> None:
    print(f"{_head(kept)}\n")
    kinds = [kind for kind in KINDS if counts[kind]]
    rest = sorted(set(counts) - set(kinds))
    for title, names in (("faults and changes", kinds), ("everything else", rest)):
        print(f"| {title} | how often |\n|---|---:|")
        for name in names:
            print(f"| {name} | {counts[name]:,} |")
        print()


if __name__ == "__main__":
    sys.exit(main())
