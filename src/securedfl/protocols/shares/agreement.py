"""Agreement among peers of whom some crash: everybody tells everybody what everybody said, a few times.

The classic flooding algorithm for crashes in a synchronous network. If there is one round in which no peer crashes
half-way through its messages, all peers that live on hold the same table: r rounds bear r - 1 such crashes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from securedfl.protocols.steps import Array, Message, Outbox

ROUNDS = 3
"""Rounds of telling each other: bears two crashes half-way through a round within one agreement."""


@dataclass(frozen=True)
class Agreed:
    """What all living peers concluded alike.

    Attributes
    ----------
    lost
        Peers that said nothing, or whose messages somebody missed.
    holders
        Peers, not lost, that hold what was asked about.
    """

    lost: frozenset[int]
    holders: frozenset[int]


def agree(
    me: int, peers: Sequence[int], *, missing: Iterable[int], holding: bool, rounds: int = ROUNDS
) -> Generator[Outbox, Mapping[int, Message], Agreed]:
    """Agree on who is lost and who holds what was asked about.

    Parameters
    ----------
    me, peers
        This peer, and all that take part, itself included.
    missing
        Those from whom something that was due did not arrive here.
    holding
        Whether this peer has what was asked about.
    rounds
        How often everybody tells everybody all that it knows.
    """
    place = {u: k for k, u in enumerate(peers)}
    table = _blank(len(peers))
    table[place[me], 0] = 1
    table[place[me], 1] = holding
    for u in missing:
        table[place[me], 2 + place[u]] = 1
    for _ in range(rounds):
        told = np.packbits(table)
        received = yield {u: told for u in peers if u != me}
        for u in peers:
            if u in received:
                table |= _unpack(received[u], len(peers))
    missed = table[:, 2:].max(axis=0)
    lost = frozenset(u for u in peers if not table[place[u], 0] or missed[place[u]])
    return Agreed(lost, frozenset(u for u in peers if table[place[u], 1] and u not in lost))


def _blank(n: int) -> Array:
    """One row per peer: whether it spoke, whether it holds, and whom it misses."""
    return np.zeros((n, n + 2), dtype=np.uint8)


def _unpack(told: Array, n: int) -> Array:
    return np.unpackbits(told, count=n * (n + 2)).reshape(n, n + 2)
