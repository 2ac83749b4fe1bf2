"""Peers that count by a weight of their own: it travels behind the parameters, and masks cover it too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from securedfl.errors import InvalidInputError
from securedfl.parameters import Array

WEIGHT_NUMBERS, WEIGHT_STEPS = 2, 256
"""A weight travels as two numbers: in steps of a 256th, and the rest times 256; so 16 bits are enough for each."""

COARSEST = 1 / 32
"""The widest steps in which a weighted average may come, as a part of what the largest weight is sent as."""


def add_weights(
    vectors: Sequence[Array], weights: Iterable[float], max_weight: float | None = None, unit: float = 1.0
) -> list[Array]:
    """Turn each w into (a w, a), a = weight / max_weight, so that masks cover the weights too.

    ``unit`` is what the largest weight is sent as; see `weigh`.
    Raises `InvalidInputError` for weights that are negative, not finite, above the maximum or all zero.
    """
    numbers = _weights(weights)
    if len(numbers) != len(vectors):
        raise InvalidInputError(f"{len(numbers)} weights for {len(vectors)} peers; pass one per peer")
    bad = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
    if bad.size:
        raise InvalidInputError(f"the weight of peer {bad[0]} is negative or not finite")
    if not numbers.any():
        raise InvalidInputError("all weights are zero, so there is no average; give at least one peer a weight")
    largest = float(numbers.max())
    if max_weight is not None:
        with suppress(TypeError, ValueError, OverflowError):
            largest = float(max_weight)
        if largest != max_weight or not (np.isfinite(largest) and largest > 0):
            raise InvalidInputError(f"max_weight must be a positive finite number, not {max_weight!r}")
    above = np.flatnonzero(numbers > largest)
    if above.size:
        raise InvalidInputError(f"the weight of peer {above[0]} is above max_weight = {largest:g}")
    return [
        weigh(w * w.dtype.type(weight / largest), float(weight) / largest, unit)
        for w, weight in zip(vectors, numbers, strict=True)
    ]


def _weights(weights: Any) -> npt.NDArray[np.float64]:
    """Return weights as one array of numbers."""
    if not isinstance(weights, Mapping | str):
        with suppress(TypeError, ValueError):
            return np.array([float(weight) for weight in weights], dtype=np.float64)
    raise InvalidInputError("weights must be a list of numbers, one per peer")


def weigh(aw: Array, a: float, unit: float = 1.0) -> Array:
    """Return (a w, a) as one vector; a, between 0 and 1, as two numbers that are at most the unit."""
    whole, rest = divmod(a * WEIGHT_STEPS, 1.0)
    result = np.empty(len(aw) + WEIGHT_NUMBERS, dtype=aw.dtype)
    result[:-2] = aw
    result[-2:] = whole / WEIGHT_STEPS * unit, rest * unit
    return result


def remove_weight(mean: Array, unit: float = 1.0, step: float = 0.0) -> Array:
    """Turn the averages of (a w, a) into the weighted average of w.

    ``step`` is what numbers were rounded to before they were added. The weighted average comes in steps that are as
    many times larger as weights are smaller than the largest; it is refused where that leaves next to nothing of it.
    """
    weight = (float(mean[-2]) + float(mean[-1]) / WEIGHT_STEPS) / unit
    if not weight > (step / unit) / WEIGHT_STEPS:
        raise InvalidInputError(
            "the weights add up to zero, or to next to nothing beside max_weight, so there is no average; lower "
            "max_weight, or give at least one peer a weight"
        )
    if step > weight * unit * COARSEST:
        raise InvalidInputError(
            f"the weights are on average {weight:.1e} of max_weight, so that the average would come in steps of "
            f"{step / weight:.1e}; lower max_weight, or use more bits"
        )
    if weight < np.sqrt(np.finfo(mean.dtype).eps):
        raise InvalidInputError(
            f"the weights are on average {weight:.1e} of max_weight, too little for {mean.dtype} to give a quotient; "
            f"lower max_weight{', or average in float64' * (mean.dtype == np.float32)}"
        )
    return np.asarray(mean[:-2] / mean.dtype.type(weight))
