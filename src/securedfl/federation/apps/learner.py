"""One peer's model and data as flat vectors, and how an app is that, whether its peer is simulated or real."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Protocol

import numpy as np

from securedfl.arrays import to_numpy
from securedfl.containers import Container
from securedfl.errors import InvalidInputError
from securedfl.federation.apps.app import App
from securedfl.federation.apps.failures import Where
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
    common: Mapping[str, Any]

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
        """Return what it keeps besides: the optimiser's state and what stays at home, as `states` can keep it."""

    def restore(self, state: Any) -> None:
        """Go on with what `state` gave."""


NOWHERE = Where()


class AppLearner:
    """What an app brings (see `App`), for one peer, simulated or real.

    What stays at home of the model is kept with every checkpoint, too: ``integers`` and ``local`` decide on that (see
    `Schema.of`); ``where`` it is, errors say.
    """

    def __init__(
        self, app: App, *, integers: Integers = "own", local: Iterable[str] = (), where: Where = NOWHERE
    ) -> None:
        self._app, self._model, self._where = app, app.model, where
        self._round = 0
        self._describe = partial(Container.schema, integers=integers, local=tuple(local))
        self.schema = self._describe(Container.of(self._model))
        self.buffers = buffers_of(self.schema, self._model)
        self.recipe: Recipe | None = None
        self.samples = app.size
        self.held = Held(self.samples)
        self.common: Mapping[str, Any] = app.common

    def initial(self) -> Array:
        """Return the model's own first parameters."""
        return np.array(Container.of(self._model).flatten(self.schema))

    def update(self, vector: Array, round: int) -> tuple[Array, float | None]:
        """Load the parameters, let the app train, and return what it made of them."""
        Container.of(self._model).put(self.schema, vector)
        self._round = round
        with self._where.told("update", round):
            loss = self._app.update(self._model, self._app.data, round)
        trained = Container.of(self._model)
        if self._describe(trained) != self.schema:
            raise InvalidInputError("the update changed the model's parameters in name, shape, dtype or what is frozen")
        return np.array(trained.flatten(self.schema)), _loss(loss, self._where)

    def evaluate(self, vector: Array) -> Score | None:
        """Score by the app's function, if it has one."""
        if self._app.evaluate is None:
            return None
        Container.of(self._model).put(self.schema, vector)
        with self._where.told("evaluate", self._round):
            found = self._app.evaluate(self._model, self._app.data)
        return _score(found, "evaluate", self._where)

    def evaluate_common(self, vector: Array) -> Score | None:
        """Score by the app's function, if it has one."""
        if self._app.evaluate_common is None:
            return None
        Container.of(self._model).put(self.schema, vector)
        with self._where.told("evaluate_common", self._round):
            found = self._app.evaluate_common(self._model)
        return _score(found, "evaluate_common", self._where)

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
        with self._where.told("update.state_dict", self._round):
            kept = update.state_dict() if hasattr(update, "state_dict") else {}
        return {"update": kept, "home": Container.of(self._model).at_home(self.schema)}

    def restore(self, state: Any) -> None:
        """Hand the update function what it wanted to keep, and the model what stayed at home."""
        Container.of(self._model).replace(state["home"])
        update: Any = self._app.update
        if hasattr(update, "load_state_dict"):
            with self._where.told("update.load_state_dict"):
                update.load_state_dict(state["update"])


def as_numpy(model: Any) -> dict[str, Array]:
    """Return copies of all arrays of a model, by name."""
    return {str(name): np.array(to_numpy(value)) for name, value in Container.of(model).tree.items()}


def _loss(found: Any, where: Where) -> float | None:
    """Return what an update told as the mean loss."""
    try:
        return None if found is None else float(found)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"update of {where.entry} must return the mean loss as a number, or nothing, not {found!r:.80}"
        ) from None


def _score(found: Any, what: str, where: Where) -> Score | None:
    """Return what a function of an app told as a score; None if there are no samples."""
    try:
        correct, loss, count = found
        score = Score(int(correct), float(loss), int(count))
        whole = score.correct == float(correct) and score.count == float(count)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError(
            f"{what} of {where.entry} must return (correct, loss, count), not {found!r:.80}"
        ) from None
    if not (whole and 0 <= score.correct <= score.count):
        raise InvalidInputError(
            f"{what} of {where.entry} tells that {correct} of {count} samples were right; it must return (correct, "
            "loss, count): how many were right, the summed loss, and how many there are"
        )
    return score if score.count else None
