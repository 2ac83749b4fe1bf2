"""All peers of a simulated federation, trained in this process; `processes` has the other kind of team."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from securedfl.learning.training.task import Score, State, Task, Trainer
from securedfl.learning.training.trainer import LocalTrainer, one_thread
from securedfl.parameters import Array, Schema

Progress = Callable[[int], None]
"""Told how many peers have finished."""


class Summand(Protocol):
    """What peers that trained bring to a sum."""

    @property
    def round(self) -> int:
        """Of the training."""

    def codes(self, peer: int, row: Array) -> tuple[Array, int]:
        """Return what a peer brings, and how many values of it were cut."""

    def add(self, total: Array, codes: Array) -> Array:
        """Return the sum, in the place of the first; the same bits in any order."""


@dataclass(frozen=True)
class Added:
    """What peers brought together, and how many of their values were cut."""

    total: Array
    clipped: int = 0


def add_all(brings: Summand, parts: Iterable[Added]) -> Added:
    """Return the sum of parts; they stay as they are."""
    first, *others = parts
    total, clipped = first.total.copy(), first.clipped
    for other in others:
        total, clipped = brings.add(total, other.total), clipped + other.clipped
    return Added(total, clipped)


class Team(AbstractContextManager["Team"], ABC):
    """Trains and scores all peers; whatever the kind and size of a team, the numbers are the same.

    Attributes
    ----------
    parameters
        One flat row per peer, of what is averaged, which `initialise` and `update` write in place. Where rounds are of
        some of the peers, a team may have rows for so many only: see `seat`.
    schema, buffers
        Of a row, and which parts of it are no trained parameters.
    workers
        The number of processes.
    rows_travel
        Whether what peers train is sent to this process.
    """

    rows_travel = False
    parameters: Array
    schema: Schema
    buffers: tuple[slice, ...]
    workers: int

    def __init__(self, peers: int, rows: int | None) -> None:
        self._peers = peers
        self._seats: Mapping[int, int] | None = None if rows is None else {peer: peer for peer in range(rows)}

    def seat(self, peers: Sequence[int]) -> None:
        """Give the rows to these peers, in their order, if the team has one for each of them and for nobody else.

        All others read the first row: between two rounds all rows hold the same model.
        """
        if len(peers) == len(self.parameters):
            self._seats = {peer: row for row, peer in enumerate(peers)}

    def row(self, peer: int) -> int:
        """Return the number of the row that a peer reads and writes."""
        return peer if self._seats is None else self._seats.get(peer, 0)

    def initialise(self) -> None:
        """Write w_k^0 into every row and start all optimisers afresh."""
        if self._seats is not None:
            self._everybody("forget")
        self._everybody("initialise", only=None if self._seats is None else list(self._seats))

    def samples(self) -> list[int]:
        """Return how many training samples each peer has."""
        return self._everybody("samples")

    def update(
        self, round: int, report: Progress | None = None, only: Sequence[int] | None = None, *, private: bool = False
    ) -> list[float | None]:
        """Train every peer, or ``only`` some, in place and return their mean training losses, as far as known."""
        return self._everybody("private update" if private else "update", round, report=report, only=only)

    def update_and_add(
        self, brings: Summand, report: Progress | None = None, only: Sequence[int] | None = None
    ) -> tuple[list[float | None], Added]:
        """Train peers and add up what they bring where they train; return losses and the sum.

        Worth it where ``rows_travel``. What rows hold afterwards is not to be relied on.
        """
        found = self._everybody("update and add", brings, report=report, only=only)
        return [loss for loss, _ in found], add_all(brings, (added for _, added in found if added is not None))

    def evaluate_each(self) -> list[tuple[Score | None, Array | None]]:
        """Score every peer's own model on its own test data, if it has any.

        Also tell of each prediction whether it was right, where that is known.
        """
        return self._everybody("evaluate each")

    def evaluate_on(self, data: tuple[Array, Array]) -> list[Score]:
        """Score every peer's own model on the same data."""
        return self._everybody("evaluate", data)

    def evaluate_common(self, peers: Sequence[int]) -> list[Score]:
        """Score the models of some peers on the common test set; an empty list if there is none."""
        return [score for score in self._everybody("evaluate_common", only=peers) if score is not None]

    def states(self) -> list[State]:
        """Return copies of what each peer keeps besides its row: its optimiser's state, and what stays at home."""
        return self._everybody("state")

    def homes(self) -> list[State]:
        """Return what of each peer's model stays at home, by name."""
        return self._everybody("home")

    def whole(self, peer: int) -> State:
        """Return one peer's whole model by name, what stays at home included."""
        found: list[State] = self._everybody("whole", only=[peer])
        return found[0]

    def restore(self, parameters: Array, states: Sequence[State]) -> None:
        """Continue from saved parameters and what `states` gave."""
        self.parameters[:] = parameters
        self._everybody("restore", list(states))

    @abstractmethod
    def close(self) -> None:
        """Give back processes, memory and settings; may be called twice."""

    def _everybody(
        self, command: str, argument: Any = None, *, report: Progress | None = None, only: Sequence[int] | None = None
    ) -> list[Any]:
        """Carry one of `COMMANDS` out for every peer, or ``only`` for some; return one answer per peer, in order."""
        wanted = range(self._peers) if only is None else only
        answers: dict[int, Any] = {}
        for peer, answer in self._carry_out(command, argument, wanted):
            answers[peer] = answer
            if report is not None:
                report(len(answers))
        return [answers[peer] for peer in wanted]

    @abstractmethod
    def _carry_out(self, command: str, argument: Any, peers: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Carry a command out for some peers, and yield each of them with its answer when that is there."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class InProcessTeam(Team):
    """Trains one peer after the other in this process, with one thread."""

    workers = 1

    def __init__(self, task: Task, rows: int | None = None) -> None:
        super().__init__(task.peers, rows)
        with ExitStack() as stack:
            stack.enter_context(one_thread())
            self._trainer = task.maker(range(task.peers))()
            self.schema, self.buffers = self._trainer.schema, self._trainer.buffers
            self.parameters = np.zeros((rows or task.peers, self.schema.size), dtype=self.schema.dtype)
            self._settings = stack.pop_all()

    def close(self) -> None:
        """Restore the caller's number of threads."""
        self._settings.close()

    def _carry_out(self, command: str, argument: Any, peers: Sequence[int]) -> Iterator[tuple[int, Any]]:
        for peer in peers:
            yield peer, COMMANDS[command](self._trainer, peer, self.parameters[self.row(peer)], argument)


def _each(trainer: Trainer, peer: int, row: Array) -> tuple[Score | None, Array | None]:
    """Score a peer and tell of each prediction whether it was right; an app tells only its score."""
    if isinstance(trainer, LocalTrainer):
        return trainer.evaluate_each(peer, row)
    return trainer.evaluate(peer, row), None


def _known(trainer: Trainer) -> LocalTrainer:
    """Return the trainer that can take private steps and forget; an app's is refused before it comes to this."""
    assert isinstance(trainer, LocalTrainer)  # noqa: S101 - for the type checker
    return trainer


COMMANDS: Mapping[str, Callable[[Trainer, int, Array, Any], Any]] = {
    "samples": lambda trainer, peer, _row, _nothing: trainer.samples(peer),
    "forget": lambda trainer, peer, _row, _nothing: _known(trainer).forget(peer),
    "initialise": lambda trainer, peer, row, _nothing: trainer.initialise(peer, row),
    "update": lambda trainer, peer, row, round: trainer.update(peer, round, row),
    "private update": lambda trainer, peer, row, round: _known(trainer).private_update(peer, round, row),
    "update and add": lambda trainer, peer, row, brings: (
        trainer.update(peer, brings.round, row),
        Added(*brings.codes(peer, row)),
    ),
    "evaluate": lambda trainer, peer, row, data: trainer.evaluate(peer, row, data),
    "evaluate each": lambda trainer, peer, row, _nothing: _each(trainer, peer, row),
    "evaluate_common": lambda trainer, peer, row, _nothing: trainer.evaluate_common(peer, row),
    "whole": lambda trainer, peer, row, _nothing: trainer.whole(peer, row),
    "home": lambda trainer, peer, _row, _nothing: trainer.home(peer),
    "state": lambda trainer, peer, _row, _nothing: trainer.state(peer),
    "restore": lambda trainer, peer, _row, states: trainer.restore(peer, states[peer]),
}
"""What a team does for one peer, given its row and an argument; by name, so that it can be told to a process."""

WRITES = frozenset({"initialise", "update", "private update"})
"""Those that write into rows."""

CHANGES = WRITES | {"update and add"}
"""Those after which peers go on from something else: their optimisers, and what stays at home."""

ROWLESS = frozenset({"samples", "initialise", "home", "state", "restore", "forget"})
"""Those that do not read rows."""
