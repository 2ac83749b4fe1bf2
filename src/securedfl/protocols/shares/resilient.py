"""Shares with stand-ins: the average is finished also when members are lost after the commit (docs/concepts/shares.md).

Every peer gives a copy of the slices that only it has to its *stand-in*, the next member of the same group. After the
commit the total over all members can then be completed by those left: only whole sums of groups ever leave, and those
are the same whoever adds them up, so that repeating it with fewer peers tells nobody anything new. A total over any
other set of the same parameters is never formed, so that nothing can be learned by differencing.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

import numpy as np

from securedfl.designs.design import Design, Group
from securedfl.errors import ConfigError, PeerLostError
from securedfl.protocols.masks import mask, values
from securedfl.protocols.randomness import secret_uniform
from securedfl.protocols.shares.layout import Interval, Layout, Reduction, union
from securedfl.protocols.shares.shares import Decode, begin, reduce_and_gather
from securedfl.protocols.steps import Array, Draw, Message, Outbox, Steps

Slot = tuple[int, int]
"""A share and the peer that owns a slice of it."""


def resilient(
    me: int,
    w: Array,
    design: Design,
    *,
    round: int = 0,
    draw: Draw = secret_uniform,
    **options: Any,
) -> Steps:
    """Share and back up; return the `Holding` from which the average can be finished, also after losses.

    Parameters are those of `shares`.
    """
    x, layout, decode = begin(w, design, round, **options)
    if not layout.groups[me]:
        raise ConfigError("every peer needs a group of at least two in the partitions used; use more strength")
    held = Holding(me, x, layout, decode)
    yield from held.share(draw)
    return held


class Holding:
    """What one member has of an attempt; peers are numbered by their place among the members.

    Parameters
    ----------
    me, x, layout
        This member, its encoded parameters (overwritten), and who owns what.
    decode
        Turns the total of a segment into the mean.
    """

    def __init__(self, me: int, x: Array, layout: Layout, decode: Decode) -> None:
        self.me, self.x, self.layout, self._decode = me, x, layout, decode
        self.groups = layout.groups[me]
        # the slices of this peer's own shares, and what others contributed to the slices held here
        self._mine: dict[Slot, Message] = {}
        self._held: dict[Slot, dict[int, Message]] = {}

    def share(self, draw: Draw) -> Generator[Outbox, Mapping[int, Message], None]:
        """Send slices to their owners, and own slices to stand-ins."""
        me, mine = self.me, self._split(draw)
        received = yield {v: mine[i, v] for i, group in self.groups.items() for v in group if v != me}
        for i, group in self.groups.items():
            self._held[i, me] = {u: mine[i, me] if u == me else received[u] for u in group}
        # The one slice of a share that nobody else has; without a copy, the owner's crash would lose it.
        received = yield {_next(group, me): mine[i, me] for i, group in self.groups.items()}
        for i, group in self.groups.items():
            owner = _before(group, me)
            self._held[i, owner] = {owner: received[owner]}
        self._mine = mine

    def finish(self, lost: frozenset[int] = frozenset()) -> Steps:
        """Add up what the living hold, stand-ins included; return the mean over all members, in pieces."""
        self.check_recoverable(lost)
        me, layout = self.me, self.layout
        alive = [u for u in layout.order if u not in lost]
        if lost:
            yield from self._hand_over(lost)
        owned = {u: union([s for _, s in self._slots(u, lost)]) for u in alive}
        reduction = Reduction(alive, owned, layout.size)
        sums = np.zeros_like(self.x)
        for slot, (first, end) in self._slots(me, lost):
            for message in self._held[slot].values():
                sums[first:end] += values(message, keep=False)
        return (yield from reduce_and_gather(me, sums, reduction, self._decode))

    def check_recoverable(self, lost: frozenset[int]) -> None:
        """Raise `PeerLostError`, on all peers alike, if a slice is lost with both its owner and its stand-in."""
        for groups in self.layout.groups:
            for group in groups.values():
                if sum(u in lost for u in group) > 1:
                    raise PeerLostError(
                        "two peers of one group were lost after the commit, so the total cannot be completed. Parts of "
                        "it may have been seen: do not average the same parameters again among fewer peers"
                    )

    def _split(self, draw: Draw) -> dict[Slot, Message]:
        """Turn x into shares: all but one random, a seed of its own for every slice, and the rest in the last one."""
        slots = [(i, v, *self.layout.slice_of(group, v)) for i, group in self.groups.items() for v in group]
        remainder = min(self.groups)
        pieces: dict[Slot, Message] = {}
        for i, v, first, end in slots:
            if i != remainder:
                pieces[i, v] = sent = mask(draw, self.x[first:end])
                self.x[first:end] -= values(sent)
        return pieces | {(i, v): self.x[first:end] for i, v, first, end in slots if i == remainder}

    def _hand_over(self, lost: frozenset[int]) -> Generator[Outbox, Mapping[int, Message], None]:
        """Send the slices of lost owners to their stand-ins, who are of the same group and hold the owners' copies."""
        me, outbox, expected = self.me, dict[int, Message](), dict[int, Slot]()
        for i, group in self.groups.items():
            for owner in lost.intersection(group):
                stand_in = _next(group, owner)
                if stand_in == me:
                    expected |= {u: (i, owner) for u in group if u not in (me, owner)}
                    self._held[i, owner][me] = self._mine[i, owner]
                else:
                    outbox[stand_in] = self._mine[i, owner]
        received = yield outbox
        for u, slot in expected.items():
            self._held[slot][u] = received[u]

    def _slots(self, u: int, lost: frozenset[int]) -> list[tuple[Slot, Interval]]:
        """Return the slices that a peer holds for its groups: its own, and those of the lost whose stand-in it is."""
        return [
            ((i, owner), self.layout.slice_of(group, owner))
            for i, group in self.layout.groups[u].items()
            for owner in dict.fromkeys((u, _before(group, u)))
            if owner == u or owner in lost
        ]


def _next(group: Group, u: int) -> int:
    return group[(group.index(u) + 1) % len(group)]


def _before(group: Group, u: int) -> int:
    return group[group.index(u) - 1]
