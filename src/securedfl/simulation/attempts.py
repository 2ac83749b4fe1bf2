"""One average in lock-step: attempts with a commit between sharing and adding up, and who is lost in between.

What a log decides among real peers is decided here by the driver, which sees everything: who takes part in an attempt,
when all have shared, and who is lost. The protocols are the same. A peer that is lost before the commit is left out,
and the rest start again with fresh masks and a design of their own. After the commit the members never change: those
left finish the one total over all of them, or nobody gets any.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from securedfl.errors import ConfigError, DesignError, PeerLostError
from securedfl.protocols.fixedpoint import UnencodableError
from securedfl.protocols.masks import values
from securedfl.protocols.protocol import LEAST_PEERS, Averaging
from securedfl.protocols.steps import Array, Held, Inbox, MissingMessageError, Outbox, PeerProtocol, Steps, whole
from securedfl.simulation.faults import Weather
from securedfl.simulation.transcript import Transcript

Result = Array | tuple[Array, ...]
"""An average, whole or in pieces."""

Begin = Callable[[PeerProtocol, int, int], Steps]
"""Starts the generator of a peer: called with the protocol, its place among the members, and the peer."""


@dataclass(frozen=True)
class Outcome:
    """What came out of one average.

    Attributes
    ----------
    average
        The result, which all peers hold bit for bit alike.
    sent
        Bytes of parameters that each peer sent, masks that travel as seeds counted as such.
    steps
        How many times peers sent and then waited.
    seconds
        Simulated time lost to injected delays.
    transcript
        Who received what and when, if recorded.
    members
        The peers that the average is of.
    holders
        The peers that hold the result: all that neither crashed nor were excluded.
    attempts
        How often a protocol that survives crashes had to start.
    """

    average: Array
    sent: tuple[int, ...]
    steps: int
    seconds: float = 0.0
    transcript: Transcript | None = None
    members: tuple[int, ...] = ()
    holders: tuple[int, ...] = ()
    attempts: int = 1


def average_chunk(
    protocol: PeerProtocol,
    n: int,
    begin: Begin,
    *,
    weather: Weather | None,
    record: bool,
    least_peers: int = LEAST_PEERS,
) -> Outcome:
    """Run all peers until those that are left hold the average.

    Parameters
    ----------
    protocol, n
        What they run, and how many they are.
    begin
        Starts a peer.
    weather
        What happens to messages; None if they all arrive.
    record
        Keep every message.
    least_peers
        Give up rather than average over fewer.
    """
    if least_peers < LEAST_PEERS:
        raise ConfigError(f"at least {LEAST_PEERS} peers must take part, not {least_peers}")
    lockstep, members, attempts = _Lockstep(n, weather, record=record), tuple(range(n)), 1
    while True:
        returned = lockstep.run({u: begin(protocol, k, u) for k, u in enumerate(members)}, members)
        held = {u: value for u, value in returned.items() if isinstance(value, Held)}
        lost = lockstep.lost | (lockstep.crashed(members) if held else set())
        if not lost:
            break
        if not isinstance(protocol, Averaging) or not protocol.protocol.can_lose:
            raise lockstep.abandoned()
        members = _left(n, members, lost, least_peers, "before the commit")
        protocol, attempts = protocol.among(len(members)), attempts + 1
    if held:
        returned = _finish(lockstep, held, members, can_lose=isinstance(protocol, Averaging))
    if not returned:
        raise PeerLostError("no peer is left that holds a result")
    return Outcome(
        average=_agreed(returned),
        sent=tuple(lockstep.sent),
        steps=lockstep.step,
        transcript=lockstep.transcript,
        members=members,
        holders=tuple(sorted(returned)),
        attempts=attempts,
    )


def _agreed(results: Mapping[int, Result]) -> Array:
    """Return the average as one array; raise if the protocol let two peers hold different bits."""
    first = next(iter(results.values()))
    mean = whole(first)
    for peer, result in results.items():
        alike = _same_objects(first, result) or np.array_equal(whole(result), mean)
        # NaN differs from itself, and is not the protocol's fault
        if not alike and np.array_equal(mean, mean):
            raise RuntimeError(f"the protocol gave peers {min(results)} and {peer} different averages")
    return mean


def _same_objects(a: Result, b: Result) -> bool:
    """Tell whether two results consist of the very same arrays, so that there is nothing to compare."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(operator.is_, a, b))
    return a is b


def _finish(
    lockstep: _Lockstep, held: Mapping[int, Held], members: tuple[int, ...], *, can_lose: bool
) -> dict[int, Result]:
    """Let those left finish the total over all members, without more and more of them, until all of them hold it."""
    gone: set[int] = set()
    while True:
        places = frozenset(members.index(u) for u in gone)
        returned = lockstep.run({u: held[u].finish(places) for u in members if u not in gone}, members)
        if not lockstep.lost:
            return returned
        if not can_lose:
            raise lockstep.abandoned()
        gone |= lockstep.lost | lockstep.crashed(members)
        left = _left(len(members), members, gone, LEAST_PEERS - 1, "after the commit")
        held[left[0]].check_recoverable(frozenset(members.index(u) for u in gone))


def _left(n: int, members: Sequence[int], lost: Set[int], least: int, when: str) -> tuple[int, ...]:
    """Return who goes on; more than half of all n peers must, so that a cut network never gives two averages."""
    left = tuple(u for u in members if u not in lost)
    if 2 * len(left) <= n or len(left) < least:
        raise PeerLostError(f"only {len(left)} of {n} peers are left {when}, too few to go on; nobody keeps a result")
    return left


def _member(members: Sequence[int], place: int) -> int:
    if not 0 <= place < len(members):
        raise DesignError(f"the protocol sends to peer {place}, but {len(members)} take part")
    return members[place]


class _Lockstep:
    """Lets every peer send, delivers, and repeats, until all have returned or wait in vain."""

    def __init__(self, n: int, weather: Weather | None, *, record: bool) -> None:
        self._weather, self._record = weather, record
        self.sent, self.step, self.transcript = [0] * n, 0, Transcript()
        self._missed: dict[tuple[int, int], str] = {}

    def run(self, running: Mapping[int, Steps], members: Sequence[int]) -> dict[int, Any]:
        """Run the generators of peers, who number each other by their places among the members."""
        place = {u: k for k, u in enumerate(members)}
        returned: dict[int, Any] = {}
        waiting = dict(running)
        inboxes: dict[int, Inbox] | None = None
        self._missed = {}
        while waiting:
            outboxes = {}
            for peer, steps in list(waiting.items()):
                if self._weather and self._weather.crashed(peer, self.step):
                    del waiting[peer]
                    continue
                try:
                    outbox = next(steps) if inboxes is None else steps.send(inboxes[peer])
                    outboxes[peer] = {_member(members, k): message for k, message in outbox.items()}
                except StopIteration as stop:
                    returned[peer] = stop.value
                    del waiting[peer]
                except MissingMessageError as error:
                    sender = members[error.sender]
                    self._missed[peer, sender] = (
                        f"peer {peer}, step {self.step - 1}: nothing arrived from peer {sender}"
                    )
                    del waiting[peer]
                except UnencodableError as error:
                    raise error.at(peer=peer) from None
            if self._missed:
                # whoever waits in vain says nothing more, for which nobody else is to blame
                break
            if outboxes:
                inboxes = self._deliver(outboxes, place)
        return returned

    def _deliver(self, outboxes: Mapping[int, Outbox], place: Mapping[int, int]) -> dict[int, Inbox]:
        """Move the messages of one step."""
        weather, step = self._weather, self.step
        inboxes = {u: Inbox() for u in place}
        for sender, outbox in outboxes.items():
            # the last message looked at: often the same one goes to many
            frozen = None
            for receiver, message in outbox.items():
                if message is not frozen:
                    frozen = message
                    if isinstance(message, np.ndarray):
                        # the receiver gets this very array
                        message.flags.writeable = False
                self.sent[sender] += message.nbytes
                if weather is None or weather.arrives(sender, receiver, step):
                    inboxes[receiver][place[sender]] = message
                    if self._record:
                        self.transcript.add(step, sender, receiver, values(message))
        if weather:
            weather.next_step()
        self.step += 1
        return inboxes

    def crashed(self, members: Sequence[int]) -> set[int]:
        """Return the members that have crashed by now."""
        return {u for u in members if self._weather and self._weather.crashed(u, self.step)}

    @property
    def lost(self) -> set[int]:
        """The fewest peers, or nearly so, without whom nobody waited in vain for anybody."""
        missed = set(self._missed)
        chosen = {sender for _, sender in missed if self.crashed([sender])}
        while left := [pair for pair in missed if not chosen.intersection(pair)]:
            # of two that are missed or miss as often, the one that was not heard
            often = Counter(peer for pair in left for peer in pair)
            heard = Counter(sender for _, sender in left)
            chosen.add(max(often, key=lambda peer: (often[peer], heard[peer], -peer)))
        return chosen

    def abandoned(self) -> PeerLostError:
        """Return the error for an average that cannot go on without somebody."""
        why = next(iter(self._missed.values()), "a peer crashed")
        return PeerLostError(f"{why}; the average is abandoned on all peers, nobody keeps a result")
