"""Algorithm 3 of the paper: rounds of local updates and secure averages, simulated for all peers at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from securedfl.learning.training.team import Report, Team
from securedfl.learning.training.trainer import Array, Score
from securedfl.parameters import add_weights, remove_weight
from securedfl.protocols.fixedpoint import UnencodableError
from securedfl.protocols.protocol import Averaging
from securedfl.simulation.driver import Draws, NotFiniteError, run


@dataclass(frozen=True, kw_only=True)
class Average:
    """What one average cost and how far it is from the true mean, which only a simulation knows."""

    error_mse: float
    error_max: float
    bytes_per_peer: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Round:
    """The outcome of one round; round 0 is the initial average."""

    number: int
    train_losses: list[float] | None
    train_seconds: float
    average: Average | None
    scores: list[Score]


SecureAggregation = Callable[[Array, int], Average]
"""Replaces every peer's row by the average, in place."""


def algorithm3(
    team: Team,
    secure_aggregation: SecureAggregation | None,
    *,
    rounds: int,
    after: int | None = None,
    report: Report | None = None,
) -> Iterator[Round]:
    """Run Algorithm 3 and yield after every round, when ``team.parameters`` hold w^r.

    Parameters
    ----------
    team
        All peers; its rows are the paper's w_k.
    secure_aggregation
        How to average; None leaves every peer on its own (Local-Only).
    rounds
        The last round.
    after
        The round that the team was restored from; None starts with initialisation.
    report
        Told how many peers have trained in this round.
    """
    if after is None:
        team.initialise()  # w_k^0, different for each peer
        average = secure_aggregation(team.parameters, 0) if secure_aggregation else None  # w^0
        yield Round(number=0, train_losses=None, train_seconds=0.0, average=average, scores=team.evaluate())
        after = 0
    for r in range(after + 1, rounds + 1):
        started = time.perf_counter()
        losses = team.update(r, report)  # w_k^r = Update(k, w^{r-1})
        seconds = time.perf_counter() - started
        average = secure_aggregation(team.parameters, r) if secure_aggregation else None  # w^r
        yield Round(
            number=r, train_losses=losses, train_seconds=seconds, average=average, scores=team.evaluate()
        )


def secure_aggregation(
    parameters: Array,
    round: int,
    *,
    protocol: Averaging,
    draws: Callable[[int], Draws | None],
    weights: Sequence[float] | None = None,
    name_at: Callable[[int], str] | None = None,
) -> Average:
    """Average all rows by a protocol in the memory driver and write the result into every row.

    Parameters
    ----------
    parameters
        One row per peer.
    round
        The round of federated learning; partitions rotate with it.
    protocol
        With design and options filled in.
    draws
        Gives the source of masks for a round.
    weights
        How much each peer counts; by default all alike.
    name_at
        Tells which parameter an index belongs to, for messages.
    """
    started = time.perf_counter()
    vectors = list(parameters) if weights is None else add_weights(list(parameters), weights)
    try:
        outcome = run(protocol.at(round), vectors, draws=draws(round))
    except (NotFiniteError, UnencodableError) as error:
        name = name_at(error.index) if name_at and error.index < parameters.shape[1] else ""
        if isinstance(error, UnencodableError):
            raise error.at(name=name) from None
        raise NotFiniteError(error.peer, error.index, error.value, name) from None
    mean = outcome.average if weights is None else remove_weight(outcome.average)
    seconds = time.perf_counter() - started

    difference = mean - true_mean(parameters, weights)
    parameters[:] = mean
    return Average(
        error_mse=float(np.square(difference).mean()),
        error_max=float(np.abs(difference).max()),
        bytes_per_peer=float(np.mean(outcome.sent)),
        seconds=seconds,
    )


def true_mean(parameters: Array, weights: Sequence[float] | None = None) -> Array:
    """Return the mean of the rows in float64; row by row, because a float64 copy of all would be large."""
    weights = [1.0] * len(parameters) if weights is None else weights
    result = np.zeros(parameters.shape[1], dtype=np.float64)
    for row, weight in zip(parameters, weights, strict=True):
        result += np.multiply(row, weight, dtype=np.float64)
    result /= float(sum(weights))
    return result
