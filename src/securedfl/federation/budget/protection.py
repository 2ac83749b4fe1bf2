"""What a site does to what it brings, so that the total is differentially private: clip, whole numbers, noise."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import numpy as np

from securedfl.parameters import Array
from securedfl.privacy.budget.plan import Plan
from securedfl.protocols.noise import skellam
from securedfl.protocols.randomness import keystream, ring

Keys = Callable[[], bytes]
"""Gives a fresh 32-byte key: of the operating system or, in simulations, of a seed."""

_log = logging.getLogger("securedfl")
_BLOCK = 1 << 16


def protect(vector: Array, plan: Plan, keys: Keys) -> tuple[Array, int]:
    """Return what a site may bring: its difference clipped, rounded to the grid, with its part of the noise.

    The number is that of values that were cut. What is not finite is replaced by zeros, for an error would tell the
    others about the data.
    """
    steps, clipped = whole_steps(vector, plan, keys)
    if plan.noise != "central":
        steps += skellam(plan.variance)(len(steps), keys())
    steps *= plan.grid
    return steps.astype(vector.dtype), clipped


def with_central_noise(mean: Array, plan: Plan, keys: Keys) -> Array:
    """Return the mean with the Gaussian noise of a server that all trust, if the plan compares with one.

    For simulations only: floats of numpy's generator are no protection, only the right amount of noise.
    """
    if plan.noise != "central":
        return mean
    random = np.random.default_rng(list(keys()))
    deviation = plan.noise_multiplier * plan.clip * plan.scale / plan.peers
    return (mean + deviation * random.standard_normal(len(mean))).astype(mean.dtype)


def whole_steps(vector: Array, plan: Plan, keys: Keys) -> tuple[Array, int]:
    """Return the clipped vector in whole grid steps as float64, without noise, and how many values were cut."""
    if not np.isfinite(vector).all():
        _log.warning("the update of this site is not finite; it brings nothing but noise")
        return np.zeros(len(vector)), 0
    if plan.unit == "site":
        return site_steps(vector, plan.clip_steps, plan.grid)
    reach = float(math.floor(plan.reach))
    scaled = vector.astype(np.float64)
    scaled /= plan.grid
    clipped = int(np.count_nonzero(np.abs(scaled) > reach))
    if clipped:
        np.clip(scaled, -reach, reach, out=scaled)
    return rounded(scaled, keys()), clipped


def site_steps(vector: Array, most: float, grid: float) -> tuple[Array, int]:
    """Return the vector in whole steps with an L2 norm of at most ``most``, checked on the whole numbers themselves."""
    exact = vector.astype(np.float64)
    with np.errstate(over="ignore"):
        exact /= grid
    if not np.isfinite(exact).all():
        return np.zeros(len(exact)), 1
    norm = math.sqrt(float(exact @ exact))
    factor = min(1.0, most / norm) if norm else 1.0
    less = 2.0**-20
    while True:
        steps = np.rint(exact * factor)
        # whole numbers far below 2^53: the sum of squares is exact up to a part in 2^50
        if float(steps @ steps) <= most**2 * (1 - 2.0**-40):
            return steps, int(norm > most)
        # rounding made it longer: shorten it, at first by very little, then by more
        factor *= 1 - less
        less = min(0.5, 2 * less)


def rounded(values: Array, key: bytes) -> Array:
    """Round in place, up or down at random so that the mean is right; the key decides."""
    for start in range(0, len(values), _BLOCK):
        block = values[start : start + _BLOCK]
        uniform = ring(keystream(key, 4 * len(block), start=4 * start), "<u4").astype(np.float64)
        uniform *= 2.0**-32
        block += uniform
        np.floor(block, out=block)
    return values
