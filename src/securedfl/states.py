"""Nested states, such as an optimiser's ``state_dict``, as named arrays and a line of JSON, without pickle.

Dicts with text or whole numbers as keys, lists, tuples, numbers, text, None, numpy arrays and torch tensors survive.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from securedfl.arrays import is_tensor
from securedfl.errors import ConfigError
from securedfl.parameters import Array

TEXT = "text"
"""Under which the line of JSON stands in what `to_arrays` gives."""
_SCALARS = (bool, int, float, str, type(None))


def pack(state: Any) -> tuple[str, dict[str, Array]]:
    """Return a state as JSON that refers to arrays by name; what cannot be kept is a `ConfigError`."""
    arrays: dict[str, Array] = {}

    def keep(array: Array) -> str:
        arrays[name := f"state{len(arrays)}"] = array
        return name

    def node(value: Any, where: str) -> Any:
        if isinstance(value, _SCALARS):
            return ["value", value]
        if isinstance(value, Mapping):
            if not all(type(key) in (str, int) for key in value):
                raise ConfigError(f"{where} has a key that is neither text nor a whole number")
            return ["dict", [[key, node(item, f"{where}[{key!r}]")] for key, item in value.items()]]
        if isinstance(value, list | tuple):
            return [type(value).__name__, [node(item, f"{where}[{i}]") for i, item in enumerate(value)]]
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc":
            return ["array", keep(np.asarray(value))]
        if is_tensor(value):
            import torch

            flat = value.detach().cpu()
            if flat.dtype == torch.bfloat16:
                # numpy has no bfloat16, so its bits travel as whole numbers
                return ["tensor", keep(flat.contiguous().view(torch.int16).numpy()), "bfloat16"]
            return ["tensor", keep(flat.numpy())]
        raise ConfigError(f"{where} is a {type(value).__name__}, which a checkpoint cannot hold")

    return json.dumps(node(state, "the state")), arrays


def unpack(text: str, arrays: Mapping[str, Array]) -> Any:
    """Return the state that `pack` was given; text that it did not write raises a ValueError, KeyError or TypeError."""

    def value(node: Any) -> Any:
        kind, content, *more = node
        if kind == "value":
            return content
        if kind == "dict":
            return {key: value(item) for key, item in content}
        if kind in ("list", "tuple"):
            items = [value(item) for item in content]
            return items if kind == "list" else tuple(items)
        if kind == "array":
            return arrays[content]
        if kind == "tensor":
            import torch

            tensor = torch.from_numpy(np.array(arrays[content]))
            return tensor.view(torch.bfloat16) if more == ["bfloat16"] else tensor
        raise ValueError(f"a {kind!r} in a state")

    return value(json.loads(text))


def to_arrays(state: Any) -> dict[str, Array]:
    """Return a state as arrays alone, copies of what is in use."""
    text, arrays = pack(state)
    copies = {name: np.array(value) for name, value in arrays.items()}
    return {TEXT: np.frombuffer(text.encode(), dtype=np.uint8), **copies}


def from_arrays(arrays: Mapping[str, Array]) -> Any:
    """Return the state that `to_arrays` was given."""
    return unpack(arrays[TEXT].tobytes().decode(), {name: value for name, value in arrays.items() if name != TEXT})
