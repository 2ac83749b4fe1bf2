"""Resolvable transversal designs RTD(k, v): k rows of v points; a group takes one point of every row.

RTD(k, v) has v partitions of the k v points and covers each pair of points of different rows exactly once;
it is the same thing as k - 1 mutually orthogonal Latin squares of order v.
"""

from __future__ import annotations

import json
from functools import lru_cache
from importlib import resources

import numpy as np

from securedfl.designs.classes import Classes, Plan, as_classes, copies
from securedfl.designs.fields import factors, field


def row_limit(v: int) -> int:
    """Return the largest k for which `transversal` builds RTD(k, v) (MacNeish 1922, and shipped squares)."""
    smallest = min((p**exponent for p, exponent in factors(v)), default=v)
    return max(smallest, _by_quasi_difference(v))


def transversal(k: int, v: int) -> Classes:
    """Return the v partitions of RTD(k, v), points numbered row by row; needs ``k <= row_limit(v)``."""
    coordinates = _coordinates(k, v)
    return as_classes(coordinates + v * np.arange(k))


def _coordinates(k: int, v: int) -> Classes:
    """Return an array [partition, group, row] of places within the rows."""
    result = np.zeros((1, 1, k), dtype=np.int64)
    for order, part in _parts(k, v):
        # The direct product: the digits of every place, group and partition are chosen independently.
        joined = result[:, None, :, None, :] * order + part[None, :, None, :, :]
        size = result.shape[0] * order
        result = joined.reshape(size, size, k)
    return as_classes(result)


def _parts(k: int, v: int) -> list[tuple[int, Classes]]:
    """Split v into orders for which RTD(k, order) is known directly."""
    parts = []
    rest = v
    for order in sorted(_squares(), reverse=True):
        if k == 3 and rest % order == 0 and _needs_squares(rest) and not _needs_squares(rest // order):
            parts.append((order, _quasi_difference(order)))
            rest //= order
    for p, exponent in factors(rest):
        parts.append((p**exponent, _over_field(k, p**exponent)))
    return parts


def _needs_squares(v: int) -> bool:
    return any(p**exponent < 3 for p, exponent in factors(v))


def _over_field(k: int, q: int) -> Classes:
    """Group y of partition x has place y + a x in row a: two rows differ by a multiple of x, so meet once."""
    numbers = field(q)
    x, y, a = np.ogrid[:q, :q, :k]
    return as_classes(numbers.add(y, numbers.multiply(a, x)))


def _by_quasi_difference(v: int) -> int:
    """Return 3 if a pair of shipped orthogonal squares makes RTD(3, v) where v = 2 mod 4, else 0."""
    if v % 4 != 2:
        return 0
    return 3 if any(v % order == 0 for order in _squares()) else 0


@lru_cache(maxsize=1)
def _squares() -> dict[int, tuple[int, int, tuple[tuple[int, ...], ...]]]:
    """Return the shipped quasi-difference matrices by order: (m, infinite points, columns)."""
    text = resources.files("securedfl.designs").joinpath("data/squares.jsonl").read_text(encoding="utf-8")
    found = {}
    for line in text.splitlines():
        item = json.loads(line)
        flat = item["columns"]
        columns = tuple(tuple(flat[i : i + 4]) for i in range(0, len(flat), 4))
        found[item["m"] + item["infinite"]] = (item["m"], item["infinite"], columns)
    return found


@lru_cache(maxsize=8)
def _quasi_difference(order: int) -> Classes:
    """Develop a quasi-difference matrix into RTD(3, order); its fourth row numbers the partitions.

    Columns have entries of Z_m or -1 for "infinite"; developed modulo m, the t-th column with an infinite
    entry in a row stands for the t-th infinite point, and a small RTD fills what is left at infinity.
    """
    m, infinite, columns = _squares()[order]
    blocks = []
    seen = [0, 0, 0, 0]
    for column in columns:
        points = list(column)
        for row, entry in enumerate(points):
            if entry < 0:
                points[row] = m + seen[row]
                seen[row] += 1
        base = np.array(points)
        turn = np.arange(m)[:, None]
        blocks.append(np.where(base >= m, base, (base + turn) % m))
    corner = _coordinates(3, infinite) if infinite > 1 else np.zeros((infinite, infinite, 3), dtype=np.int64)
    for i, partition in enumerate(corner):
        for group in partition:
            blocks.append(np.array([[*(m + group), m + i]]))
    table = np.concatenate(blocks)
    table = table[np.argsort(table[:, 3], kind="stable")]
    return as_classes(table[:, :3].reshape(order, order, 3))


def filled(n: int, s: int, plan_within: Plan | None) -> Plan | None:
    """Plan RTD(s, n/s), and a design of the caller within each of its s rows, as further partitions."""
    v = n // s
    if n % s or row_limit(v) < s:
        return None
    within = plan_within.gap if plan_within else 0

    def build() -> Classes:
        across = transversal(s, v)
        if plan_within is None:
            return across
        rows = np.arange(n).reshape(s, v)
        return np.concatenate([across, copies(plan_within.build(), rows)])

    return Plan(v + within, f"transversal design RTD({s},{v})" + (", rows filled" if within else ""), build)
