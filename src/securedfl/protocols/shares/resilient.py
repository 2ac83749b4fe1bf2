"""Shares with stand-ins: the average is finished also when members are lost after the commit (docs/concepts/shares.md).

Every peer gives a copy of the slices that only it has to its *stand-in*, the next member of the same group. After the
commit the total over all members can then be completed by those left: only whole sums of groups ever leave, and those
are the same whoever adds them up, so that repeating it with fewer peers tells nobody anything new. A total over any
other set of the same parameters is never formed, so that nothing can be learned by differencing.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

from securedfl.designs.design import Design, Group
from securedfl.errors import ConfigError, PeerLostError
from securedfl.protocols.masks import mask, values
from securedfl.protocols.shares.layout import Interval, Layout, Reduction, next_in, union
from securedfl.protocols.shares.shares import Decode, Encode, begin, reduce_and_gather
from securedfl.protocols.shares.sums import Sums
from securedfl.protocols.steps import Array, Draw, Message, Outbox, Steps

Slot = tuple[int, int]
"""A share and the peer that owns a slice of it."""


def resilient(me: int, w: Array, design: Design, *, round: int = 0, draw: Draw, **options: Any) -> Steps:
    """Share and back up; return the `Holding` from which the average can be finished, also after losses.

    Options are those of `begin`.
    """
    encode, layout, decode = begin(w, design, round, **options)
    groups = layout.groups[me]
    if not groups:
        raise ConfigError("every peer needs a group of at least two in the partitions used; use more strength")
    x = encode()
    # all shares but one are random, with a seed of its own for every slice
    masks: dict[Slot, Message] = {
        (i, v): mask(draw, x[slice(*layout.slice_of(group, v))])
        for i, group in groups.items()
        if i != layout.remainder[me]
        for v in group
    }
    mine = completed(me, x, masks, layout)
    sums = Sums.zeros(layout.owned(me), mine[layout.remainder[me], me])
    received = yield {v: mine[i, v] for i, group in groups.items() for v in group if v != me}
    for i, group in groups.items():
        for u in group:
            contribution = mine[i, me] if u == me else received[u]
            sums.add(*layout.slice_of(group, me), values(contribution, keep=False))
    # The one slice of a share that nobody else has; without a copy, the owner's crash would lose it.
    received = yield {next_in(group, me): mine[i, me] for i, group in groups.items()}
    copies = {(i, _before(group, me)): received[_before(group, me)] for i, group in groups.items()}
    return Holding(me, encode, layout, decode, masks, sums, copies)


def completed(
    me: int, x: Array, masks: Mapping[Slot, Message], layout: Layout, *, keep: bool = True
) -> dict[Slot, Message]:
    """Return all slices of a peer's shares: the random ones, and in one share what they leave of x."""
    groups, rest = layout.groups[me], layout.remainder[me]
    for (i, v), sent in masks.items():
        part = x[slice(*layout.slice_of(groups[i], v))]
        part -= values(sent, keep=keep)
    return {**masks, **{(rest, v): x[slice(*layout.slice_of(groups[rest], v))] for v in groups[rest]}}


@dataclass(frozen=True, eq=False)
class Holding:
    """What one member has of an attempt; peers are numbered by their place among the members.

    Of what it sent, a member keeps the masks only, which are seeds: the rest is the parameters without the masks, and
    is made again in the rare case that somebody is lost.

    Attributes
    ----------
    me, encode, layout, decode
        This member, its encoded parameters, which must stay the same, who owns what, and how the total of a segment
        becomes its mean.
    masks
        The random slices of its own shares.
    sums, copies
        What was contributed to the slices that it owns, and the owners' parts of those whose stand-in it is.
    """

    me: int
    encode: Encode
    layout: Layout
    decode: Decode
    masks: Mapping[Slot, Message]
    sums: Sums
    copies: Mapping[Slot, Message]

    def finish(self, lost: frozenset[int] = frozenset()) -> Steps:
        """Add up what the living hold, stand-ins included; return the mean over all members, in pieces."""
        self.check_recoverable(lost)
        me, layout, sums = self.me, self.layout, self.sums
        alive = [u for u in layout.order if u not in lost]
        owned = {u: union(self._slices(u, lost)) for u in alive}
        if lost:
            found = yield from self._hand_over(lost)
            sums = sums.within(owned[me])
            for (i, owner), message in found:
                sums.add(*layout.slice_of(layout.groups[me][i], owner), values(message, keep=False))
        reduction = Reduction(alive, owned, layout.size)
        return (yield from reduce_and_gather(me, sums, reduction, self.decode))

    def check_recoverable(self, lost: frozenset[int]) -> None:
        """Raise `PeerLostError`, on all peers alike, if a slice is lost with both its owner and its stand-in."""
        for groups in self.layout.groups:
            for group in groups.values():
                if sum(u in lost for u in group) > 1:
                    raise PeerLostError(
                        "two peers of one group were lost after the commit, so the total cannot be completed. Parts of "
                        "it may have been seen: do not average the same parameters again among fewer peers"
                    )

    def _hand_over(self, lost: frozenset[int]) -> Generator[Outbox, Mapping[int, Message], list[tuple[Slot, Message]]]:
        """Send the slices of lost owners to their stand-ins, who are of the same group and hold the owners' copies.

        Returns what is contributed to the slices whose stand-in this peer is.
        """
        me, groups = self.me, self.layout.groups[self.me]
        mine = completed(me, self.encode(), self.masks, self.layout, keep=False)
        outbox, found, expected = dict[int, Message](), list[tuple[Slot, Message]](), dict[int, Slot]()
        for i, group in groups.items():
            for owner in lost.intersection(group):
                slot, stand_in = (i, owner), next_in(group, owner)
                if stand_in == me:
                    expected |= {u: slot for u in group if u not in (me, owner)}
                    found += [(slot, self.copies[slot]), (slot, mine[slot])]
                else:
                    outbox[stand_in] = mine[slot]
        received = yield outbox
        return found + [(slot, received[u]) for u, slot in expected.items()]

    def _slices(self, u: int, lost: frozenset[int]) -> list[Interval]:
        """Return the slices that a peer holds for its groups: its own, and those of the lost whose stand-in it is."""
        return [
            self.layout.slice_of(group, owner)
            for group in self.layout.groups[u].values()
            for owner in {u, _before(group, u)}
            if owner == u or owner in lost
        ]


def _before(group: Group, u: int) -> int:
    return group[group.index(u) - 1]
