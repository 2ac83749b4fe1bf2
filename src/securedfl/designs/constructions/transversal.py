"""Resolvable transversal designs RTD(k, v): k rows of v points; a group takes one point of every row.

RTD(k, v) has v partitions of the k v points and covers each pair of points of different rows exactly once;
it is the same thing as k - 1 mutually orthogonal Latin squares of order v.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from securedfl.designs.constructions.classes import Classes, Plan, as_classes, copies
from securedfl.designs.constructions.differences import difference_matrices
from securedfl.designs.constructions.fields import divisors, factors, field, prime_power
from securedfl.designs.constructions.latin import orders, orthogonal_squares
from securedfl.designs.constructions.wilson import ROWS, Truncation, build, truncation


def row_limit(v: int) -> int:
    """Return the largest k for which `transversal` builds RTD(k, v)."""
    return _parts(v)[0]


def transversal(k: int, v: int) -> Classes:
    """Return the v partitions of RTD(k, v), points numbered row by row; needs ``k <= row_limit(v)``."""
    coordinates = _coordinates(k, v)
    return as_classes(coordinates + v * np.arange(k))


def _coordinates(k: int, v: int) -> Classes:
    """Return an array [partition, group, row] of places within the rows."""
    result: Classes = np.zeros((1, 1, k), dtype=np.int64)
    for order in _parts(v)[1]:
        # The direct product: the digits of every place, group and partition are chosen independently.
        joined = result[:, None, :, None, :] * order + _part(k, order)[None, :, None, :, :]
        size = result.shape[0] * order
        result = joined.reshape(size, size, k)
    return as_classes(result)


@cache
def _parts(v: int) -> tuple[int, tuple[int, ...]]:
    """Split v into orders that are known directly; return the rows that all of them have, and the orders.

    The prime powers always work (MacNeish 1922); another factor may have more rows than its prime powers.
    """
    powers = tuple(p**exponent for p, exponent in factors(v))
    best = (min(powers, default=v), powers)
    for order in divisors(v):
        if len(factors(order)) > 1:
            rows, others = _whole(order)[0], (_parts(v // order) if order < v else (ROWS, ()))
            if min(rows, others[0]) > best[0]:
                best = (min(rows, others[0]), (order, *others[1]))
    return best


@cache
def _whole(v: int) -> tuple[int, Truncation | None]:
    """Return the rows for order v without factoring it, and the truncation that gives them, if one does."""
    if prime_power(v):
        return v, None
    matrix = difference_matrices().get(v)
    rows = matrix.rows if matrix else 3 if v in orders() else 2
    smallest = min(p**exponent for p, exponent in factors(v))
    return truncation(v, row_limit, max(rows, smallest))


def _part(k: int, order: int) -> Classes:
    if prime_power(order):
        return _over_field(k, order)
    if order in orders() and k <= 3:
        return orthogonal_squares(order)[:, :, :k]
    matrix = difference_matrices().get(order)
    if matrix and k <= matrix.rows:
        return matrix.develop(k)
    plan = _whole(order)[1]
    if plan is None:
        raise ValueError(f"no transversal design of order {order} with {k} rows")
    table = build(k + 1, plan, blocks)
    table = table[np.argsort(table[:, k], kind="stable")]
    return as_classes(table[:, :k].reshape(order, order, k))


def blocks(rows: int, v: int) -> Classes:
    """Return all blocks of a transversal design; the last row numbers the partitions."""
    places = _coordinates(rows - 1, v)
    number = np.broadcast_to(np.arange(v)[:, None, None], (v, v, 1))
    return as_classes(np.concatenate([places, number], axis=2).reshape(-1, rows))


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
