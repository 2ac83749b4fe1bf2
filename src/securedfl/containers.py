"""What holds parameters: a module, an optimiser, a PEFT model, a dict, a list or one array, as named arrays.

torch is never imported here: what it made is recognised by what it can do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from securedfl.arrays import gathered, is_tensor, spread
from securedfl.errors import InvalidInputError
from securedfl.parameters import Array, Integers, Named, Schema, Tree, frozen_in


@dataclass(frozen=True)
class Container:
    """Whatever a user hands over to be averaged, opened.

    Attributes
    ----------
    given
        What was handed over.
    tree
        Its arrays by name, or one bare array. They are the container's own, so that changing them changes it.
    frozen
        Names of parameters that are not trained, which stay at home.
    whole
        Whether it takes a whole state dict back, as modules do.
    """

    given: Any
    tree: Tree
    frozen: frozenset[str] = frozenset()
    whole: bool = False

    @classmethod
    def of(cls, given: Any) -> Self:
        """Open whatever holds parameters.

        A module gives its ``state_dict``; a PEFT model the parameters of its adapter that are trained; an optimiser, or
        a list of its ``param_groups``, the parameters that it trains, and nothing of its state; a dict its arrays; a
        list, or anything else to go through once, its arrays or pairs of a name and an array.
        """
        given = _unwrapped(given)
        if isinstance(given, np.ndarray) or is_tensor(given):
            return cls(given, given)
        if hasattr(given, "peft_config") and hasattr(given, "named_parameters"):
            return cls(given, _adapter(given))
        if hasattr(given, "param_groups"):
            return cls._of_parameters(given, _grouped(given.param_groups))
        if hasattr(given, "state_dict"):
            return cls(given, given.state_dict(), frozen_in(given), whole=True)
        if isinstance(given, Mapping):
            return cls._of_parameters(given, given)
        items = list(given) if isinstance(given, Iterator | list | tuple) else []
        if items and all(isinstance(item, Mapping) and "params" in item for item in items):
            return cls._of_parameters(given, _grouped(items))
        if items and all(_is_array(item) for item in items):
            return cls._of_parameters(given, {str(place): item for place, item in enumerate(items)})
        if items and all(isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str) for item in items):
            return cls._of_parameters(given, dict(items))
        if isinstance(given, Iterator):
            raise InvalidInputError(
                "there are no parameters to average: nothing came out of the iterator that was passed"
                if not items
                else "not all that came out of the iterator are arrays; pass model.parameters() or a list of arrays"
            )
        return cls(given, given)

    @classmethod
    def _of_parameters(cls, given: Any, tree: Mapping[str, Any]) -> Self:
        """Open arrays by name; a torch parameter among them tells by itself whether it is trained."""
        still = {str(name) for name, value in tree.items() if _is_parameter(value) and not value.requires_grad}
        return cls(given, tree, frozenset(still))

    def schema(self, *, integers: Integers = "own", local: Iterable[str] = (), dtype: str | None = None) -> Schema:
        """Describe what is averaged of it; see `Schema.of`."""
        return Schema.of(self.tree, dtype=dtype, integers=integers, local=local, frozen=self.frozen)

    def flatten(self, schema: Schema) -> Array:
        """Return what is averaged as a vector that may share memory with the container."""
        return schema.flatten(self.tree)

    def at_home(self, schema: Schema) -> Named:
        """Return what is not averaged, by name."""
        home = schema.at_home(self.tree) if isinstance(self.tree, Mapping) else {}
        return {name: gathered(value) for name, value in home.items()}

    def made(self, schema: Schema, vector: Array) -> Tree:
        """Return a vector as new arrays: named if the container's are, a list for an optimiser or a list."""
        tree = schema.unflatten(vector, self.tree)
        named = not isinstance(self.tree, Mapping) or isinstance(self.given, Mapping) or hasattr(self.given, "modules")
        return tree if named else list(tree.values())

    def put(self, schema: Schema, vector: Array) -> None:
        """Replace what is averaged, in place; the rest stays as it is."""
        made = schema.unflatten(np.array(vector), self.tree)
        if isinstance(self.tree, Mapping):
            travelling = {leaf.name for leaf in schema.leaves} | schema.ties.keys()
            self.replace({name: value for name, value in made.items() if str(name) in travelling})
        else:
            _write(self.tree, made)

    def replace(self, arrays: Mapping[str, Any]) -> None:
        """Replace some arrays, in place."""
        arrays = {name: spread(value, self.tree[name]) for name, value in arrays.items()}
        if self.whole:
            self.given.load_state_dict({**self.tree, **arrays})
            return
        for name, value in arrays.items():
            if _is_array(self.tree[name]):
                _write(self.tree[name], value)
            else:
                self.tree[name] = value

    def _named(self) -> Named:
        """Return the arrays by name as text; a bare one has none."""
        return {str(name): v for name, v in self.tree.items()} if isinstance(self.tree, Mapping) else {"": self.tree}

    def check_fits(self, schema: Schema) -> None:
        """Raise `InvalidInputError` if it lacks what is averaged, as one process of a site may."""
        arrays = self._named()
        for leaf in schema.leaves:
            if leaf.name not in arrays or _shape(arrays[leaf.name]) != leaf.shape:
                raise InvalidInputError(
                    f"{_called(leaf.name)} is missing here or has another shape than in the first process of this "
                    "site; all its processes must hold the same model"
                )

    def check_in_place(self, schema: Schema) -> None:
        """Raise `InvalidInputError` if what is averaged cannot be changed in place; before work is lost."""
        if self.whole:
            return
        arrays = self._named()
        for leaf in schema.leaves:
            value = arrays.get(leaf.name)
            if isinstance(value, np.ndarray) and not value.flags.writeable:
                raise InvalidInputError(f"{_called(leaf.name)} is read-only; pass a copy of it to average in place")
            if not _is_array(value) and not isinstance(self.tree, MutableMapping):
                raise InvalidInputError(
                    f"{_called(leaf.name)} is a {type(value).__name__}, which cannot be changed in place; pass arrays "
                    "or tensors, or use securedfl.average, which returns the mean"
                )


def flatten_all(
    containers: Sequence[Container], *, dtype: str | None = None, integers: Integers = "own", local: Iterable[str] = ()
) -> tuple[Schema, list[Array]]:
    """Flatten what every peer holds, after comparing the schemas."""
    if not containers:
        raise InvalidInputError("there is nothing to average: pass one model or vector per peer")
    local = (local,) if isinstance(local, str) else tuple(local)
    schemas = [one.schema(dtype=dtype, integers=integers, local=local) for one in containers]
    for peer, schema in enumerate(schemas):
        schemas[0].require(schema, peer)
    return schemas[0], [one.flatten(schema) for schema, one in zip(schemas, containers, strict=True)]


def _unwrapped(given: Any) -> Any:
    """Return the module inside those that change its parameters' names: DDP's, and that of torch.compile."""
    inner = {"DistributedDataParallel": "module", "DataParallel": "module", "OptimizedModule": "_orig_mod"}
    while hasattr(given, "state_dict") and (name := inner.get(type(given).__name__)):
        given = getattr(given, name)
    return given


def _adapter(model: Any) -> Named:
    """Return those parameters of a PEFT model that are trained: its active adapter, and what is saved with it."""
    found = {name: value for name, value in model.named_parameters() if value.requires_grad}
    if not found:
        raise InvalidInputError(
            "no parameter of this PEFT model is trained; load its adapter with is_trainable=True, or choose one with "
            "model.set_adapter(...)"
        )
    return found


def _grouped(groups: Iterable[Mapping[str, Any]]) -> Named:
    """Return the parameters of an optimiser by their names, if it knows them, or else by group and place."""
    found: Named = {}
    for number, group in enumerate(groups):
        parameters = list(group["params"])
        names = group.get("param_names") or [f"{number}.{place}" for place in range(len(parameters))]
        found |= dict(zip(names, parameters, strict=True))
    return found


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape if is_tensor(value) else np.shape(value))


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or is_tensor(value)


def _is_parameter(value: Any) -> bool:
    """Return whether it is a torch parameter, which a plain tensor is not, whatever its requires_grad."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Parameter)


def _write(target: Any, value: Any) -> None:
    """Put numbers where an array has its own."""
    if is_tensor(target):
        source = value if is_tensor(value) else sys.modules["torch"].from_numpy(np.array(value))
        # detached, because autograd forbids to change what it watches
        target.detach().copy_(source)
    else:
        target[...] = value


def _called(name: str) -> str:
    return f"parameter {name!r}" if name else "what was passed"
