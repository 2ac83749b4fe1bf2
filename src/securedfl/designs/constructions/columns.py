"""Partial difference matrices, found by search: part of a transversal design of an order that has none."""

from __future__ import annotations

import random
from functools import lru_cache

import numpy as np

from securedfl.designs.constructions.abelian import add
from securedfl.designs.constructions.classes import Classes, Plan, as_classes
from securedfl.designs.constructions.shipped import solutions

EFFORT = 6_000_000
"""Steps times the work of one, of which more rows and places mean more: a few tenths of a second."""


def partial_transversal(k: int, v: int) -> Classes:
    """Return partitions of k rows of v points into groups with one point of every row.

    Each partition is a column of k residues modulo v, translated. Two columns never meet if no two rows have
    the same difference in both. Columns are found one after the other, entry by entry; the residues that an
    entry may have are the bits of one number. The effort is counted in steps, so the result is the same
    everywhere; the best of several attempts counts.
    """
    source = random.Random(v * 1000 + k)
    best: list[list[int]] = []
    left = EFFORT // (v + 10 * k)
    while left > 0 and len(best) < v:
        columns, spent = _columns(k, v, source, left)
        left -= spent
        best = max(best, columns, key=len)
    return _developed((v,), np.array(best))


def shipped(n: int, s: int) -> Plan | None:
    """Plan partitions from the columns of a longer search, where the package has them."""
    item = _shipped().get((n, s))
    if item is None:
        return None
    group, columns = item
    name = " x ".join(f"Z_{modulus}" for modulus in group)
    return Plan(
        len(columns),
        f"partial difference matrix over {name} found by search",
        lambda: _developed(group, columns),
    )


@lru_cache(maxsize=1)
def _shipped() -> dict[tuple[int, int], tuple[tuple[int, ...], Classes]]:
    found = {}
    for item in solutions("columns"):
        rows, group = item["rows"], tuple(item["group"])
        found[rows * int(np.prod(group)), rows] = (group, as_classes(item["columns"]).reshape(-1, rows))
    return found


def _developed(group: tuple[int, ...], columns: Classes) -> Classes:
    """Translate every column by all elements of the group: a partition."""
    v = int(np.prod(group))
    moved = add(group, columns[:, None, :], np.arange(v)[None, :, None])
    return as_classes(moved + v * np.arange(columns.shape[1]))


def _columns(k: int, v: int, source: random.Random, steps: int) -> tuple[list[list[int]], int]:
    """Add columns until no further one is found; return them and the entries tried."""
    used = [[0] * k for _ in range(k)]
    columns: list[list[int]] = []
    total = 0
    while total < steps and len(columns) < v:
        column, spent = _column(k, v, used, source, steps - total)
        total += spent
        if column is None:
            break
        columns.append(column)
        for a in range(k):
            for b in range(a):
                used[a][b] |= 1 << (column[a] - column[b]) % v
    return columns, total


def _column(
    k: int, v: int, used: list[list[int]], source: random.Random, steps: int
) -> tuple[list[int] | None, int]:
    """Search one more column with first entry 0, depth first; return it and the entries tried."""
    everything = (1 << v) - 1
    column = [0]
    choices: list[list[int]] = []
    spent = 0
    while len(column) < k:
        if len(choices) < len(column):
            a = len(column)
            free = everything
            for b, entry in enumerate(column):
                taken = used[a][b]
                free &= ~((taken << entry | taken >> (v - entry)) & everything)
            values = [i for i in range(v) if free >> i & 1]
            choices.append(sorted(values, key=[source.random() for _ in range(v)].__getitem__))
        spent += 1
        if spent > steps:
            return None, spent
        if choices[-1]:
            column.append(choices[-1].pop())
            continue
        choices.pop()
        if not choices:
            return None, spent
        column.pop()
    return column, spent
