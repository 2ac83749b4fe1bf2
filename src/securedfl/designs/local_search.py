"""Local search for further partitions: the last resort where no construction is known."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt

from securedfl.designs.design import Design
from securedfl.designs.sizes import group_sizes, upper_bound

Labels = npt.NDArray[np.int64]


def local_search(n: int, s: int = 3, seed: int = 0, *, steps: int = 1000, restarts: int = 3) -> Design:
    """Find one partition after the other by exchanging peers who would meet again.

    Each partition starts as a shuffled deal of the peers. While two peers of a group have met before, one of
    them changes places with whoever leaves the fewest such pairs (ties at random, recent movers wait: tabu
    search). The effort is counted in steps, not seconds, so the result is the same everywhere.

    Parameters
    ----------
    n, s, seed
        Peers, group size (see `group_sizes` where it does not divide), and what makes it reproducible.
    steps
        Exchanges before a partition is dealt anew, up to `restarts` times; then the search ends.
    """
    sizes = group_sizes(n, s)
    bound = upper_bound(sizes)
    source = random.Random(seed)
    met = np.zeros((n, n), dtype=np.int64)
    template = np.repeat(np.arange(len(sizes)), sizes)
    rows: list[Labels] = []
    while len(rows) < bound:
        attempts = (_search(met, template, source, steps) for _ in range(restarts))
        row = next((found for found in attempts if found is not None), None)
        if row is None:
            break
        met += row[:, None] == row[None, :]
        np.fill_diagonal(met, 0)
        rows.append(row)
    return Design(np.stack(rows), method="local search")


def _search(met: Labels, template: Labels, source: random.Random, steps: int) -> Labels | None:
    """Return labels with no pair that has met, or None after too many exchanges."""
    n = len(template)
    row = np.empty(n, dtype=np.int64)
    row[sorted(range(n), key=[source.random() for _ in range(n)].__getitem__)] = template
    member = np.eye(template[-1] + 1, dtype=np.int64)[row]
    # clashes[p, g]: how many of group g peer p has met.
    clashes = met @ member
    everyone = np.arange(n)
    waits = np.zeros(n, dtype=np.int64)
    for step in range(steps):
        own = clashes[everyone, row]
        bad = np.flatnonzero(own)
        if not bad.size:
            return row
        p = int(bad[int(source.random() * bad.size)])
        g = row[p]
        change = clashes[p, row] + clashes[:, g] - 2 * met[p] - own[p] - own
        change[(row == g) | (waits > step)] = n
        ties = np.flatnonzero(change == change.min())
        q = int(ties[int(source.random() * ties.size)])
        h = row[q]
        clashes[:, g] += met[:, q] - met[:, p]
        clashes[:, h] += met[:, p] - met[:, q]
        row[p], row[q] = h, g
        waits[p] = waits[q] = step + 3 + int(source.random() * 5)
    return None
