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


def build(name: str, shape: tuple[int, ...], classes: int, width: float = 1.0) -> nn.Module:
    """Return a new model; its initial parameters come from torch's global generator."""
    return builder(name)(shape, classes, width)


def builder(name: str) -> Builder:
    """Return the builder of that name; an unknown one is an error that names the nearest."""
    return find("securedfl.models", MODELS, name, None, "model")


def gru(shape: tuple[int, ...], classes: int, width: float) -> nn.Module:
    """Return the paper's network for Shakespeare: embedding of 100, GRU of 128, scores at every position."""
    if len(shape) != 1:
        raise ConfigError(f"the model 'gru' needs sequences of characters, not samples of shape {shape}")
    return CharacterGRU(classes, scaled(100, width), scaled(128, width), classes)


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


MODELS: Mapping[str, Builder] = MappingProxyType(
    {
        "cnn": images.cnn,
        "cnn-small": images.cnn_small,
        "gru": gru,
        "linear": linear,
        "mlp": mlp,
        "resnet18": images.resnet18,
        "resnet18-running": images.resnet18_running,
    }
)
"""Our own models. Other packages add theirs as entry points of ``securedfl.models`` that lead to a `Builder`."""
