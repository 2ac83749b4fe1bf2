"""The best plan for groups of one size: every construction proposes, the most partitions win."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from securedfl.designs.constructions.classes import Plan, as_classes
from securedfl.designs.constructions.columns import shipped
from securedfl.designs.constructions.divisible import divisible
from securedfl.designs.constructions.doubling import doubled
from securedfl.designs.constructions.fields import divisors
from securedfl.designs.constructions.holes import holed
from securedfl.designs.constructions.nearly_kirkman import from_frame
from securedfl.designs.constructions.product import weighted
from securedfl.designs.constructions.resolvable import recipe
from securedfl.designs.constructions.round_robin import round_robin
from securedfl.designs.constructions.starters import Starter, starters
from securedfl.designs.constructions.transversal import cyclic, filled


@lru_cache(maxsize=4096)
def plan(n: int, s: int) -> Plan:
    """Return the best plan for n peers in groups of s, which must divide n; arithmetic only, nothing is built."""
    bound = (n - 1) // (s - 1) if n // s >= s else 1
    best = Plan(1, "a single partition", lambda: as_classes(np.arange(n).reshape(1, -1, s)))
    for candidate in _candidates(n, s):
        if candidate.gap > best.gap:
            best = candidate
        if best.gap >= bound:
            break
    return best


def _candidates(n: int, s: int) -> Iterator[Plan]:
    """Propose plans, the simplest first."""
    if n // s < s:
        return
    if s == 2:
        yield Plan(n - 1, "round robin (Kirkman 1847)", lambda: round_robin(n))
        return
    if starter := starters().get((n, s)):
        yield Plan(starter.gap, _name(starter), starter.develop)
    if (n, s) == (32, 4):
        yield Plan(10, "resolvable group-divisible design of type 2^16 over Z_2^3", divisible)
    if columns := shipped(n, s):
        yield columns
    r, rest = divmod(n - 1, s - 1)
    if rest == 0 and (block := recipe(r, s)):
        yield Plan(r, block.method, block.build)
    v = n // s
    if transversal := filled(n, s, plan(v, s) if v % s == 0 else None):
        yield transversal
    for u in divisors(n):
        if s < u < n and u % s == 0 and (product := weighted(u, n // u, s, plan(u, s), plan(n // u * s, s))):
            yield product
    if s == 3 and n % 6 == 0:
        if frame := from_frame(n, lambda points: plan(points, 3)):
            yield frame
        yield doubled(plan(n // 2, 3))
    if modular := cyclic(n, s):
        yield modular
    if s > 3 and (incomplete := holed(n, s, lambda points: plan(points, s))):
        yield incomplete


def _name(starter: Starter) -> str:
    if (starter.n, starter.s) == (85, 5):
        return "packing of the lines of PG(3,4) (Denniston 1972) from 3 spreads found by search"
    kinds = {
        (3, 3): "Kirkman triple system (Ray-Chaudhuri, Wilson 1971) from a ",
        (3, 0): "nearly Kirkman triple system from a ",
    }
    return kinds.get((starter.s, starter.n % 6), "") + "starter found by search"
