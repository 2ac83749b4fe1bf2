"""Resolvable transversal designs RTD(k, v): k rows of v points; a group takes one point of every row.

RTD(k, v) has v partitions of the k v points and covers each pair of points of different rows exactly once;
it is the same thing as k - 1 mutually orthogonal Latin squares of order v.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np

from securedfl.designs.constructions.arithmetic import divisors, factors, field, prime_power
from securedfl.designs.constructions.construction import Classes, Construction, as_classes, copies
from securedfl.designs.constructions.difference_matrices import (
    difference_matrices,
    orders,
    orthogonal_squares,
    translated,
)
from securedfl.designs.constructions.wilson import ROWS, Truncation, build, splits, truncation


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
    _, columns = difference_matrices().get(v, ((), None))
    rows = columns.shape[1] if columns is not None else 3 if v in orders() else 2
    smallest = min(p**exponent for p, exponent in factors(v))
    return truncation(v, row_limit, max(rows, smallest))


def _part(k: int, order: int) -> Classes:
    if prime_power(order):
        return _over_field(k, order)
    if order in orders() and k <= 3:
        return orthogonal_squares(order)[:, :, :k]
    group, columns = difference_matrices().get(order, ((), None))
    if columns is not None and k <= columns.shape[1]:
        return translated(group, columns[:, :k])
    cut = _whole(order)[1]
    if cut is None:
        raise ValueError(f"no transversal design of order {order} with {k} rows")
    table = build(k + 1, cut, blocks)
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


def filled(n: int, s: int, inside: Construction | None) -> Construction | None:
    """Return RTD(s, n/s) and, as further partitions, a design of the caller within each of its s rows; or None."""
    v = n // s
    if n % s or row_limit(v) < s:
        return None

    def build() -> Classes:
        across = transversal(s, v)
        rows = np.arange(n).reshape(s, v)
        return np.concatenate([across, copies(inside.build(), rows)]) if inside else across

    method = f"transversal design RTD({s},{v})" + (", rows filled" if inside else "")
    return Construction(v + (inside.gap if inside else 0), method, build)


def cyclic(n: int, s: int) -> Construction | None:
    """Return what arithmetic modulo v = n/s gives where no field helps: v / (largest divisor below s) partitions.

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

    return Construction(gap, f"cyclic transversal design modulo {v}", build)


def weighted(u: int, v: int, s: int, base: Construction, inside: Construction) -> Construction | None:
    """Return a design on u v points from one on u points and one on s v points, or None.

    Every point becomes v points. The groups of the first partition become pieces of s v points for the inner
    design; each other group becomes a transversal design, so each other partition becomes v partitions.
    """
    if row_limit(v) < s:
        return None

    def build() -> Classes:
        classes, fine = base.build().astype(np.int32), transversal(s, v)
        across = [inflated(partition, fine) for partition in classes[1:]]
        pieces = (classes[0][:, :, None] * v + np.arange(v)).reshape(u // s, s * v)
        return as_classes(np.concatenate([*across, copies(inside.build(), pieces)]))

    gap = (base.gap - 1) * v + inside.gap
    return Construction(gap, f"{v}-fold [{base.method}], pieces of {s * v} filled by [{inside.method}]", build)


def inflated(partition: Classes, fine: Classes) -> Classes:
    """Replace every point of a partition by v points and every group by the transversal design RTD(s, v)."""
    v, _, s = fine.shape
    row, place = np.divmod(fine, v)
    return as_classes((partition[:, row] * v + place).transpose(1, 0, 2, 3).reshape(v, -1, s))


def truncated_and_filled(n: int, s: int, known: Callable[[int], Construction]) -> Construction | None:
    """Return groups of s from the truncation that loses the fewest partitions, or None: Wilson's recursion once more.

    Truncation (`wilson.py`) leaves, for every row cut to u points, s u points of the wanted rows among which no pair
    has met. Where no transversal design fills this hole, any design on s u points, which ``known`` gives, is almost
    as good. The partitions belonging to u points of the last row miss just the hole, and each takes one partition of
    the small design.
    """
    v = n // s
    if n % s or v < s * s or row_limit(v) >= s:
        return None

    def gap(cut: Truncation) -> int:
        return cut.m * cut.t + sum(min(u, known(s * u).gap) for u in cut.kept)

    cut = max(_truncations(v, s), key=gap, default=None)
    if cut is None:
        return None
    sizes = " and ".join(str(s * u) for u in cut.kept)
    method = f"transversal design of order {v} truncated (Wilson 1974), {sizes} points filled"
    return Construction(gap(cut), method, lambda: _hole_filled(n, s, cut, [known(s * u) for u in cut.kept]))


def _truncations(v: int, s: int) -> Iterator[Truncation]:
    for m in range(s, v // s + 1):
        if min(row_limit(m), row_limit(m + 1)) < s:
            continue
        twice = row_limit(m + 2) >= s
        for t in range(-(-v // (m + 2)), (v - 1) // m + 1):
            rest = v - m * t
            if rest < t and row_limit(t) > s:
                yield Truncation(m, t, (rest,))
            elif twice and row_limit(t) > s + 1:
                for kept in splits(rest, t, 2):
                    yield Truncation(m, t, kept)


def _hole_filled(n: int, s: int, cut: Truncation, fillings: list[Construction]) -> Classes:
    v = n // s
    table = build(s + 1, cut, blocks, fill=False)
    table = table[np.argsort(table[:, s], kind="stable")]
    starts = np.searchsorted(table[:, s], np.arange(v + 1))
    places = table[:, :s] + v * np.arange(s)
    whole = cut.m * cut.t
    parts = [places[: starts[whole]].reshape(whole, v, s)]
    first = whole
    for u, filling in zip(cut.kept, fillings, strict=True):
        points = (np.arange(first, first + u) + v * np.arange(s)[:, None]).reshape(-1)
        inside = points[filling.build()[:u].astype(np.int64)]
        across = places[starts[first] : starts[first + u]].reshape(u, v - u, s)[: len(inside)]
        parts.append(np.concatenate([across, inside], axis=1))
        first += u
    return as_classes(np.concatenate(parts))
