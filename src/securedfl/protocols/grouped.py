"""Algorithm 3's SecureAggregation in a prime field: ADMM within the groups of a design, behind perfect masks.

All updates are linear, so they run over Z_p with parameters in fixed point. With rho = -1 the factors are whole
numbers, c = 2 / (2 + rho) = 2 and q = rho / (2 + rho) = -1, and lam^0 is uniform over the whole field: a message is
uniformly random, whatever the parameters are (docs/mathematics/protocols.md). Names are the paper's, as in
`securedfl.protocols.admm`.
"""

from __future__ import annotations

from typing import Any

from securedfl.designs.design import Design
from securedfl.protocols.admm import check_iterations, collect, relay, settled
from securedfl.protocols.field import once
from securedfl.protocols.fixedpoint import FieldPoint, codec_of
from securedfl.protocols.steps import Array, Draw, Options, Settled, Steps


def grouped(
    me: int, w: Array, design: Design, *, iterations: int = 2, round: int = 0, draw: Draw, **encoding: Any
) -> Steps:
    """Average by ADMM in a field, talking only within the groups of a design; exact up to one rounding per value.

    Two iterations give the exact average; more only reveal more. Values become elements of the field as `codec_of`
    says.
    """
    code = codec_of(FieldPoint, **encoding)
    field, n = code.field(w), design.n
    like, w = w, code.encode(w, n)
    # u = lam / rho, the scaled dual variable
    u = field.uniform(draw, w)
    # z^0 = 0 adds nothing: these are set in the first iteration
    z = sum_z = before = w
    for i, at in enumerate(design.turns(round, iterations)):
        pi, g = design.partition(at), design.group(me, at)

        # y = x + lam/rho = c (w + lam/rho) + q z, with x from the x minimisation
        y = field.add(w, u)
        y = field.add(y, y, out=y)
        if i:
            y = field.subtract(y, z, out=y)
        received = yield {v: y for v in g if v != me}
        # partial z sum, times n
        sums = {g: field.total([y if v == me else received[v] for v in g])}
        if len(pi) > 1:
            received = yield relay(me, g, pi, sums[g])
            sums |= collect(me, g, pi, received)
        # final z sum, times n
        before, sum_z = sum_z, field.total([sums[h] for h in pi])

        if i + 1 < iterations:
            z = field.divide(sum_z, n)
            # lam + rho (x - z) = rho (y - z)
            u = field.subtract(y, z)

    def mean() -> Array:
        # z - mean = q (z_before - mean) is an equality: solve it for n times the mean
        return code.decode(field.divide(field.add(sum_z, before), 2), n, like)

    return once((code, n, like.dtype), mean, sum_z, before)


def settle(_design: Design, options: Options) -> Settled:
    """Return what follows from the options of ADMM in a field."""
    iterations = options.get("iterations", 2)
    check_iterations(iterations, least=2)
    FieldPoint(bits=options.get("bits"), range=options.get("range"))
    return settled({**options, "iterations": iterations}, iterations)
