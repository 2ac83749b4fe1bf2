"""A user's model, which has a ``state_dict`` or is a dict of arrays: described, read and changed in place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from securedfl.arrays import to_numpy
from securedfl.parameters import Array, Integers, Schema, Tree, frozen_in


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


def as_numpy(model: Any) -> dict[str, Array]:
    """Return copies of all arrays of a model, by name."""
    return {str(name): np.array(to_numpy(value)) for name, value in tree_of(model).items()}
