"""Updates that are differentially private for each record: Poisson batches, clipped gradients, noise in every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from securedfl.parameters import Array


class Chance(Protocol):
    """Where batches and noise come from: the operating system, or the seed of a simulation."""

    def batch(self, count: int, peer: int, round: int, step: int) -> npt.NDArray[np.bool_]:
        """Tell of each of so many records whether it is in the batch, each by a throw of its own."""

    def noisy(self, gradient: Array, peer: int, round: int, step: int) -> Array:
        """Return a sum of clipped gradients with noise."""


@dataclass(frozen=True, kw_only=True)
class PrivateSteps:
    """What differential privacy of records asks of training.

    Attributes
    ----------
    clip
        Largest norm of one record's gradient.
    steps
        Batches per round.
    scale
        Of distributed noise: a site brings minus this times its sum, a step of the common model; noise comes later.
    expected
        Of local noise: how many records a batch has on average, by which a noisy sum is divided.
    chance
        Where batches and noise come from.
    """

    clip: float
    steps: int = 1
    scale: float | None = None
    expected: float = 1.0
    chance: Chance
