"""An app at all peers of a simulation: made for each peer, and trained through flat rows like any other task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from securedfl.errors import ConfigError
from securedfl.federation.apps.app import EntryPoint, seeded
from securedfl.federation.apps.settings import peer_settings, start_seed
from securedfl.federation.apps.trainer import AppTrainer
from securedfl.federation.config import TrainConfig
from securedfl.learning.seeds import torch_seed
from securedfl.learning.training.task import Score, State, Task, check_trained
from securedfl.parameters import Array, Schema
from securedfl.states import from_arrays, to_arrays


class SimulatedApps(AppTrainer):
    """Makes the apps of simulated peers, and trains by them.

    Around each of their functions the global generators begin at a seed of peer and round, so that the numbers do not
    depend on who else is trained in this process, or on whether a run was interrupted.
    """

    def __init__(
        self,
        entry: EntryPoint,
        config: TrainConfig,
        peers: tuple[int, ...],
        schema: Schema | None,
        coding: str | None = None,
    ) -> None:
        super().__init__(integers=config.integers, local=config.local, schema=schema)
        self._entry, self._config, self.coding = entry, config, coding
        self._fresh: set[int] = set()
        self.common: Mapping[str, Any] | None = None
        for peer in peers:
            self._make(peer)

    def _make(self, peer: int) -> None:
        """Make a peer's app, unless it has one that was not used yet."""
        if peer in self._fresh:
            return
        # the app before may hold much memory
        self._peers.pop(peer, None)
        settings = peer_settings(self._config, peer)
        app = self._entry.make(settings, start_seed(self._config, peer))
        self.take(peer, app, self._entry.at(settings))
        self.common = app.common if self.common is None else self.common
        if app.common != self.common:
            raise ConfigError(
                f"the app of peer {peer} chooses {app.common or 'nothing'} for the common model, and others "
                f"{self.common or 'nothing'}; all peers hold the same"
            )
        self.coding = app.coding if self.coding is None else self.coding
        if app.coding != self.coding:
            raise ConfigError(
                f"the data of peer {peer} have other classes or columns than those of others, so that numbers would "
                "not mean the same; make one coding for all (`securedfl data coding`) and give it to read_folder"
            )
        self._fresh.add(peer)

    def _seeded(self, purpose: str, *keys: int) -> AbstractContextManager[None]:
        return seeded(torch_seed(self._config.seed, purpose, *keys))

    def initialise(self, peer: int, row: Array) -> None:
        """Write the model's own first parameters; the app is made anew, so that nothing is left of another method."""
        self._make(peer)
        super().initialise(peer, row)
        # what comes next may change it: training, or a score of other parameters
        self._fresh.discard(peer)

    def update(self, peer: int, round: int, row: Array) -> float | None:
        """Let the app train, in place on the peer's flat row."""
        self._fresh.discard(peer)
        with self._seeded("update", peer, round):
            loss = super().update(peer, round, row)
        check_trained(peer, round, row, loss, "take smaller steps in the app's update")
        return loss

    def evaluate(self, peer: int, row: Array, data: tuple[Array, Array] | None = None) -> Score | None:
        """Score by the app's function, if it has one."""
        with self._seeded("evaluate", peer):
            return super().evaluate(peer, row, data)

    def evaluate_common(self, peer: int, row: Array) -> Score | None:
        """Score by the app's other function, if it has one."""
        with self._seeded("evaluate", peer):
            return super().evaluate_common(peer, row)

    def state(self, peer: int) -> State:
        """Return what the peer keeps as arrays alone, for checkpoints and other processes."""
        # copies: it may be written while the next round is trained
        return to_arrays(super().state(peer))

    def restore(self, peer: int, state: State) -> None:
        """Go on with what `state` gave, with an app that is made anew."""
        self._make(peer)
        self._fresh.discard(peer)
        super().restore(peer, from_arrays(state))


@dataclass(frozen=True)
class AppTask(Task):
    """An app at all peers. What only a made app knows, its data and how to build its model, is unknown here."""

    entry: EntryPoint
    config: TrainConfig

    @property
    def peers(self) -> int:
        """The number of peers."""
        return self.config.peers

    @property
    def movable(self) -> bool:
        """Whether other processes can train it: only if they can import it."""
        return self.entry.function is None

    def maker(self, peers: Iterable[int]) -> Callable[[], SimulatedApps]:
        """Return what makes the trainer of some of the peers."""
        return partial(SimulatedApps, self.entry, self.config, tuple(peers), self._schema, self._first[3])

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
    def _first(self) -> tuple[Schema, tuple[slice, ...], Mapping[str, Any], str | None]:
        first = SimulatedApps(self.entry, self.config, (0,), None)
        return first.schema, first.buffers, first.common or {}, first.coding

    @property
    def copies(self) -> int:
        """What a peer keeps, as a guess: a model of its own, gradients, and Adam's two vectors."""
        return 4

    def seconds(self) -> float:
        """Return 0, for unknown: an update is never tried out, because it may do more than train."""
        return 0.0
