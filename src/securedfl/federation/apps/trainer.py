"""Training by apps: each peer's own model, data and update, through flat rows as any other `Trainer`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from securedfl.arrays import to_numpy
from securedfl.containers import Container
from securedfl.errors import InvalidInputError
from securedfl.federation.apps.app import App
from securedfl.federation.apps.failures import Where
from securedfl.learning.training.common_optimizer import buffers_of
from securedfl.learning.training.task import Score, State
from securedfl.parameters import Array, Integers, Schema

NOWHERE = Where()


@dataclass
class _Made:
    """The app of one peer, what is averaged of its model, and the round that it was trained in."""

    app: App
    where: Where
    schema: Schema
    round: int = 0

    @property
    def model(self) -> Container:
        """The model, opened anew: whoever trains it may put other arrays into it."""
        return _opened(self.app, self.where)

    def score(self, row: Array, what: str, evaluate: Callable[[], Any]) -> Score | None:
        """Score the parameters of a row by a function of the app; None if there are no samples."""
        self.model.put(self.schema, row)
        with self.where.told(what, self.round):
            found = evaluate()
        return _score(found, what, self.where)


class AppTrainer:
    """Trains peers one after the other, each by the app that `take` was given.

    What stays at home of a model is kept with every checkpoint, too: ``integers`` and ``local`` decide on that (see
    `Schema.of`). All models have the same ``schema``, by default that of the first.
    """

    def __init__(self, *, integers: Integers = "own", local: Iterable[str] = (), schema: Schema | None = None) -> None:
        self._describe = partial(Container.schema, integers=integers, local=tuple(local))
        self._schema = schema
        self._peers: dict[int, _Made] = {}

    def take(self, peer: int, app: App, where: Where = NOWHERE) -> None:
        """Train a peer by an app from now on; ``where`` it is, errors say."""
        schema = self._describe(_opened(app, where))
        self._schema = self._schema or schema
        self._schema.require(schema, peer)
        self._peers[peer] = _Made(app, where, schema)

    @property
    def schema(self) -> Schema:
        """Of a row."""
        assert self._schema is not None  # noqa: S101 - known from the first peer on
        return self._schema

    @property
    def buffers(self) -> tuple[slice, ...]:
        """Which parts of a row are no trained parameters."""
        one = next(iter(self._peers.values()))
        return buffers_of(one.schema, one.app.model)

    def initialise(self, peer: int, row: Array) -> None:
        """Write the model's own first parameters."""
        one = self._peers[peer]
        row[:] = one.model.flatten(one.schema)

    def update(self, peer: int, round: int, row: Array) -> float | None:
        """Load the parameters of a row, let the app train, and write what it made of them."""
        one = self._peers[peer]
        one.model.put(one.schema, row)
        one.round = round
        with one.where.told("update", round):
            loss = one.app.update(one.app.model, one.app.data, round)
        trained = one.model
        if self._describe(trained) != one.schema:
            raise InvalidInputError("the update changed the model's parameters in name, shape, dtype or what is frozen")
        row[:] = trained.flatten(one.schema)
        return _loss(loss, one.where)

    def evaluate(self, peer: int, row: Array, data: tuple[Array, Array] | None = None) -> Score | None:
        """Score by the app's function, if it has one; it knows no other data."""
        assert data is None  # noqa: S101 - `AppTask.all_tests` gives none
        one = self._peers[peer]
        evaluate, model, own = one.app.evaluate, one.app.model, one.app.data
        return None if evaluate is None else one.score(row, "evaluate", lambda: evaluate(model, own))

    def evaluate_common(self, peer: int, row: Array) -> Score | None:
        """Score by the app's other function, if it has one."""
        one = self._peers[peer]
        evaluate, model = one.app.evaluate_common, one.app.model
        return None if evaluate is None else one.score(row, "evaluate_common", lambda: evaluate(model))

    def samples(self, peer: int) -> int:
        """Return how many training samples the peer has."""
        one = self._peers[peer]
        return size_of(one.app, one.where)

    def whole(self, peer: int, row: Array) -> State:
        """Return the peer's whole model by name, what stays at home included."""
        one = self._peers[peer]
        one.model.put(one.schema, row)
        return _as_numpy(one.model.tree)

    def home(self, peer: int) -> State:
        """Return what of the peer's model stays at home, by name."""
        one = self._peers[peer]
        return _as_numpy(one.model.at_home(one.schema))

    def state(self, peer: int) -> Any:
        """Return what the update function wants to keep, and what stays at home, as `states` can keep it."""
        one = self._peers[peer]
        update: Any = one.app.update
        with one.where.told("update.state_dict", one.round):
            kept = update.state_dict() if hasattr(update, "state_dict") else {}
        return {"update": kept, "home": one.model.at_home(one.schema)}

    def restore(self, peer: int, state: Any) -> None:
        """Hand the update function what it wanted to keep, and the model what stayed at home."""
        one = self._peers[peer]
        one.model.replace(state["home"])
        update: Any = one.app.update
        if hasattr(update, "load_state_dict"):
            with one.where.told("update.load_state_dict"):
                update.load_state_dict(state["update"])


def _opened(app: App, where: Where) -> Container:
    """Return an app's model, opened: that may run code of the app, too."""
    with where.told("model"):
        return Container.of(app.model)


def size_of(app: App, where: Where) -> int:
    """Return how many training samples an app has; its data may count them by code of its own."""
    with where.told("data"):
        return app.size


def _as_numpy(arrays: Mapping[str, Any]) -> State:
    """Return copies of arrays, whatever library they are of."""
    return {str(name): np.array(to_numpy(value)) for name, value in arrays.items()}


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
