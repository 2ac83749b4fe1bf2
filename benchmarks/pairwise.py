"""Pairwise masks without a server, the baseline for shares: everybody agrees on a mask with everybody.

After Bonawitz et al. (2017), with the same fixed point, the same keystream and the same all-reduce as
`securedfl.protocols.shares.shares`, so that only the masks differ. A peer sends its seed instead of agreeing on it by
Diffie-Hellman, which spares this baseline n - 1 key agreements, and there are no secret-shared seeds for peers that
drop out: both make it faster than the real thing.
"""

from __future__ import annotations

from securedfl.designs import Design
from securedfl.protocols import FixedPoint, secret_uniform
from securedfl.protocols.masks import mask, values
from securedfl.protocols.shares.layout import Reduction
from securedfl.protocols.shares.shares import join, total
from securedfl.protocols.steps import Array, Draw, Steps


def pairwise(me: int, w: Array, design: Design, *, bits: int | None = None, draw: Draw = secret_uniform) -> Steps:
    """Average under pairwise masks that cancel in the sum; any coalition learns the total only."""
    n, codec = design.n, FixedPoint(bits=bits)
    x = codec.encode(w, n)
    mine = {v: mask(draw, x) for v in range(me + 1, n)}
    received = yield mine
    for drawn in mine.values():
        x += values(drawn)
    for u in range(me):
        x -= values(received[u])

    reduction = Reduction(range(n), {u: ((0, len(w)),) for u in range(n)}, len(w))
    received = yield {q: join(x, pieces) for q, pieces in reduction.reducing(me)}
    mean = codec.decode(total(me, x, reduction, received), n, w)
    received = yield dict.fromkeys(reduction.telling(me), mean)
    return tuple(mean if q == me else received[q] for q in reduction.gathering)
