"""Transversal designs with holes: Wilson's recursion where the small orders it ends with have no design.

Truncation (`wilson.py`) leaves, for every row cut to u points, s u points of the wanted rows among which no pair
has met. A transversal design would fill this hole; any design on s u points does almost as well. The partitions
belonging to u points of the last row miss just the hole, and each takes one partition of the small design.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from securedfl.designs.constructions.classes import Classes, Plan, as_classes
from securedfl.designs.constructions.transversal import blocks, row_limit
from securedfl.designs.constructions.wilson import Truncation, build


def holed(n: int, s: int, plan: Callable[[int], Plan]) -> Plan | None:
    """Plan groups of s from the truncation that loses the fewest partitions; ``plan`` has what fills a hole."""
    v = n // s
    if n % s or v < s * s or row_limit(v) >= s:
        return None
    found = [(sum(_kept(u, s, plan) for u in cut.kept) + cut.m * cut.t, cut) for cut in _truncations(v, s)]
    if not found:
        return None
    gap, chosen = max(found, key=lambda pair: pair[0])

    def make() -> Classes:
        return _built(n, s, chosen, [plan(s * u) for u in chosen.kept])

    sizes = " and ".join(str(s * u) for u in chosen.kept)
    return Plan(gap, f"transversal design of order {v} truncated (Wilson 1974), {sizes} points filled", make)


def _kept(u: int, s: int, plan: Callable[[int], Plan]) -> int:
    return min(u, plan(s * u).gap)


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
                for u in range(min(t, rest - 1), (rest - 1) // 2, -1):
                    yield Truncation(m, t, (u, rest - u))


def _built(n: int, s: int, cut: Truncation, fillings: list[Plan]) -> Classes:
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
