"""Shares through crashes: attempts with a commit point between sharing and reducing (docs/shares.md).

An attempt is *share, back up, agree*. If a peer is lost up to there, nobody has seen more than masked shares: the
rest start again, with fresh masks and a design of their own. Otherwise the membership is committed, and from then on
it never changes: *reduce, gather, agree*, repeated with stand-ins for those lost, until everybody left holds the one
total over the committed members. A total over any other set of the same parameters is never formed, so that nothing
can be learned by differencing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any

import numpy as np

from securedfl.designs.design import Design, Group
from securedfl.errors import ConfigError, PeerLostError
from securedfl.protocols.agreement import ROUNDS, agree
from securedfl.protocols.base import Array, Committed, Draw, Inbox, Message, Outbox, PeerExcludedError, Steps
from securedfl.protocols.components import design_withstanding, strength_for
from securedfl.protocols.fixedpoint import Codec, codec_of
from securedfl.protocols.layout import Interval, Layout, Reduction, layout_for, union
from securedfl.protocols.masks import mask, values
from securedfl.protocols.randomness import secret_uniform
from securedfl.protocols.shares import DEFAULT_COLLUSION, join, total

LEAST_PEERS = 3
"""A total over two peers gives each the other's parameters."""

Slot = tuple[int, int]
"""A share and the peer that owns a slice of it."""


def resilient(
    me: int,
    w: Array,
    design: Design,
    *,
    collusion: int = DEFAULT_COLLUSION,
    redesign: Callable[[int], Design] | None = None,
    least_peers: int = LEAST_PEERS,
    rounds: int = ROUNDS,
    bits: int | None = None,
    range: float | None = None,  # noqa: A002
    codec: Codec | None = None,
    round: int = 0,
    draw: Draw = secret_uniform,
) -> Steps:
    """Average by shares among those peers that live long enough; returns `Committed`.

    Parameters
    ----------
    me, w, design
        This peer, its private parameters, and who meets whom while all are there.
    collusion
        How many colluders must learn nothing but the total, however many peers are left.
    redesign
        The design for so many remaining peers; by default the best known one that withstands the colluders.
    least_peers
        Give up rather than average over fewer. More than half of the peers must be left as well, so that a cut network
        never gives two averages.
    rounds
        Of each agreement; see `agree`.
    bits, range, codec, round, draw
        As for `shares`.

    Raises
    ------
    PeerLostError
        On every peer left, if too few are, or if two peers of one group are lost after the commit.
    PeerExcludedError
        On this peer only: it lives, but what it sent did not arrive, and the others go on without it.
    PrivacyError
        On every peer left, if so few cannot withstand the colluders.
    """
    codec = codec_of(codec, bits=bits, range=range)
    if least_peers < LEAST_PEERS:
        raise ConfigError(f"at least {LEAST_PEERS} peers must take part, not {least_peers}")
    redesign = redesign or (lambda n: design_withstanding(n, collusion))
    members, attempt = tuple(np.arange(design.n).tolist()), 1
    while True:
        at = members.index(me)
        strength = strength_for(design, collusion)
        layout = layout_for(design, round * strength % design.gap, strength, len(w))
        peer = _Member(at, codec.encode(w, len(members)), layout, draw)
        lost = yield from _renumbered(members, peer.share(rounds))
        if not lost:
            decode = partial(codec.decode, n=len(members), like=w)
            mean = yield from _renumbered(members, peer.finish(decode, rounds))
            return Committed(mean, members, attempt)
        _go_on(at, len(members), lost, least_peers, "before the commit")
        members = tuple(u for k, u in enumerate(members) if k not in lost)
        design, attempt = redesign(len(members)), attempt + 1


class _Member:
    """One committed-or-not member during one attempt; peers are numbered by their place among the members."""

    def __init__(self, me: int, x: Array, layout: Layout, draw: Draw) -> None:
        if not layout.groups[me]:
            raise ConfigError(
                "every peer needs a group of at least two in the partitions used; use more strength"
            )
        self.me, self.x, self.layout, self.draw = me, x, layout, draw
        self.groups = layout.groups[me]
        self.all = tuple(np.arange(layout.n).tolist())
        self.mine: dict[Slot, Message] = {}  # the slices of this peer's own shares
        self.held: dict[Slot, dict[int, Message]] = {}  # what others contributed to the slices held here

    def share(self, rounds: int) -> Generator[Outbox, Mapping[int, Message], frozenset[int]]:
        """Send slices to their owners and own slices to stand-ins; agree on who is lost. Empty means: committed."""
        me, missing = self.me, set()
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
        agreed = yield from agree(me, self.all, missing=missing, holding=True, rounds=rounds)
        return agreed.lost

    def finish(self, decode: Callable[[Array], Array], rounds: int) -> Steps:
        """Reduce and gather until all who are left hold the total over all members, then return it."""
        alive, holders, mean = self.all, frozenset[int](), None
        while True:
            if holders:
                mean, missing = yield from self._tell(alive, holders, mean)
            else:
                self._check_recoverable(alive)
                mean, missing = yield from self._reduce(alive, decode)
            agreed = yield from agree(
                self.me, alive, missing=missing, holding=mean is not None, rounds=rounds
            )
            _go_on(self.me, len(alive), agreed.lost, LEAST_PEERS - 1, "after the commit")
            alive, holders = tuple(u for u in alive if u not in agreed.lost), agreed.holders
            if len(holders) == len(alive):
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

    def _reduce(
        self, alive: tuple[int, ...], decode: Callable[[Array], Array]
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
                sums[first:end] += values(message)
        complete = not missing  # else this peer's sums lack something, and must not be taken for whole

        received = yield {
            q: join(sums, pieces) if complete else _NOTHING for q, pieces in reduction.reducing(me)
        }
        senders = [u for u, _ in reduction.totalling(me) if u != me]
        missing |= {u for u in senders if u not in received}
        complete = complete and not missing and all(len(received[u]) for u in senders)
        segment = decode(total(me, sums, reduction, received)) if complete else _NOTHING

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

    def _tell(
        self, alive: tuple[int, ...], holders: frozenset[int], mean: Array | None
    ) -> Generator[Outbox, Mapping[int, Message], tuple[Array | None, set[int]]]:
        """Let one holder send the result to those who lack it."""
        teller = min(holders)
        received = yield {u: mean for u in alive if u not in holders} if self.me == teller else {}
        if mean is not None:
            return mean, set()
        return (received[teller], set()) if teller in received else (None, {teller})

    def _check_recoverable(self, alive: tuple[int, ...]) -> None:
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


def _go_on(me: int, before: int, lost: frozenset[int], least: int, when: str) -> None:
    """Raise if this peer is among the lost, or if too few are left."""
    left = before - len(lost)
    if 2 * left <= before or left < least:
        raise PeerLostError(f"only {left} of {before} peers are left {when}, too few to go on")
    if me in lost:
        raise PeerExcludedError(f"the other peers go on without this one, which they lost {when}")


def _renumbered(members: tuple[int, ...], steps: Generator[Outbox, Mapping[int, Message], Any]) -> Any:
    """Run steps in which peers are numbered by their place among the members."""
    place = {u: k for k, u in enumerate(members)}
    try:
        outbox = next(steps)
        while True:
            received = yield {members[k]: message for k, message in outbox.items()}
            outbox = steps.send(Inbox({place[u]: message for u, message in received.items() if u in place}))
    except StopIteration as stop:
        return stop.value


def _next(group: Group, u: int) -> int:
    return group[(group.index(u) + 1) % len(group)]


def _before(group: Group, u: int) -> int:
    return group[group.index(u) - 1]
