"""Routes: who sends what to whom in each step, found by a dry run of the protocol itself.

Routes do not depend on the parameters, so running all peers' generators once on zeros tells every peer which messages
to wait for and how long they must be. No protocol has to declare its routes, and none can declare them wrongly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from securedfl.errors import PeerLostError
from securedfl.network.data.parcels import Spec, spec_of
from securedfl.protocols.randomness import secret_uniform
from securedfl.protocols.steps import Inbox, Outbox, PeerProtocol, Steps, in_one_part

LEAST_LEFT = 2
"""Members that must be left to finish."""


Routes = tuple[Mapping[int, Spec], ...]
"""What one peer receives in each step, by sender."""


@lru_cache(maxsize=64)
def routes_of(
    me: int, protocol: PeerProtocol, n: int, length: int, dtype: str, lost: frozenset[int] = frozenset()
) -> Routes:
    """Return the routes of one peer. Kept, because rounds come back to the same protocol; those of all take room."""
    return find_routes(protocol, n, length, dtype, lost)[me]


@lru_cache(maxsize=2)
def find_routes(
    protocol: PeerProtocol, n: int, length: int, dtype: str, lost: frozenset[int] = frozenset()
) -> tuple[Routes, ...]:
    """Return the routes of all n peers for vectors of a length, without those that are lost after the commit.

    Protocols cut vectors into slices ``length * j // parts``. Where all parts divide a period P, the slices of
    ``q P + r`` grow by the same amount with every q >= 1, so that short vectors tell about long ones. Whether that
    holds is checked; if not, the dry run has the full length.
    """
    whole = in_one_part(protocol, lost)
    period = n * math.lcm(*range(1, min(n, 6) + 1))
    times, rest = divmod(length, period)
    if times > 4:
        short = [_dry_run(whole, n, q * period + rest, dtype) for q in (1, 2, 4)]
        found = _grown(short[0], short[1], times - 1)
        if found is not None and _grown(short[0], short[1], 3) == short[2]:
            return found
    return _dry_run(whole, n, length, dtype)


def _grown(one: tuple[Routes, ...], two: tuple[Routes, ...], times: int) -> tuple[Routes, ...] | None:
    """Return routes whose lengths have grown so many times from those of ``one`` to those of ``two``."""
    result = []
    for before, after in zip(one, two, strict=True):
        if [set(row) for row in before] != [set(row) for row in after]:
            return None
        grown = (
            {
                sender: replace(spec, count=spec.count + times * (b[sender].count - spec.count))
                for sender, spec in a.items()
            }
            for a, b in zip(before, after, strict=True)
        )
        result.append(tuple(grown))
    return tuple(result)


@lru_cache(maxsize=256)
def recoverable(protocol: PeerProtocol, n: int, lost: frozenset[int]) -> bool:
    """Tell whether n members can finish a protocol in two parts without those lost after the commit."""
    held: list[Any] = [None] * n
    for _ in _lockstep([protocol(me, np.zeros(8 * n), draw=secret_uniform) for me in range(n)], held):
        pass
    try:
        held[0].check_recoverable(lost)
    except PeerLostError:
        return False
    return n - len(lost) >= LEAST_LEFT


def _dry_run(whole: PeerProtocol, n: int, length: int, dtype: str) -> tuple[Routes, ...]:
    """Run all n peers on zeros, and return the routes of each."""
    routes: list[list[Mapping[int, Spec]]] = [[] for _ in range(n)]
    peers = [whole(me, np.zeros(length, dtype=dtype), draw=secret_uniform) for me in range(n)]
    for running, inboxes in _lockstep(peers, [None] * n):
        for me in running:
            routes[me].append({sender: spec_of(message) for sender, message in inboxes[me].items()})
    return tuple(map(tuple, routes))


def _lockstep(peers: Sequence[Steps], returned: list[Any]) -> Iterator[tuple[Iterable[int], Sequence[Inbox]]]:
    """Run all peers side by side; give in each step who runs, and what all receive; in the end, what they returned."""
    running, inboxes = set(range(len(peers))), list[Inbox]()
    while running:
        outboxes: dict[int, Outbox] = {}
        for me in sorted(running):
            try:
                outboxes[me] = peers[me].send(inboxes[me]) if inboxes else next(peers[me])
            except StopIteration as stop:
                returned[me] = stop.value
                running.discard(me)
        inboxes = [Inbox() for _ in peers]
        for sender, outbox in outboxes.items():
            for receiver, message in outbox.items():
                inboxes[receiver][sender] = message
        yield outboxes, inboxes
