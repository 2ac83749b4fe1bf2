"""A model whose parameters live in one flat vector, so that loading a peer's parameters is one copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from securedfl.parameters import Schema

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

    The flat vector holds trained parameters first, then floating-point buffers (running averages), then whole-number
    buffers. An optimiser that works element by element (SGD, Adam, RMSProp) may therefore step on one long parameter:
    the same arithmetic in a handful of calls instead of one per layer.

    Parameters
    ----------
    module
        The model, float32. It is changed in place.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        frozen = {name: p for name, p in module.named_parameters() if not p.requires_grad}
        # buffers left out of the state_dict are scratch, not part of the model
        saved = module.state_dict(keep_vars=True)
        buffers = {name: b for name, b in module.named_buffers() if name in saved}
        floating = {name: b for name, b in buffers.items() if b.is_floating_point()}
        self._whole = {name: b for name, b in buffers.items() if not b.is_floating_point()}
        tree: dict[str, Tensor] = {**parameters, **frozen, **floating, **self._whole}
        self.schema = Schema.of(tree, dtype="float32")
        vector = canonical(self.schema.flatten(tree)).clone()

        trained = sum(p.numel() for p in parameters.values())
        self._views = len(vector) - sum(b.numel() for b in self._whole.values())
        self._vector = vector
        self.trained = nn.Parameter(vector[:trained])
        self.gradient = self.trained.grad = torch.zeros(trained)
        at = 0
        for value in (*parameters.values(), *frozen.values(), *floating.values()):
            piece = vector[at : at + value.numel()].view(value.shape)
            value.data = piece
            if value.requires_grad:
                value.grad = self.gradient[at : at + value.numel()].view(value.shape)
            at += value.numel()

    @property
    def size(self) -> int:
        """The length of the flat vector."""
        return len(self._vector)

    def read(self, row: npt.NDArray[Any]) -> None:
        """Take over the parameters of a flat row."""
        self._vector.copy_(torch.from_numpy(row))
        at = self._views
        for value in self._whole.values():
            piece = self._vector[at : at + value.numel()]
            value.copy_(piece.round().view(value.shape))
            at += value.numel()

    def write(self, row: npt.NDArray[Any]) -> None:
        """Copy the parameters into a flat row."""
        at = self._views
        for value in self._whole.values():
            self._vector[at : at + value.numel()] = value.reshape(-1)
            at += value.numel()
        torch.from_numpy(row).copy_(self._vector)
