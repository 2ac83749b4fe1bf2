"""One peer's model and data as flat vectors, and how an app is that, whether its peer is simulated or real."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Protocol

import numpy as np

from securedfl.arrays import to_numpy
from securedfl.containers import Container
from securedfl.errors import InvalidInputError
from securedfl.federation.apps.app import App
from securedfl.learning.training.common_optimizer import buffers_of
from securedfl.learning.training.task import Held, Recipe, Score
from securedfl.parameters import Array, Integers, Schema


class Learner(Protocol):
    """One peer's model and data, seen as flat vectors."""

    schema: Schema
    buffers: tuple[slice, ...]
    samples: int
    recipe: Recipe | None
    held: Held

    def initial(self) -> Array:
        """Return w^0 of this peer."""

    def update(self, vector: Array, round: int) -> tuple[Array, float | None]:
        """Train from the given parameters; return new ones and the mean loss, if known."""

    def evaluate(self, vector: Array) -> Score | None:
        """Score parameters on this peer's own test data, if there are any."""

    def evaluate_common(self, vector: Array) -> Score | None:
        """Score parameters on test data that is the same for all peers, if there are any."""

    def whole(self, vector: Array) -> dict[str, Array]:
        """Return this peer's whole model by name, what stays at home included."""

    def state(self) -> Any:
        """Return what it keeps besides: the optimiser's state and what stays at home, as `peers.update` can keep it."""

    def restore(self, state: Any) -> None:
        """Go on with what `state` gave."""


class AppLearner:
    """What an app brings (see `App`), for one peer, simulated or real.

    What stays at home of the model is kept with every checkpoint, too: ``integers`` and ``local`` decide on that (see
    `Schema.of`).
    """

    def __init__(self, app: App, *, integers: Integers = "own", local: Iterable[str] = ()) -> None:
        self._app, self._model = app, app.model
        self._describe = partial(Container.schema, integers=integers, local=tuple(local))
        self.schema = self._describe(Container.of(self._model))
        self.buffers = buffers_of(self.schema, self._model)
        self.recipe: Recipe | None = None
        self.samples = app.size
        self.held = Held(self.samples)

    def initial(self) -> Array:
        """Return the model's own first parameters."""
        return np.array(Container.of(self._model).flatten(self.schema))

    def update(self, vector: Array, round: int) -> tuple[Array, float | None]:
        """Load the parameters, let the app train, and return what it made of them."""
        Container.of(self._model).put(self.schema, vector)
        loss = self._app.update(self._model, self._app.data, round)
        trained = Container.of(self._model)
        if self._describe(trained) != self.schema:
            raise InvalidInputError("the update changed the model's parameters in name, shape, dtype or what is frozen")
        return np.array(trained.flatten(self.schema)), None if loss is None else float(loss)

    def evaluate(self, vector: Array) -> Score | None:
        """Score by the app's function, if it has one."""
        if self._app.evaluate is None:
            return None
        Container.of(self._model).put(self.schema, vector)
        return _score(self._app.evaluate(self._model, self._app.data), "evaluate")

    def evaluate_common(self, vector: Array) -> Score | None:
        """Score by the app's function, if it has one."""
        if self._app.evaluate_common is None:
            return None
        Container.of(self._model).put(self.schema, vector)
        return _score(self._app.evaluate_common(self._model), "evaluate_common")

    def whole(self, vector: Array) -> dict[str, Array]:
        """Return the model by name."""
        Container.of(self._model).put(self.schema, vector)
        return as_numpy(self._model)

    def home(self) -> dict[str, Array]:
        """Return what of the model stays at home, by name."""
        return as_numpy(Container.of(self._model).at_home(self.schema))

    def state(self) -> Any:
        """Return what the update function wants to keep, and what stays at home."""
        update: Any = self._app.update
        kept = update.state_dict() if hasattr(update, "state_dict") else {}
        return {"update": kept, "home": Container.of(self._model).at_home(self.schema)}

    def restore(self, state: Any) -> None:
        """Hand the update function what it wanted to keep, and the model what stayed at home."""
        Container.of(self._model).replace(state["home"])
        update: Any = self._app.update
        if hasattr(update, "load_state_dict"):
            update.load_state_dict(state["update"])


def as_numpy(model: Any) -> dict[str, Array]:
    """Return copies of all arrays of a model, by name."""
    return {str(name): np.array(to_numpy(value)) for name, value in Container.of(model).tree.items()}


def _score(found: Any, what: str) -> Score:
    """Return what a function of an app told as a score."""
    try:
        correct, loss, count = found
        return Score(int(correct), float(loss), int(count))
    except (TypeError, ValueError):
        raise InvalidInputError(f"{what} of the app must return (correct, loss, count), not {found!r:.80}") from None
