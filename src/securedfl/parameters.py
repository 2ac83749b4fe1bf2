"""What is averaged: a model (a dict of named arrays, a PyTorch state_dict) as one flat vector, weighted, and back.

torch is never imported here: tensors are recognised by what they can do.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from securedfl.errors import InvalidInputError

Array = npt.NDArray[Any]
FLOATS = ("float16", "bfloat16", "float32", "float64")

Tree = Any
"""An array, a torch tensor, or a mapping of names to them."""


@dataclass(frozen=True)
class Leaf:
    """Name, shape and dtype of one array of a model."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """The number of values."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def integer(self) -> bool:
        """Whether the array holds whole numbers, which are averaged and then rounded."""
        return not self.dtype.startswith(("float", "bfloat"))


@dataclass(frozen=True)
class Schema:
    """The arrays of a model in order: what peers compare before they average.

    Attributes
    ----------
    leaves
        The arrays. A bare array has one leaf with an empty name.
    dtype
        The dtype of the flat vector: float64 if an array has it, else float32.
    """

    leaves: tuple[Leaf, ...]
    dtype: str

    @classmethod
    def of(cls, tree: Tree, *, dtype: str | None = None) -> Schema:
        """Describe a tree; ``dtype`` overrides that of the flat vector."""
        leaves = tuple(
            Leaf(name, tuple(int(k) for k in value.shape), _dtype_name(name, value)) for name, value in _items(tree)
        )
        if not sum(leaf.size for leaf in leaves):
            raise InvalidInputError("there are no parameters to average: the model or array is empty")
        if dtype not in (None, "float32", "float64"):
            raise InvalidInputError(f"the flat vector can be float32 or float64, not {dtype}")
        return cls(leaves, dtype or ("float64" if any(leaf.dtype == "float64" for leaf in leaves) else "float32"))

    @property
    def size(self) -> int:
        """The length of the flat vector."""
        return sum(leaf.size for leaf in self.leaves)

    @cached_property
    def hash(self) -> str:
        """Short content hash that peers compare before they average."""
        content = [self.dtype, *([leaf.name, leaf.shape, leaf.dtype] for leaf in self.leaves)]
        return hashlib.sha256(b"securedfl schema 1\0" + json.dumps(content).encode()).hexdigest()[:16]

    def name_at(self, index: int) -> str:
        """Return the name of the array that an index of the flat vector falls into."""
        for leaf in self.leaves:
            if index < leaf.size:
                return leaf.name
            index -= leaf.size
        raise IndexError(f"the flat vector has {self.size} values")

    def require(self, other: Schema, peer: int) -> None:
        """Raise `InvalidInputError` that names the first array in which peer ``peer`` differs."""
        if other == self:
            return
        mine, theirs = ({leaf.name: leaf for leaf in schema.leaves} for schema in (self, other))
        for name in [*mine, *theirs]:
            if mine.get(name) != theirs.get(name):
                raise InvalidInputError(
                    f"peer {peer} has {_describe(theirs.get(name))} where peer 0 has {_describe(mine.get(name))} "
                    f"for parameter {name!r}; all peers must train the same model"
                )
        raise InvalidInputError(f"peer {peer} lists the same parameters as peer 0 in another order")

    def flatten(self, tree: Tree, out: Array | None = None) -> Array:
        """Return the tree as one vector; a contiguous array that already is one comes back uncopied."""
        arrays = [(name, _to_numpy(value)) for name, value in _items(tree)]
        if out is None and len(arrays) == 1:
            array = arrays[0][1]
            if array.dtype == self.dtype and array.flags.c_contiguous:
                return array.reshape(-1)
        out = np.empty(self.size, dtype=self.dtype) if out is None else out
        at = 0
        for (name, array), leaf in zip(arrays, self.leaves, strict=True):
            if leaf.integer:
                _check_exact(name, array, self.dtype)
            out[at : at + leaf.size] = array.reshape(-1)
            at += leaf.size
        return out

    def unflatten(self, vector: Array, like: Tree) -> Tree:
        """Return the vector in the structure, dtypes and array types of ``like``; whole numbers are rounded."""
        values, at = {}, 0
        for (name, template), leaf in zip(_items(like), self.leaves, strict=True):
            piece = vector[at : at + leaf.size].reshape(leaf.shape)
            at += leaf.size
            values[name] = _like(np.rint(piece) if leaf.integer else piece, template)
        return dict(zip(like, values.values(), strict=True)) if isinstance(like, Mapping) else values[""]


def flatten_all(trees: Sequence[Tree], *, dtype: str | None = None) -> tuple[Schema, list[Array]]:
    """Flatten every peer's tree after comparing their schemas."""
    if not trees:
        raise InvalidInputError("there is nothing to average: pass one model or vector per peer")
    schema = Schema.of(trees[0], dtype=dtype)
    for peer, tree in enumerate(trees):
        schema.require(Schema.of(tree, dtype=dtype), peer)
    return schema, [schema.flatten(tree) for tree in trees]


WEIGHT_NUMBERS, WEIGHT_STEPS = 2, 256
"""A weight travels as two numbers: in steps of a 256th, and the rest times 256; so 16 bits are enough for each."""


def add_weights(
    vectors: Sequence[Array], weights: Iterable[float], max_weight: float | None = None, unit: float = 1.0
) -> list[Array]:
    """Turn each w into (a w, a), a = weight / max_weight, so that masks cover the weights too.

    ``unit`` is what the largest weight is sent as; see `weigh`.
    Raises `InvalidInputError` for weights that are negative, not finite, above the maximum or all zero.
    """
    numbers = _weights(weights)
    if len(numbers) != len(vectors):
        raise InvalidInputError(f"{len(numbers)} weights for {len(vectors)} peers; pass one per peer")
    bad = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
    if bad.size:
        raise InvalidInputError(f"the weight of peer {bad[0]} is negative or not finite")
    if not numbers.any():
        raise InvalidInputError("all weights are zero, so there is no average; give at least one peer a weight")
    largest = float(numbers.max() if max_weight is None else max_weight)
    if not (np.isfinite(largest) and largest > 0):
        raise InvalidInputError("max_weight must be a positive finite number")
    above = np.flatnonzero(numbers > largest)
    if above.size:
        raise InvalidInputError(f"the weight of peer {above[0]} is above max_weight = {largest:g}")
    return [
        weigh(w * w.dtype.type(weight / largest), float(weight) / largest, unit)
        for w, weight in zip(vectors, numbers, strict=True)
    ]


def _weights(weights: Any) -> npt.NDArray[np.float64]:
    """Return weights as one array of numbers."""
    if not isinstance(weights, Mapping | str):
        with suppress(TypeError, ValueError):
            return np.array([float(weight) for weight in weights], dtype=np.float64)
    raise InvalidInputError("weights must be a list of numbers, one per peer")


def weigh(aw: Array, a: float, unit: float = 1.0) -> Array:
    """Return (a w, a) as one vector; a, between 0 and 1, as two numbers that are at most the unit."""
    whole, rest = divmod(a * WEIGHT_STEPS, 1.0)
    result = np.empty(len(aw) + WEIGHT_NUMBERS, dtype=aw.dtype)
    result[:-2] = aw
    result[-2:] = whole / WEIGHT_STEPS * unit, rest * unit
    return result


def remove_weight(mean: Array, unit: float = 1.0) -> Array:
    """Turn the averages of (a w, a) into the weighted average of w."""
    weight = (float(mean[-2]) + float(mean[-1]) / WEIGHT_STEPS) / unit
    if not weight > 0:
        raise InvalidInputError("the weights add up to zero, so there is no average; give at least one peer a weight")
    if weight < np.sqrt(np.finfo(mean.dtype).eps):
        raise InvalidInputError(
            f"the weights are on average {weight:.1e} of max_weight, too little for {mean.dtype} to give a quotient; "
            "lower max_weight, or average in float64"
        )
    return np.asarray(mean[:-2] / mean.dtype.type(weight))


def _items(tree: Tree) -> list[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        if len({str(name) for name in tree}) < len(tree):
            raise InvalidInputError("two parameters have the same name when written as text; rename one")
        return [(str(name), _as_array(value, str(name))) for name, value in tree.items()]
    return [("", _as_array(tree, ""))]


def _as_array(value: Any, name: str) -> Any:
    if _is_tensor(value):
        return value.detach()
    if isinstance(value, Mapping):
        raise InvalidInputError(f"parameter {name!r} is a dict itself; give nested parameters flat names like 'a.b'")
    if hasattr(value, "state_dict"):
        raise InvalidInputError("pass model.state_dict(), not the model itself")
    try:
        array = np.asarray(value)
    except ValueError:
        raise InvalidInputError(f"parameter {name!r} is not an array: its rows differ in length") from None
    if array.dtype.kind not in "fiub":
        raise InvalidInputError(f"parameter {name!r} has dtype {array.dtype}; only real numbers can be averaged")
    return array


def _is_tensor(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")


def _dtype_name(name: str, value: Any) -> str:
    if isinstance(value, np.ndarray):
        kind: str = value.dtype.newbyteorder("=").name  # byte order is how numbers are stored, not what they are
    else:
        kind = str(value.dtype).removeprefix("torch.")
    if kind.startswith(("complex", "float", "bfloat")) and kind not in FLOATS:
        raise InvalidInputError(
            f"parameter {name!r} has dtype {kind}; only real numbers of {', '.join(FLOATS)} or integers can be averaged"
        )
    return kind


def _to_numpy(value: Any) -> Array:
    if _is_tensor(value):
        cpu = value.cpu()
        return np.asarray((cpu.float() if str(cpu.dtype) == "torch.bfloat16" else cpu).numpy())
    return np.asarray(value)


def _like(array: Array, template: Any) -> Any:
    if _is_tensor(template):
        torch = sys.modules["torch"]  # loaded, because a tensor exists
        return torch.from_numpy(np.array(array)).to(dtype=template.dtype, device=template.device)
    return np.asarray(array).astype(template.dtype)


def _check_exact(name: str, array: npt.NDArray[Any], dtype: str) -> None:
    """Refuse whole numbers that the flat vector would silently round."""
    largest = 2 ** (np.finfo(dtype).nmant + 1)
    if array.size and max(abs(int(array.max())), abs(int(array.min()))) > largest:
        raise InvalidInputError(
            f"parameter {name!r} holds whole numbers beyond {largest}, which {dtype} cannot represent exactly; "
            + ("pass dtype='float64'" if dtype == "float32" else "leave it out of the average")
        )


def _describe(leaf: Leaf | None) -> str:
    return "nothing" if leaf is None else f"{leaf.dtype}{list(leaf.shape)}"
