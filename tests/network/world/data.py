"""The data plane of the world: the real protocols on small vectors, message by message."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from securedfl.errors import PeerLostError
from securedfl.federation.peers.rules import Attendance
from securedfl.network.core.state import Rules, State
from securedfl.privacy.absence import Absence, fewest_members
from securedfl.protocols.protocol import Averaging, averaging
from securedfl.protocols.randomness import InsecureSeededDraw
from securedfl.protocols.steps import Array, Held, Inbox, Outbox, Steps, whole
from tests.network.world.schedule import Schedule

SIZE = 7
"""Parameters of a model."""
WINDOW = 2
"""Over how many rounds totals are taken together: so few that it passes within a run."""


@cache
def made(protocol: str, n: int) -> Averaging:
    return averaging(protocol, n, options={})


@cache
def for_round(protocol: str, n: int, round: int) -> Averaging:
    return made(protocol, n).at(round)


def begin(protocol: str, n: int, round: int, place: int, vector: Array, seed: int) -> Steps:
    return for_round(protocol, n, round)(place, vector, draw=InsecureSeededDraw(seed=seed, peer=place, round=round))


def _lockstep(running: Mapping[int, Steps]) -> tuple[list[dict[int, frozenset[int]]], dict[int, Any]]:
    """Run all, and return who hears whom in each step, and what they return."""
    waiting, returned, heard = dict(running), {}, []
    inboxes: dict[int, Inbox] | None = None
    while waiting:
        outboxes = {}
        for place, steps in list(waiting.items()):
            try:
                outboxes[place] = next(steps) if inboxes is None else steps.send(inboxes[place])
            except StopIteration as stop:
                returned[place] = stop.value
                del waiting[place]
        inboxes = {place: Inbox() for place in running}
        for sender, outbox in outboxes.items():
            for receiver, message in outbox.items():
                inboxes[receiver][sender] = message
        heard.append({place: frozenset(inbox) for place, inbox in inboxes.items()})
    return heard, returned


@cache
def _shared(protocol: str, n: int, round: int) -> tuple[list[dict[int, frozenset[int]]], dict[int, Any]]:
    return _lockstep({k: begin(protocol, n, round, k, np.zeros(SIZE), 0) for k in range(n)})


@cache
def _finished(protocol: str, n: int, round: int, lost: frozenset[int]) -> list[dict[int, frozenset[int]]]:
    _, held = _lockstep({k: begin(protocol, n, round, k, np.zeros(SIZE), 0) for k in range(n)})
    return _lockstep({k: held[k].finish(lost) for k in range(n) if k not in lost})[0]


@cache
def recoverable(protocol: str, n: int, round: int, lost: frozenset[int]) -> bool:
    held = _shared(protocol, n, round)[1][0]
    try:
        held.check_recoverable(lost)
    except PeerLostError:
        return False
    return n - len(lost) >= 2


def rules_for(schedule: Schedule) -> Rules:
    """Return the rules of a federation, in which one peer may be curious."""
    protocol, n = schedule.protocol, schedule.peers
    can_lose = made(protocol, 5).protocol.can_lose
    missing = Absence.chosen(schedule.absence, peers=n, collusion=1, can_lose=can_lose, window=WINDOW)
    attendance = Attendance(missing, fewest_members(n, 1))

    def can_finish(state: State, lost: tuple[int, ...]) -> bool:
        places = frozenset(state.members.index(peer) for peer in lost)
        return recoverable(protocol, len(state.members), state.round, places)

    return Rules(
        lying=schedule.lying,
        can_lose=can_lose,
        least=attendance.least,
        window=WINDOW,
        pick=attendance.pick,
        allows=attendance.allows,
        recoverable=can_finish,
    )


class Part:
    """One member's part of an attempt: a running generator, and what it waits for.

    Parameters
    ----------
    protocol, round, members, me
        What it runs, with whom, as whom.
    vector, seed
        Its parameters, and of its masks.
    """

    def __init__(self, protocol: str, round: int, members: tuple[int, ...], me: int, vector: Array, seed: int) -> None:
        self.protocol, self.round, self.members, self.me = protocol, round, members, me
        self.place, n = members.index(me), len(members)
        self._steps = begin(protocol, n, round, self.place, vector, seed)
        self._heard = _shared(protocol, n, round)[0]
        self.held: Held | None = None
        self.result: Array | None = None
        self.tag: tuple[int, ...] | None = None
        self.step = -1
        self.active = True

    def finish(self, lost: tuple[int, ...]) -> None:
        """Turn to the second part."""
        assert self.held is not None
        places = frozenset(self.members.index(peer) for peer in lost)
        self._steps = self.held.finish(places)
        self._heard = _finished(self.protocol, len(self.members), self.round, places)
        self.tag, self.step, self.active, self.result = lost, -1, True, None

    @property
    def needs(self) -> frozenset[int]:
        """Whose messages this step needs."""
        if self.step < 0 or not self.active:
            return frozenset()
        return frozenset(self.members[k] for k in self._heard[self.step][self.place])

    def advance(self, received: Mapping[int, Any]) -> dict[int, Any]:
        """Give it what it waited for; return what it sends."""
        inbox = Inbox({self.members.index(peer): message for peer, message in received.items()})
        try:
            outbox: Outbox = next(self._steps) if self.step < 0 else self._steps.send(inbox)
        except StopIteration as stop:
            self.active = False
            if isinstance(stop.value, Held):
                self.held = stop.value
            else:
                self.result = whole(stop.value)
            return {}
        self.step += 1
        return {self.members[k]: message for k, message in outbox.items()}
