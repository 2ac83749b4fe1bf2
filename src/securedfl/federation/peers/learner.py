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
from securedfl.errors import ConfigError, InvalidInputError
from securedfl.federation.budget.task import planned
from securedfl.federation.methods import choose_design
from securedfl.federation.peers.config import FederationConfig, PeerConfig
from securedfl.federation.task import make_task
from securedfl.learning.training.task import Score
from securedfl.parameters import Array, Integers, Schema, Tree, frozen_in


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
        training = federation.training.model_copy(update={"data_dir": config.data_dir})
        task, plans = planned(training, make_task(training), choose_design(training))
        self._private = any(plan.unit == "record" for plan in plans.values())
        self._trainer = LocalTrainer.of(task, [self._me])
        self.schema = self._trainer.model.schema
        self.samples = task.samples[self._me]

    def initial(self) -> Array:
        """Return w_k^0, which differs from peer to peer."""
        row = np.zeros(self.schema.size, dtype=np.float32)
        self._trainer.initialise(self._me, row)
        return row

    def update(self, vector: Array, round: int) -> tuple[Array, float | None]:
        """Train for the local epochs; with distributed noise for each record, return the step itself."""
        row = np.array(vector)
        train = self._trainer.private_update if self._private else self._trainer.update
        loss = train(self._me, round, row)
        return row, loss if np.isfinite(loss) else None

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
        self._describe = partial(schema_of, integers=integers, local=tuple(local))
        self.schema = self._describe(self._model)
        self.samples = len(self._data) if hasattr(self._data, "__len__") else 1

    def initial(self) -> Array:
        """Return the model's own first parameters."""
        return np.array(self.schema.flatten(tree_of(self._model)))

    def update(self, vector: Array, round: int) -> tuple[Array, float | None]:
        """Load the parameters, let the entry point's function train, and return what it made of them."""
        put(self.schema, vector, self._model)
        loss = self._update(self._model, self._data, round)
        if self._describe(self._model) != self.schema:
            raise InvalidInputError("the update changed the model's parameters in name, shape, dtype or what is frozen")
        return np.array(self.schema.flatten(tree_of(self._model))), None if loss is None else float(loss)

    def evaluate(self, vector: Array) -> Score | None:
        """Score by the entry point's function, if it gave one."""
        if self._evaluate is None:
            return None
        put(self.schema, vector, self._model)
        correct, loss, count = self._evaluate(self._model, self._data)
        return Score(int(correct), float(loss), int(count))

    def whole(self, vector: Array) -> dict[str, Array]:
        """Return the model by name."""
        put(self.schema, vector, self._model)
        return _as_numpy(self._model)

    def state(self) -> Any:
        """Return what the update function wants to keep, and what stays at home."""
        kept = self._update.state_dict() if hasattr(self._update, "state_dict") else {}
        return {"update": kept, "home": self.schema.at_home(tree_of(self._model))}

    def restore(self, state: Any) -> None:
        """Hand the update function what it wanted to keep, and the model what stayed at home."""
        replace(self._model, state["home"])
        if hasattr(self._update, "load_state_dict"):
            self._update.load_state_dict(state["update"])


def make_learner(federation: FederationConfig, config: PeerConfig, folder: Path) -> Learner:
    """Return what this peer trains; ``folder`` is where entry points are looked for first."""
    if federation.entry is None:
        return KnownLearner(federation, config)
    check_own_training(federation, f"the entry point {federation.entry}")
    data = {"name": config.name, "seed": federation.training.seed, **config.data}
    training = federation.training
    return EntryLearner(federation.entry, data, folder, integers=training.integers, local=training.local)


def check_own_training(federation: FederationConfig, whose: str) -> None:
    """Refuse a promise about records where this software does not take the steps itself."""
    privacy = federation.training.privacy
    if privacy is not None and privacy.unit == "record":
        raise ConfigError(
            f'unit = "record" needs clipped gradients of Poisson batches, and {whose} trains by itself; take '
            'unit = "site", which clips whatever it brings, or a known data set'
        )


def tree_of(model: Any) -> Tree:
    """Return the parameters of a model that has a ``state_dict``, or is a dict of arrays."""
    return model.state_dict() if hasattr(model, "state_dict") else model


def schema_of(model: Any, *, integers: Integers, local: Iterable[str]) -> Schema:
    """Describe what is averaged of a model that has a ``state_dict``, or is a dict of arrays."""
    return Schema.of(tree_of(model), integers=integers, local=local, frozen=frozen_in(model))


def put(schema: Schema, vector: Array, model: Any) -> None:
    """Replace what is averaged of a model, in place; the rest stays as it is."""
    tree = tree_of(model)
    home = schema.at_home(tree)
    made = schema.unflatten(np.array(vector), tree)
    replace(model, {name: value for name, value in made.items() if name not in home})


def replace(model: Any, arrays: Mapping[str, Any]) -> None:
    """Replace some arrays of a model, in place."""
    if hasattr(model, "load_state_dict"):
        model.load_state_dict({**model.state_dict(), **arrays})
    else:
        for name, value in arrays.items():
            model[name][...] = value


def _as_numpy(model: Any) -> dict[str, Array]:
    return {str(name): np.array(to_numpy(value)) for name, value in tree_of(model).items()}


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
