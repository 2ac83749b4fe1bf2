"""Models by name; a builder gets the shape of a sample, the number of classes and a scale of layer widths."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from torch import nn

from securedfl.errors import ConfigError
from securedfl.learning.models import images
from securedfl.learning.models.characters import CharacterGRU
from securedfl.learning.models.images import scaled
from securedfl.plugins import find

Builder = Callable[[tuple[int, ...], int, float], nn.Module]
"""Returns a freshly initialised model that maps a batch to class scores along the last axis."""

SMALLEST_RESNET = 9
"""Smaller images are one pixel in the last stage, which cannot be normalised in a batch of one sample."""


def build(name: str, shape: tuple[int, ...], classes: int, width: float = 1.0) -> nn.Module:
    """Return a new model; its initial parameters come from torch's global generator."""
    return builder(name)(shape, classes, width)


def builder(name: str) -> Builder:
    """Return the builder of that name; an unknown one is an error that names the nearest."""
    return find("securedfl.models", MODELS, name, None, "model")


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
    """Return the paper's network for FEMNIST."""
    channels, rows, columns = _image("cnn", shape, 10)
    return images.cnn(channels, rows, columns, classes, width)


def gru(shape: tuple[int, ...], classes: int, width: float) -> nn.Module:
    """Return the paper's network for Shakespeare: embedding of 100, GRU of 128, scores at every position."""
    if len(shape) != 1:
        raise ConfigError(f"the model 'gru' needs sequences of characters, not samples of shape {shape}")
    return CharacterGRU(classes, scaled(100, width), scaled(128, width), classes)


def resnet18(shape: tuple[int, ...], classes: int, width: float) -> nn.Module:
    """Return ResNet-18 normalised by the statistics of the batch at hand, as in the authors' experiments."""
    return images.ResNet18(_image("resnet18", shape, SMALLEST_RESNET)[0], classes, width, images.BATCH)


def resnet18_running(shape: tuple[int, ...], classes: int, width: float) -> nn.Module:
    """Return ResNet-18 with running averages, which are averaged over peers too."""
    channels = _image("resnet18-running", shape, SMALLEST_RESNET)[0]
    return images.ResNet18(channels, classes, width, images.RUNNING)


def linear(shape: tuple[int, ...], classes: int, width: float) -> nn.Module:
    """Softmax regression: one matrix. The quickest thing that learns."""
    del width
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))


def mlp(shape: tuple[int, ...], classes: int, width: float) -> nn.Module:
    """Two hidden layers of 64 units, normalised; for tables."""
    hidden = scaled(64, width)
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(shape), hidden),
        nn.LayerNorm(hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.LayerNorm(hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )


def _image(name: str, shape: tuple[int, ...], least: int) -> tuple[int, int, int]:
    """Return channels, height and width of an image that is large enough."""
    if len(shape) != 3 or min(shape[1:]) < least:
        raise ConfigError(
            f"the model {name!r} needs images of at least {least}x{least} pixels, not samples of shape {shape}"
        )
    channels, height, width = shape
    return channels, height, width


MODELS: Mapping[str, Builder] = MappingProxyType(
    {
        "cnn": cnn,
        "cnn-small": cnn_small,
        "gru": gru,
        "linear": linear,
        "mlp": mlp,
        "resnet18": resnet18,
        "resnet18-running": resnet18_running,
    }
)
"""Our own models. Other packages add theirs as entry points of ``securedfl.models`` that lead to a `Builder`."""
