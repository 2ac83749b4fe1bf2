"""Shares with stand-ins: what a member holds once all have shared, and how those left add it up (docs/shares.md).

Every peer gives a copy of the slices that only it has to its *stand-in*, the next member of the same group. After the
commit the total over all members can then be completed by those left: only whole sums of groups ever leave, and those
are the same whoever adds them up, so that repeating it with fewer peers tells nobody anything new.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from functools import partial

import numpy as np

from securedfl.designs import Design, Group, strength_for
from securedfl.errors import ConfigError, PeerLostError
from securedfl.protocols.fixedpoint import Codec, codec_of
from securedfl.protocols.masks import mask, values
from securedfl.protocols.randomness import secret_uniform
from securedfl.protocols.shares.layout import Interval, Layout, Reduction, layout_for, union
from securedfl.protocols.shares.shares import DEFAULT_COLLUSION, join, total
from securedfl.protocols.steps import Array, Draw, Message, Outbox, Steps

Slot = tuple[int, int]
"""A share and the peer that owns a slice of it."""

SHARING_STEPS = 2
"""Steps before the commit: shares to their owners, and copies to the stand-ins."""


def holding(
    me: int,
    w: Array,
    design: Design,
    *,
    collusion: int = DEFAULT_COLLUSION,
    bits: int | None = None,
    range: float | None = None,  # noqa: A002
    codec: Codec | None = None,
    round: int = 0,
    draw: Draw = secret_uniform,
) -> Steps:
    """Share and back up; return the `Holding` from which the average can be finished, also after losses.

    For drivers that decide by themselves who is lost and who takes part; `resilient` is the same with agreement among
    the peers. Parameters are those of `shares`.
    """
    codec = codec_of(codec, bits=bits, range=range)
    strength = strength_for(design, collusion)
    layout = layout_for(design, round * strength % design.gap, strength, len(w))
    held = Holding(me, codec.encode(w, design.n), layout, draw, partial(codec.decode, n=design.n, like=w[:0]))
    missing = yield from held.share()
    if missing:
        raise PeerLostError(f"nothing arrived from peers {sorted(missing)}")
    return held


class Holding:
    """What one member has of an attempt; peers are numbered by their place among the members.

    Parameters
    ----------
    me, x, layout
        This member, its encoded parameters (overwritten), and who owns what.
    draw
        Where masks come from.
    decode
        Turns the total of a segment into the mean.
    """

    def __init__(
        self, me: int, x: Array, layout: Layout, draw: Draw, decode: Callable[[Array], Array]
    ) -> None:
        if not layout.groups[me]:
            raise ConfigError(
                "every peer needs a group of at least two in the partitions used; use more strength"
            )
        self.me, self.x, self.layout, self.draw, self._decode = me, x, layout, draw, decode
        self.groups = layout.groups[me]
        self.all = tuple(np.arange(layout.n).tolist())
        self.mine: dict[Slot, Message] = {}  # the slices of this peer's own shares
        self.held: dict[Slot, dict[int, Message]] = {}  # what others contributed to the slices held here

    def share(self) -> Generator[Outbox, Mapping[int, Message], set[int]]:
        """Send slices to their owners and own slices to stand-ins; return the peers whose messages did not arrive."""
        me, missing = self.me, set[int]()
        self.mine = self._split()
        received = yield {v: self.mine[i, v] for i, group in self.groups.items() for v in group if v != me}
        for i, group in self.groups.items():
            self.held[i, me] = {u: received[u] for u in group if u in received} | {me: self.mine[i, me]}
            missing |= {u for u in group if u != me and u not in received}
        # The one slice of a share that nobody else has; without a copy, the owner's crash would lose it.
        received = yield {_next(group, me): self.mine[i, me] for i, group in self.groups.items()}
        for i, group in self.groups.items():
            owner = _before(group, me)
            if owner in received:
                self.held[i, owner] = {owner: received[owner]}
            else:
                missing.add(owner)
        return missing

    def finish(self, lost: Iterable[int] = ()) -> Steps:
        """Add up without the lost and return the mean over all members; every message that is due must arrive."""
        gone = frozenset(lost)
        alive = tuple(u for u in self.all if u not in gone)
        self.check_recoverable(alive)
        mean, missing = yield from self.reduce(alive)
        if mean is None:
            raise PeerLostError(f"nothing arrived from peers {sorted(missing)}")
        return mean

    def _split(self) -> dict[Slot, Message]:
        """Turn x into shares: all but one random, a seed of its own for every slice, and the rest in the last one."""
        slots = [(i, v, *self.layout.slice_of(group, v)) for i, group in self.groups.items() for v in group]
        remainder = min(self.groups)
        pieces: dict[Slot, Message] = {}
        for i, v, first, end in slots:
            if i != remainder:
                pieces[i, v] = sent = mask(self.draw, self.x[first:end])
                self.x[first:end] -= values(sent)
        return pieces | {(i, v): self.x[first:end] for i, v, first, end in slots if i == remainder}

    def reduce(
        self, alive: tuple[int, ...]
    ) -> Generator[Outbox, Mapping[int, Message], tuple[Array | None, set[int]]]:
        """Add up what the living hold, stand-ins included; return the mean, if complete, and who did not deliver."""
        me, missing = self.me, set()
        if len(alive) < len(self.all):
            missing |= yield from self._hand_over(alive)
        owned = {u: union([s for _, s in self._slots(u, alive)]) for u in alive}
        reduction = Reduction([u for u in self.layout.order if u in alive], owned, self.layout.size)
        sums = np.zeros_like(self.x)
        for (i, owner), (first, end) in self._slots(me, alive):
            for message in self.held[i, owner].values():
                sums[first:end] += values(message, keep=False)
        complete = not missing  # else this peer's sums lack something, and must not be taken for whole

        received = yield {
            q: join(sums, pieces) if complete else _NOTHING for q, pieces in reduction.reducing(me)
        }
        senders = [u for u, _ in reduction.totalling(me) if u != me]
        missing |= {u for u in senders if u not in received}
        complete = complete and not missing and all(len(received[u]) for u in senders)
        segment = self._decode(total(me, sums, reduction, received)) if complete else _NOTHING

        received = yield dict.fromkeys(reduction.telling(me), segment)
        segments = {q: segment if q == me else received.get(q) for q in reduction.gathering}
        missing |= {q for q, piece in segments.items() if piece is None}
        if any(piece is None or not len(piece) for piece in segments.values()):
            return None, missing
        return np.concatenate(list(segments.values())), missing

    def _hand_over(self, alive: tuple[int, ...]) -> Generator[Outbox, Mapping[int, Message], set[int]]:
        """Send the slices of lost owners to their stand-ins, who are of the same group and hold the owners' copies."""
        me, outbox, expected = self.me, dict[int, Message](), dict[int, Slot]()
        for i, group in self.groups.items():
            for owner in group:
                if owner not in alive:
                    stand_in = _next(group, owner)
                    if stand_in == me:
                        expected |= {u: (i, owner) for u in group if u not in (me, owner)}
                        self.held[i, owner][me] = self.mine[i, owner]
                    else:
                        outbox[stand_in] = self.mine[i, owner]
        received = yield outbox
        for u, slot in expected.items():
            if u in received:
                self.held[slot][u] = received[u]
        return {u for u in expected if u not in received}

    def _slots(self, u: int, alive: tuple[int, ...]) -> list[tuple[Slot, Interval]]:
        """Return the slices that a peer holds for its groups: its own, and those of the lost whose stand-in it is."""
        slots = []
        for i, group in self.layout.groups[u].items():
            for owner in (u, _before(group, u)):
                if owner == u or owner not in alive:
                    slots.append(((i, owner), self.layout.slice_of(group, owner)))
        return slots

    def check_recoverable(self, alive: tuple[int, ...]) -> None:
        """Raise, on all peers alike, if a slice is lost with both its owner and its stand-in."""
        for groups in self.layout.groups:
            for group in groups.values():
                if sum(u not in alive for u in group) > 1:
                    raise PeerLostError(
                        "two peers of one group were lost after the commit, so the total cannot be completed. Parts of "
                        "it may have been seen: do not average the same parameters again among fewer peers"
                    )


_NOTHING: Array = np.zeros(0, dtype=np.uint8)
"""Sent instead of a sum that is not complete, to tell a peer that lacks something from a peer that is lost."""
_NOTHING.flags.writeable = False


def _next(group: Group, u: int) -> int:
    return group[(group.index(u) + 1) % len(group)]


def _before(group: Group, u: int) -> int:
    return group[group.index(u) - 1]
