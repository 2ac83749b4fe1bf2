"""Run many schedules on all cores, or replay one: ``python -m tests.network.world --schedules 1000``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from multiprocessing import Pool

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
    began, done, counts = time.monotonic(), 0, Counter[str]()
    violations: list[Outcome] = []
    seeds = range(given.seed, given.seed + given.schedules)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with Pool(given.workers, _work) as pool, suppress(KeyboardInterrupt):
        for outcome in pool.imap_unordered(run_seed, seeds, chunksize=8):
            if time.monotonic() - began > given.seconds:
                break
            done += 1
            counts.update(outcome.counts)
            counts[f"protocol {outcome.schedule.protocol}"] += 1
            counts[f"{outcome.schedule.peers} peers"] += 1
            counts["schedules with a liar"] += bool(outcome.schedule.liars)
            if outcome.kind:
                violations.append(outcome)
                print(f"seed {outcome.schedule.seed}: {outcome.what}", flush=True)
            if done % max(1, given.schedules // 100) == 0:
                rate = done / (time.monotonic() - began)
                line = f"\r{done} of {given.schedules} schedules, {rate:.1f} per second, {len(violations)} violations"
                print(line, end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    _table(counts, done, time.monotonic() - began, len(violations))
    if violations:
        first = min(violations, key=lambda outcome: (len(outcome.schedule.faults), outcome.schedule.seed))
        small = shrink(first)
        print(f"\nThe smallest, with as few faults as show it; replay it with\n{COMMAND} {options(small.schedule)}\n")
        one(small.schedule)
    return bool(violations)


def _work() -> None:
    """Leave it to the parent to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _table(counts: Counter[str], schedules: int, seconds: float, violations: int) -> None:
    print(f"{schedules} schedules in {seconds:.0f} s ({schedules / seconds:.1f} per second), {violations} violations\n")
    kinds = [kind for kind in KINDS if counts[kind]]
    rest = sorted(set(counts) - set(kinds))
    for title, names in (("faults and changes", kinds), ("everything else", rest)):
        print(f"| {title} | how often |\n|---|---:|")
        for name in names:
            print(f"| {name} | {counts[name]:,} |")
        print()


if __name__ == "__main__":
    sys.exit(main())
