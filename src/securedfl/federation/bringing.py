"""What a site brings to an average, and what it makes of the result: differences, range, weights, rounding.

From round 1 on all peers hold the same model w^{r-1}, so they average by how much each has moved it. Differences are
small: they fit a narrow range, and into 16 bits. Those are rounded at random, up or down, so that the error is zero on
average, and what was rounded off is kept at the site and added in the next round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from securedfl.errors import ConfigError
from securedfl.federation.budget.protection import Keys, protect
from securedfl.parameters import Array
from securedfl.privacy.budget.plan import Plan
from securedfl.protocols.protocol import Averaging
from securedfl.protocols.randomness import secret_uniform
from securedfl.protocols.steps import Draw
from securedfl.weights import WEIGHT_STEPS, remove_weight, weigh

Beyond = Literal["error", "clip"]
"""What happens to differences beyond the range."""

RANDOMLY_ROUNDED = 16
"""Bits with which rounding is random; with more, its error is far below that of training."""


@dataclass(frozen=True)
class Brought:
    """What a site brings: the ``vector`` that is averaged, with ``clipped`` values that were cut to the range.

    ``residual`` is what was rounded off, to be added in the next round; None if nothing is kept.
    """

    vector: Array
    residual: Array | None = None
    clipped: int = 0


@dataclass(frozen=True, kw_only=True)
class Bringing:
    """How sites bring their parameters to the average of a round; the same at all sites.

    Parameters
    ----------
    averaging, dtype
        What the round is averaged by, and the dtype of the parameters.
    weighted
        Whether each peer counts by a weight of its own.
    beyond
        What happens to values beyond the range.
    plan
        Of differential privacy, if what is brought must be clipped and get noise.
    """

    averaging: Averaging
    dtype: str
    weighted: bool = False
    beyond: Beyond = "error"
    plan: Plan | None = None

    def __post_init__(self) -> None:
        if self.weighted and self.step * WEIGHT_STEPS > self.unit:
            raise ConfigError(
                f"{self._bits} bits are too few for the weights of {self.averaging.n} peers; use more bits"
            )

    def __call__(
        self,
        w: Array,
        base: Array | None,
        *,
        draw: Draw,
        weight: float = 1.0,
        residual: Array | None = None,
        keys: Keys = secret_uniform.seed,
    ) -> Brought:
        """Return what a site brings.

        Parameters
        ----------
        w, base
            The site's parameters, and the model that it trained from; None brings the parameters themselves.
        draw
            Where random rounding comes from.
        weight
            How much this site counts, as a part of the largest weight; between 0 and 1.
        residual
            What was rounded off in the round before.
        keys
            Where the noise of differential privacy comes from: the operating system, unless a simulation says else.
        """
        if self.plan is not None and base is not None:
            # no residual: what was rounded off would tell about this round's data in the next one, unaccounted
            vector, clipped = protect(w if self.plan.brings_steps else w - base, self.plan, keys)
            return Brought(vector, None, clipped)
        vector = w.copy() if base is None else w - base
        limit = self._limit
        clipped = 0
        if limit is not None and self.beyond == "clip":
            clipped = int(np.count_nonzero(np.abs(vector) > limit))
            np.clip(vector, -limit, limit, out=vector)
        if self.weighted:
            vector *= vector.dtype.type(weight)
        left = None
        if limit is not None and base is not None and self._bits == RANDOMLY_ROUNDED:
            vector, left = _rounded(vector, residual, limit, self.step, draw)
        return Brought(weigh(vector, weight, self.unit) if self.weighted else vector, left, clipped)

    def check(self, vector: Array) -> None:
        """Raise `UnencodableError` for what cannot travel, before anything is kept or sent."""
        codec = self.averaging.codec
        if codec is not None:
            codec.encode(vector, self.averaging.n)

    def model(self, mean: Array, base: Array | None) -> Array:
        """Return what all peers hold after the average: the model moved by the mean difference."""
        if self.weighted:
            mean = remove_weight(mean, self.unit, self.step)
        return mean if base is None else base + mean

    @property
    def unit(self) -> float:
        """What the largest weight is sent as: one, or what the range allows."""
        return 1.0 if self._limit is None else min(1.0, self._limit)

    @property
    def _limit(self) -> float | None:
        """The largest number of the parameters' dtype within the range; None without a range."""
        codec = self.averaging.codec
        if codec is None:
            return None
        limit = codec.limit(self._bits)
        nearest = np.dtype(self.dtype).type(limit)
        # compared as Python's floats: numpy would round the limit first
        return float(nearest if float(nearest) <= limit else np.nextafter(nearest, nearest.dtype.type(0)))

    @property
    def _bits(self) -> int:
        codec = self.averaging.codec
        return 0 if codec is None else codec.width(np.empty(0, dtype=self.dtype))

    @property
    def step(self) -> float:
        """The step in which numbers travel; 0 where there is none."""
        codec = self.averaging.codec
        return 0.0 if codec is None else codec.step(np.empty(0, dtype=self.dtype), self.averaging.n)


def _rounded(vector: Array, residual: Array | None, limit: float, step: float, draw: Draw) -> tuple[Array, Array]:
    """Return the vector in steps, up or down at random so that the mean is right, and what was rounded off."""
    # what is beyond the range stays so, and is an error later
    inside = np.abs(vector) <= limit
    wanted = vector if residual is None else vector + residual
    rounded = np.floor(wanted / step + draw(wanted))
    rounded *= step
    most = np.floor(limit / step) * step
    np.clip(rounded, -most, most, out=rounded, where=inside)
    return rounded, wanted - rounded
