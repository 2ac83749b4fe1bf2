"""Rényi divergences of integer noise: of Skellam noise, and of what is drawn with Poisson batches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Curve = npt.NDArray[np.float64]
"""Rényi divergences at `ORDERS`."""

HIGHEST = 1024
ORDERS = np.array([*range(2, 64), *range(64, 128, 4), *range(128, 256, 16), *range(256, HIGHEST + 1, 64)])
"""Whole numbers, for which the divergences of Poisson batches are finite sums."""


@dataclass(frozen=True)
class Shift:
    """By how much one record or site can move the total, in grid steps: the largest L1 and L2 norm."""

    l1: float
    l2: float

    @classmethod
    def whole(cls, l2: float, size: int) -> Shift:
        """Return the shift by a vector of so many whole numbers, of which the L2 norm is known."""
        # |x| <= x^2 for whole numbers, and Cauchy-Schwarz
        return cls(min(l2**2, math.sqrt(size) * l2), l2)

    @classmethod
    def rounded(cls, l2: float, size: int, failure: float) -> Shift:
        """Return the shift of a sum that is rounded to whole numbers at random, up or down, with the right mean.

        Rounding S and S + x with the same random numbers gives whole numbers that differ by x + e, where the e_j are
        independent, have mean 0 and lie in an interval of length 1. By Hoeffding's inequality, with probability
        1 - failure, |x + e|^2 <= |x|^2 + |x| sqrt(2 L) + size / 4 + sqrt(size L / 2), with L = log(2 / failure).
        """
        rare = math.log(2 / failure)
        squared = l2**2 + l2 * math.sqrt(2 * rare) + size / 4 + math.sqrt(size * rare / 2)
        return cls.whole(min(math.sqrt(squared), l2 + math.sqrt(size)), size)


def divergences(variance: float, shift: Shift) -> Curve:
    """Return the Rényi divergences of Skellam noise at all whole orders from 2 to `HIGHEST`.

    Agarwal, Kairouz and Liu, "The Skellam Mechanism for Differentially Private Federated Learning" (2021), theorem
    3.5. The variance is that of each number of the total.
    """
    order = np.arange(2, HIGHEST + 1, dtype=np.float64)
    gaussian = order * shift.l2**2 / (2 * variance)
    more = ((2 * order - 1) * shift.l2**2 + 6 * shift.l1) / (4 * variance**2)
    result: Curve = gaussian + np.minimum(more, 3 * shift.l1 / (2 * variance))
    return result


def gaussian(noise_multiplier: float) -> Curve:
    """Return the same for Gaussian noise, as a trusted server would add it: what the others are compared with."""
    result: Curve = np.arange(2, HIGHEST + 1) / (2 * noise_multiplier**2)
    return result


def sampled(divergence: Curve, rate: float) -> Curve:
    """Return the divergences at `ORDERS` where each record is in the batch with a probability of its own.

    With a batch that leaves the record out the total is Q, else P, which is Q moved by a fixed vector; noise is
    symmetric, so that mirroring exchanges P and Q. Then D((1 - q) Q + q P || Q) is the larger of both directions
    (Mironov, Talwar and Zhang, "Rényi Differential Privacy of the Sampled Gaussian Mechanism" (2019), theorem 5), and
    at a whole order a it is log(sum over k of C(a, k) (1 - q)^(a - k) q^k exp((k - 1) D_k(P || Q))) / (a - 1).
    """
    if rate >= 1:
        whole: Curve = divergence[ORDERS - 2]
        return whole
    k = np.arange(HIGHEST + 1)
    moments = np.zeros(HIGHEST + 1)
    moments[2:] = (k[2:] - 1) * divergence
    found = np.empty(len(ORDERS))
    for place, order in enumerate(ORDERS.tolist()):
        terms = _log_binomials(order) + moments[: order + 1]
        terms += (order - k[: order + 1]) * math.log1p(-rate) + k[: order + 1] * math.log(rate)
        largest = float(terms.max())
        found[place] = max(0.0, (largest + math.log(float(np.exp(terms - largest).sum()))) / (order - 1))
    return found


@lru_cache(maxsize=256)
def _log_binomials(order: int) -> Curve:
    found: Curve = np.array(
        [math.lgamma(order + 1) - math.lgamma(k + 1) - math.lgamma(order - k + 1) for k in range(order + 1)]
    )
    return found
