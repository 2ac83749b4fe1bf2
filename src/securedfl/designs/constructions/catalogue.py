"""All constructions for groups of one size: each proposes what it can build, the most partitions win."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from securedfl.designs.constructions.arithmetic import divisors
from securedfl.designs.constructions.base_blocks import round_robin, shipped
from securedfl.designs.constructions.construction import Construction, as_classes
from securedfl.designs.constructions.nearly_kirkman import doubled, from_frame
from securedfl.designs.constructions.resolvable import resolvable
from securedfl.designs.constructions.transversal import cyclic, filled, truncated_and_filled, weighted


@lru_cache(maxsize=4096)
def construction(n: int, s: int) -> Construction:
    """Return the best construction for n peers in groups of s, which must divide n; nothing is built yet."""
    bound = (n - 1) // (s - 1) if n // s >= s else 1
    best = Construction(1, "a single partition", lambda: as_classes(np.arange(n).reshape(1, -1, s)))
    for proposal in _proposals(n, s):
        if proposal is not None and proposal.gap > best.gap:
            best = proposal
        if best.gap >= bound:
            break
    return best


def _proposals(n: int, s: int) -> Iterator[Construction | None]:
    """Yield what each construction can do, or None; the simplest first."""
    if n // s < s:
        return
    if s == 2:
        yield Construction(n - 1, "round robin (Kirkman 1847)", lambda: round_robin(n))
        return
    yield shipped("starters").get((n, s))
    r, rest = divmod(n - 1, s - 1)
    if rest == 0:
        yield resolvable(r, s)
    v = n // s
    yield filled(n, s, construction(v, s) if v % s == 0 else None)
    for u in divisors(n):
        if s < u < n and u % s == 0:
            yield weighted(u, n // u, s, construction(u, s), construction(n // u * s, s))
    if s == 3 and n % 6 == 0:
        yield from_frame(n, lambda points: construction(points, 3))
        yield doubled(construction(n // 2, 3))
    yield cyclic(n, s)
    if s > 3:
        yield truncated_and_filled(n, s, lambda points: construction(points, s))
