"""Designs: how time grows with the number of peers, and the table of docs/mathematics/designs.md.

Run ``python benchmarks/designs.py`` for the times and ``python benchmarks/designs.py --table`` for the table.
Times are ratios within one run, as machines differ.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import tempfile
import time
from collections import Counter
from itertools import product

from securedfl.designs import best, choose, coalitions, group_sizes, randomized, upper_bound

SIZES = (2, 3, 4, 5)


def growth(largest: int) -> None:
    peers = [n for n in (30, 100, 300, 1000, 3000, 10_000) if n <= largest]
    print("    n   s  partitions  bound   seconds  against the row before")
    for s in SIZES:
        before = 0.0
        for n in peers if s == 3 else [n for n in peers if n <= 1000]:
            start = time.perf_counter()
            design = best(n, s)
            seconds = time.perf_counter() - start
            ratio = f"x {seconds / before:.1f}" if before else ""
            print(f"{n:>6} {s:>2} {design.gap:>10} {upper_bound(group_sizes(n, s)):>7} {seconds:>9.3f}  {ratio}")
            before = seconds
    print(f"most memory used: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


def slowest(up_to: int) -> None:
    for s in SIZES:
        worst = (0.0, 0)
        for n in range(max(3, s), up_to + 1):
            start = time.perf_counter()
            best(n, s)
            worst = max(worst, (time.perf_counter() - start, n))
        print(f"s={s}: slowest of n up to {up_to} is n={worst[1]} with {worst[0]:.2f} s")


def choices(up_to: int) -> None:
    """Choose a design for every number of peers and 1 to 3 colluders; print what is chosen, and the slowest."""
    for collusion in (1, 2, 3):
        chosen: Counter[tuple[int, int]] = Counter()
        times, sampled = [], []
        for n in range(collusion + 2, up_to + 1):
            start = time.process_time()
            choice = choose(n, collusion=collusion)
            times.append((time.process_time() - start, n))
            chosen[choice.strength, choice.design.group_size] += 1
            sampled += [] if choice.exhaustive else [n]
        print(f"{collusion} colluders, {len(times)} numbers of peers up to {up_to}:")
        for (strength, size), count in sorted(chosen.items()):
            print(f"  strength {strength} in groups of {size}: {count}")
        print(f"  not every coalition tried in every round: {len(sampled)}, the first n={min(sampled, default=0)}")
        middle, slow = statistics.median_low(times)[0], sorted(times, reverse=True)[:3]
        print(
            f"  processor seconds: {middle:.2f} in the middle, slowest {', '.join(f'{t:.2f} (n={n})' for t, n in slow)}"
        )


def search(up_to: int) -> None:
    """Compare the search for the worst coalition with all coalitions in all rounds."""
    limits = coalitions.WORK, coalitions.MOST_COALITIONS
    asked = withstood = missed = 0
    for n, s, collusion, more in product(range(20, up_to + 1, 9), SIZES, (1, 2, 3), (1, 2)):
        design, strength = best(n, s), collusion + more
        if strength > design.gap:
            continue
        answers = []
        for coalitions.WORK, coalitions.MOST_COALITIONS in ((limits[0], 0), (10**15, 10**8)):
            coalitions.extent.cache_clear()
            coalitions.withstands.cache_clear()
            answers.append(coalitions.withstands(design, strength, collusion))
        asked, withstood = asked + 1, withstood + answers[1]
        missed += answers[0] != answers[1]
    print(f"{withstood} of {asked} designs withstand all coalitions; the search misses {missed} of the others")


def against_the_paper(seconds: float) -> None:
    """Compare with restarts of Algorithm 2 for some seconds each, where they come closest."""
    for n, s in (
        (10, 3),
        (13, 3),
        (17, 4),
        (18, 4),
        (20, 4),
        (29, 4),
        (26, 5),
        (50, 5),
        (60, 5),
        (36, 6),
        (66, 7),
        (330, 6),
        (336, 8),
        (370, 5),
    ):
        start, seed, found = time.perf_counter(), 0, 0
        while time.perf_counter() - start < seconds:
            found = max(found, randomized(n, s, seed).gap)
            seed += 1
        print(f"n={n} s={s}: best {best(n, s).gap}, Algorithm 2 in {seconds:.0f} s of restarts {found}")


def table(up_to: int) -> None:
    """Print partitions / upper bound for every n as Markdown; one number where the bound is met."""
    print("| n | " + " | ".join(f"s = {s}" for s in SIZES) + " |")
    print("|---" * (len(SIZES) + 1) + "|")
    for n in range(3, up_to + 1):
        cells = []
        for s in SIZES:
            if s > n:
                cells.append("")
                continue
            design = best(n, s)
            cells.append(str(design.gap) if design.gap >= design.bound else f"{design.gap} / {design.bound}")
        print(f"| {n} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="print the table of docs/mathematics/designs.md")
    parser.add_argument("--slowest", type=int, metavar="N", help="time every n up to N and print the slowest")
    parser.add_argument("--choices", type=int, metavar="N", help="choose a design for every n up to N")
    parser.add_argument("--search", type=int, metavar="N", help="compare the search with all coalitions up to N")
    parser.add_argument("--paper", type=float, metavar="SECONDS", help="compare with restarts of Algorithm 2")
    parser.add_argument("--largest", type=int, default=10_000, help="largest n of the growth table")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder  # measure building, not reading
        if arguments.table:
            table(200)
        elif arguments.slowest:
            slowest(arguments.slowest)
        elif arguments.choices:
            choices(arguments.choices)
        elif arguments.search:
            search(arguments.search)
        elif arguments.paper:
            against_the_paper(arguments.paper)
        else:
            growth(arguments.largest)


if __name__ == "__main__":
    main()
