"""Orthogonal Latin squares of order 2 mod 4, which no field gives: Euler's case (Bose, Shrikhande, Parker 1960)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from securedfl.designs.constructions.classes import Classes, as_classes
from securedfl.designs.constructions.shipped import solutions

INFINITE = 3
"""Points that stay fixed under the cyclic group of a shipped solution."""


@lru_cache(maxsize=1)
def orders() -> dict[int, list[list[int]]]:
    """Return the shipped solutions by order m + 3: the steps between neighbours in each base column."""
    items = solutions("squares")
    return {item["m"] + INFINITE: item["steps"] for item in items}


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
    matrix = np.array(columns)[:, None, :]
    turn = np.arange(m)[None, :, None]
    developed = np.where(matrix >= m, matrix, (matrix + turn) % m).reshape(-1, 4)
    x, y = np.divmod(np.arange(INFINITE**2), INFINITE)
    corner = m + np.stack([x, (x + y) % INFINITE, (x + 2 * y) % INFINITE, y], axis=1)
    table = np.concatenate([developed, corner])
    table = table[np.argsort(table[:, 3], kind="stable")]
    return as_classes(table[:, :3].reshape(order, order, 3))
