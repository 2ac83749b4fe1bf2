"""What is averaged: a model (a dict of named arrays, a PyTorch state_dict) as one flat vector, weighted, and back.

Some arrays stay at home: those that the user names, parameters that are not trained, and whole numbers (counters).
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from securedfl.arrays import Array as Array
from securedfl.arrays import as_array, dtype_name, holds_floats, is_at_hand, made_like, place, put, room_for, to_numpy
from securedfl.errors import ConfigError, InvalidInputError, unknown

Integers = Literal["own", "average"]
"""What becomes of whole-number arrays beside floats: every peer keeps its own, or they are averaged and rounded."""

Tree = Any
"""An array, a torch tensor, or a mapping of names to them."""

Named = dict[str, Any]
"""Arrays or torch tensors by name; torch is not imported here, so any value will do."""


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
    """The arrays of a model that are averaged, in order: what peers compare before they average.

    What stays at home is not in it, and may differ from peer to peer.

    Attributes
    ----------
    leaves
        The arrays. A bare array has one leaf with an empty name.
    dtype
        The dtype of the flat vector: float64 if one of the arrays has it, else float32.
    ties
        Further names of an array, such as tied weights have, with the name under which it travels, once.
    """

    leaves: tuple[Leaf, ...]
    dtype: str
    ties: Mapping[str, str] = field(default_factory=dict, compare=False)

    @classmethod
    def of(
        cls,
        tree: Tree,
        *,
        dtype: str | None = None,
        integers: Integers = "own",
        local: Iterable[str] = (),
        frozen: Collection[str] = (),
    ) -> Schema:
        """Describe what is averaged of a tree.

        Parameters
        ----------
        tree
            The model. One that holds nothing but whole numbers is averaged, and rounded.
        dtype
            Of the flat vector, instead of what suits the arrays.
        integers
            Whether whole-number arrays beside floats stay at home.
        local
            Patterns (``head.*``) of names that stay at home.
        frozen
            Names of parameters that are not trained, which stay at home too; see `frozen_in`.
        """
        if dtype not in (None, "float32", "float64"):
            raise InvalidInputError(f"the flat vector can be float32 or float64, not {dtype}")
        check_integers(integers)
        items = _items(tree)
        ties = _ties(items)
        home = _matching(local, [name for name, _ in items]).union(frozen)
        # an array stays at home under all its names, or it would leave under another
        home |= {first for name, first in ties.items() if name in home}
        home |= {name for name, first in ties.items() if first in home}
        leaves = [_leaf(name, value) for name, value in items if name not in home and name not in ties]
        floats_at_home = any(holds_floats(value) for name, value in items if name in home)
        if integers == "own" and (floats_at_home or not all(leaf.integer for leaf in leaves)):
            leaves = [leaf for leaf in leaves if not leaf.integer]
        if not sum(leaf.size for leaf in leaves):
            raise InvalidInputError(
                "nothing is left to average: all arrays match local, are not trained, or hold whole numbers; "
                "name fewer in local, or unfreeze some"
                if home
                else "there are no parameters to average: the model or array is empty"
            )
        names = {leaf.name for leaf in leaves}
        widest = "float64" if any(leaf.dtype == "float64" for leaf in leaves) else "float32"
        return cls(tuple(leaves), dtype or widest, {name: first for name, first in ties.items() if first in names})

    @property
    def size(self) -> int:
        """The length of the flat vector."""
        return sum(leaf.size for leaf in self.leaves)

    @cached_property
    def hash(self) -> str:
        """Short content hash that peers compare before they average."""
        content = [self.dtype, *([leaf.name, leaf.shape, leaf.dtype] for leaf in self.leaves)]
        return hashlib.sha256(b"securedfl schema 1\0" + json.dumps(content).encode()).hexdigest()[:16]

    @property
    def told(self) -> dict[str, Any]:
        """The schema as plain values, for another process; see `of_told`."""
        leaves = [[leaf.name, list(leaf.shape), leaf.dtype] for leaf in self.leaves]
        return {"leaves": leaves, "dtype": self.dtype, "ties": dict(self.ties)}

    @classmethod
    def of_told(cls, told: Mapping[str, Any]) -> Schema:
        """Return the schema that another process told."""
        leaves = tuple(Leaf(name, tuple(shape), dtype) for name, shape, dtype in told["leaves"])
        return cls(leaves, told["dtype"], told["ties"])

    def __str__(self) -> str:
        return f"{self.size} values in {len(self.leaves)} arrays, {self.hash[:8]}"

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

    def flatten(self, tree: Tree) -> Array:
        """Return what is averaged as one vector; a contiguous array that already is one comes back uncopied."""
        found = dict(_items(tree))
        values = [as_array(found[leaf.name], leaf.name) for leaf in self.leaves]
        if len(values) == 1 and is_at_hand(values[0]):
            array = to_numpy(values[0])
            if array.dtype == self.dtype and array.flags.c_contiguous:
                return array.reshape(-1)
        vector, at = room_for(values, self.size, self.dtype), 0
        for value, leaf in zip(values, self.leaves, strict=True):
            if leaf.integer:
                _check_exact(leaf.name, to_numpy(value), self.dtype)
            put(value, vector[at : at + leaf.size])
            at += leaf.size
        return vector

    def unflatten(self, vector: Array, like: Tree) -> Tree:
        """Return the vector in the structure, dtypes and array types of ``like``; whole numbers are rounded.

        What stays at home is that of ``like``, uncopied.
        """
        found, at = dict(_items(like)), 0
        for leaf in self.leaves:
            piece = vector[at : at + leaf.size].reshape(leaf.shape)
            at += leaf.size
            template = as_array(found[leaf.name], leaf.name)
            found[leaf.name] = made_like(np.rint(piece) if leaf.integer else piece, template)
        for name, first in self.ties.items():
            found[name] = found[first]
        return dict(zip(like, found.values(), strict=True)) if isinstance(like, Mapping) else found[""]

    def at_home(self, tree: Mapping[str, Any]) -> Named:
        """Return those arrays of a model that are not averaged, by name."""
        travelling = {leaf.name for leaf in self.leaves} | self.ties.keys()
        return {name: value for name, value in tree.items() if str(name) not in travelling}


def check_integers(integers: Any) -> None:
    """Refuse what is no choice for whole-number arrays, by a `ConfigError`."""
    if integers == "maximum":
        raise ConfigError(
            'integers = "maximum" is not possible: peers add up behind masks, and a maximum is no sum, so everybody '
            'would have to tell its own numbers. Use "own" (each keeps its numbers) or "average" (averaged and rounded)'
        )
    if integers not in get_args(Integers):
        raise unknown("value of integers", str(integers), get_args(Integers))


def frozen_in(model: Any) -> frozenset[str]:
    """Return the names of the parameters that a torch module does not train; a dict of arrays cannot tell."""
    if not hasattr(model, "named_parameters"):
        return frozenset()
    named = model.named_parameters(remove_duplicate=False)
    return frozenset(name for name, parameter in named if not parameter.requires_grad)


def _items(tree: Tree) -> list[tuple[str, Any]]:
    if not isinstance(tree, Mapping):
        return [("", tree)]
    if len({str(name) for name in tree}) < len(tree):
        raise InvalidInputError("two parameters have the same name when written as text; rename one")
    return [(str(name), value) for name, value in tree.items()]


def _matching(patterns: Iterable[str], names: list[str]) -> set[str]:
    """Return the names that match a pattern; a pattern without any is an error, because what it meant would leave."""
    home: set[str] = set()
    for pattern in patterns:
        found = {name for name in names if fnmatchcase(name, pattern)}
        if not found:
            near = difflib.get_close_matches(pattern, names, n=1, cutoff=0.0)
            hint = f"; the nearest name is {near[0]!r}" if near else ""
            raise InvalidInputError(f"{pattern!r} in local matches no parameter{hint}")
        home |= found
    return home


def _ties(items: list[tuple[str, Any]]) -> dict[str, str]:
    """Return later names of arrays that stood under another name before, with the first."""
    first: dict[Hashable, str] = {}
    ties = {}
    for name, value in items:
        where = place(value)
        if where is not None and first.setdefault(where, name) != name:
            ties[name] = first[where]
    return ties


def _leaf(name: str, value: Any) -> Leaf:
    array = as_array(value, name)
    return Leaf(name, tuple(int(k) for k in array.shape), dtype_name(name, array))


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
