"""Algorithm 3 of the paper: rounds of local updates and secure averages, for simulated and for real peers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from securedfl.learning.training.task import Score


class Average(Protocol):
    """What came out of an average."""

    @property
    def round(self) -> int:
        """The round of the result; later than asked for if a real peer was left behind."""


A = TypeVar("A", bound=Average)
A_co = TypeVar("A_co", bound=Average, covariant=True)


class Peers(Protocol[A_co]):
    """Those who run Algorithm 3 here: all peers of a simulation at once, or one real peer among others."""

    def initialise(self) -> None:
        """Choose w_k^0 of each peer."""

    def update(self, round: int) -> Sequence[float | None]:
        """Train from the average of the round before; return the mean loss of each peer, if it tells one."""

    def average(self, round: int) -> A_co:
        """Replace every peer's parameters by the average; after a void round, by what the round before gave."""

    def evaluate(self) -> Sequence[Score | None]:
        """Score the average on the test data of each peer, if it has any."""


@dataclass(frozen=True, kw_only=True)
class Round(Generic[A]):
    """The outcome of one round; round 0 is the initial average, before which nothing is trained."""

    losses: Sequence[float | None] = ()
    train_seconds: float = 0.0
    average: A
    scores: Sequence[Score | None]

    @property
    def number(self) -> int:
        """The round that was reached."""
        return self.average.round


def algorithm3(peers: Peers[A], *, rounds: int | Callable[[], int], after: int | None = None) -> Iterator[Round[A]]:
    """Run Algorithm 3 and yield after every round, when the peers hold w^r.

    Parameters
    ----------
    peers
        Who takes part.
    rounds
        The last round, or what tells it where it may change.
    after
        The round that the peers were restored from; None starts with initialisation.
    """
    if after is None:
        # w_k^0
        peers.initialise()
        # w^0 = SecureAggregation(w_1^0, ..., w_n^0)
        average = peers.average(0)
        yield Round(average=average, scores=peers.evaluate())
        after = average.round
    r = after
    while r < (rounds() if callable(rounds) else rounds):
        r += 1
        started = time.perf_counter()
        # w_k^r = Update(k, w^{r-1})
        losses = peers.update(r)
        seconds = time.perf_counter() - started
        # w^r = SecureAggregation(w_1^r, ..., w_n^r)
        average = peers.average(r)
        yield Round(losses=losses, train_seconds=seconds, average=average, scores=peers.evaluate())
        r = average.round
