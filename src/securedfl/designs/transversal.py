"""Resolvable transversal designs RTD(k, v): k rows of v points; a group takes one point of every row.

RTD(k, v) has v partitions of the k v points and covers each pair of points of different rows exactly once;
it is the same thing as k - 1 mutually orthogonal Latin squares of order v.
"""

from __future__ import annotations

import numpy as np

from securedfl.designs.classes import Classes, Plan, as_classes, copies
from securedfl.designs.fields import divisors, factors, field
from securedfl.designs.latin import orders, orthogonal_squares


def row_limit(v: int) -> int:
    """Return the largest k for which `transversal` builds RTD(k, v) (MacNeish 1922, and shipped squares)."""
    smallest = min((p**exponent for p, exponent in factors(v)), default=v)
    return 3 if smallest == 2 and _euler_order(v) else smallest


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
    euler = _euler_order(v) if k == 3 and v % 4 == 2 else 0
    parts = [(euler, orthogonal_squares(euler))] if euler else []
    for p, exponent in factors(v // max(euler, 1)):
        parts.append((p**exponent, _over_field(k, p**exponent)))
    return parts


def _euler_order(v: int) -> int:
    """Return the largest shipped order that divides v = 2 mod 4 (the rest is odd), or 0."""
    return max((order for order in orders() if v % order == 0), default=0)


def _over_field(k: int, q: int) -> Classes:
    """Group y of partition x has place y + a x in row a: two rows differ by a multiple of x, so meet once."""
    numbers = field(q)
    x, y, a = np.ogrid[:q, :q, :k]
    return as_classes(numbers.add(y, numbers.multiply(a, x)))


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


def cyclic(n: int, s: int) -> Plan | None:
    """Plan what arithmetic modulo v = n/s gives where no field helps: v / (largest divisor below s) partitions.

    Group y of partition x has place y + a x in row a. Two rows differ by a - b < s, so two partitions x, x' share
    a pair only if (a - b)(x - x') is a multiple of v, which small enough x exclude.
    """
    v = n // s
    if n % s or v < s:
        return None
    gap = v // max(d for d in divisors(v) if d < s)

    def build() -> Classes:
        x, y, a = np.ogrid[:gap, :v, :s]
        return as_classes((y + a * x) % v + v * a)

    return Plan(gap, f"cyclic transversal design modulo {v}", build)
