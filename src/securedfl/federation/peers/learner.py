"""What a peer trains: a known data set with a known model, or whatever an entry point returns."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from securedfl.errors import ConfigError, InvalidInputError
from securedfl.federation.peers.config import FederationConfig, PeerConfig
from securedfl.federation.task import make_task
from securedfl.learning.training.task import Score
from securedfl.parameters import Array, Schema, Tree


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

    def state(self) -> Any:
        """Return the optimiser's state: whatever `securedfl.federation.peers.update` can keep."""

    def restore(self, state: Any) -> None:
        """Go on with an optimiser's state."""


class KnownLearner:
    """A data set of the registry, dealt to the peers as `securedfl train` deals it; for trials on one machine."""

    def __init__(self, federation: FederationConfig, config: PeerConfig) -> None:
        # late: an entry point may do without torch
        import torch

        from securedfl.learning.training.trainer import LocalTrainer

        # sums in another order give other bits
        torch.set_num_threads(1)
        self._me = config.position(federation)
        task = make_task(federation.training.model_copy(update={"data_dir": config.data_dir}))
        self._trainer = LocalTrainer.of(task, [self._me])
        self.schema = self._trainer.model.schema
        self.samples = task.samples[self._me]

    def initial(self) -> Array:
        """Return w_k^0, which differs from peer to peer."""
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

    def state(self) -> Any:
        """Return the optimiser's state."""
        return self._trainer.state(self._me)

    def restore(self, state: Any) -> None:
        """Go on with an optimiser's state."""
        self._trainer.restore(self._me, state)


class EntryLearner:
    """What an entry point returns: ``(model, data, update)`` or ``(model, data, update, evaluate)``.

    ``update(model, data, round)`` trains in place and may return a loss; ``evaluate(model, data)`` returns how many of
    how many test samples were right, and the summed loss. The model has a ``state_dict``, or is a dict of arrays.
    What ``update.state_dict()`` returns, if there is such a thing, is kept with every checkpoint, and handed to
    ``update.load_state_dict`` after a restart: the state of an optimiser, for instance.
    """

    def __init__(self, entry: str, settings: Mapping[str, Any], folder: Path) -> None:
        made = _load(entry, folder)(dict(settings))
        if not isinstance(made, tuple) or len(made) not in (3, 4):
            raise ConfigError(f"{entry} must return (model, data, update) or (model, data, update, evaluate)")
        self._model, self._data, self._update = made[:3]
        if hasattr(self._update, "state_dict") != hasattr(self._update, "load_state_dict"):
            raise ConfigError(f"the update of {entry} needs both state_dict and load_state_dict, or neither")
        self._evaluate = made[3] if len(made) == 4 else None
        self.schema = Schema.of(tree_of(self._model))
        self.samples = len(self._data) if hasattr(self._data, "__len__") else 1

    def initial(self) -> Array:
        """Return the model's own first parameters."""
        return np.array(self.schema.flatten(tree_of(self._model)))

    def update(self, vector: Array, round: int) -> tuple[Array, float | None]:
        """Load the parameters, let the entry point's function train, and return what it made of them."""
        put(self.schema, vector, self._model)
        loss = self._update(self._model, self._data, round)
        made = Schema.of(tree_of(self._model), dtype=self.schema.dtype)
        if made != self.schema:
            raise InvalidInputError("the update changed the model's parameters in name, shape or dtype")
        return np.array(self.schema.flatten(tree_of(self._model))), None if loss is None else float(loss)

    def evaluate(self, vector: Array) -> Score | None:
        """Score by the entry point's function, if it gave one."""
        if self._evaluate is None:
            return None
        put(self.schema, vector, self._model)
        correct, loss, count = self._evaluate(self._model, self._data)
        return Score(int(correct), float(loss), int(count))

    def state(self) -> Any:
        """Return what the update function wants to keep."""
        return self._update.state_dict() if hasattr(self._update, "state_dict") else {}

    def restore(self, state: Any) -> None:
        """Hand the update function what it wanted to keep."""
        if hasattr(self._update, "load_state_dict"):
            self._update.load_state_dict(state)


def make_learner(federation: FederationConfig, config: PeerConfig, folder: Path) -> Learner:
    """Return what this peer trains; ``folder`` is where entry points are looked for first."""
    if federation.entry is None:
        return KnownLearner(federation, config)
    data = {"name": config.name, "seed": federation.training.seed, **config.data}
    return EntryLearner(federation.entry, data, folder)


def tree_of(model: Any) -> Tree:
    """Return the parameters of a model that has a ``state_dict``, or is a dict of arrays."""
    return model.state_dict() if hasattr(model, "state_dict") else model


def put(schema: Schema, vector: Array, model: Any) -> None:
    """Replace the parameters of a model, in place."""
    tree = schema.unflatten(np.array(vector), tree_of(model))
    if hasattr(model, "load_state_dict"):
        model.load_state_dict(tree)
    else:
        for name, value in tree.items():
            model[name][...] = value


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
