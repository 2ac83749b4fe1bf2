"""Optimisers of the common model: what every peer does with an average, the same everywhere.

The change that an average makes to the model is taken as a step of an optimiser instead of as it is: FedAvgM, FedAdam
and FedYogi of Reddi et al., Adaptive Federated Optimization (Algorithm 2), and Nesterov's momentum as in DiLoCo.

The optimiser's state is part of what all peers hold and agree on: one vector, the model followed by its moments. So
whoever fetches the model after a crash, a lost disk or an absence has the state as well. All arithmetic is element by
element in operations that IEEE 754 rounds exactly, so it gives the same bits on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from securedfl.errors import ConfigError
from securedfl.parameters import Array, Schema

Kind = Literal["none", "momentum", "nesterov", "adam", "yogi"]


@dataclass(frozen=True, kw_only=True)
class CommonOptimizer:
    """How the common model moves after an average.

    Parameters
    ----------
    kind
        ``none`` takes the average as it is.
    learning_rate
        How much of a step is taken.
    momentum
        How much of the steps before remains (beta_1 of adam and yogi).
    adaptivity
        The tau of Reddi et al., which adam and yogi add to the denominator: small adapts much.
    buffers
        Parts of the model that are no trained parameters, such as running averages: they are averaged and nothing else.

    Examples
    --------
    >>> optimizer = CommonOptimizer(kind="momentum", learning_rate=1.0, momentum=0.5)
    >>> held = optimizer.step(None, np.array([1.0]))
    >>> held = optimizer.step(held, np.array([2.0]))
    >>> float(optimizer.model(held)[0])
    2.0
    >>> held = optimizer.step(held, np.array([2.0]))  # the average stands still, the momentum remains
    >>> float(optimizer.model(held)[0])
    2.5
    """

    kind: Kind = "none"
    learning_rate: float = 1.0
    momentum: float = 0.9
    adaptivity: float = 0.001
    buffers: tuple[slice, ...] = ()
    SECOND_MOMENT: ClassVar[float] = 0.99
    """The beta_2 of Reddi et al."""

    @property
    def moments(self) -> int:
        """How many vectors the state has besides the model."""
        return {"none": 0, "momentum": 1, "nesterov": 1}.get(self.kind, 2)

    def size(self, parameters: int) -> int:
        """Return the length of what all peers hold, for a model of so many parameters."""
        return parameters * (1 + self.moments)

    def model(self, held: Array) -> Array:
        """Return the model in what all peers hold."""
        return held[: len(held) // (1 + self.moments)]

    def step(self, held: Array | None, average: Array) -> Array:
        """Return what all peers hold after an average.

        Parameters
        ----------
        held
            What they held before; None if this is the first model.
        average
            The averaged model.
        """
        if self.kind == "none":
            return average
        result = np.zeros(self.size(len(average)), dtype=average.dtype)
        parts = result.reshape(1 + self.moments, len(average))
        if held is None:
            parts[0] = average
            parts[2:] = self.adaptivity**2
            return result
        w, *moments = held.reshape(parts.shape)
        parts[0] = w + self.learning_rate * self._step(average - w, moments, parts[1:])
        for buffer in self.buffers:
            parts[0, buffer], parts[1:, buffer] = average[buffer], 0
        return result

    def _step(self, change: Array, before: list[Array], after: Array) -> Array:
        """Return the step that a change makes, and write the moments after it."""
        step: Array
        if self.kind in ("momentum", "nesterov"):
            after[0] = self.momentum * before[0] + change
            step = after[0] if self.kind == "momentum" else change + self.momentum * after[0]
            return step
        squared = np.square(change)
        if self.kind == "adam":
            after[1] = self.SECOND_MOMENT * before[1] + (1 - self.SECOND_MOMENT) * squared
        else:
            after[1] = before[1] - (1 - self.SECOND_MOMENT) * squared * np.sign(before[1] - squared)
        after[0] = self.momentum * before[0] + (1 - self.momentum) * change
        step = after[0] / (np.sqrt(after[1]) + self.adaptivity)
        return step


NO_OPTIMIZER = CommonOptimizer()
"""Takes averages as they are."""

RATES: Mapping[Kind, float] = {"none": 1.0, "momentum": 1.0, "nesterov": 0.7, "adam": 0.01, "yogi": 0.01}
"""Learning rates to begin with: FedAvgM's, DiLoCo's, and a careful one for those that adapt."""


def check_common(kind: Kind, given: Mapping[str, Any]) -> None:
    """Refuse settings that the optimiser does not take: they would do nothing, and say nothing."""
    taken = {"none": 0, "momentum": 2, "nesterov": 2}.get(kind, 3)
    for key in list(given)[taken:]:
        if given[key] is not None:
            raise ConfigError(f"{key} is set, but common_optimizer = {kind!r} takes none; leave it away")


def buffers_of(schema: Schema, model: Any) -> tuple[slice, ...]:
    """Return where the buffers of a torch module lie in the flat vector; a dict of arrays has none."""
    names = {name for name, _ in model.named_buffers()} if hasattr(model, "named_buffers") else set()
    found, at = [], 0
    for leaf in schema.leaves:
        if leaf.name in names or leaf.integer:
            found.append(slice(at, at + leaf.size))
        at += leaf.size
    return tuple(found)
