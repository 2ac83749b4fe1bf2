"""All peers of a simulated federation, trained in this process; `processes` has the other kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

import numpy as np

from securedfl.learning.data.dataset import Dataset
from securedfl.learning.data.dealing import Share
from securedfl.learning.training.trainer import (
    Array,
    LocalTrainer,
    PeerData,
    Score,
    State,
    TrainingOptions,
    one_thread,
)
from securedfl.parameters import Schema

Report = Callable[[int], None]
"""Told how many peers have finished."""


@dataclass(frozen=True)
class Task:
    """What a federation trains: the data, who holds what, and how to train."""

    dataset: Dataset
    shares: tuple[Share, ...]
    options: TrainingOptions

    @property
    def peers(self) -> int:
        """The number of peers."""
        return len(self.shares)

    def data(self, peer: int) -> PeerData:
        """Return copies of one peer's samples."""
        d, share = self.dataset, self.shares[peer]
        return PeerData(d.x[share.train], d.y[share.train], d.x[share.test], d.y[share.test])

    def trainer(self, peers: Sequence[int]) -> LocalTrainer:
        """Return a trainer for some of the peers."""
        return LocalTrainer(
            {peer: self.data(peer) for peer in peers}, self.dataset.shape, self.dataset.classes, self.options
        )


class Team(Protocol):
    """Trains and scores all peers; whatever the kind and size of a team, the numbers are the same.

    ``parameters`` has one flat float32 row per peer, which `initialise` and `update` write in place.
    """

    parameters: Array
    schema: Schema
    workers: int

    def initialise(self) -> None:
        """Write w_k^0 into every row and start all optimisers afresh."""

    def update(self, round: int, report: Report | None = None) -> list[float]:
        """Train every peer in place and return their mean training losses."""

    def evaluate(self) -> list[Score]:
        """Score every peer's row on its own test data."""

    def states(self) -> list[State]:
        """Return copies of all optimiser states."""

    def restore(self, parameters: Array, states: Sequence[State]) -> None:
        """Continue from saved parameters and optimiser states."""

    def close(self) -> None:
        """Give back processes, memory and settings; may be called twice."""

    def __enter__(self) -> Self:
        """Return the team; leaving the context closes it."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class InProcessTeam:
    """Trains one peer after the other in this process, with one thread."""

    workers = 1

    def __init__(self, task: Task) -> None:
        self._one_thread = one_thread()
        self._one_thread.__enter__()
        self._open = True
        try:
            self._trainer = task.trainer(range(task.peers))
            self.schema = self._trainer.model.schema
            self.parameters: Array = np.zeros((task.peers, self.schema.size), dtype=np.float32)
        except BaseException:
            self.close()
            raise

    def initialise(self) -> None:
        """Write w_k^0 into every row and start all optimisers afresh."""
        self._trainer.forget()
        for peer, row in enumerate(self.parameters):
            self._trainer.initialise(peer, row)

    def update(self, round: int, report: Report | None = None) -> list[float]:
        """Train every peer in place and return their mean training losses."""
        losses = []
        for peer, row in enumerate(self.parameters):
            losses.append(self._trainer.update(peer, round, row))
            if report is not None:
                report(peer + 1)
        return losses

    def evaluate(self) -> list[Score]:
        """Score every peer's row on its own test data."""
        return [self._trainer.evaluate(peer, row) for peer, row in enumerate(self.parameters)]

    def states(self) -> list[State]:
        """Return copies of all optimiser states."""
        return [self._trainer.state(peer) for peer in range(len(self.parameters))]

    def restore(self, parameters: Array, states: Sequence[State]) -> None:
        """Continue from saved parameters and optimiser states."""
        self.parameters[:] = parameters
        for peer, state in enumerate(states):
            self._trainer.restore(peer, state)

    def close(self) -> None:
        """Restore the caller's number of threads."""
        if self._open:
            self._open = False
            self._one_thread.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
