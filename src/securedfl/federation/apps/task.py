"""An app at all peers of a simulation: made for each peer, and trained through flat rows like any other task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from securedfl.errors import ConfigError
from securedfl.federation.apps.app import Entry, seeded
from securedfl.federation.apps.learner import AppLearner
from securedfl.federation.apps.settings import peer_settings, start_seed
from securedfl.federation.config import TrainConfig
from securedfl.learning.seeds import torch_seed
from securedfl.learning.training.task import Score, State, Task, check_trained
from securedfl.parameters import Array, Schema
from securedfl.states import pack, unpack

TEXT = "text"
"""The name of what a state says besides arrays."""


class AppTrainer:
    """Trains peers one after the other, each with an app of its own.

    Around each of its functions the global generators begin at a seed of peer and round, so that the numbers do not
    depend on who else is trained in this process, or on whether a run was interrupted.
    """

    def __init__(self, entry: Entry, config: TrainConfig, peers: tuple[int, ...], schema: Schema | None) -> None:
        self._entry, self._config, self._schema = entry, config, schema
        self._learners: dict[int, AppLearner] = {}
        self._fresh: set[int] = set()
        self.common: Mapping[str, Any] | None = None
        for peer in peers:
            self._make(peer)

    @property
    def schema(self) -> Schema:
        """Of a row."""
        assert self._schema is not None  # noqa: S101 - known from the first peer on
        return self._schema

    @property
    def buffers(self) -> tuple[slice, ...]:
        """Which parts of a row are no trained parameters."""
        return next(iter(self._learners.values())).buffers

    def _make(self, peer: int) -> AppLearner:
        """Make a peer's app, unless it has one that was not used yet."""
        if peer not in self._fresh:
            config = self._config
            # the app before may hold much memory
            self._learners.pop(peer, None)
            settings = peer_settings(config, peer)
            app = self._entry.make(settings, start_seed(config, peer))
            where = self._entry.at(settings)
            learner = AppLearner(app, integers=config.integers, local=config.local, where=where)
            self._schema = self._schema or learner.schema
            self._schema.require(learner.schema, peer)
            self.common = learner.common if self.common is None else self.common
            if learner.common != self.common:
                raise ConfigError(
                    f"the app of peer {peer} chooses {learner.common or 'nothing'} for the common model, and others "
                    f"{self.common or 'nothing'}; all peers hold the same"
                )
            self._learners[peer] = learner
            self._fresh.add(peer)
        return self._learners[peer]

    def initialise(self, peer: int, row: Array) -> None:
        """Write the model's own first parameters; the app is made anew, so that nothing is left of another method."""
        row[:] = self._make(peer).initial()

    def update(self, peer: int, round: int, row: Array) -> float | None:
        """Let the app train, in place on the peer's flat row."""
        self._fresh.discard(peer)
        with seeded(torch_seed(self._config.seed, "update", peer, round)):
            vector, loss = self._learners[peer].update(row, round)
        check_trained(peer, round, vector, loss, "take smaller steps in the app's update")
        row[:] = vector
        return loss

    def evaluate(self, peer: int, row: Array, data: tuple[Array, Array] | None = None) -> Score | None:
        """Score the parameters of a row by the app's function, if it has one; it knows no other data."""
        assert data is None  # noqa: S101 - `AppTask.all_tests` gives none
        with seeded(torch_seed(self._config.seed, "evaluate", peer)):
            return self._learners[peer].evaluate(row)

    def evaluate_common(self, peer: int, row: Array) -> Score | None:
        """Score them by the app's other function, if it has one."""
        with seeded(torch_seed(self._config.seed, "evaluate", peer)):
            return self._learners[peer].evaluate_common(row)

    def samples(self, peer: int) -> int:
        """Return how many training samples the peer has."""
        return self._learners[peer].samples

    def whole(self, peer: int, row: Array) -> State:
        """Return the peer's whole model by name, what stays at home included."""
        return self._learners[peer].whole(row)

    def home(self, peer: int) -> State:
        """Return what of the peer's model stays at home, by name."""
        return self._learners[peer].home()

    def state(self, peer: int) -> State:
        """Return what the app's update wants to keep and what stays at home, as arrays."""
        text, arrays = pack(self._learners[peer].state())
        return {TEXT: np.frombuffer(text.encode(), dtype=np.uint8), **arrays}

    def restore(self, peer: int, state: State) -> None:
        """Go on with what `state` gave, with an app that is made anew."""
        arrays = {name: value for name, value in state.items() if name != TEXT}
        learner = self._make(peer)
        self._fresh.discard(peer)
        learner.restore(unpack(state[TEXT].tobytes().decode(), arrays))


@dataclass(frozen=True)
class AppTask(Task):
    """An app at all peers. What only a made app knows, its data and how to build its model, is unknown here."""

    entry: Entry
    config: TrainConfig

    @property
    def peers(self) -> int:
        """The number of peers."""
        return self.config.peers

    @property
    def movable(self) -> bool:
        """Whether other processes can train it: only if they can import it."""
        return self.entry.function is None

    def maker(self, peers: Iterable[int]) -> Callable[[], AppTrainer]:
        """Return what makes the trainer of some of the peers."""
        return partial(AppTrainer, self.entry, self.config, tuple(peers), self._schema)

    def schema(self) -> Schema:
        """Return what a row holds; the first peer's app is made for it."""
        return self._schema

    def buffers(self) -> tuple[slice, ...]:
        """Return which parts of a row are no trained parameters."""
        return self._first[1]

    @property
    def common(self) -> Mapping[str, Any]:
        """The settings that the app chooses for the common model."""
        return self._first[2]

    @property
    def _schema(self) -> Schema:
        return self._first[0]

    @cached_property
    def _first(self) -> tuple[Schema, tuple[slice, ...], Mapping[str, Any]]:
        first = AppTrainer(self.entry, self.config, (0,), None)
        return first.schema, first.buffers, first.common or {}

    @property
    def copies(self) -> int:
        """What a peer keeps, as a guess: a model of its own, gradients, and Adam's two vectors."""
        return 4

    def seconds(self) -> float:
        """Return 0, for unknown: an update is never tried out, because it may do more than train."""
        return 0.0
