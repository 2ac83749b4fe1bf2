"""The optimisers that peers train with, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from securedfl.errors import unknown
from securedfl.learning.training.task import TrainingOptions

OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "rmsprop": torch.optim.RMSprop,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}


def make_optimizer(trained: torch.nn.Parameter, options: TrainingOptions) -> torch.optim.Optimizer:
    """Return a new optimiser of one long parameter; an unknown name is an error that names the nearest."""
    o = options
    if o.optimizer not in OPTIMIZERS:
        raise unknown("optimizer", o.optimizer, OPTIMIZERS)
    momentum = {} if o.optimizer in ("adam", "adamw") else {"momentum": o.momentum}
    # one long parameter: the multi-tensor variants would only add overhead
    return OPTIMIZERS[o.optimizer](
        [trained], lr=o.learning_rate, weight_decay=o.weight_decay, foreach=False, **momentum
    )
