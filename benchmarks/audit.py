"""How long audits take: the exact audit of the code, the fast path by components, and all coalitions of a size.

python benchmarks/audit.py
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from functools import partial

from securedfl.designs import best
from securedfl.privacy import Audit
from securedfl.protocols import by_name


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print("One curious peer each, two iterations of grouped averaging:")
    print(f"{'peers':>6} {'symbols':>10} {'components':>11}")
    for n in (9, 15, 33, 99, 201, 999):
        averaging = by_name("grouped").on(best(n, 3, 0))
        fast = seconds(Audit(averaging).certificate)
        slow = "-"
        if n <= 99:
            slow = f"{seconds(Audit(averaging, shortcut=False).certificate):.2f} s"
        print(f"{n:>6} {slow:>10} {fast:>9.3f} s")

    print("\nOne curious peer each, by number of iterations (symbols, 15 peers):")
    for iterations in (2, 4, 6, 8, 14):
        audited = Audit(by_name("grouped").on(best(15, 3, 0), iterations=iterations), shortcut=False)
        print(f"{iterations:>6} iterations {seconds(audited.certificate):>9.2f}s")

    print("\nAll coalitions of a size against shares of strength c + 1 (components):")
    for n, c in ((15, 3), (15, 6), (33, 3), (99, 2), (60, 3)):
        audited = Audit(by_name("shares").on(best(n, 3, 0), strength=c + 1))
        spent = seconds(partial(audited.certificate, collusion=c))
        count = math.comb(n, c)
        print(f"{n:>6} peers, {c} colluders: {count:>7} coalitions {spent:>8.2f}s, {count / spent:>9.0f} a second")


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
