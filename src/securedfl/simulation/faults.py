"""Faults that the memory driver injects, on a simulated clock: lost and late messages, crashed peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Drop:
    """The message of one step from one peer to another never arrives."""

    sender: int
    receiver: int
    step: int


@dataclass(frozen=True, kw_only=True)
class Delay:
    """What a peer sends in one step arrives so many simulated seconds late."""

    sender: int
    step: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Crash:
    """A peer stops for good at a step; of that step's messages only those to ``reached`` still leave it."""

    peer: int
    step: int
    reached: frozenset[int] = field(default_factory=frozenset)


Fault = Drop | Delay | Crash


class Weather:
    """Answers what happens to each message, and keeps the simulated clock."""

    def __init__(self, faults: Sequence[Fault], deadline: float) -> None:
        self._drops = {(f.sender, f.receiver, f.step) for f in faults if isinstance(f, Drop)}
        self._delays = {(f.sender, f.step): f.seconds for f in faults if isinstance(f, Delay)}
        self._crashes = {f.peer: f for f in faults if isinstance(f, Crash)}
        self._deadline = deadline
        self._late = 0.0
        self.seconds = 0.0

    def crashed(self, peer: int, step: int) -> bool:
        """Tell whether the peer no longer runs at that step."""
        crash = self._crashes.get(peer)
        return crash is not None and (step > crash.step or (step == crash.step and not crash.reached))

    def arrives(self, sender: int, receiver: int, step: int) -> bool:
        """Tell whether a message arrives in time."""
        crash = self._crashes.get(sender)
        if (sender, receiver, step) in self._drops or (
            crash is not None and crash.step == step and receiver not in crash.reached
        ):
            self._late = self._deadline  # the receiver waits in vain
            return False
        delay = self._delays.get((sender, step), 0.0)
        self._late = max(self._late, min(delay, self._deadline))
        return delay <= self._deadline

    def next_step(self) -> None:
        """Let the time of this step pass: as long as its latest message took."""
        self.seconds += self._late
        self._late = 0.0
