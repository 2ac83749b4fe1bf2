"""Difference matrices, whose columns a group turns into transversal designs where no field does.

Whole ones over abelian groups (orders 12, 15, ...), quasi-difference matrices for Latin squares of order 2 mod 4, and
partial ones, which give part of a transversal design of an order that has none.
"""

from __future__ import annotations

import math
import random
from functools import lru_cache

import numpy as np

from securedfl.designs.constructions.construction import Classes, as_classes, develop
from securedfl.designs.constructions.shipped import solutions

INFINITE = 3
"""Points that stay fixed under the cyclic group of a shipped solution for Latin squares."""

EFFORT = 6_000_000
"""Of a search for columns: steps times the work of one, which grows with rows and places; a few tenths of a second."""


def translated(group: tuple[int, ...], columns: Classes) -> Classes:
    """Return an array [partition, group, row] of places: each column, translated by all elements of the group."""
    return develop(group, columns).transpose(1, 0, 2)


@lru_cache(maxsize=1)
def difference_matrices() -> dict[int, tuple[tuple[int, ...], Classes]]:
    """Return the shipped matrices by order: an abelian group, and columns; any two rows differ by each element once.

    The first two rows, zero and the identity, are not in the file; the others are orthomorphisms, pairwise orthogonal,
    found by search among those that an automorphism of the group preserves (Johnson, Dulmage, Mendelsohn 1961
    found the first for order 12).
    """
    found = {}
    for item in solutions("difference_matrices"):
        order = math.prod(item["group"])
        found[order] = tuple(item["group"]), as_classes([[0] * order, range(order), *item["maps"]]).T
    return found


@lru_cache(maxsize=1)
def orders() -> dict[int, list[list[int]]]:
    """Return the shipped solutions by order m + 3: the steps between neighbours in each base column."""
    return {item["m"] + INFINITE: item["steps"] for item in solutions("latin_squares")}


@lru_cache(maxsize=8)
def orthogonal_squares(order: int) -> Classes:
    """Return RTD(3, order) as an array [partition, group, row] of places.

    A quasi-difference matrix: columns of four entries of Z_m, closed under rotation, whose differences
    between any two rows are every element of Z_m once. Three base columns have two steps and one infinite
    entry, the others three steps. Developed modulo m; the last row numbers the partitions, and RTD(3, 3)
    fills the infinite corner.
    """
    m = order - INFINITE
    columns = [[0, 0, 0, 0]]
    infinite = 0
    for steps in orders()[order]:
        sums = np.cumsum([0, *steps]) % m
        base = sums.tolist() if len(steps) == INFINITE else [m + infinite, *sums.tolist()]
        infinite += len(steps) != INFINITE
        columns += [base[i:] + base[:i] for i in range(4)]
    developed = translated((m,), np.array(columns)).reshape(-1, 4)
    x, y = np.divmod(np.arange(INFINITE**2), INFINITE)
    corner = m + np.stack([x, (x + y) % INFINITE, (x + 2 * y) % INFINITE, y], axis=1)
    table = np.concatenate([developed, corner])
    table = table[np.argsort(table[:, 3], kind="stable")]
    return as_classes(table[:, :3].reshape(order, order, 3))


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
    return as_classes(translated((v,), np.array(best)) + v * np.arange(k))


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


def _column(k: int, v: int, used: list[list[int]], source: random.Random, steps: int) -> tuple[list[int] | None, int]:
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
