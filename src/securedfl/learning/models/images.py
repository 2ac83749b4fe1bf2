"""Convolutional networks: a small one, and those of the paper, laid out for speed on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from securedfl.errors import ConfigError

SMALLEST_RESNET = 9
"""Smaller images are one pixel in the last stage, which cannot be normalised in a batch of one sample."""

Normalise = Callable[[int], nn.Module]
"""Returns a normalisation layer for so many channels."""


class Convolution(nn.Conv2d):
    """A convolution that keeps the channels of a pixel side by side: twice as fast on a CPU, same parameters."""

    def forward(self, x: Tensor) -> Tensor:
        """Convolve a batch; input and weights are laid out anew where they are not yet.

        A kernel of one pixel with a stride sees only every so many pixels. They are picked here, because oneDNN's
        gradient of such a layer writes outside its memory on processors without AVX-512 (torch 2.13).
        """
        weight = self.weight.to(memory_format=torch.channels_last)
        result: Tensor
        if self.kernel_size == (1, 1) and self.stride != (1, 1) and self.padding == (0, 0):
            seen = x[:, :, :: self.stride[0], :: self.stride[1]].contiguous(memory_format=torch.channels_last)
            result = functional.conv2d(seen, weight, self.bias, groups=self.groups)
        else:
            result = self._conv_forward(x.to(memory_format=torch.channels_last), weight, self.bias)
        return result


def cnn_small(shape: tuple[int, ...], classes: int, width: float) -> nn.Module:
    """Two 3x3 convolutions with 32 and 64 filters, each with 2x2 pooling, then 128 units and the classes.

    Every hidden layer is normalised: the initial average of n independently drawn models has weights that are
    sqrt(n) too small in every layer, and normalisation makes the model indifferent to that.
    """
    channels, rows, columns = _image("cnn-small", shape, 4)
    groups = 4
    first, second = (groups * scaled(size // groups, width) for size in (32, 64))
    hidden = scaled(128, width)
    return nn.Sequential(
        nn.Conv2d(channels, first, 3, padding=1),
        nn.GroupNorm(groups, first),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, 3, padding=1),
        nn.GroupNorm(groups, second),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(second * (rows // 4) * (columns // 4), hidden),
        nn.LayerNorm(hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )


def cnn(shape: tuple[int, ...], classes: int, width: float) -> nn.Module:
    """Return the paper's network for FEMNIST.

    5x5 and 2x2 convolutions with 32 and 64 filters, each with 2x2 pooling, 512 units, and the classes. Pooling before
    the ReLU gives the same numbers as after it, in less time.
    """
    channels, *sides = _image("cnn", shape, 10)
    first, second, hidden = (scaled(size, width) for size in (32, 64, 512))
    rows, columns = (((length - 4) // 2 - 1) // 2 for length in sides)
    return nn.Sequential(
        Convolution(channels, first, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        Convolution(first, second, 2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(second * rows * columns, hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )


def resnet18(shape: tuple[int, ...], classes: int, width: float) -> nn.Module:
    """Return ResNet-18 normalised by the statistics of the batch at hand, also in testing, as the authors did."""
    channels, *_ = _image("resnet18", shape, SMALLEST_RESNET)
    return ResNet18(channels, classes, width, partial(nn.BatchNorm2d, track_running_stats=False))


def resnet18_running(shape: tuple[int, ...], classes: int, width: float) -> nn.Module:
    """Return ResNet-18 with running averages for testing; part of the model, they are averaged over peers too."""
    channels, *_ = _image("resnet18-running", shape, SMALLEST_RESNET)
    return ResNet18(channels, classes, width, nn.BatchNorm2d)


def _image(name: str, shape: tuple[int, ...], least: int) -> tuple[int, int, int]:
    """Return channels, height and width of an image that is large enough."""
    if len(shape) != 3 or min(shape[1:]) < least:
        raise ConfigError(
            f"the model {name!r} needs images of at least {least}x{least} pixels, not samples of shape {shape}"
        )
    channels, height, width = shape
    return channels, height, width


class ResNet18(nn.Module):
    """ResNet-18 for small images: a 3x3 stem without pooling, four stages of two residual blocks, 11.2 M parameters.

    Parameters
    ----------
    channels, classes
        Of the images.
    width
        Scale of the number of filters.
    normalise
        The kind of normalisation.
    """

    def __init__(self, channels: int, classes: int, width: float, normalise: Normalise) -> None:
        super().__init__()
        widths = [scaled(size, width) for size in (64, 128, 256, 512)]
        self.stem = nn.Sequential(
            Convolution(channels, widths[0], 3, padding=1, bias=False), normalise(widths[0]), nn.ReLU()
        )
        blocks, before = [], widths[0]
        for stage, after in enumerate(widths):
            blocks += [
                _Block(before, after, 1 if stage == 0 else 2, normalise),
                _Block(after, after, 1, normalise),
            ]
            before = after
        self.blocks = nn.Sequential(*blocks)
        self.scores = nn.Linear(before, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map a batch of images to class scores."""
        scores: Tensor = self.scores(self.blocks(self.stem(x)).mean((2, 3)))
        return scores


class _Block(nn.Module):
    def __init__(self, before: int, after: int, stride: int, normalise: Normalise) -> None:
        super().__init__()
        self.body = nn.Sequential(
            Convolution(before, after, 3, stride=stride, padding=1, bias=False),
            normalise(after),
            nn.ReLU(),
            Convolution(after, after, 3, padding=1, bias=False),
            normalise(after),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(Convolution(before, after, 1, stride=stride, bias=False), normalise(after))

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.shortcut(x))


def scaled(size: int, width: float) -> int:
    """Return how many units a layer of that size has in a model scaled to a width, at least 1."""
    return max(1, round(size * width))
