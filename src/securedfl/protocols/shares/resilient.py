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

from securedfl.designs import Design, best_design, strength_for
from securedfl.errors import ConfigError, PeerLostError
from securedfl.protocols.fixedpoint import Codec, codec_of
from securedfl.protocols.randomness import secret_uniform
from securedfl.protocols.shares.agreement import ROUNDS, agree
from securedfl.protocols.shares.holding import Holding
from securedfl.protocols.shares.layout import layout_for
from securedfl.protocols.shares.shares import DEFAULT_COLLUSION
from securedfl.protocols.steps import Array, Committed, Draw, Inbox, Message, Outbox, PeerExcludedError, Steps

LEAST_PEERS = 3
"""A total over two peers gives each the other's parameters."""


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
    redesign = redesign or (lambda n: best_design(n, collusion=collusion))
    members, attempt = tuple(np.arange(design.n).tolist()), 1
    while True:
        at = members.index(me)
        strength = strength_for(design, collusion)
        layout = layout_for(design, round * strength % design.gap, strength, len(w))
        decode = partial(codec.decode, n=len(members), like=w)
        held = Holding(at, codec.encode(w, len(members)), layout, draw, decode)
        lost = yield from _renumbered(members, _share(held, rounds))
        if not lost:
            mean = yield from _renumbered(members, _finish(held, rounds))
            return Committed(mean, members, attempt)
        _go_on(at, len(members), lost, least_peers, "before the commit")
        members = tuple(u for k, u in enumerate(members) if k not in lost)
        design, attempt = redesign(len(members)), attempt + 1


def _share(held: Holding, rounds: int) -> Generator[Outbox, Mapping[int, Message], frozenset[int]]:
    """Share and agree on who is lost. Empty means: committed."""
    missing = yield from held.share()
    agreed = yield from agree(held.me, held.all, missing=missing, holding=True, rounds=rounds)
    return agreed.lost


def _finish(held: Holding, rounds: int) -> Steps:
    """Reduce and gather until all who are left hold the total over all members, then return it."""
    alive, holders, mean = held.all, frozenset[int](), None
    while True:
        if holders:
            mean, missing = yield from _tell(held.me, alive, holders, mean)
        else:
            held.check_recoverable(alive)
            mean, missing = yield from held.reduce(alive)
        agreed = yield from agree(held.me, alive, missing=missing, holding=mean is not None, rounds=rounds)
        _go_on(held.me, len(alive), agreed.lost, LEAST_PEERS - 1, "after the commit")
        alive, holders = tuple(u for u in alive if u not in agreed.lost), agreed.holders
        if len(holders) == len(alive):
            return mean


def _tell(
    me: int, alive: tuple[int, ...], holders: frozenset[int], mean: Array | None
) -> Generator[Outbox, Mapping[int, Message], tuple[Array | None, set[int]]]:
    """Let one holder send the result to those who lack it."""
    teller = min(holders)
    received = yield {u: mean for u in alive if u not in holders} if me == teller else {}
    if mean is not None:
        return mean, set()
    return (received[teller], set()) if teller in received else (None, {teller})


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
