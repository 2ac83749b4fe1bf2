"""What a peer trains: a known data set with a known model, or whatever an entry point returns."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from securedfl.arrays import to_numpy
from securedfl.containers import Container
from securedfl.errors import ConfigError, InvalidInputError
from securedfl.federation.peers.config import FederationConfig, PeerConfig
from securedfl.federation.task import make_task
from securedfl.learning.training.task import Score
from securedfl.parameters import Array, Integers, Schema


class Learner(Protocol):
    """One peer's model and data, seen as flat vectors."""

    schema: Schema
    samples: int

    def initial(self) -> Array:
        """Return w^0 of this peer."""

    def update(self, vector: Array, round: int) -> tuple[Array, float | None]:
        """Train from the given parameters; return new ones and the mean loss, if known."""

    def evaluate(self, vector: Array) -> Score | None:
        """Score parameters on this peer's own test data, if there are any."""

    def whole(self, vector: Array) -> dict[str, Array]:
        """Return this peer's whole model by name, what stays at home included."""

    def state(self) -> Any:
        """Return what it keeps besides: the optimiser's state and what stays at home, as `peers.update` can keep it."""

    def restore(self, state: Any) -> None:
        """Go on with what `state` gave."""


class KnownLearner:
    """A data set of the registry, dealt to the peers as `securedfl train` deals it; for trials on one machine."""

    def __init__(self, federation: FederationConfig, config: PeerConfig) -> None:
        # late: an entry point may do without torch
        import torch

        from securedfl.learning.training.trainer import LocalTrainer

        # sums in another order give other bits
        torch.set_num_threads(1)
        self._me = config.position(federation)
        task = make_task(federation.training.model_copy(update={"data_dir": config.data_dir, "device": config.device}))
        self._trainer = LocalTrainer.of(task, [self._me])
        self.schema = self._trainer.model.schema
        self.samples = task.samples[self._me]

    def initial(self) -> Array:
        """Return w_k^0."""
        row = np.zeros(self.schema.size, dtype=np.float32)
        self._trainer.initialise(self._me, row)
        return row

    def update(self, vector: Array, round: int) -> tuple[Array, float | None]:
        """Train for the local epochs."""
        row = np.array(vector)
        loss = self._trainer.update(self._me, round, row)
        return row, loss

    def evaluate(self, vector: Array) -> Score | None:
        """Score on this peer's test data."""
        return self._trainer.evaluate(self._me, np.array(vector))

    def whole(self, vector: Array) -> dict[str, Array]:
        """Return the model by name."""
        self._trainer.load(self._me, np.array(vector))
        return _as_numpy(self._trainer.model.module)

    def state(self) -> Any:
        """Return the optimiser's state and what stays at home."""
        return self._trainer.state(self._me)

    def restore(self, state: Any) -> None:
        """Go on with what `state` gave."""
        self._trainer.restore(self._me, state)


class EntryLearner:
    """What an entry point returns: ``(model, data, update)`` or ``(model, data, update, evaluate)``.

    ``update(model, data, round)`` trains in place and may return a loss; ``evaluate(model, data)`` returns how many of
    how many test samples were right, and the summed loss. The model has a ``state_dict``, or is a dict of arrays.
    What ``update.state_dict()`` returns, if there is such a thing, is kept with every checkpoint, and handed to
    ``update.load_state_dict`` after a restart: the state of an optimiser, for instance. So is what stays at home of the
    model: ``integers`` and ``local`` decide on that (see `Schema.of`).
    """

    def __init__(
        self,
        entry: str,
        settings: Mapping[str, Any],
        folder: Path,
        *,
        integers: Integers = "own",
        local: Iterable[str] = (),
    ) -> None:
        made = _load(entry, folder)(dict(settings))
        if not isinstance(made, tuple) or len(made) not in (3, 4):
            raise ConfigError(f"{entry} must return (model, data, update) or (model, data, update, evaluate)")
        self._model, self._data, self._update = made[:3]
        if hasattr(self._update, "state_dict") != hasattr(self._update, "load_state_dict"):
            raise ConfigError(f"the update of {entry} needs both state_dict and load_state_dict, or neither")
        self._evaluate = made[3] if len(made) == 4 else None
        self._describe = partial(Container.schema, integers=integers, local=tuple(local))
        self.schema = self._describe(Container.of(self._model))
        self.samples = len(self._data) if hasattr(self._data, "__len__") else 1

    def initial(self) -> Array:
        """Return the model's own first parameters."""
        return np.array(Container.of(self._model).flatten(self.schema))

    def update(self, vector: Array, round: int) -> tuple[Array, float | None]:
        """Load the parameters, let the entry point's function train, and return what it made of them."""
        Container.of(self._model).put(self.schema, vector)
        loss = self._update(self._model, self._data, round)
        trained = Container.of(self._model)
        if self._describe(trained) != self.schema:
            raise InvalidInputError("the update changed the model's parameters in name, shape, dtype or what is frozen")
        return np.array(trained.flatten(self.schema)), None if loss is None else float(loss)

    def evaluate(self, vector: Array) -> Score | None:
        """Score by the entry point's function, if it gave one."""
        if self._evaluate is None:
            return None
        Container.of(self._model).put(self.schema, vector)
        correct, loss, count = self._evaluate(self._model, self._data)
        return Score(int(correct), float(loss), int(count))

    def whole(self, vector: Array) -> dict[str, Array]:
        """Return the model by name."""
        Container.of(self._model).put(self.schema, vector)
        return _as_numpy(self._model)

    def state(self) -> Any:
        """Return what the update function wants to keep, and what stays at home."""
        kept = self._update.state_dict() if hasattr(self._update, "state_dict") else {}
        return {"update": kept, "home": Container.of(self._model).at_home(self.schema)}

    def restore(self, state: Any) -> None:
        """Hand the update function what it wanted to keep, and the model what stayed at home."""
        Container.of(self._model).replace(state["home"])
        if hasattr(self._update, "load_state_dict"):
            self._update.load_state_dict(state["update"])


def make_learner(federation: FederationConfig, config: PeerConfig, folder: Path) -> Learner:
    """Return what this peer trains; ``folder`` is where entry points are looked for first."""
    if federation.entry is None:
        return KnownLearner(federation, config)
    data = {"name": config.name, "seed": federation.training.seed, **config.data}
    training = federation.training
    return EntryLearner(federation.entry, data, folder, integers=training.integers, local=training.local)


def _as_numpy(model: Any) -> dict[str, Array]:
    return {str(name): np.array(to_numpy(value)) for name, value in Container.of(model).tree.items()}


def _load(entry: str, folder: Path) -> Any:
    module_name, _, function = entry.partition(":")
    if not module_name or not function:
        raise ConfigError(f"entry = {entry!r}: must be module:function")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        return getattr(importlib.import_module(module_name), function)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"cannot load the entry point {entry}: {error}") from None
