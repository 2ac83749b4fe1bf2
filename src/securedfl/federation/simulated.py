"""All peers of Algorithm 3 in one process: a team that trains, and secure aggregation in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from securedfl.learning.training.task import Score
from securedfl.learning.training.team import Report, Team
from securedfl.parameters import Array, add_weights, remove_weight
from securedfl.protocols.fixedpoint import UnencodableError
from securedfl.protocols.protocol import Averaging
from securedfl.simulation.driver import Draws, NotFiniteError, run


@dataclass(frozen=True, kw_only=True)
class SimulatedAverage:
    """What one average cost, and how far it is from the true mean, which only a simulation knows."""

    round: int
    error_mse: float | None = None
    error_max: float | None = None
    bytes_per_peer: float = 0.0
    seconds: float = 0.0


SecureAggregation = Callable[[Array, int], SimulatedAverage]
"""Replaces every peer's row by the average of a round, in place."""


class SimulatedPeers:
    """All peers at once: a team that trains, and a way to average. The rows of ``team.parameters`` are the paper's w_k.

    `no_aggregation` leaves every peer on its own (Local-Only). ``report`` hears how many peers have trained in a round.
    """

    def __init__(self, team: Team, aggregation: SecureAggregation, report: Report | None = None) -> None:
        self._team, self._aggregation, self._report = team, aggregation, report

    def initialise(self) -> None:
        """Choose w_k^0."""
        self._team.initialise()

    def update(self, round: int) -> Sequence[float]:
        """Train all peers."""
        return self._team.update(round, self._report)

    def average(self, round: int) -> SimulatedAverage:
        """Average all peers."""
        return self._aggregation(self._team.parameters, round)

    def evaluate(self) -> Sequence[Score]:
        """Score all peers."""
        return self._team.evaluate()


def no_aggregation(_parameters: Array, round: int) -> SimulatedAverage:
    """Leave every peer its own parameters."""
    return SimulatedAverage(round=round)


def secure_aggregation(
    parameters: Array,
    round: int,
    *,
    protocol: Averaging,
    draws: Callable[[int], Draws | None],
    weights: Sequence[float] | None = None,
    name_at: Callable[[int], str] | None = None,
) -> SimulatedAverage:
    """Average all rows by a protocol in the memory driver and write the result into every row.

    The protocol has its design and options filled in; ``draws`` gives the source of masks for a round, ``name_at`` the
    parameter that an index belongs to, for messages. Without ``weights`` all peers count alike.
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
    return SimulatedAverage(
        round=round,
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
