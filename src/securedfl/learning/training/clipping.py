"""Sums of gradients, each clipped to a norm before it is added: what differential privacy of records starts from.

Per-sample gradients of large layers are never written down. One pass back gives how the loss changes with the outputs
of every layer; together with the inputs that tells the norm of each sample's gradient, and then the clipped sum is one
product per layer ("book-keeping": Bu et al., "Differentially Private Optimization on Large Foundation Models", 2023).
Models with other layers go one sample at a time, which is slow and right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from securedfl.errors import ConfigError
from securedfl.learning.models.flat import FlatModel

PIECE = 128
"""Samples at a time, at most, so that what is kept of them stays small."""

WRITTEN = 2**24
"""Numbers of one layer's per-sample gradients that are written down at a time."""

BLOCK = 1024
"""Numbers whose squares are added in float32."""

DIFFERENT = 1e-3
"""By what part of the clip two ways to the same gradient may differ, because float32 rounds."""

_MIXES = (nn.modules.batchnorm._BatchNorm, nn.SyncBatchNorm)

Loss = Callable[[Tensor, Tensor], Tensor]
"""Gives one loss per sample from the model's scores and the labels."""


def check_per_sample(model: FlatModel, name: str) -> None:
    """Refuse a model in which a sample's gradient depends on other samples, or that averages more than it trains."""
    for place, layer in model.module.named_modules():
        if isinstance(layer, _MIXES) or (isinstance(layer, nn.InstanceNorm2d) and layer.track_running_stats):
            raise ConfigError(
                f"the model {name!r} has batch normalisation (layer {place!r}), so that a record's gradient depends on "
                'other records; unit = "record" needs a model with GroupNorm or LayerNorm instead, such as cnn-small'
            )
        if isinstance(layer, nn.modules.dropout._DropoutNd):
            raise ConfigError(
                f"the model {name!r} has dropout (layer {place!r}), which is drawn by a record's place in the batch: "
                'one record more would change all others; unit = "record" needs a model without dropout'
            )
    if model.schema.size != model.trained.numel():
        raise ConfigError(
            f"the model {name!r} averages buffers or frozen parameters, which have no gradients to clip; "
            'take unit = "site"'
        )


class ClippedGradients:
    """Adds up clipped gradients of a model into its flat gradient.

    Parameters
    ----------
    model
        Its `gradient` receives the sums.
    loss
        One number per sample.
    """

    def __init__(self, model: FlatModel, loss: Loss) -> None:
        self._model, self._loss = model, loss
        layers = [layer for layer in model.module.modules() if any(True for _ in layer.parameters(recurse=False))]
        parameters = [p for layer in layers for p in layer.parameters(recurse=False)]
        known = all(map(_is_known, layers))
        # None: what they add is not known, so that samples go one by one
        self._layers = layers if known and len(set(map(id, parameters))) == len(parameters) else None
        largest = max((layer.weight.numel() for layer in layers if isinstance(layer, nn.Conv2d)), default=1)
        self._piece = max(1, min(PIECE, WRITTEN // largest))
        self._compared = False

    def add(self, x: Tensor, y: Tensor, clip: float) -> Tensor:
        """Put the sum of the samples' clipped gradients into the model's gradient; return the sum of their losses."""
        if self._layers is not None and len(x) and not self._compared:
            self._compared = True
            self._layers = self._layers if self._agree(x, y, clip) else None
        self._model.gradient.zero_()
        total = torch.zeros(())
        # of equal sizes: a small rest would take as long as a whole piece
        pieces = -(-len(x) // self._piece)
        for x_piece, y_piece in zip(x.tensor_split(pieces), y.tensor_split(pieces), strict=True) if pieces else ():
            done = None if self._layers is None else self._together(x_piece, y_piece, clip)
            total += self._one_by_one(x_piece, y_piece, clip) if done is None else done
        return total

    def _agree(self, x: Tensor, y: Tensor, clip: float) -> bool:
        """Tell whether samples together give what they give one by one, for two samples and for three.

        They do not where a model folds positions into the batch, or changes what a layer put out in place.
        """
        for count in (2, 3):
            some, sums = torch.arange(count) % len(x), []
            for way in (self._together, self._one_by_one):
                self._model.gradient.zero_()
                if way(x[some], y[some], clip) is None:
                    return False
                sums.append(self._model.gradient.clone())
            if not torch.linalg.vector_norm(sums[0] - sums[1]) <= DIFFERENT * clip * count:
                return False
        return True

    def _one_by_one(self, x: Tensor, y: Tensor, clip: float) -> Tensor:
        parameters = [p for p in self._model.module.parameters() if p.requires_grad]
        total = torch.zeros(())
        for k in range(len(x)):
            loss = self._loss(self._model.module(x[k : k + 1]), y[k : k + 1]).sum()
            found = torch.autograd.grad(loss, parameters)
            norm = torch.stack([g.double().square().sum() for g in found]).sum().sqrt()
            if not torch.isfinite(norm):
                # such a record adds nothing: it must not take the others' gradients along
                continue
            for parameter, gradient in zip(parameters, found, strict=True):
                assert parameter.grad is not None  # noqa: S101 - a view of the flat gradient
                parameter.grad.add_(gradient * _factor(norm, clip))
            total += loss.detach()
        return total

    def _together(self, x: Tensor, y: Tensor, clip: float) -> Tensor | None:
        """Return the losses, or None where a layer is called twice or sees other than samples: that goes one by one."""
        assert self._layers is not None  # noqa: S101 - for the type checker
        calls: list[tuple[nn.Module, Tensor, Tensor]] = []

        def keep(layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
            calls.append((layer, inputs[0].detach(), output))

        hooks = [layer.register_forward_hook(keep) for layer in self._layers]
        try:
            loss = self._loss(self._model.module(x), y).sum()
        finally:
            for hook in hooks:
                hook.remove()
        kept = {layer: (inputs, output) for layer, inputs, output in calls}
        once = len(calls) == len(kept) == len(self._layers)
        if not once or any(len(seen) != len(x) for both in kept.values() for seen in both):
            self._layers = None
            return None
        moved = torch.autograd.grad(loss, [kept[layer][1] for layer in self._layers])
        with torch.no_grad():
            added = [
                _ADDED[_kind(layer)](layer, kept[layer][0], change)
                for layer, change in zip(self._layers, moved, strict=True)
            ]
            squared = torch.stack([one.squared for one in added]).sum(0)
            finite = torch.isfinite(squared)
            if not finite.all():
                # such records add nothing: they must not take the others' gradients along
                with torch.enable_grad():
                    return self._together(x[finite], y[finite], clip) if finite.any() else torch.zeros(())
            factors = _factor(squared.sqrt(), clip)
            for layer, one in zip(self._layers, added, strict=True):
                for parameter, gradient in zip(layer.parameters(recurse=False), one.total(factors), strict=True):
                    assert parameter.grad is not None  # noqa: S101 - a view of the flat gradient
                    parameter.grad.add_(gradient)
        return loss.detach()


def _squared(each: list[Tensor]) -> Tensor:
    """Return the squared norm of each sample's numbers.

    Squares of `BLOCK` numbers are added in float32, blocks in float64: eight times as fast as float64 throughout, and
    off by less than a part in 10^5 even if all roundings go the same way.
    """
    norms = []
    for flat in (numbers.flatten(1) for numbers in each):
        even = flat.shape[1] // BLOCK * BLOCK
        norms += [torch.linalg.vector_norm(flat[:, :even].reshape(len(flat), -1, BLOCK), dim=2)] if even else []
        norms += [torch.linalg.vector_norm(flat[:, even:], dim=1, keepdim=True)]
    return torch.cat(norms, 1).double().square().sum(1)


def _factor(norm: Tensor, clip: float) -> Tensor:
    """Return by what gradients of these norms are multiplied."""
    return (clip / norm.clamp(min=1e-30)).clamp(max=1.0).float()


@dataclass(frozen=True)
class _Added:
    """What one layer adds: the squared norm of each sample's gradient, and what gives the sum of these with factors."""

    squared: Tensor
    total: Callable[[Tensor], list[Tensor]]


def _written(each: list[Tensor]) -> _Added:
    """Take gradients that are written down for each sample: of layers with few parameters."""

    def total(factors: Tensor) -> list[Tensor]:
        return [(factors @ numbers.flatten(1)).view(numbers.shape[1:]) for numbers in each]

    return _Added(_squared(each), total)


def _linear(layer: Any, inputs: Tensor, change: Tensor) -> _Added:
    """Take the gradient of a weight as an outer product, whose norm is that of its factors multiplied."""
    bias = layer.bias is not None
    if change.dim() > 2:
        # several positions per sample: their gradients are added before the norm is taken
        weight = torch.einsum("bto,bti->boi", change.flatten(1, -2), inputs.flatten(1, -2))
        return _written([weight] + ([change.flatten(1, -2).sum(1)] if bias else []))

    def total(factors: Tensor) -> list[Tensor]:
        weighted = change * factors[:, None]
        return [weighted.t() @ inputs] + ([weighted.sum(0)] if bias else [])

    return _Added(_squared([change]) * (_squared([inputs]) + float(bias)), total)


def _convolution(layer: Any, inputs: Tensor, change: Tensor) -> _Added:
    seen = functional.unfold(inputs, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
    moved = change.flatten(2)
    weight = torch.bmm(moved, seen.transpose(1, 2)).view(len(inputs), *layer.weight.shape)
    return _written([weight] + ([moved.sum(2)] if layer.bias is not None else []))


def _group_norm(layer: Any, inputs: Tensor, change: Tensor) -> _Added:
    normal = functional.group_norm(inputs, layer.num_groups, eps=layer.eps)
    return _written([(change * normal).flatten(2).sum(2), change.flatten(2).sum(2)])


def _layer_norm(layer: Any, inputs: Tensor, change: Tensor) -> _Added:
    normal = functional.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)
    last = len(layer.normalized_shape)
    inner = tuple(range(1, change.dim() - last))
    parts = [change * normal] + ([change] if layer.bias is not None else [])
    return _written([part.sum(inner) if inner else part for part in parts])


_ADDED: dict[type[nn.Module], Callable[[Any, Tensor, Tensor], _Added]] = {
    nn.Linear: _linear,
    nn.Conv2d: _convolution,
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _layer_norm,
}
"""What a layer adds, from what it was given and how the loss changes with what it put out."""


def _kind(layer: nn.Module) -> type[nn.Module]:
    return nn.Conv2d if isinstance(layer, nn.Conv2d) else type(layer)


def _is_known(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Conv2d):
        return layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return type(layer) in _ADDED
