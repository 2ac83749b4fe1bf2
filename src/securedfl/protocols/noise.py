"""Integer noise for differential privacy: exact Skellam numbers from a cryptographic stream, fast enough for models.

Skellam(v) is the difference of two Poisson numbers of mean v/2 each: an integer of mean 0 and variance v, and the sum
of n independent ones is Skellam(n v). So the noise of the total is known from the noise of its parts, in whole numbers.

Numbers come from tables over uniform words. A first table of 2^18 equal cells holds each value as often as its
probability fills whole cells; what is left over is drawn by Walker's alias method over words of 128 bits. No float is
drawn or compared, so there is nothing that a rounding error could tell. What differs from the true distribution is the
tail that is cut off and the rounding of the probabilities themselves; `distance` bounds both.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from securedfl.errors import ConfigError
from securedfl.protocols.randomness import keystream, ring
from securedfl.protocols.steps import Array

CELL_BITS = 18
"""Of the first table: 1 MiB, which stays in the cache of a core."""

TAIL = 2.0**-96
"""Probability that is cut off on both sides together, at most."""

UNIT = 192
"""Bits of the probabilities, which are whole numbers of 2^-192."""

ERROR = 2.0**-100
"""How far all probabilities of the tables together are from the true ones, but for the tail: 128 bits decide."""

QUICK_VARIANCE, MOST_VARIANCE = 2.0**25, 2.0**32
"""Up to which tables are quick to make and to draw from, and up to which they are made at all."""

_BLOCK = 1 << 15
_LEFT = np.iinfo(np.int32).max  # marks the cells of the first table that belong to the second


@dataclass(frozen=True, eq=False)
class Skellam:
    """Draws Skellam numbers of one variance; made by `skellam`.

    Attributes
    ----------
    variance
        Of a number.
    bound
        The largest absolute value that is ever drawn.
    left
        The part of the draws that needs the second table.
    """

    variance: float
    bound: int
    left: float
    _cells: npt.NDArray[np.int32]
    _values: npt.NDArray[np.int32]
    _others: npt.NDArray[np.int32]
    _high: npt.NDArray[np.uint64]
    _low: npt.NDArray[np.uint64]

    def __call__(self, size: int, key: bytes) -> npt.NDArray[np.int32]:
        """Return so many numbers, which the 32-byte key determines; use a key once, and keep it secret."""
        result = np.empty(size, dtype=np.int32)
        index = np.empty(min(size, _BLOCK), dtype=np.intp)
        # the second table reads the same stream, far behind the words of the first
        more = -(-4 * size // 16) * 16
        for start in range(0, size, _BLOCK):
            block = result[start : start + _BLOCK]
            words = ring(keystream(key, 4 * len(block), start=4 * start), "<u4")
            places = index[: len(block)]
            np.right_shift(words, 32 - CELL_BITS, out=places, casting="unsafe")
            np.take(self._cells, places, out=block, mode="clip")
            left = np.flatnonzero(block == _LEFT)
            if len(left):
                block[left] = self._second(ring(keystream(key, 16 * len(left), start=more), "<u8"))
                more += 16 * len(left)
        return result

    def _second(self, words: Array) -> npt.NDArray[np.int32]:
        """Return a number for every two words: Walker's alias method with 128 bits."""
        high, low = words[::2], words[1::2]
        bits = len(self._values).bit_length() - 1
        slot = (high >> np.uint64(64 - bits)).astype(np.intp)
        rest = high & np.uint64(2 ** (64 - bits) - 1)
        limit = self._high[slot]
        own = (rest < limit) | ((rest == limit) & (low < self._low[slot]))
        return np.where(own, self._values[slot], self._others[slot])


def distance(draws: float) -> float:
    """Bound the total variation distance of so many draws from as many true Skellam numbers.

    Each draw counts: with the tail, whose probability goes to the other values, and the tables' rounding.
    """
    return draws * (2 * TAIL + ERROR)


@lru_cache(maxsize=8)
def skellam(variance: float) -> Skellam:
    """Return what draws Skellam numbers of a variance; its tables are made once."""
    if not 0 < variance <= MOST_VARIANCE:
        raise ConfigError(
            f"Skellam noise has a variance above 0 and up to {MOST_VARIANCE:g} grid steps squared, not {variance:g}"
        )
    bound = bound_of(variance)
    half = probabilities(variance, bound)
    values = np.arange(-bound, bound + 1, dtype=np.int32)
    every, cell = [*half[:0:-1], *half], UNIT - CELL_BITS
    cells = np.full(2**CELL_BITS, _LEFT, dtype=np.int32)
    filled = np.repeat(values, [weight >> cell for weight in every])
    cells[: len(filled)] = filled
    own, others, limits = _alias([weight & ((1 << cell) - 1) for weight in every], values)
    return Skellam(
        variance,
        bound,
        1 - len(filled) / 2**CELL_BITS,
        cells,
        own,
        others,
        np.array([limit >> 64 for limit in limits], dtype=np.uint64),
        np.array([limit & (2**64 - 1) for limit in limits], dtype=np.uint64),
    )


def bound_of(variance: float) -> int:
    """Return the smallest t for which Chernoff's bound of P(|X| > t) is below `TAIL`."""

    def tail(t: float) -> float:
        # log E exp(s X) = v (cosh s - 1), smallest at s = asinh(t / v)
        return variance * (math.sqrt(1 + (t / variance) ** 2) - 1) - t * math.asinh(t / variance) + math.log(2)

    return 1 + bisect_left(range(1, 2**62), True, key=lambda t: tail(t) <= math.log(TAIL))


def probabilities(variance: float, bound: int) -> list[int]:
    """Return P(X = k) = exp(-v) I_k(v) for k = 0 to the bound, in units of 2^-`UNIT`, rounded down.

    Miller's algorithm in whole numbers: the ratios I_k / I_{k-1} = v / (2 k + v I_{k+1} / I_k) are stable downwards,
    and the sum over all k is 1. Far beyond the bound the ratio does not matter any more.
    """
    ratios, ratio = [0] * (bound + 1), 0
    numerator, denominator = variance.as_integer_ratio()
    scaled = (numerator << UNIT) // denominator
    for k in range(bound + max(40, bound // 3), 0, -1):
        ratio = (scaled << UNIT) // ((2 * k << UNIT) + (scaled * ratio >> UNIT))
        if k <= bound:
            ratios[k] = ratio
    weights = [1 << UNIT]
    for ratio in ratios[1:]:
        weights.append(weights[-1] * ratio >> UNIT)
    total = weights[0] + 2 * sum(weights[1:])
    return [(weight << UNIT) // total for weight in weights]


def _alias(
    weights: list[int], values: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], list[int]]:
    """Return the tables of Walker's alias method, in whole numbers: slots of 2^128 / K each."""
    bits = max(1, (len(weights) - 1).bit_length())
    slots, size = 1 << bits, 1 << (128 - bits)
    total = max(1, sum(weights))
    shares = [(weight << 128) // total for weight in weights] + [0] * (slots - len(weights))
    largest = max(range(slots), key=shares.__getitem__)
    shares[largest] += (1 << 128) - sum(shares)
    other = list(range(slots))
    small = [k for k in range(slots) if shares[k] < size]
    large = [k for k in range(slots) if shares[k] >= size]
    while small and large:
        less, more = small.pop(), large[-1]
        other[less] = more
        shares[more] -= size - shares[less]
        if shares[more] < size:
            small.append(large.pop())
    padded = np.zeros(slots, dtype=np.int32)
    padded[: len(values)] = values
    return padded, padded[np.array(other)], [min(share, size) for share in shares]
