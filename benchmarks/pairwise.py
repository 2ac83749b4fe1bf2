"""Pairwise masks without a server, the baseline for shares: everybody agrees on a mask with everybody.

After Bonawitz et al. (2017), with the same fixed point, the same keystream and the same all-reduce as
`securedfl.protocols.shares.shares`, so that only the masks differ. A peer sends its seed instead of agreeing on it by
Diffie-Hellman, which spares this baseline n - 1 key agreements, and there are no secret-shared seeds for peers that
drop out: both make it faster than the real thing.
"""

from __future__ import annotations

from functools import partial

from securedfl.designs import Design
from securedfl.protocols import FixedPoint, secret_uniform
from securedfl.protocols.masks import mask, values
from securedfl.protocols.shares.layout import Reduction
from securedfl.protocols.shares.shares import reduce_and_gather
from securedfl.protocols.shares.sums import Sums
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
    decode = partial(codec.decode, n=n, like=w[:0])
    return (yield from reduce_and_gather(me, Sums({(0, len(w)): x}, x), reduction, decode))
