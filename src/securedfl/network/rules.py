"""What peers agree on about averages before the first one, and what comes out of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from securedfl.errors import PeerLostError
from securedfl.network.driver import CHUNK, Plan
from securedfl.protocols.steps import Array, PeerProtocol


@dataclass(frozen=True, kw_only=True)
class Deadlines:
    """How long to wait, in seconds, before a peer counts as lost.

    Attributes
    ----------
    join
        For all peers at the start.
    train
        For peers that are there but not ready, because they train.
    average
        For the next message within an average.
    absent
        For peers that are gone to come back, where the federation cannot go on without them.
    """

    join: float = 600.0
    train: float = 3600.0
    average: float = 120.0
    absent: float = 300.0


History = tuple[frozenset[int], ...]
"""The members of averages whose sums may have been seen."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What all peers agreed on about averages.

    Attributes
    ----------
    protocol
        Gives the protocol for so many members and a round, with design and options filled in.
    size, dtype
        Of the vectors that are averaged.
    result_size, model
        Of the result that all keep, and how it follows from a mean, the round, and the result before (if any).
    commit_step, can_lose
        As the protocol's row says.
    least
        The fewest members; more than half of the roster, so that a cut network never gives two averages.
    retries
        How often an average may be tried again after its commit.
    may_retry
        Given the round and how often it was abandoned, returns why the same parameters must not be averaged once
        more, or an empty string.
    window, pick, allows
        Over how many rounds the members of averages are looked at; who of those that are ready takes part, given the
        members before; and whether an offer keeps to that.
    """

    protocol: Callable[[int, int], PeerProtocol]
    size: int
    dtype: str
    result_size: int | None = None
    model: Callable[[Array, int, Array | None], Array] = lambda mean, _round, _before: mean
    commit_step: int = 0
    can_lose: bool = False
    least: int = 3
    retries: int = 3
    chunk: int = CHUNK
    deadlines: Deadlines = field(default_factory=Deadlines)
    may_retry: Callable[[int, int], str] = lambda _round, _tries: ""
    window: int = 0
    pick: Callable[[tuple[int, ...], History], tuple[int, ...]] = lambda ready, _history: ready
    allows: Callable[[tuple[int, ...], History], bool] = lambda _members, _history: True

    def plan(self, me: int, n: int, round: int) -> Plan:
        """Return how one of n members runs the average of a round."""
        return Plan.make(
            self.protocol(n, round),
            me,
            n,
            self.size,
            self.dtype,
            commit_step=self.commit_step,
            chunk=self.chunk,
        )


@dataclass(frozen=True, order=True)
class Tried:
    """One attempt at an average, for the ledger: who was in it, and whether sums of it may have been seen.

    Attributes
    ----------
    epoch, attempt
        How often the average was abandoned before, and the attempt's number.
    members
        Who took part.
    opened
        Whether the roster committed to it. Before that nothing is sent but masked shares.
    """

    epoch: int
    attempt: int
    members: tuple[int, ...]
    opened: bool


@dataclass(frozen=True)
class Averaged:
    """What came out of a round.

    Attributes
    ----------
    round
        The round of the result; later than asked for if this peer was left behind.
    vector
        The average, read-only; of a void round, what the round before gave.
    members
        Who took part, as far as this peer knows.
    attempts
        How many attempts were committed to.
    tried
        All attempts that this peer knows of, those that were given up before their commit included.
    fetched, void
        Whether this peer got the result from others; whether the round's updates were lost.
    seconds, waited
        Time in all, and time spent waiting for others to get ready.
    """

    round: int
    vector: Array
    members: tuple[int, ...] = ()
    attempts: int = 1
    tried: tuple[Tried, ...] = ()
    fetched: bool = False
    void: bool = False
    seconds: float = 0.0
    waited: float = 0.0


class RunEndedError(PeerLostError):
    """The peers decided together that the run ends, all in the same words; or this one is cut off from most of them."""
