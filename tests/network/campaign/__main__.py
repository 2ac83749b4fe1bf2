"""Run random schedules of faults with real processes: ``python -m tests.network.campaign --schedules 60``."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.network.campaign.run import FailedError, Run
from tests.network.campaign.schedule import draw


def main() -> int:
    """Run them one after the other; print a table, and keep the folder of what failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.network.campaign", description=__doc__)
    parser.add_argument("--schedules", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0, help="the first one; a schedule follows from its seed")
    parser.add_argument("--peers", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to keep what failed; by default a temporary folder")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="campaign-"))
    counts, failed, worst, began = Counter[str](), 0, 0.0, time.monotonic()
    for seed in range(given.seed, given.seed + given.schedules):
        schedule = draw(seed, given.peers)
        place = folder / str(seed)
        place.mkdir(parents=True)
        told: list[str] = []
        run = Run(schedule, place, told.append)
        try:
            worst = max(worst, run())
        except KeyboardInterrupt:
            break
        except (FailedError, AssertionError, OSError) as error:
            failed += 1
            kind = str(error).partition(":")[0]
            counts[f"violation: {kind}"] += 1
            print("\n".join([f"seed {seed}, {place}: {error}", *told]), flush=True)
        else:
            shutil.rmtree(place)
        finally:
            run.close()
        counts["schedules"] += 1
        counts[f"protocol {schedule.protocol}"] += 1
        counts.update(fault.kind for fault in schedule.faults)
        line = f"{counts['schedules']} of {given.schedules}, {failed} violations, {time.monotonic() - began:.0f} s"
        print(line, file=sys.stderr, flush=True)
    seconds = time.monotonic() - began
    print(f"{counts['schedules']} schedules of {given.peers} peers in {seconds:.0f} s: {failed} violations")
    print(f"largest difference from the exact mean: {worst:.1e}\n\n| what | how often |\n|---|---:|")
    for name, count in sorted(counts.items()):
        print(f"| {name} | {count} |")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
