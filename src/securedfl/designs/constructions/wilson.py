"""Transversal designs of orders m t + u, which are no products: Wilson's recursion (Wilson 1974).

Take a transversal design of order t with one or two more rows than wanted, and keep only u points of each row
more (m t + u + w points for two). Every other point becomes m points, and a block that kept e of the additional
points becomes a transversal design of order m + e without e of its blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.integer[Any]]
"""Shape (blocks, rows): the place of every block in every row."""

ROWS = 10
"""Rows beyond which nothing better is looked for: groups are rarely larger."""


@dataclass(frozen=True)
class Truncation:
    """Order ``m t + sum(kept)`` from order t, ``kept`` points remaining in each of the additional rows."""

    m: int
    t: int
    kept: tuple[int, ...]


def truncation(v: int, limit: Callable[[int], int], above: int) -> tuple[int, Truncation | None]:
    """Return the most rows that truncation promises for order v if more than ``above``, and how.

    ``limit`` has the rows known for smaller orders, not counting the row that numbers the partitions.
    """
    best: tuple[int, Truncation | None] = (above, None)
    for m, more in product(range(3, v // 3), (1, 2)):
        inner = min(limit(m + e) for e in range(more + 1))
        if inner <= best[0] or best[0] >= ROWS:
            continue
        for t in range(-(-v // (m + more)), v // m + 1):
            known = min(inner, limit(t) - more)
            for kept in splits(v - m * t, t, more) if known > best[0] else ():
                rows = min(known, *(ROWS if u == 1 else limit(u) for u in kept))
                if rows > best[0]:
                    best = (rows, Truncation(m, t, kept))
                    break
    return best


def splits(total: int, t: int, rows: int) -> Iterator[tuple[int, ...]]:
    """Split points over one or two rows of at most t, the likeliest first: one point, or as many as there are."""
    if rows == 1:
        if 0 < total < t:
            yield (total,)
        return
    for u in range(min(t, total - 1), (total - 1) // 2, -1):
        yield u, total - u


def build(k: int, cut: Truncation, blocks: Callable[[int, int], Table], *, fill: bool = True) -> Table:
    """Return the blocks of a transversal design with k rows; ``blocks(rows, order)`` has those it is made of.

    Without ``fill``, the points that were kept in one row more stay a hole: their pairs are in no block.
    """
    m, t, kept = cut.m, cut.t, cut.kept
    outer = blocks(k + len(kept), t)
    first = np.cumsum([m * t, *kept])
    present = outer[:, k:] < np.array(kept)
    additional = outer[:, k:] + first[:-1]
    parts = [
        np.arange(first[i], first[i + 1])[blocks(k, size)] if size > 1 else np.full((1, k), first[i])
        for i, size in enumerate(kept)
        if fill
    ]
    for count in range(len(kept) + 1):
        chosen = present.sum(axis=1) == count
        if not chosen.any():
            continue
        inner = _without(blocks(k, m + count), count)
        # Row a of a block: the m points of its point there, then the additional points that the block kept.
        points = outer[chosen, :k, None] * m + np.arange(m)
        new = additional[chosen][present[chosen]].reshape(len(points), 1, count)
        points = np.concatenate([points, np.broadcast_to(new, (*points.shape[:2], count))], axis=2)
        parts.append(points[:, np.arange(k), inner].reshape(-1, k))
    return np.concatenate(parts)


def _without(table: Table, count: int) -> Table:
    """Rename the points so that ``count`` disjoint blocks have the last places in every row; remove these."""
    order, rows = int(table.max()) + 1, table.shape[1]
    removed: list[int] = []
    free = np.ones(len(table), dtype=bool)
    names = np.tile(np.arange(order), (rows, 1))
    for _ in range(count):
        block = int(free.argmax())
        removed.append(block)
        free &= (table != table[block]).all(axis=1)
    for row in range(rows):
        last = table[removed, row]
        others = np.setdiff1d(np.arange(order), last)
        names[row, np.concatenate([others, last]).astype(np.int64)] = np.arange(order)
    keep = np.ones(len(table), dtype=bool)
    keep[removed] = False
    return np.stack([names[row][table[keep, row]] for row in range(rows)], axis=1)
