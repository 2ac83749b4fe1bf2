"""A model whose parameters live in one flat vector, so that loading a peer's parameters is one copy."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from securedfl.arrays import place, to_numpy
from securedfl.errors import InvalidInputError
from securedfl.parameters import Array, Integers, Schema, frozen_in

ALIGNMENT = 64
"""Bytes of a cache line; matrix libraries promise equal bits only for operands that begin at one."""


def canonical(array: npt.NDArray[Any]) -> Tensor:
    """Return the array as a tensor in C order that begins at a cache line; copied only where needed.

    Equal numbers laid out differently give different last bits. Even an axis of length one counts: torch chooses
    another convolution if numpy left an unusual stride there, as indexing with None does.
    """
    plain = array if array.flags.c_contiguous else array.copy(order="C")
    tensor = torch.from_numpy(np.ndarray(plain.shape, plain.dtype, buffer=plain.data))
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


class FlatModel:
    """Moves a model's parameters, gradients and buffers into flat tensors and keeps views in their place.

    A flat row holds what is averaged: trained parameters first, then floating-point buffers (running averages), then
    whole-number buffers, if they are averaged. What stays at home is read and written by name. An optimiser that works
    element by element (SGD, Adam, RMSProp) may step on one long parameter: the same arithmetic in a handful of calls
    instead of one per layer.

    Parameters
    ----------
    module
        The model, whose trained parameters have one dtype. It is changed in place.
    integers, local
        What is averaged; see `Schema.of`.

    Attributes
    ----------
    trained, gradient
        All trained parameters as one long one, and its gradient.
    common, common_gradient
        Those of them that are averaged.
    """

    def __init__(self, module: nn.Module, *, integers: Integers = "own", local: Iterable[str] = ()) -> None:
        self.module = module
        tree = _in_order(module)
        self.schema = Schema.of(tree, dtype="float32", integers=integers, local=local, frozen=frozen_in(module))
        averaged = [tree[leaf.name] for leaf in self.schema.leaves]
        self._home = self.schema.at_home(tree)
        dtype = _dtype_of_training(tree.values())
        self._copies = [value for value in averaged if value.dtype != dtype]
        tied: dict[Hashable, list[Tensor]] = {}
        for value in tree.values():
            tied.setdefault(place(value) or id(value), []).append(value)
        common = set(map(id, averaged))
        at_home = [value for value, *_ in tied.values() if value.requires_grad and id(value) not in common]

        # what is trained lies side by side, and so does what is averaged
        views = at_home + [value for value in averaged if value.dtype == dtype]
        device = next(iter(tree.values())).device
        self._vector = torch.empty(sum(value.numel() for value in views), dtype=dtype, device=device)
        home = sum(value.numel() for value in at_home)
        self._averaged = self._vector[home:]
        self.trained = nn.Parameter(self._vector[: sum(value.numel() for value in views if value.requires_grad)])
        self.gradient = self.trained.grad = torch.zeros_like(self.trained)
        self.common, self.common_gradient = self.trained.detach()[home:], self.gradient[home:]
        at = 0
        for value in views:
            end = at + value.numel()
            piece = self._vector[at:end].view(value.shape)
            piece.copy_(value.detach())
            for same in tied[place(value) or id(value)]:
                same.data = piece
                if same.requires_grad:
                    same.grad = self.gradient[at:end].view(value.shape)
            at = end

    @property
    def size(self) -> int:
        """The length of a flat row."""
        return self.schema.size

    def read(self, row: Array, home: Mapping[str, Array]) -> None:
        """Take over what is averaged from a flat row, and the rest from what a peer has at home."""
        source, at = torch.from_numpy(row), len(self._averaged)
        self._averaged.copy_(source[:at])
        with torch.no_grad():
            for value in self._copies:
                piece = source[at : at + value.numel()].view(value.shape)
                value.copy_(piece if value.is_floating_point() else piece.round())
                at += value.numel()
            for name, value in self._home.items():
                value.copy_(torch.from_numpy(home[name]))

    def write(self, row: Array) -> dict[str, Array]:
        """Copy what is averaged into a flat row, and return a copy of the rest by name."""
        target, at = torch.from_numpy(row), len(self._averaged)
        target[:at] = self._averaged
        for value in self._copies:
            target[at : at + value.numel()] = value.detach().reshape(-1)
            at += value.numel()
        return {name: np.array(to_numpy(value)) for name, value in self._home.items()}


def _in_order(module: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers by name: what is trained, then floating-point and whole-number buffers."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    buffers = dict(module.named_buffers(remove_duplicate=False))
    # buffers left out of the state_dict are scratch, not part of the model
    saved = module.state_dict(keep_vars=True)
    found = {name: value for name, value in saved.items() if name in parameters or name in buffers}
    dtype = _dtype_of_training(found.values())

    def rank(name: str) -> tuple[bool, ...]:
        value = found[name]
        return name not in parameters, not value.is_floating_point(), value.dtype != dtype, not value.requires_grad

    return {name: found[name] for name in sorted(found, key=rank)}


def _dtype_of_training(values: Iterable[Tensor]) -> torch.dtype:
    """Return the dtype of the trained parameters, which lie in one vector."""
    dtypes = {value.dtype for value in values if value.requires_grad}
    if len(dtypes) > 1:
        raise InvalidInputError(
            f"the model trains parameters of {', '.join(sorted(map(str, dtypes)))}; convert it to one of them"
        )
    return dtypes.pop() if dtypes else torch.float32
