"""Models by name; a builder gets the shape of a sample and the number of classes."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from securedfl.errors import ConfigError, unknown

Builder = Callable[[tuple[int, ...], int], nn.Module]
"""Returns a freshly initialised model that maps a batch to class scores along the last axis."""


def build(name: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a new model; its initial parameters come from torch's global generator."""
    return builder(name)(shape, classes)


def builder(name: str) -> Builder:
    """Return the builder of that name; an unknown one is an error that names the nearest."""
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    return MODELS[name]


def cnn_small(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 3x3 convolutions with 32 and 64 filters, each with 2x2 pooling, then 128 units and the classes.

    Every hidden layer is normalised: the initial average of n independently drawn models has weights that are
    sqrt(n) too small in every layer, and normalisation makes the model indifferent to that.
    """
    if len(shape) != 3 or min(shape[1:]) < 4:
        raise ConfigError(
            f"the model 'cnn-small' needs images of at least 4x4 pixels, not samples of shape {shape}"
        )
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=1),
        nn.GroupNorm(4, 32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.GroupNorm(4, 64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), 128),
        nn.LayerNorm(128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )


def linear(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Softmax regression: one matrix. The quickest thing that learns."""
    size = 1
    for length in shape:
        size *= length
    return nn.Sequential(nn.Flatten(), nn.Linear(size, classes))


MODELS: dict[str, Builder] = {"cnn-small": cnn_small, "linear": linear}
"""All models by name; add an entry to add a model."""
