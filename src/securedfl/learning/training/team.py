"""All peers of a simulated federation, trained in this process; `processes` has the other kind of team."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any

import numpy as np

from securedfl.learning.training.task import Score, Task
from securedfl.learning.training.trainer import LocalTrainer, State, one_thread
from securedfl.parameters import Array, Schema

Report = Callable[[int], None]
"""Told how many peers have finished."""


class Team(AbstractContextManager["Team"], ABC):
    """Trains and scores all peers; whatever the kind and size of a team, the numbers are the same.

    Attributes
    ----------
    parameters
        One flat float32 row per peer, of what is averaged, which `initialise` and `update` write in place.
    schema
        Of a row.
    workers
        The number of processes.
    """

    parameters: Array
    schema: Schema
    workers: int

    def initialise(self) -> None:
        """Write w_k^0 into every row and start all optimisers afresh."""
        self._everybody("initialise")

    def update(self, round: int, report: Report | None = None, *, private: bool = False) -> list[float]:
        """Train every peer in place and return their mean training losses."""
        return self._everybody("private update" if private else "update", round, report=report)

    def evaluate(self) -> list[Score]:
        """Score every peer's own model on its own test data."""
        return self._everybody("evaluate")

    def states(self) -> list[State]:
        """Return copies of what each peer keeps besides its row: its optimiser's state, and what stays at home."""
        return self._everybody("state")

    def restore(self, parameters: Array, states: Sequence[State]) -> None:
        """Continue from saved parameters and what `states` gave."""
        self.parameters[:] = parameters
        self._everybody("restore", list(states))

    @abstractmethod
    def close(self) -> None:
        """Give back processes, memory and settings; may be called twice."""

    @abstractmethod
    def _everybody(self, command: str, argument: Any = None, *, report: Report | None = None) -> list[Any]:
        """Carry one of `COMMANDS` out for every peer and return one answer per peer, in their order."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class InProcessTeam(Team):
    """Trains one peer after the other in this process, with one thread."""

    workers = 1

    def __init__(self, task: Task) -> None:
        with ExitStack() as stack:
            stack.enter_context(one_thread())
            self._trainer = LocalTrainer.of(task, range(task.peers))
            self.schema = self._trainer.model.schema
            self.parameters = np.zeros((task.peers, self.schema.size), dtype=np.float32)
            self._settings = stack.pop_all()

    def close(self) -> None:
        """Restore the caller's number of threads."""
        self._settings.close()

    def _everybody(self, command: str, argument: Any = None, *, report: Report | None = None) -> list[Any]:
        found = []
        for peer, row in enumerate(self.parameters):
            found.append(COMMANDS[command](self._trainer, peer, row, argument))
            if report is not None:
                report(len(found))
        return found


COMMANDS: Mapping[str, Callable[[LocalTrainer, int, Array, Any], Any]] = {
    "ready": lambda _trainer, _peer, _row, _nothing: None,
    "initialise": lambda trainer, peer, row, _nothing: trainer.initialise(peer, row),
    "update": lambda trainer, peer, row, round: trainer.update(peer, round, row),
    "private update": lambda trainer, peer, row, round: trainer.private_update(peer, round, row),
    "evaluate": lambda trainer, peer, row, _nothing: trainer.evaluate(peer, row),
    "state": lambda trainer, peer, _row, _nothing: trainer.state(peer),
    "restore": lambda trainer, peer, _row, states: trainer.restore(peer, states[peer]),
}
"""What a team does for one peer, given its row and an argument; by name, so that it can be told to a process."""
