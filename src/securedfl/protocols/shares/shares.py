"""The share protocol: random shares over Z_2^16, Z_2^32 or Z_2^64, one per partition (docs/concepts/shares.md).

*Sharing*: a peer splits its encoded parameters into one share per partition; each member of the group in that partition
owns a slice of the coordinates and is sent that slice only. Then the members are committed. *Reducing*: every peer adds
up what it owns, over all its groups, and sends the pieces to the owners of the segments. *Gathering*: segment owners
send everybody the totals, or the means, whichever are fewer bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from securedfl.designs.best import strength_for
from securedfl.designs.design import Design
from securedfl.errors import ConfigError, PeerLostError, whole_number
from securedfl.protocols.fixedpoint import FixedPoint, codec_of
from securedfl.protocols.masks import mask, values
from securedfl.protocols.shares.layout import Layout, Reduction, layout_for
from securedfl.protocols.shares.sums import Sums
from securedfl.protocols.steps import Array, Draw, Options, Outbox, Settled, Steps

Encode = Callable[[], Array]
"""Gives the encoded parameters, fresh and the same every time."""
Decode = Callable[[Array], Array]
"""Turns the total of a segment into its mean."""

DEFAULT_COLLUSION = 1
"""Without a wish, one curious peer learns nothing but the total."""


def shares(me: int, w: Array, design: Design, *, round: int = 0, draw: Draw, **options: Any) -> Steps:
    """Average by random shares: exact up to one rounding per value, and private against coalitions below the strength.

    Options are those of `begin`.
    """
    encode, layout, decode = begin(w, design, round, **options)
    x = encode()
    outbox = split(me, x, layout, draw)
    sums = Sums.of(x, layout.owned(me))
    # what is owned by others is on its way to them
    del x
    received = yield outbox
    for u, first, end in layout.receiving(me):
        sums.add(first, end, values(received[u]))
    return HeldShares(me, sums, layout.reduction, decode)


@dataclass(frozen=True, eq=False)
class HeldShares:
    """What a peer holds after sharing: for each coordinate that it owns, the sum of the shares that it was sent."""

    me: int
    sums: Sums
    reduction: Reduction
    decode: Decode

    def finish(self, lost: frozenset[int] = frozenset()) -> Steps:
        """Reduce and gather; return the average, in pieces."""
        self.check_recoverable(lost)
        return (yield from reduce_and_gather(self.me, self.sums, self.reduction, self.decode))

    def check_recoverable(self, lost: frozenset[int]) -> None:
        """Raise `PeerLostError` if anybody was lost: nobody else holds what it was sent."""
        if lost:
            raise PeerLostError(
                f"peers {sorted(lost)} were lost after the commit, so the total cannot be completed; "
                "the protocol 'resilient' survives that"
            )


def begin(
    w: Array,
    design: Design,
    round: int,
    /,
    *,
    strength: int | None = None,
    collusion: int | None = None,
    **encoding: Any,
) -> tuple[Encode, Layout, Decode]:
    """Return how to encode the parameters, who owns what in this round, and how a segment's total becomes its mean.

    Parameters
    ----------
    strength
        Shares per peer, one for each partition used (m). More shares withstand more colluders and cost masks to
        expand, but hardly any bytes.
    collusion
        Instead of the strength: how many colluders must learn nothing but the total. The smallest strength that
        provides it is used; by default 1 colluder.
    **encoding
        See `codec_of`.
    """
    code, n = codec_of(FixedPoint, **encoding), design.n
    turns = design.turns(round, check_strength(design, strength, collusion))
    return partial(code.encode, w, n), layout_for(design, turns, len(w)), partial(code.decode, n=n, like=w[:0])


def split(me: int, x: Array, layout: Layout, draw: Draw) -> Outbox:
    """Turn x into this peer's own part of its shares, in place, and return the slices for the others.

    On every coordinate the shares add up to x, and all of them are uniform but one. That one is kept where this peer
    owns the coordinate itself, in any of its groups; elsewhere it is sent in full, as one share.
    """
    outbox: Outbox = {}
    for v, first, end, in_full, kept in layout.sending(me):
        part = x[first:end]
        if not in_full:
            outbox[v] = sent = mask(draw, part)
            part -= values(sent)
            continue
        outbox[v] = piece = part.copy() if kept else part
        for a, b in kept:
            piece[a - first : b - first] = hidden = values(mask(draw, x[a:b]))
            x[a:b] -= hidden
    return outbox


def reduce_and_gather(me: int, sums: Sums, reduction: Reduction, decode: Decode) -> Steps:
    """Add up what all peers own, each one its segment, and tell everybody; return the average, in pieces."""
    received = yield {q: sums.joined(pieces) for q, pieces in reduction.reducing(me)}
    total = sums.total(me, reduction, received)

    late = total.itemsize < decode(total[:0]).itemsize  # totals are narrower than means: everybody decodes them
    told = total if late else decode(total)
    received = yield dict.fromkeys(reduction.telling(me), told)
    found = tuple(told if q == me else values(received[q]) for q in reduction.gathering) or (told,)
    return tuple(map(decode, found)) if late else found


def check_strength(design: Design, strength: int | None, collusion: int | None) -> int:
    """Return the number of shares; raise `ConfigError` for one that the design does not have partitions for."""
    if strength is None:
        return strength_for(design, DEFAULT_COLLUSION if collusion is None else collusion)
    if collusion is not None:
        raise ConfigError("give either the strength or the collusion to withstand, not both")
    if not 1 <= (strength := whole_number(strength, "strength", least=0)) <= design.gap:
        raise ConfigError(
            f"a strength of {strength} needs that many partitions, but the design has {design.gap}; "
            f"use 1 to {design.gap}, or a design with more partitions (smaller groups)"
        )
    return strength


def settle(design: Design, options: Options) -> Settled:
    """Return what follows from the options of a share protocol on a design.

    Members own slices, so fewer shares are seen than the connected components assume; but a stand-in for a lost member
    may see any.
    """
    strength = check_strength(design, options.get("strength"), options.get("collusion"))
    FixedPoint(bits=options.get("bits"), range=options.get("range"))
    others = {name: value for name, value in options.items() if name not in ("strength", "collusion")}
    return Settled(options={"strength": strength, **others}, partitions=strength, joined=True)
